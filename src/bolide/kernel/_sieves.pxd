# cython: language_level=3
from bolide.kernel._fields cimport Slice

cdef enum:
    NO = 0
    YES = 1
    UNKNOWN = 2
    FAILED = 3  # the whole filter rejects the record
    UNSURE = 4


cdef class Test:
    cdef int judge(self, Slice properties) except -1


cdef class Sieve:
    cdef object accepts
    cdef Test test
