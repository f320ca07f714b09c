// Normals from a keystream, two at a time (Box and Muller 1958). No randomness of its own: the caller hands in
// uniform bytes, and the same bytes always give the same normals. `reference.py` says the same in NumPy.
//
// A pair takes one 64-bit word for its radius, of which the upper 52 bits count, and an angle of 32 (float)
// or 64 bits (double, of which the upper 54 count). All radius words come first, then all angles.
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

#include "wide.h"

namespace nb = nanobind;

namespace {

constexpr std::size_t CHUNK = 512;  // pairs worked on at once: their scratch stays in the first-level cache
constexpr double HALF_PI = 1.57079632679489661923;
constexpr double LN_2 = 0.69314718055994530942;
constexpr std::uint64_t ONE = 0x3FF0000000000000;       // the bits of 1.0
constexpr std::uint64_t ROOT_HALF = 0x3FE6A09E667F3BCD;  // the bits of sqrt(1/2), rounded up

template <class To, class From>
INLINE To bits_of(From value) {
    static_assert(sizeof(To) == sizeof(From));
    To result;
    std::memcpy(&result, &value, sizeof result);
    return result;
}

template <class Word>
INLINE Word word_at(const unsigned char* bytes, std::size_t index) {
    Word word;
    std::memcpy(&word, bytes + index * sizeof word, sizeof word);
    return word;
}

// A whole number below 2^52, made a double by writing the bits of 2^52 + whole: few instruction sets convert
// 64-bit whole numbers.
INLINE double small_whole(std::uint64_t whole) { return bits_of<double>(whole | 0x4330000000000000) - 0x1p52; }

// The word's uniform u in (0, 1], a whole multiple of 2^-52, as u = (1 + fraction) 2^(exponent - 1023) with
// 1 + fraction in [sqrt(1/2), sqrt(2)). Both parts are exact, so log(u) stays precise where u is close to 1.
INLINE void split(std::uint64_t word, double& fraction, std::uint64_t& exponent) {
    const double u = 2.0 - bits_of<double>((word >> 12) | ONE);
    const std::uint64_t bits = bits_of<std::uint64_t>(u);
    exponent = (bits + (ONE - ROOT_HALF)) >> 52;
    fraction = bits_of<double>(bits - (exponent << 52) + ONE) - 1.0;
}

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

// The angle word as a quadrant and an offset of at most an eighth of a turn from the quadrant's axis. The half
// added to the offset centres the law: every angle has its exact mirror image, and none lies on an axis.
INLINE float offset_of(std::uint32_t word, std::uint32_t& quadrant) {
    quadrant = (word + (1u << 29)) >> 30;
    const auto offset = static_cast<std::int32_t>(word - (quadrant << 30));
    return (static_cast<float>(offset) + 0.5f) * static_cast<float>(HALF_PI / (1u << 30));
}

INLINE double offset_of(std::uint64_t word, std::uint64_t& quadrant) {
    quadrant = (word + (1ull << 61)) >> 62;
    const std::uint64_t offset = (word - (quadrant << 62) + (1ull << 61)) >> 10;  // 52 bits, 2^51 is the axis
    return (small_whole(offset) - 0x1p51 + 0.5) * (HALF_PI * 0x1p-52);
}

// What is left of a pair when the hard functions are done: put cosine and sine in their quadrant.
template <class Real, class Word>
INLINE void place(Real radius, Real c, Real s, Word quadrant, Real& first, Real& second) {
    constexpr int top = 8 * sizeof(Word) - 2;
    const bool swapped = quadrant & 1;
    const Word first_sign = ((quadrant + 1) & 2) << top;
    const Word second_sign = (quadrant & 2) << top;
    const Real across = swapped ? s : c;
    const Real up = swapped ? c : s;
    first = bits_of<Real>(bits_of<Word>(radius * across) ^ first_sign);
    second = bits_of<Real>(bits_of<Word>(radius * up) ^ second_sign);
}

INLINE void pairs_of(const unsigned char* radius_words, const unsigned char* angle_words, std::size_t count,
                     float scale, float* __restrict first, float* __restrict second) {
    float fraction[CHUNK], exponent[CHUNK];
    for (std::size_t i = 0; i < count; ++i) {
        double exact;
        std::uint64_t biased;
        split(word_at<std::uint64_t>(radius_words, i), exact, biased);
        fraction[i] = static_cast<float>(exact);
        exponent[i] = static_cast<float>(static_cast<std::int32_t>(biased) - 1023);
    }
    for (std::size_t i = 0; i < count; ++i) {
        const float log = exponent[i] * static_cast<float>(LN_2) + log1p_of(fraction[i]);
        const float radius = std::sqrt(-2.0f * log) * scale;
        std::uint32_t quadrant;
        const float x = offset_of(word_at<std::uint32_t>(angle_words, i), quadrant);
        place(radius, cosine(x * x), sine(x, x * x), quadrant, first[i], second[i]);
    }
}

INLINE void pairs_of(const unsigned char* radius_words, const unsigned char* angle_words, std::size_t count,
                     double scale, double* __restrict first, double* __restrict second) {
    for (std::size_t i = 0; i < count; ++i) {
        double fraction;
        std::uint64_t biased;
        split(word_at<std::uint64_t>(radius_words, i), fraction, biased);
        const double log = (small_whole(biased) - 1023.0) * LN_2 + log1p_of(fraction);
        const double radius = std::sqrt(-2.0 * log) * scale;
        std::uint64_t quadrant;
        const double x = offset_of(word_at<std::uint64_t>(angle_words, i), quadrant);
        place(radius, cosine(x * x), sine(x, x * x), quadrant, first[i], second[i]);
    }
}

template <class Real>
using Angle = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;

// The first half of `out` are the cosines, the second the sines; of an odd number the last sine is left out.
template <class Real>
INLINE void fill_with(Real* out, std::size_t size, const unsigned char* keystream, Real scale) {
    const std::size_t pairs = size - size / 2;
    const unsigned char* angles = keystream + pairs * sizeof(std::uint64_t);
    for (std::size_t start = 0; start < pairs; start += CHUNK) {
        const std::size_t count = pairs - start < CHUNK ? pairs - start : CHUNK;
        Real spare[CHUNK];
        const bool whole = pairs + start + count <= size;
        pairs_of(keystream + start * sizeof(std::uint64_t), angles + start * sizeof(Angle<Real>), count, scale,
                 out + start, whole ? out + pairs + start : spare);
        if (!whole) std::memcpy(out + pairs + start, spare, (count - 1) * sizeof(Real));
    }
}

#if HAS_WIDE
WIDE void fill_wide(float* out, std::size_t size, const unsigned char* keystream, float scale) {
    fill_with(out, size, keystream, scale);
}
WIDE void fill_wide(double* out, std::size_t size, const unsigned char* keystream, double scale) {
    fill_with(out, size, keystream, scale);
}
#endif

template <class Real>
void fill(Real* out, std::size_t size, const unsigned char* keystream, Real scale, bool wide) {
#if HAS_WIDE
    if (wide) return fill_wide(out, size, keystream, scale);
#endif
    fill_with(out, size, keystream, scale);
}

template <class Real>
using Out = nb::ndarray<Real, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Keystream = nb::ndarray<const unsigned char, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class Real>
void fill_checked(Out<Real> out, Keystream keystream, Real scale, bool wide) {
    const std::size_t size = out.shape(0);
    const std::size_t needed = (size - size / 2) * (sizeof(std::uint64_t) + sizeof(Angle<Real>));
    if (keystream.shape(0) != needed)
        throw std::invalid_argument("expected " + std::to_string(needed) + " keystream bytes, got " +
                                    std::to_string(keystream.shape(0)));
    Real* target = out.data();
    const unsigned char* bytes = keystream.data();
    nb::gil_scoped_release free;
    fill(target, size, bytes, scale, wide && machine_is_wide());
}

}  // namespace

NB_MODULE(_normals, module) {
    module.def("fill_float32", &fill_checked<float>, nb::arg("out").noconvert(),
               nb::arg("keystream").noconvert(), nb::arg("scale"), nb::arg("wide") = true);
    module.def("fill_float64", &fill_checked<double>, nb::arg("out").noconvert(),
               nb::arg("keystream").noconvert(), nb::arg("scale"), nb::arg("wide") = true);
}
