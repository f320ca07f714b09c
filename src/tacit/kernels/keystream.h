// AES-256 in counter mode by the machine's own instructions, two blocks at a time, straight into the cache that the
// normals are made in. Only for x86-64 with VAES; elsewhere the caller hands in the bytes that a library made, and
// `normals.py` compares the two before it trusts this. FIPS 197 (key expansion, section 5.2), SP 800-38A.

#pragma once

#include "wide.h"

#if HAS_WIDE

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#define KEYED __attribute__((target("avx2,fma,aes,vaes")))
#define WIDEST_KEYED \
    __attribute__((target("avx2,fma,aes,vaes,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))

namespace {

bool machine_has_wide_aes() {
    static const bool known = machine_is_wide() && __builtin_cpu_supports("aes") && __builtin_cpu_supports("vaes");
    return known;
}

bool machine_is_widest() {
    static const bool known = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return known;
}

constexpr int ROUNDS = 14;

class Cipher {
    __m256i round_keys_[ROUNDS + 1];  // each twice, for two blocks side by side

    KEYED static INLINE __m128i mixed(__m128i words, __m128i substituted) {
        words = _mm_xor_si128(words, _mm_slli_si128(words, 4));
        words = _mm_xor_si128(words, _mm_slli_si128(words, 8));
        return _mm_xor_si128(words, substituted);
    }

    // Round keys ROUND and ROUND + 1 out of the two before them; the constant of a round must be known to the compiler.
    template <int ROUND, int CONSTANT>
    KEYED static INLINE void expand(__m128i* keys) {
        const __m128i turned = _mm_aeskeygenassist_si128(keys[ROUND - 1], CONSTANT);
        keys[ROUND] = mixed(keys[ROUND - 2], _mm_shuffle_epi32(turned, 0xff));
        if (ROUND == ROUNDS) return;
        const __m128i straight = _mm_aeskeygenassist_si128(keys[ROUND], 0);
        keys[ROUND + 1] = mixed(keys[ROUND - 1], _mm_shuffle_epi32(straight, 0xaa));
    }

  public:
    KEYED INLINE explicit Cipher(const unsigned char* key) {
        __m128i keys[ROUNDS + 2];
        keys[0] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(key));
        keys[1] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(key + 16));
        expand<2, 0x01>(keys);
        expand<4, 0x02>(keys);
        expand<6, 0x04>(keys);
        expand<8, 0x08>(keys);
        expand<10, 0x10>(keys);
        expand<12, 0x20>(keys);
        expand<14, 0x40>(keys);
        for (int round = 0; round <= ROUNDS; ++round) round_keys_[round] = _mm256_broadcastsi128_si256(keys[round]);
    }

    // At least `blocks` blocks from counter (high, low) on, in groups of 16: `out` has room for whole groups.
    KEYED INLINE void fill(std::uint64_t high, std::uint64_t low, std::size_t blocks, unsigned char* out) const {
        constexpr int AT_ONCE = 8;  // as many as hide how long one instruction takes
        const __m256i big_endian = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
        const auto above = static_cast<long long>(high), first = static_cast<long long>(low);
        const __m256i two = _mm256_setr_epi64x(2, 0, 2, 0);
        __m256i counter = _mm256_setr_epi64x(first, above, first + 1, above);
        for (std::size_t block = 0; block < blocks; block += 2 * AT_ONCE) {
            __m256i state[AT_ONCE];
            for (int k = 0; k < AT_ONCE; ++k) {
                state[k] = _mm256_xor_si256(_mm256_shuffle_epi8(counter, big_endian), round_keys_[0]);
                counter = _mm256_add_epi64(counter, two);
            }
            for (int round = 1; round < ROUNDS; ++round) {
                const __m256i key = round_keys_[round];
                for (int k = 0; k < AT_ONCE; ++k) state[k] = _mm256_aesenc_epi128(state[k], key);
            }
            for (int k = 0; k < AT_ONCE; ++k)
                _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16 * block + 32 * k),
                                    _mm256_aesenclast_epi128(state[k], round_keys_[ROUNDS]));
        }
    }

    ~Cipher() {  // the barrier keeps the compiler from leaving this out
        std::memset(static_cast<void*>(round_keys_), 0, sizeof round_keys_);
        asm volatile("" : : "r"(round_keys_) : "memory");
    }
    Cipher(const Cipher&) = delete;
    Cipher& operator=(const Cipher&) = delete;
};

}  // namespace

#endif
