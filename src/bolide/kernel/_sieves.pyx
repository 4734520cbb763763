# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled version of `sieves`, which documents classes and plans.

A plan that cannot decide, for example on non-ASCII digits, returns UNSURE; the caller must then call
the filter function.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy

from bolide.kernel._fields cimport Slice
from bolide.kernel._layouts cimport LONG_DIGITS
from bolide.kernel._names cimport cut_bytes

from bolide.kernel import sieves
from bolide.protocol.record import property_bytes


cdef class Test:
    cdef int judge(self, Slice properties) except -1:
        return UNSURE


cdef class _OfProperty(Test):
    """A test of one property value; of several, the last one that is not empty."""
    cdef bytes key
    cdef int missing

    def __init__(self, bytes key not None):
        self.key = key[1:]
        self.missing = UNKNOWN

    cdef int judge(self, Slice properties) except -1:
        cdef const uint8_t *key = <const uint8_t *>PyBytes_AS_STRING(self.key)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self.key)
        cdef const uint8_t *next = properties.at
        cdef const uint8_t *end = properties.at + properties.size
        cdef const uint8_t *pair_end
        cdef Slice value = Slice(NULL, 0)
        while next < end:
            pair_end = <const uint8_t *>memchr(next, 2, end - next)
            if pair_end == NULL:
                pair_end = end
            if pair_end - next > size and memcmp(next, key, size) == 0:
                value = Slice(next + size, pair_end - next - size)
            next = pair_end + 1
        return self.missing if value.at == NULL else self.judge_value(value)

    cdef int judge_value(self, Slice value) except -1:
        return UNSURE


cdef class _TextIs(_OfProperty):
    cdef bytes text

    def __init__(self, bytes key, bytes text not None):
        super().__init__(key)
        self.text = text

    cdef int judge_value(self, Slice value) except -1:
        if value.size != PyBytes_GET_SIZE(self.text):
            return NO
        return memcmp(value.at, PyBytes_AS_STRING(self.text), value.size) == 0


cdef class _NumberIs(_OfProperty):
    cdef int64_t number, most
    cdef bint below, same, above

    def __init__(self, bytes key, str symbol, int64_t number, int64_t most):
        super().__init__(key)
        self.number, self.most = number, most
        self.below, self.same, self.above = "<" in symbol, "=" in symbol, ">" in symbol

    cdef int judge_value(self, Slice value) except -1:
        cdef const uint8_t *next = value.at
        cdef const uint8_t *end = value.at + value.size
        cdef bint is_negative = next[0] == c"-"
        cdef int64_t found = 0
        if is_negative or next[0] == c"+":
            next += 1
            if next == end:
                return FAILED
        if end - next > LONG_DIGITS:
            return UNSURE
        while next < end:
            if not c"0" <= next[0] <= c"9":
                return FAILED if next[0] < 0x80 else UNSURE
            found = found * 10 + (next[0] - c"0")
            next += 1
        if is_negative:
            found = -found
        if not -self.most - 1 <= found <= self.most:
            return FAILED
        if found == self.number:
            return self.same
        return self.below if found < self.number else self.above


cdef class _IsThere(_OfProperty):
    def __init__(self, bytes key):
        super().__init__(key)
        self.missing = NO

    cdef int judge_value(self, Slice value) except -1:
        return YES


cdef class _IsListed(_OfProperty):
    cdef frozenset texts

    def __init__(self, bytes key, frozenset texts not None):
        super().__init__(key)
        self.texts = texts

    cdef int judge_value(self, Slice value) except -1:
        return cut_bytes(value) in self.texts


cdef class _Negated(Test):
    cdef Test part

    def __init__(self, plan):
        self.part = test_of(plan)

    cdef int judge(self, Slice properties) except -1:
        cdef int verdict = self.part.judge(properties)
        return verdict if verdict > YES else not verdict


cdef class _Joined(Test):
    cdef tuple parts
    cdef int deciding

    def __init__(self, bint is_all, plans):
        self.parts = tuple(map(test_of, plans))
        self.deciding = NO if is_all else YES

    cdef int judge(self, Slice properties) except -1:
        cdef int verdict, outcome = not self.deciding
        for part in self.parts:
            verdict = (<Test>part).judge(properties)
            if verdict == self.deciding or verdict > UNKNOWN:
                return verdict
            if verdict == UNKNOWN:
                outcome = UNKNOWN
        return outcome


cdef class _Asked(Test):
    cdef object function

    def __init__(self, function):
        self.function = function

    cdef int judge(self, Slice properties) except -1:
        cdef bytes text = PyBytes_FromStringAndSize(NULL, properties.size + 1)
        cdef char *into = PyBytes_AS_STRING(text)
        into[0] = 2
        memcpy(into + 1, properties.at, properties.size)
        try:
            said = self.function(text)
        except Exception:
            return UNSURE  # the filter function raises it again
        if said is None:
            return UNKNOWN
        return YES if said else NO


cdef dict TESTS = {
    sieves.TextIs: _TextIs,
    sieves.NumberIs: _NumberIs,
    sieves.IsThere: _IsThere,
    sieves.IsListed: _IsListed,
    sieves.Negated: _Negated,
    sieves.Joined: _Joined,
    sieves.Asked: _Asked,
}


def test_of(plan):
    return TESTS[type(plan)](*plan)


cdef class Sieve:
    def __init__(self, plan, accepts):
        self.test = test_of(plan)
        self.accepts = accepts

    def __call__(self, record):
        return self.accepts(b"\x02" + property_bytes(record))
