# cython: language_level=3
"""CRC-32 of the zip polynomial with its top bit cleared; call `crc_init` once.

Tables process eight bytes at a time. If the processor supports carry-less multiplication
(`pclmulqdq`), longer data is first folded, 64 bytes at a time: multiplying a part of the data by x^n
modulo the polynomial shifts it by n bits, so that it can be added to the data at that position.
"""

from libc.stdint cimport uint8_t, uint32_t

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    #define BOLIDE_FOLDS 1
    #endif

    static uint32_t bolide_crc_table[8][256];
    static int bolide_crc_folds;

    static void bolide_crc_init(void) {
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t c = n;
            for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
            bolide_crc_table[0][n] = c;
        }
        for (uint32_t n = 0; n < 256; n++)
            for (int k = 1; k < 8; k++) {
                uint32_t c = bolide_crc_table[k - 1][n];
                bolide_crc_table[k][n] = c >> 8 ^ bolide_crc_table[0][c & 255];
            }
    #ifdef BOLIDE_FOLDS
        __builtin_cpu_init();
        bolide_crc_folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    #endif
    }

    static inline uint32_t bolide_le32(const uint8_t *p) {
        return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    }

    #ifdef BOLIDE_FOLDS
    #define BOLIDE_SSE __attribute__((target("pclmul,sse4.1")))

    BOLIDE_SSE static inline __m128i bolide_move(__m128i x, __m128i by) {
        return _mm_xor_si128(_mm_clmulepi64_si128(x, by, 0x00), _mm_clmulepi64_si128(x, by, 0x11));
    }

    BOLIDE_SSE static inline __m128i bolide_load(const uint8_t *p) {
        return _mm_loadu_si128((const __m128i *)p);
    }

    /* At least 64 bytes, a multiple of 16. Constants: powers of x modulo the polynomial, bits
       reversed, for 512 and 128 bits ahead, then for 64, then the polynomial and its inverse. */
    BOLIDE_SSE static uint32_t bolide_crc_fold(uint32_t c, const uint8_t *p, size_t n) {
        const __m128i by512 = _mm_set_epi64x(0x1C6E41596, 0x154442BD4);
        const __m128i by128 = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0);
        const __m128i by64 = _mm_set_epi64x(0, 0x163CD6124);
        const __m128i reduce = _mm_set_epi64x(0x1F7011641, 0x1DB710641);
        const __m128i low = _mm_setr_epi32(-1, 0, -1, 0);
        __m128i x[4], y;
        for (int i = 0; i < 4; i++) x[i] = bolide_load(p + 16 * i);
        x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)c));
        for (p += 64, n -= 64; n >= 64; p += 64, n -= 64)
            for (int i = 0; i < 4; i++)
                x[i] = _mm_xor_si128(bolide_move(x[i], by512), bolide_load(p + 16 * i));
        y = x[0];
        for (int i = 1; i < 4; i++) y = _mm_xor_si128(bolide_move(y, by128), x[i]);
        for (; n >= 16; p += 16, n -= 16)
            y = _mm_xor_si128(bolide_move(y, by128), bolide_load(p));
        y = _mm_xor_si128(_mm_srli_si128(y, 8), _mm_clmulepi64_si128(y, by128, 0x10));
        y = _mm_xor_si128(
            _mm_srli_si128(y, 4), _mm_clmulepi64_si128(_mm_and_si128(y, low), by64, 0x00));
        __m128i q = _mm_clmulepi64_si128(_mm_and_si128(y, low), reduce, 0x10);
        q = _mm_clmulepi64_si128(_mm_and_si128(q, low), reduce, 0x00);
        return (uint32_t)_mm_extract_epi32(_mm_xor_si128(y, q), 1);
    }
    #endif

    static uint32_t bolide_crc(const uint8_t *p, size_t n) {
        const uint32_t (*t)[256] = (const uint32_t (*)[256])bolide_crc_table;
        uint32_t c = 0xFFFFFFFFu;
    #ifdef BOLIDE_FOLDS
        if (n >= 64 && bolide_crc_folds) {
            size_t whole = n & ~(size_t)15;
            c = bolide_crc_fold(c, p, whole);
            p += whole;
            n -= whole;
        }
    #endif
        for (; n >= 8; p += 8, n -= 8) {
            uint32_t low = c ^ bolide_le32(p), high = bolide_le32(p + 4);
            c = t[7][low & 255] ^ t[6][low >> 8 & 255] ^ t[5][low >> 16 & 255] ^ t[4][low >> 24]
              ^ t[3][high & 255] ^ t[2][high >> 8 & 255] ^ t[1][high >> 16 & 255] ^ t[0][high >> 24];
        }
        while (n--) c = c >> 8 ^ t[0][(c ^ *p++) & 255];
        return ~c & 0x7FFFFFFFu;
    }
    """
    void crc_init "bolide_crc_init"() noexcept nogil
    uint32_t crc "bolide_crc"(const uint8_t *data, size_t size) noexcept nogil
