# cython: language_level=3
from libc.stdint cimport uint8_t, uint32_t

from bolide.kernel._fields cimport Slice
from bolide.kernel._header cimport MAX_FIELDS, Header
from bolide.kernel._sha1 cimport Sha1


cdef class SigningKey:
    cdef uint32_t inner[5]
    cdef uint32_t outer[5]
    cdef uint8_t order[MAX_FIELDS]
    cdef int count

    cdef void begin(self, Sha1 *sha) noexcept nogil
    cdef void update(self, Sha1 *sha, const uint8_t *at, Py_ssize_t size) noexcept nogil
    cdef void write(self, Sha1 *sha, uint8_t *signature) noexcept nogil
    cdef bint is_right(self, Header *header, bint binary, Slice body) noexcept nogil
    cdef bint put_in_order(self, Header *header) noexcept nogil
