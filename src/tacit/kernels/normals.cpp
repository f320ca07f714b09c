// Normals from a keystream, two at a time (Box and Muller 1958). No randomness of its own: the caller hands in a
// key, or the uniform bytes that the key stands for, and the same key always gives the same normals. `reference.py`
// says the same in NumPy.
//
// Normals are made in chunks of 512 pairs. A pair takes one word for its radius and one for its angle, of 32 bits
// (float) or 64 (double); a chunk's radius words come first, then its angles; its cosines fill the first half of its
// normals, its sines the second. Where a radius word says that u is below 2^-24, which the tail depends on, 64
// further bits of the pair's own refine it: block 2^64 + (number of the pair) of the same keystream.
//
// The loops are plain C++ over short arrays, so that compilers vectorise them. The polynomials are Chebyshev
// fits, made for this file in 50 digits; the error beside each is that of the fit.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "keystream.h"
#include "wide.h"

namespace nb = nanobind;

namespace {

constexpr std::size_t CHUNK = 512;  // pairs worked on at once: their scratch stays in the first-level cache
constexpr double EIGHTH_TURN = 0.78539816339744830962;
constexpr double LN_2 = 0.69314718055994530942;

template <class To, class From>
INLINE To bits_of(From value) {
    static_assert(sizeof(To) == sizeof(From));
    To result;
    std::memcpy(&result, &value, sizeof result);
    return result;
}

template <class Real>
using Word = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;

INLINE float log1p_of(float f) {  // 3e-8, relative
    float p = -0.079027437724f;
    p = p * f + 0.12622319849f;
    p = p * f - 0.12998183764f;
    p = p * f + 0.14214495924f;
    p = p * f - 0.16641281463f;
    p = p * f + 0.20001045094f;
    p = p * f - 0.25000306423f;
    p = p * f + 0.33333330728f;
    const float square = f * f;
    return f + square * (f * p - 0.5f);
}

INLINE double log1p_of(double f) {  // 1e-17, relative: log(1 + f) = 2 atanh(f / (2 + f))
    const double s = f / (2.0 + f);
    const double z = s * s;
    double p = 0.14617807153417324815;
    p = p * z + 0.15331611722055007897;
    p = p * z + 0.181828924325368712;
    p = p * z + 0.22222211089379496214;
    p = p * z + 0.28571428626253837606;
    p = p * z + 0.39999999999898890514;
    p = p * z + 0.66666666666666697077;
    return s * (z * p) + 2.0 * s;
}

INLINE float sine(float x, float y) {  // y = x^2; 1e-8, relative
    float p = -0.00019587865702f;
    p = p * y + 0.0083327481541f;
    p = p * y - 0.16666664662f;
    return x + x * (y * p);
}

INLINE float cosine(float y) {  // 8e-10
    float p = 0.000024547916854f;
    p = p * y - 0.0013888302919f;
    p = p * y + 0.041666664659f;
    return 1.0f + y * (y * p - 0.5f);
}

INLINE double sine(double x, double y) {  // y = x^2; 1e-17, relative
    double p = 1.5918115263265975195e-10;
    p = p * y - 2.505113165023518147e-8;
    p = p * y + 2.7557316101617874437e-6;
    p = p * y - 0.00019841269836756772528;
    p = p * y + 0.0083333333333309472945;
    p = p * y - 0.16666666666666664622;
    return x + x * (y * p);
}

INLINE double cosine(double y) {  // 5e-19
    double p = -1.138262364747460463e-11;
    p = p * y + 2.0876146146558611582e-9;
    p = p * y - 2.7557317271145145962e-7;
    p = p * y + 0.000024801587298764560771;
    p = p * y - 0.0013888888888887396492;
    p = p * y + 0.041666666666666665388;
    return 1.0 + y * (y * p - 0.5);
}

// A radius word is a cell of (0, 1): 31 bits wide for floats, 52 for doubles; u is the middle of its cell.
constexpr int cell_bits(float) { return 31; }
constexpr int cell_bits(double) { return 52; }

template <class Real>
INLINE Word<Real> cell_of(Word<Real> word) {
    return word >> (8 * sizeof word - cell_bits(Real{}));
}

// ln(u). Where u is above sqrt(1/2), floats work with 1 - u, which whole numbers hold exactly: else all digits of
// ln(u) would be lost as u nears 1.
INLINE float log_of(std::uint32_t word) {
    const auto odd = static_cast<std::int32_t>(word | 1);  // the middle of the cell, in units of 2^-32
    const bool near_one = odd < 0 && odd >= static_cast<std::int32_t>(0xB504F334);
    const auto half = static_cast<std::int32_t>(static_cast<std::uint32_t>(odd) >> 1);
    const auto left = static_cast<float>(near_one ? odd : half);
    const auto bits = bits_of<std::uint32_t>(left + 0.5f);  // in units of 2^-31
    const std::uint32_t exponent = (bits + (0x3F800000 - 0x3F3504F3)) >> 23;  // of a fraction in sqrt(1/2)..sqrt(2)
    const float fraction = bits_of<float>(bits - (exponent << 23) + 0x3F800000) - 1.0f;
    const float whole = static_cast<float>(static_cast<std::int32_t>(exponent) - 127 - 31);
    return (near_one ? 0.0f : whole * static_cast<float>(LN_2)) + log1p_of(near_one ? left * 0x1p-32f : fraction);
}

// A whole number below 2^52, made a double by writing the bits of 2^52 + whole: few instruction sets convert
// 64-bit whole numbers.
INLINE double small_whole(std::uint64_t whole) { return bits_of<double>(whole | 0x4330000000000000) - 0x1p52; }

INLINE double log_of(std::uint64_t word) {  // every step up to the fraction is exact
    constexpr std::uint64_t ONE = 0x3FF0000000000000, ROOT_HALF = 0x3FE6A09E667F3BCD;
    const auto bits = bits_of<std::uint64_t>((small_whole(cell_of<double>(word)) + 0.5) * 0x1p-52);
    const std::uint64_t exponent = (bits + (ONE - ROOT_HALF)) >> 52;
    const double fraction = bits_of<double>(bits - (exponent << 52) + ONE) - 1.0;
    return (small_whole(exponent) - 1023.0) * LN_2 + log1p_of(fraction);
}

// The offset of an angle word, within an eighth of a turn of the axis. Its first bit is a sign for the cosine and its
// second swaps the two; with an offset that is as often below the axis as above, that makes a uniform angle.
INLINE float offset_of(std::uint32_t word) {
    return static_cast<float>(static_cast<std::int32_t>(word << 2 | 2)) * static_cast<float>(EIGHTH_TURN * 0x1p-31);
}

INLINE double offset_of(std::uint64_t word) {  // 52 bits, the first of them a sign
    return (small_whole((word << 2 ^ 0x8000000000000000) >> 12) - 0x1p51 + 0.5) * (EIGHTH_TURN * 0x1p-51);
}

template <class Real>
INLINE void pairs_of(const Word<Real>* __restrict radii, const Word<Real>* __restrict angles, std::size_t count,
                     Real scale, Real* __restrict first, Real* __restrict second) {
    constexpr int top = 8 * sizeof(Word<Real>) - 1;
    for (std::size_t i = 0; i < count; ++i) {
        const Word<Real> angle = angles[i];
        const Real radius = std::sqrt(Real(-2) * log_of(radii[i])) * scale;
        const Real x = offset_of(angle), y = x * x;
        const Word<Real> sign = angle >> top << top;
        const Real across = bits_of<Real>(bits_of<Word<Real>>(radius * cosine(y)) ^ sign);
        const Real up = radius * sine(x, y);
        const bool swapped = angle >> (top - 1) & 1;
        first[i] = swapped ? up : across;
        second[i] = swapped ? across : up;
    }
}

INLINE bool is_rare(std::uint32_t word) { return word < (1u << 8); }
INLINE bool is_rare(std::uint64_t word) { return word < (1ull << 40); }

template <class Real>
INLINE bool any_rare(const Word<Real>* radii, std::size_t count) {
    Word<Real> found = 0;
    for (std::size_t i = 0; i < count; ++i) found |= is_rare(radii[i]);
    return found;
}

// By how much a radius changes when its word is refined by 64 further bits.
template <class Real>
double refinement(Word<Real> word, std::uint64_t further) {
    const auto cell = static_cast<double>(cell_of<Real>(word));
    const double within = (static_cast<double>(further) + 0.5) * 0x1p-64;
    const double bits = cell_bits(Real{}) * LN_2;
    return std::sqrt((std::log(cell + within) - bits) / (std::log(cell + 0.5) - bits));
}

// The normals of one chunk. Of an odd number the last sine is left out.
template <class Real, class Stream>
INLINE void chunk_of(std::size_t chunk, std::size_t here, Stream& stream, Real scale, Real* __restrict out) {
    const std::size_t pairs = here - here / 2;
    const Word<Real>* radii = stream.chunk(chunk, pairs);
    Real spare[CHUNK];
    Real* second = here % 2 ? spare : out + pairs;
    pairs_of(radii, radii + CHUNK, pairs, scale, out, second);
    if (any_rare<Real>(radii, pairs)) {
        for (std::size_t i = 0; i < pairs; ++i) {
            if (!is_rare(radii[i])) continue;
            const auto change = static_cast<Real>(refinement<Real>(radii[i], stream.further(chunk * CHUNK + i)));
            out[i] *= change;
            second[i] *= change;
        }
    }
    if (here % 2) std::memcpy(out + pairs, spare, (pairs - 1) * sizeof(Real));
}

template <class Real, class Stream>
INLINE void fill_with(Real* out, std::size_t size, Stream& stream, Real scale) {
    for (std::size_t start = 0; start < size; start += 2 * CHUNK)
        chunk_of(start / (2 * CHUNK), size - start < 2 * CHUNK ? size - start : 2 * CHUNK, stream, scale, out + start);
}

template <class Real, class Stream>
INLINE void add_with(Real* __restrict out, std::size_t size, Stream& stream, Real scale) {
    Real drawn[2 * CHUNK];  // never leaves the first-level cache
    for (std::size_t start = 0; start < size; start += 2 * CHUNK) {
        const std::size_t here = size - start < 2 * CHUNK ? size - start : 2 * CHUNK;
        chunk_of(start / (2 * CHUNK), here, stream, scale, drawn);
        for (std::size_t i = 0; i < here; ++i) out[start + i] += drawn[i];
    }
}

// Words that somebody else made: whole chunks of them, and the further bits of their rare pairs in order.
template <class Real>
class Given {
    const Word<Real>* words_;
    const std::uint64_t* further_;

