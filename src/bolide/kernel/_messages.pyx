# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled version of `messages`, which documents the functions.

Adjacent records of a reply mostly have the same topic and hosts, whose objects are shared. If a
record is invalid, the plain-Python version decodes the whole reply and raises the error.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from functools import partial

from bolide.kernel._bytes cimport u32, u64
from bolide.kernel._fields cimport Fields, Slice, cut
from bolide.kernel._layouts cimport MAGIC_V1
from bolide.kernel._names cimport Named, cut_bytes, cut_text, find_named

from bolide.kernel import messages as reference
from bolide.model.message import StoredMessage
from bolide.protocol.hosts import unpack_host
from bolide.protocol.record import decode_property_bytes

cdef enum:
    HEAD_SIZE = 40  # up to and including sysFlag


@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class _Later:
    """Decodes properties lazily; copied or pickled, it becomes the plain-Python equivalent."""

    cdef bytes text

    def __call__(self):
        return decode_property_bytes(self.text)

    def __reduce__(self):
        return partial, (decode_property_bytes, self.text)


def joined_flags(data):
    cdef Py_buffer source
    cdef Py_ssize_t position = 0, size
    cdef const uint8_t *at
    cdef int32_t flags = 0
    PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
    while position + HEAD_SIZE <= source.len:
        at = <const uint8_t *>source.buf + position
        size = u32(at)
        flags |= <int32_t>u32(at + HEAD_SIZE - 4)
        position += size if size > HEAD_SIZE else HEAD_SIZE
    PyBuffer_Release(&source)
    return flags


def read_messages(data, str broker_name="", min_offset=None, max_offset=None, tags=()):
    cdef Py_buffer source
    cdef Reader reader = Reader(broker_name, min_offset, max_offset, tags)
    PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
    try:
        if reader.read(<const uint8_t *>source.buf, source.len):
            return reader.messages
    finally:
        PyBuffer_Release(&source)
    return reference.read_messages(data, broker_name, min_offset, max_offset, tags)


@cython.final
cdef class Reader:
    """Values common to the records of a reply, and the cached objects of the last record."""

    cdef list messages
    cdef object broker_name, min_offset, max_offset, tags
    cdef object topic, born_host, store_host
    cdef Slice topic_of, born_host_of, store_host_of

    def __cinit__(self, broker_name, min_offset, max_offset, tags):
        self.messages = []
        self.broker_name, self.min_offset, self.max_offset = broker_name, min_offset, max_offset
        self.tags = tags or None

    cdef bint read(self, const uint8_t *at, Py_ssize_t left) except -1:
        """Decode all records; False at an invalid one."""
        cdef Fields fields
        while left > 0:
            if not cut(at, left, &fields):
                return False
            if self.tags is None or self.is_wanted(fields.properties):
                self.messages.append(self.message(at, &fields))
            at += fields.size
            left -= fields.size
        return True

    cdef bint is_wanted(self, Slice properties) except -1:
        cdef Named named
        find_named(properties, &named)
        return (cut_text(named.tags) if named.tags.at != NULL else None) in self.tags

    cdef object message(self, const uint8_t *at, const Fields *fields):
        cdef const uint8_t *times = fields.store_host.at + fields.store_host.size
        cdef _Later properties = _Later.__new__(_Later)
        properties.text = cut_bytes(fields.properties)
        if differs(fields.topic, &self.topic_of):
            self.topic = cut_text(fields.topic)
        if differs(fields.born_host, &self.born_host_of):
            self.born_host = unpack_host(cut_bytes(fields.born_host))
        if differs(fields.store_host, &self.store_host_of):
            self.store_host = unpack_host(cut_bytes(fields.store_host))
        return StoredMessage(
            self.topic, cut_bytes(fields.body), properties, <int32_t>u32(at + 16),
            <int32_t>u32(at + 12), <int64_t>u64(at + 20), <int64_t>u64(at + 28), fields.sys_flag,
            <int64_t>u64(at + 40), self.born_host, <int64_t>u64(fields.store_timestamp),
            self.store_host, <int32_t>u32(times), <int64_t>u64(times + 4), u32(at + 8), fields.size,
            1 if fields.magic == MAGIC_V1 else 2, self.broker_name, self.min_offset, self.max_offset,
        )


cdef inline bint differs(Slice part, Slice *last) noexcept nogil:
    """Whether a part differs from the last one, which is then replaced."""
    cdef bint same = (
        last.at != NULL and part.size == last.size and memcmp(part.at, last.at, part.size) == 0
    )
    last[0] = part
    return not same
