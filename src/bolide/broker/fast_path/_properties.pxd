# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Property strings: which names the broker interprets, and the pairs one by one."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcmp, memset

from bolide.kernel._fields cimport Slice

cdef enum:
    MAX_UNIQUE_ID = 128
    MAX_PAIRS = 24
    MAX_PREFIXES = 16

cdef struct Prefixes:
    int count
    Slice words[MAX_PREFIXES]
    bint first[256]  # by first letter: whether a prefix begins with it

cdef struct Pairs:
    int count
    Slice names[MAX_PAIRS]
    Slice values[MAX_PAIRS]


cdef inline bint begins(const uint8_t *at, const uint8_t *end, const char *word, Py_ssize_t size) noexcept nogil:
    return end - at >= size and memcmp(at, word, size) == 0


cdef inline int load_prefixes(Prefixes *into, tuple words) except -1:
    """Copy prefixes of property names. `words` must outlive the structure."""
    cdef bytes word
    memset(into, 0, sizeof(Prefixes))
    if len(words) > MAX_PREFIXES:
        raise ValueError(f"{len(words)} prefixes are more than {MAX_PREFIXES}")
    for word in words:
        into.words[into.count] = Slice(<const uint8_t *>PyBytes_AS_STRING(word), PyBytes_GET_SIZE(word))
        into.first[into.words[into.count].at[0]] = True
        into.count += 1
    return 0


cdef inline bint has_prefix(const uint8_t *at, const uint8_t *end, const Prefixes *prefixes) noexcept nogil:
    """Whether the name that begins at `at` begins with one of the prefixes."""
    cdef int i
    if at >= end or not prefixes.first[at[0]]:
        return False
    for i in range(prefixes.count):
        if prefixes.words[i].at[0] != at[0]:  # most of them: saves the call of memcmp
            continue
        if begins(at, end, <const char *>prefixes.words[i].at, prefixes.words[i].size):
            return True
    return False


cdef inline bint is_interpreted(Slice text, const Prefixes *interpreted, int *unique_ids) noexcept nogil:
    """Whether the broker interprets one of these properties; also counts those named UNIQ_KEY."""
    cdef const uint8_t *at = text.at
    cdef const uint8_t *end = text.at + text.size
    while at != NULL and at < end:
        if has_prefix(at, end, interpreted):
            return True
        unique_ids[0] += begins(at, end, b"UNIQ_KEY", 8)
        at = <const uint8_t *>memchr(at, 2, end - at)
        if at != NULL:
            at += 1
    return False


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
    """Find all pairs; False if the text is not ASCII, or encoding the pairs would change it."""
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
