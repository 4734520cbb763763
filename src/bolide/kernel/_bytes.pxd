# cython: language_level=3
"""Unaligned big-endian loads and stores, decimal formatting, and ordered stores."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* Byte by byte: portable, and compilers emit a single instruction. */
    static inline uint32_t bolide_u32(const uint8_t *p) {
        return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    static inline uint64_t bolide_u64(const uint8_t *p) {
        return (uint64_t)bolide_u32(p) << 32 | bolide_u32(p + 4);
    }
    static inline void bolide_put32(uint8_t *p, uint32_t v) {
        uint8_t b[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
        memcpy(p, b, 4);
    }
    static inline void bolide_put64(uint8_t *p, uint64_t v) {
        bolide_put32(p, (uint32_t)(v >> 32));
        bolide_put32(p + 4, (uint32_t)v);
    }

    /* A store ordered after all earlier ones; a killed process leaves it complete or undone. */
    static inline void bolide_publish32(uint8_t *p, uint32_t v) {
        __atomic_thread_fence(__ATOMIC_RELEASE);
        bolide_put32(p, v);
        __atomic_thread_fence(__ATOMIC_RELEASE);
    }

    /* Write at most 20 decimal digits; returns their number. */
    static inline size_t bolide_write_number(int64_t number, uint8_t *into) {
        uint8_t digits[20];
        uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
        int at = 20;
        do {
            digits[--at] = (uint8_t)('0' + left % 10);
            left /= 10;
        } while (left);
        if (number < 0) digits[--at] = '-';
        memcpy(into, digits + at, 20 - at);
        return 20 - at;
    }
    """
    uint32_t u32 "bolide_u32"(const uint8_t *p) noexcept nogil
    uint64_t u64 "bolide_u64"(const uint8_t *p) noexcept nogil
    void put32 "bolide_put32"(uint8_t *p, uint32_t value) noexcept nogil
    void put64 "bolide_put64"(uint8_t *p, uint64_t value) noexcept nogil
    void publish32 "bolide_publish32"(uint8_t *p, uint32_t value) noexcept nogil
    Py_ssize_t write_number "bolide_write_number"(int64_t number, uint8_t *into) noexcept nogil

cdef enum:
    MAX_DIGITS = 20
