# cython: language_level=3
"""SHA-1 (FIPS 180-4), a block at a time; call `sha1_init` once.

Processors with the SHA extensions do four rounds in one instruction.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <cpuid.h>
    #include <immintrin.h>
    #define BOLIDE_SHA 1
    #endif

    typedef struct {
        uint32_t state[5];
        uint64_t size;      /* bytes so far */
        uint8_t block[64];  /* the last of them that do not fill a block */
    } bolide_sha1;

    static int bolide_sha1_fast;

    #define BOLIDE_ROTATE(x, n) ((x) << (n) | (x) >> (32 - (n)))
    #define BOLIDE_ROUNDS(from, f, k) \\
        for (int i = from; i < from + 20; i++) { \\
            uint32_t t = BOLIDE_ROTATE(a, 5) + (f) + e + k + w[i]; \\
            e = d; d = c; c = BOLIDE_ROTATE(b, 30); b = a; a = t; \\
        }

    static void bolide_sha1_plain(uint32_t *state, const uint8_t *p, size_t blocks) {
        uint32_t w[80];
        for (; blocks > 0; blocks--, p += 64) {
            uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
            for (int i = 0; i < 16; i++)
                w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16
                    | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
            for (int i = 16; i < 80; i++)
                w[i] = BOLIDE_ROTATE(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
            BOLIDE_ROUNDS(0, d ^ (b & (c ^ d)), 0x5A827999u)
            BOLIDE_ROUNDS(20, b ^ c ^ d, 0x6ED9EBA1u)
            BOLIDE_ROUNDS(40, (b & c) | (d & (b | c)), 0x8F1BBCDCu)
            BOLIDE_ROUNDS(60, b ^ c ^ d, 0xCA62C1D6u)
            state[0] += a; state[1] += b; state[2] += c; state[3] += d; state[4] += e;
        }
    }

    #ifdef BOLIDE_SHA
    /* Rounds 4 n to 4 n + 3; m holds the last 16 words of the schedule, f picks the function. */
    #define BOLIDE_FOUR(n, f) { \\
        if (n >= 4) m[(n) & 3] = _mm_sha1msg2_epu32( \\
            _mm_xor_si128(_mm_sha1msg1_epu32(m[(n) & 3], m[(n + 1) & 3]), m[(n + 2) & 3]), \\
            m[(n + 3) & 3]); \\
        e = n ? _mm_sha1nexte_epu32(e, m[(n) & 3]) : _mm_add_epi32(e, m[0]); \\
        before = abcd; \\
        abcd = _mm_sha1rnds4_epu32(abcd, e, f); \\
        e = before; \\
    }
    #define BOLIDE_TWENTY(n, f) BOLIDE_FOUR(n, f) BOLIDE_FOUR(n + 1, f) BOLIDE_FOUR(n + 2, f) \\
        BOLIDE_FOUR(n + 3, f) BOLIDE_FOUR(n + 4, f)

    __attribute__((target("sha,sse4.1")))
    static void bolide_sha1_extended(uint32_t *state, const uint8_t *p, size_t blocks) {
        const __m128i order = _mm_set_epi64x(0x0001020304050607, 0x08090a0b0c0d0e0f);
        __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0x1B);
        __m128i e = _mm_set_epi32((int)state[4], 0, 0, 0);
        for (; blocks > 0; blocks--, p += 64) {
            __m128i m[4], before, abcd_0 = abcd, e_0 = e;
            for (int i = 0; i < 4; i++)
                m[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * i)), order);
            BOLIDE_TWENTY(0, 0)
            BOLIDE_TWENTY(5, 1)
            BOLIDE_TWENTY(10, 2)
            BOLIDE_TWENTY(15, 3)
            e = _mm_sha1nexte_epu32(e, e_0);
            abcd = _mm_add_epi32(abcd, abcd_0);
        }
        _mm_storeu_si128((__m128i *)state, _mm_shuffle_epi32(abcd, 0x1B));
        state[4] = (uint32_t)_mm_extract_epi32(e, 3);
    }
    #endif

    static void bolide_sha1_init(int may_extend) {
        bolide_sha1_fast = 0;
    #ifdef BOLIDE_SHA
        unsigned int a, b, c, d;
        __builtin_cpu_init();
        if (may_extend && __builtin_cpu_supports("sse4.1") && __get_cpuid_count(7, 0, &a, &b, &c, &d))
            bolide_sha1_fast = b >> 29 & 1;
    #endif
    }

    static void bolide_sha1_blocks(uint32_t *state, const uint8_t *p, size_t blocks) {
    #ifdef BOLIDE_SHA
        if (bolide_sha1_fast) {
            bolide_sha1_extended(state, p, blocks);
            return;
        }
    #endif
        bolide_sha1_plain(state, p, blocks);
    }

    static void bolide_sha1_begin(bolide_sha1 *sha) {
        static const uint32_t first[5] = {
            0x67452301u, 0xEFCDAB89u, 0x98BADCFEu, 0x10325476u, 0xC3D2E1F0u,
        };
        memcpy(sha->state, first, sizeof first);
        sha->size = 0;
    }

    static void bolide_sha1_update(bolide_sha1 *sha, const uint8_t *p, size_t size) {
        size_t held = sha->size & 63, whole;
        sha->size += size;
        if (held) {
            size_t part = 64 - held;
            if (size < part) {
                memcpy(sha->block + held, p, size);
                return;
            }
            memcpy(sha->block + held, p, part);
            bolide_sha1_blocks(sha->state, sha->block, 1);
            p += part;
            size -= part;
        }
        whole = size / 64;
        if (whole) bolide_sha1_blocks(sha->state, p, whole);
        if (size & 63) memcpy(sha->block, p + 64 * whole, size & 63);
    }

    static void bolide_sha1_finish(bolide_sha1 *sha, uint8_t *digest) {
        size_t held = sha->size & 63;
        uint64_t bits = sha->size << 3;
        sha->block[held++] = 0x80;
        if (held > 56) {
            memset(sha->block + held, 0, 64 - held);
            bolide_sha1_blocks(sha->state, sha->block, 1);
            held = 0;
        }
        memset(sha->block + held, 0, 56 - held);
        for (int i = 0; i < 8; i++) sha->block[56 + i] = (uint8_t)(bits >> (56 - 8 * i));
        bolide_sha1_blocks(sha->state, sha->block, 1);
        for (int i = 0; i < 20; i++) digest[i] = (uint8_t)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
    }
    """
    ctypedef struct Sha1 "bolide_sha1":
        uint32_t state[5]
        uint64_t size
        uint8_t block[64]

    void sha1_init "bolide_sha1_init"(bint may_extend) noexcept nogil
    void sha1_begin "bolide_sha1_begin"(Sha1 *sha) noexcept nogil
    void sha1_update "bolide_sha1_update"(Sha1 *sha, const uint8_t *at, size_t size) noexcept nogil
    void sha1_finish "bolide_sha1_finish"(Sha1 *sha, uint8_t *digest) noexcept nogil