  public:
    Given(const Word<Real>* words, const std::uint64_t* further) : words_(words), further_(further) {}
    INLINE const Word<Real>* chunk(std::size_t index, std::size_t) const { return words_ + index * 2 * CHUNK; }
    INLINE std::uint64_t further(std::size_t) { return *further_++; }
};

template <class Real>
using Out = nb::ndarray<Real, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class Item>
using In = nb::ndarray<const Item, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The further bits of the rare pairs, asked for one by one: this happens once in 16 million pairs.
template <class Real>
std::vector<std::uint64_t> further_of(const Word<Real>* words, std::size_t size, const nb::callable& further) {
    std::vector<std::uint64_t> found;
    for (std::size_t start = 0; start < size; start += 2 * CHUNK) {
        const std::size_t here = size - start < 2 * CHUNK ? size - start : 2 * CHUNK;
        if (!any_rare<Real>(words + start, here - here / 2)) continue;
        for (std::size_t i = 0; i < here - here / 2; ++i)
            if (is_rare(words[start + i])) found.push_back(nb::cast<std::uint64_t>(further(start / 2 + i)));
    }
    return found;
}

void expect_count(const char* what, std::size_t needed, std::size_t given) {
    if (given != needed)
        throw std::invalid_argument("expected " + std::to_string(needed) + " " + what + ", got " +
                                    std::to_string(given));
}

template <class Real>
void fill_from(Out<Real> out, In<unsigned char> keystream, nb::callable further, Real scale, bool wide) {
    const std::size_t size = out.shape(0);
    const std::size_t chunks = (size + 2 * CHUNK - 1) / (2 * CHUNK);
    expect_count("keystream bytes", chunks * 2 * CHUNK * sizeof(Word<Real>), keystream.shape(0));
    if (reinterpret_cast<std::uintptr_t>(keystream.data()) % sizeof(Word<Real>))
        throw std::invalid_argument("expected a keystream that begins at a whole word, got another");
    const auto* words = reinterpret_cast<const Word<Real>*>(keystream.data());
    const std::vector<std::uint64_t> refining = further_of<Real>(words, size, further);
    Real* target = out.data();
    Given<Real> stream(words, refining.data());
    nb::gil_scoped_release free;
    run(wide, [&]() INLINE_LAMBDA { fill_with(target, size, stream, scale); });
}

#if HAS_WIDE

template <class Real>
class Made {
    static constexpr std::size_t BLOCKS = CHUNK * sizeof(Real) / 16;  // of a chunk's radii, and of its angles
    Cipher cipher_;
    alignas(32) unsigned char bytes_[2 * CHUNK * sizeof(Real)];

