// One source, compiled twice: for the instructions every machine of the family has and, on x86-64, for AVX2 with
// fused multiply-add, chosen at run time.

#pragma once

#include <cstddef>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INLINE inline __attribute__((always_inline))
#define INLINE_LAMBDA __attribute__((always_inline))

#if defined(__x86_64__)
#define HAS_WIDE 1
#define WIDE __attribute__((target("avx2,fma")))
#else
#define HAS_WIDE 0
#endif

namespace {

using Index = std::ptrdiff_t;

[[maybe_unused]] bool machine_is_wide() {
#if HAS_WIDE
    static const bool known = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return known;
#else
    return false;
#endif
}

// While this lives, numbers below 1.2e-38 count as zero. A moment or velocity that nobody feeds shrinks to there and
// stays for ever, and some machines take a hundred times as long over such numbers.
class TinyIsZero {
#if HAS_WIDE
    unsigned before_ = _mm_getcsr();

  public:
    TinyIsZero() { _mm_setcsr(before_ | 0x8040); }
    ~TinyIsZero() { _mm_setcsr(before_); }
    TinyIsZero(const TinyIsZero&) = delete;
    TinyIsZero& operator=(const TinyIsZero&) = delete;
#endif
};

#if HAS_WIDE
template <class Body>
WIDE void run_wide(const Body& body) {
    body();
}
#endif

// Run a body of plain loops, an INLINE_LAMBDA of INLINE functions, which the compiler vectorises for either width.
template <class Body>
void run(bool wide, const Body& body) {
    [[maybe_unused]] const TinyIsZero guard{};
#if HAS_WIDE
    if (wide && machine_is_wide()) return run_wide(body);
#endif
    (void)wide;
    body();
}

INLINE void prefetch(const void* first, Index bytes) {
    const char* at = static_cast<const char*>(first);
    for (Index byte = 0; byte < bytes; byte += 64) __builtin_prefetch(at + byte);
    __builtin_prefetch(at + bytes - 1);
}

}  // namespace
