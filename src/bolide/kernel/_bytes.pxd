# cython: language_level=3
"""Numbers at any address, big-endian or in digits, and the order in which they are stored."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* Written byte by byte: right on every machine, and compilers make one instruction of it. */
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

    /* All stores before are made before this one, which a kill does not cut. */
    static inline void bolide_publish32(uint8_t *p, uint32_t v) {
        __atomic_thread_fence(__ATOMIC_RELEASE);
        bolide_put32(p, v);
        __atomic_thread_fence(__ATOMIC_RELEASE);
    }

    /* Decimal digits, 20 at most; returns how many. */
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