  public:
    KEYED INLINE explicit Made(const unsigned char* key) : cipher_(key) {}

    KEYED const Word<Real>* chunk(std::size_t index, std::size_t pairs) {
        const std::size_t blocks = (pairs * sizeof(Real) + 15) / 16;
        cipher_.fill(0, index * 2 * BLOCKS, blocks, bytes_);
        cipher_.fill(0, index * 2 * BLOCKS + BLOCKS, blocks, bytes_ + 16 * BLOCKS);
        return reinterpret_cast<const Word<Real>*>(bytes_);
    }

    KEYED std::uint64_t further(std::size_t pair) const {
        unsigned char blocks[256];
        std::uint64_t word;
        cipher_.fill(1, pair, 1, blocks);
        std::memcpy(&word, blocks, sizeof word);
        return word;
    }
};

template <class Real>
KEYED void make(Real* out, std::size_t size, const unsigned char* key, Real scale, bool add) {
    Made<Real> stream(key);
    if (add) return add_with(out, size, stream, scale);
    fill_with(out, size, stream, scale);
}

// The same again for machines with AVX-512, which takes twice as many at once.
template <class Real>
WIDEST_KEYED void make_widest(Real* out, std::size_t size, const unsigned char* key, Real scale, bool add) {
    Made<Real> stream(key);
    if (add) return add_with(out, size, stream, scale);
    fill_with(out, size, stream, scale);
}

#endif

template <class Real>
void fill_by_key(Out<Real> out, nb::bytes key, Real scale, bool add, bool widest) {
    expect_count("bytes of key", 32, key.size());
#if HAS_WIDE
    if (machine_has_wide_aes()) {
        Real* target = out.data();
        const std::size_t size = out.shape(0);
        const auto* bytes = static_cast<const unsigned char*>(key.data());
        nb::gil_scoped_release free;
        if (widest && machine_is_widest()) return make_widest(target, size, bytes, scale, add);
        return make(target, size, bytes, scale, add);
    }
#endif
    (void)add, (void)widest;
    throw std::runtime_error("this machine lacks the instructions to make a keystream here");
}

bool has_keystream() {
#if HAS_WIDE
    return machine_has_wide_aes();
#else
    return false;
#endif
}

template <class Real>
void define(nb::module_& module, const char* from, const char* by_key) {
    module.def(from, &fill_from<Real>, nb::arg("out").noconvert(), nb::arg("keystream").noconvert(),
               nb::arg("further"), nb::arg("scale"), nb::arg("wide") = true);
    module.def(by_key, &fill_by_key<Real>, nb::arg("out").noconvert(), nb::arg("key"), nb::arg("scale"),
               nb::arg("add") = false, nb::arg("widest") = true);
}

}  // namespace

NB_MODULE(_normals, module) {
    module.def("has_keystream", &has_keystream);
    define<float>(module, "fill_float32", "fill_float32_by_key");
    define<double>(module, "fill_float64", "fill_float64_by_key");
}
