# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled version of `units`, which documents the methods.

Methods are atomic, as they do not release the GIL.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from bolide.kernel._bytes cimport put32, put64, u32, u64
from bolide.kernel._layouts cimport BLANK_SIZE, UNIT_SIZE

cdef enum:
    FIRST_CAPACITY = 4 * UNIT_SIZE


cdef class Units:
    def __init__(self, owner=None):
        self.owner = owner

    def __dealloc__(self):
        free(self.data)

    @property
    def end(self):
        return self.base + self.size // UNIT_SIZE

    def append(self, units):
        cdef Py_buffer source
        PyObject_GetBuffer(units, &source, PyBUF_SIMPLE)
        try:
            self.ensure(source.len)
            memcpy(self.data + self.size, source.buf, source.len)
            self.size += source.len
        finally:
            PyBuffer_Release(&source)

    def add(self, int64_t physical_offset, int32_t size, int64_t code):
        self.ensure(UNIT_SIZE)
        return self.put(physical_offset, size, code)

    cdef int64_t put(self, int64_t physical_offset, Py_ssize_t size, int64_t code) noexcept:
        """As `add`, after a call of `ensure`."""
        cdef uint8_t *unit = self.data + self.size
        put64(unit, <uint64_t>physical_offset)
        put32(unit + 8, <uint32_t>size)
        put64(unit + 12, <uint64_t>code)
        self.size += UNIT_SIZE
        self.fresh += 1
        self.fresh_bytes += size
        return self.base + self.size // UNIT_SIZE - 1

    def take_fresh(self):
        fresh = self.fresh, self.fresh_bytes
        self.fresh = self.fresh_bytes = 0
        return fresh

    def reset(self, int64_t base, units=b""):
        self.size = 0
        self.base = base
        self.append(units)

    def take(self, int64_t queue_offset, int64_t count):
        cdef int64_t held = self.size // UNIT_SIZE, at = queue_offset - self.base
        at = held if at > held else at
        count = 0 if count < 0 or at < 0 else held - at if count > held - at else count
        return PyByteArray_FromStringAndSize(
            <char *>self.data + at * UNIT_SIZE if count else NULL, count * UNIT_SIZE
        )

    def drop_below(self, int64_t queue_offset):
        cdef Py_ssize_t gone
        if queue_offset > self.base:
            gone = min((queue_offset - self.base) * UNIT_SIZE, self.size)
            self.size -= gone
            memmove(self.data, self.data + gone, self.size)
            self.base = queue_offset
            self.give_back()

    def cut(self, int64_t queue_offset):
        cdef int64_t kept = queue_offset - self.base
        if kept < self.size // UNIT_SIZE:
            self.size = kept * UNIT_SIZE if kept > 0 else 0

    def end_below(self, int64_t physical_offset):
        cdef Py_ssize_t at = self.size - UNIT_SIZE
        cdef int64_t start
        cdef int32_t size
        while at >= 0:
            start, size = <int64_t>u64(self.data + at), <int32_t>u32(self.data + at + 8)
            if start + size <= physical_offset or size == BLANK_SIZE:
                break
            at -= UNIT_SIZE
        return self.base + (at // UNIT_SIZE + 1 if at >= 0 else 0)

    cdef void give_back(self) noexcept:
        """Shrink the buffer if little of it is used."""
        cdef Py_ssize_t capacity = max(2 * self.size, FIRST_CAPACITY)
        cdef uint8_t *data
        if capacity < self.capacity // 2:
            data = <uint8_t *>realloc(self.data, capacity)
            if data != NULL:
                self.data, self.capacity = data, capacity

    cdef int ensure(self, Py_ssize_t more) except -1:
        """Ensure capacity for a number of bytes."""
        cdef Py_ssize_t capacity
        cdef uint8_t *data
        if self.size + more > self.capacity:
            capacity = max(self.size + more, self.capacity + self.capacity // 2, FIRST_CAPACITY)
            data = <uint8_t *>realloc(self.data, capacity)
            if data == NULL:
                raise MemoryError
            self.data, self.capacity = data, capacity
        return 0
