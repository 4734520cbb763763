# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A growing buffer for replies and properties."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy

from bolide.kernel._bytes cimport put32, write_number
from bolide.kernel._fields cimport Slice


cdef struct Output:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t capacity


cdef inline int reserve(Output *out, Py_ssize_t more) except -1:
    cdef Py_ssize_t capacity
    cdef uint8_t *data
    if out.size + more > out.capacity:
        capacity = 2 * out.capacity + more
        data = <uint8_t *>realloc(out.data, capacity)
        if data == NULL:
            raise MemoryError
        out.data, out.capacity = data, capacity
    return 0


cdef inline void put(Output *out, const void *data, Py_ssize_t size) noexcept nogil:
    memcpy(out.data + out.size, data, size)
    out.size += size


cdef inline void put_bytes(Output *out, bytes data) noexcept:
    put(out, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef inline void put_pair(Output *out, const char *name, Py_ssize_t size, Slice value) noexcept nogil:
    """Write a property; `name` includes its separator."""
    put(out, name, size)
    put(out, value.at, value.size)
    put(out, b"\x02", 1)


cdef inline void put_number(Output *out, int64_t number) noexcept nogil:
    out.size += write_number(number, out.data + out.size)


cdef inline void put_number_field(Output *out, const char *name, Py_ssize_t size, int64_t number) noexcept nogil:
    """Write a field of a binary header; `name` includes its length."""
    cdef Py_ssize_t digits
    put(out, name, size)
    digits = write_number(number, out.data + out.size + 4)
    put32(out.data + out.size, <uint32_t>digits)
    out.size += 4 + digits
