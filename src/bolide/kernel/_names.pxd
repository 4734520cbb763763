# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The properties used by consume queues and the key index, and their hashes."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp, memset

from bolide.kernel._fields cimport Slice

cdef extern from *:
    """
    /* Java's String.hashCode, continued over bytes, four at a time to shorten the dependency
       chain. The top bit of `seen` is set if a byte is not ASCII. */
    static inline uint32_t bolide_hash(uint32_t h, const uint8_t *p, size_t n, uint8_t *seen) {
        uint8_t all = 0;
        for (; n >= 4; p += 4, n -= 4) {
            h = 923521u * h + 29791u * p[0] + 961u * p[1] + 31u * p[2] + p[3];
            all |= p[0] | p[1] | p[2] | p[3];
        }
        for (; n > 0; p++, n--) {
            h = 31u * h + *p;
            all |= *p;
        }
        *seen = all;
        return h;
    }
    """
    uint32_t hash_bytes "bolide_hash"(
        uint32_t value, const uint8_t *at, size_t size, uint8_t *seen
    ) noexcept nogil


cdef struct Named:
    Slice tags
    Slice unique_id
    Slice keys
    Slice delay


cdef inline bytes cut_bytes(Slice part):
    return PyBytes_FromStringAndSize(<const char *>part.at, part.size)


cdef inline str cut_text(Slice part):
    return PyUnicode_DecodeUTF8(<const char *>part.at, part.size, b"replace")


cdef inline void find_named(Slice text, Named *named) noexcept nogil:
    """Find the properties used by queues and index; the last one of a name wins."""
    cdef const uint8_t *next = text.at
    cdef const uint8_t *end = text.at + text.size
    cdef const uint8_t *pair_end
    cdef const uint8_t *name_end
    cdef Slice value
    memset(named, 0, sizeof(Named))
    while next < end:
        pair_end = <const uint8_t *>memchr(next, 2, end - next)
        if pair_end == NULL:
            pair_end = end
        name_end = <const uint8_t *>memchr(next, 1, pair_end - next)
        if name_end != NULL and name_end + 1 < pair_end:
            value.at, value.size = name_end + 1, pair_end - name_end - 1
            if name_end - next == 4:
                if memcmp(next, b"TAGS", 4) == 0:
                    named.tags = value
                elif memcmp(next, b"KEYS", 4) == 0:
                    named.keys = value
            elif name_end - next == 8 and memcmp(next, b"UNIQ_KEY", 8) == 0:
                named.unique_id = value
            elif name_end - next == 5 and memcmp(next, b"DELAY", 5) == 0:
                named.delay = value
        next = pair_end + 1


cdef inline bint next_word(Slice *text, Slice *word) noexcept nogil:
    """Remove the next word from the front of a text; False if there is none."""
    cdef const uint8_t *end = text.at + text.size
    cdef const uint8_t *start = text.at
    cdef const uint8_t *blank
    while start < end and start[0] == 0x20:
        start += 1
    if start >= end:
        return False
    blank = <const uint8_t *>memchr(start, 0x20, end - start)
    word.at, word.size = start, (blank if blank != NULL else end) - start
    text.at = start + word.size
    text.size = end - text.at
    return True


cdef inline uint32_t hash_on(uint32_t value, Slice text) except? 0xFFFFFFFF:
    """Continue Java's `String.hashCode` over more text."""
    cdef uint8_t seen
    cdef Py_UCS4 character
    cdef uint32_t unit
    cdef uint32_t on = hash_bytes(value, text.at, text.size, &seen)
    if seen < 0x80:
        return on
    on = value
    for character in cut_text(text):
        unit = <uint32_t>character
        if unit > 0xFFFF:
            unit -= 0x10000
            on = 31 * on + (0xD800 | unit >> 10)
            unit = 0xDC00 | unit & 0x3FF
        on = 31 * on + unit
    return on


cdef inline uint32_t key_prefix(Slice topic) except? 0xFFFFFFFF:
    return 31 * hash_on(0, topic) + 0x23


cdef inline uint32_t key_hash(uint32_t prefix, Slice key) except? 0xFFFFFFFF:
    cdef uint32_t value = hash_on(prefix, key)
    if value & <uint32_t>0x80000000:
        value = <uint32_t>0 - value
    return value & <uint32_t>0x7FFFFFFF  # Java's Integer.MIN_VALUE has no absolute value: 0


cdef inline uint32_t tags_hash(uint32_t prefix, Slice tags) except? 0xFFFFFFFF:
    """The hash of the tags in the key index, whose key is `T#` and the tags."""
    return key_hash(31 * (31 * prefix + 0x54) + 0x23, tags)


cdef inline int64_t tags_code(Slice tags) except? -1:
    return <int32_t>hash_on(0, tags)
