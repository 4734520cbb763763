# cython: language_level=3
"""CRC-32 of the zip polynomial, eight bytes at a time; call `crc_init` once."""

from libc.stdint cimport uint8_t, uint32_t

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>

    static uint32_t bolide_crc_table[8][256];

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
    }

    static inline uint32_t bolide_le32(const uint8_t *p) {
        return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    }

    static uint32_t bolide_crc(const uint8_t *p, size_t n) {
        const uint32_t (*t)[256] = (const uint32_t (*)[256])bolide_crc_table;
        uint32_t c = 0xFFFFFFFFu;
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
