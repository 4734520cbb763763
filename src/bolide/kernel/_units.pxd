# cython: language_level=3
from libc.stdint cimport int64_t, uint8_t


cdef class Units:
    cdef public object owner
    cdef public bint is_closed
    cdef public bint is_changed
    cdef readonly int64_t fresh
    cdef readonly int64_t fresh_bytes
    cdef readonly int64_t base
    cdef uint8_t *data
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t capacity

    cdef void give_back(self) noexcept
    cdef int ensure(self, Py_ssize_t more) except -1
    cdef int64_t put(self, int64_t physical_offset, Py_ssize_t size, int64_t code) noexcept
