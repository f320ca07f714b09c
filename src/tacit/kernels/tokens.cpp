// Fingerprints of tokens: 64 bits that stand for a field's value. `reference.py` says the same in NumPy.
//
// Public and fixed, with no secret in it: a fingerprint hides nothing, it only spreads values evenly.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace nb = nanobind;

namespace {

template <class T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Out = nb::ndarray<std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

#if defined(__BYTE_ORDER__)
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are read as little-endian");
#endif

// One step of SplitMix: every bit of the state and of the word moves every bit of the result. Anything cheaper lets
// a change of one word cancel against a change of the next, and ids that differ in two or three places do collide.
inline std::uint64_t absorb(std::uint64_t state, std::uint64_t word) {
    state = (state ^ word) + 0x9E3779B97F4A7C15u;
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
    state = (state ^ (state >> 27)) * 0x94D049BB133111EBu;
    return state ^ (state >> 31);
}

inline std::uint64_t fingerprint(const std::uint8_t* text, std::size_t length, std::uint64_t seed) {
    std::uint64_t state = absorb(seed, length);
    for (; length >= 8; text += 8, length -= 8) {
        std::uint64_t word;
        std::memcpy(&word, text, 8);
        state = absorb(state, word);
    }
    if (length) {
        std::uint64_t word = 0;
        std::memcpy(&word, text, length);
        state = absorb(state, word);
    }
    return state;
}

// offsets[i] .. offsets[i + 1] is the i-th text within data.
void text_fingerprints(In<std::int32_t> offsets, In<std::uint8_t> data, std::uint64_t seed, Out out) {
    const std::size_t rows = out.shape(0);
    if (offsets.shape(0) != rows + 1) throw std::invalid_argument("expected one offset more than texts");
    const std::int32_t* at = offsets.data();
    const std::int64_t size = static_cast<std::int64_t>(data.shape(0));
    for (std::size_t row = 0; row < rows; ++row)
        if (at[row] < 0 || at[row + 1] < at[row] || at[row + 1] > size)
            throw std::invalid_argument("expected rising offsets within the data");
    const std::uint8_t* bytes = data.data();
    std::uint64_t* target = out.data();
    nb::gil_scoped_release free;
    for (std::size_t row = 0; row < rows; ++row)
        target[row] = fingerprint(bytes + at[row], static_cast<std::size_t>(at[row + 1] - at[row]), seed);
}

// A whole number is the text of its decimal digits, so that it does not matter how a file stores it.
void whole_fingerprints(In<std::int64_t> values, std::uint64_t seed, Out out) {
    const std::size_t rows = out.shape(0);
    if (values.shape(0) != rows) throw std::invalid_argument("expected as many values as fingerprints");
    const std::int64_t* whole = values.data();
    std::uint64_t* target = out.data();
    nb::gil_scoped_release free;
    for (std::size_t row = 0; row < rows; ++row) {
        const std::int64_t value = whole[row];
        std::uint64_t rest = value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
        std::uint8_t digits[20];
        std::size_t first = 20;
        do {
            digits[--first] = static_cast<std::uint8_t>('0' + rest % 10);
            rest /= 10;
        } while (rest);
        if (value < 0) digits[--first] = '-';
        target[row] = fingerprint(digits + first, 20 - first, seed);
    }
}

}  // namespace

NB_MODULE(_tokens, module) {
    module.def("text_fingerprints", &text_fingerprints, nb::arg("offsets").noconvert(), nb::arg("data").noconvert(),
               nb::arg("seed"), nb::arg("out").noconvert());
    module.def("whole_fingerprints", &whole_fingerprints, nb::arg("values").noconvert(), nb::arg("seed"),
               nb::arg("out").noconvert());
}
