# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What the properties of a message ask for, and the properties one by one."""

from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcmp

from bolide.kernel._fields cimport Slice

cdef enum:
    MAX_UNIQUE_ID = 128
    MAX_PAIRS = 24

cdef struct Pairs:
    int count
    Slice names[MAX_PAIRS]
    Slice values[MAX_PAIRS]


cdef inline bint begins(const uint8_t *at, const uint8_t *end, const char *word, Py_ssize_t size) noexcept nogil:
    return end - at >= size and memcmp(at, word, size) == 0


cdef inline bint asks(Slice text, int *unique_ids) noexcept nogil:
    """Whether a name begins with a word that `sends` looks for; counts UNIQ_KEY besides."""
    cdef const uint8_t *at = text.at
    cdef const uint8_t *end = text.at + text.size
    while at != NULL and at < end:
        if asks_here(at, end):
            return True
        unique_ids[0] += begins(at, end, b"UNIQ_KEY", 8)
        at = <const uint8_t *>memchr(at, 2, end - at)
        if at != NULL:
            at += 1
    return False


cdef inline bint asks_here(const uint8_t *at, const uint8_t *end) noexcept nogil:
    cdef uint8_t letter = at[0]
    if letter == 0x44:
        return begins(at, end, b"DELAY", 5)
    if letter == 0x54:
        return (
            begins(at, end, b"TIMER_", 6) or begins(at, end, b"TRAN_MSG", 8)
            or begins(at, end, b"TRACE_ON", 8)
        )
    if letter == 0x50:
        return begins(at, end, b"POP_CK", 6)
    if letter == 0x49:
        return begins(at, end, b"INNER_", 6)
    if letter == 0x4D:
        return begins(at, end, b"MSG_REGION", 10)
    if letter == 0x43:
        return begins(at, end, b"CLUSTER", 7)
    if letter == 0x5F:
        return begins(at, end, b"__STARTDELIVERTIME", 18)
    return letter == 0x42 and begins(at, end, b"BOLIDE_", 7)


cdef inline bint is_id(Slice text) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint8_t letter
    if not 0 < text.size <= MAX_UNIQUE_ID:
        return False
    for i in range(text.size):
        letter = text.at[i]
        if not (
            0x30 <= letter <= 0x39 or 0x41 <= letter <= 0x5A or 0x61 <= letter <= 0x7A
            or letter == 0x2E or letter == 0x5F or letter == 0x2D
        ):
            return False
    return True


cdef inline bint holds(Slice text, const char *word, Py_ssize_t size) noexcept nogil:
    cdef const uint8_t *at = text.at
    cdef const uint8_t *end = text.at + text.size
    while at < end:
        at = <const uint8_t *>memchr(at, word[0], end - at)
        if at == NULL:
            return False
        if begins(at, end, word, size):
            return True
        at += 1
    return False


cdef inline bint is_named(Slice name, const char *word, Py_ssize_t size) noexcept nogil:
    return name.size == size and memcmp(name.at, word, size) == 0


cdef inline bint cut_pairs(Slice text, Pairs *pairs) noexcept nogil:
    """Find all pairs; False if the text is not ASCII, or would not be written so again."""
    cdef const uint8_t *next = text.at
    cdef const uint8_t *end = text.at + text.size
    cdef const uint8_t *at
    cdef int other
    pairs.count = 0
    while next < end:
        if pairs.count == MAX_PAIRS:
            return False
        at = next
        while at < end and 2 < at[0] < 0x80:
            at += 1
        if at == next or at >= end or at[0] != 1:
            return False
        pairs.names[pairs.count] = Slice(next, at - next)
        for other in range(pairs.count):
            if is_named(pairs.names[other], <const char *>next, at - next):
                return False
        next = at + 1
        at = next
        while at < end and 2 < at[0] < 0x80:
            at += 1
        if at == next or (at < end and at[0] != 2):
            return False
        pairs.values[pairs.count] = Slice(next, at - next)
        pairs.count += 1
        next = at + 1
    return True
