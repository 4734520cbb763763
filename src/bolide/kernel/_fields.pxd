# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Locations of the fields of a record; `protocol.record` documents the layout."""

from libc.stdint cimport int8_t, int16_t, int32_t, uint8_t, uint32_t

from bolide.kernel._bytes cimport u32
from bolide.kernel._layouts cimport BORN_V6, FIXED_SIZE, MAGIC_V1, MAGIC_V2, STORE_V6, V4_SIZE, V6_SIZE


cdef struct Slice:
    const uint8_t *at
    Py_ssize_t size


cdef struct Fields:
    Py_ssize_t size
    uint32_t magic
    int32_t sys_flag
    Slice born_host
    const uint8_t *store_timestamp
    Slice store_host
    Slice body
    Slice topic
    Slice properties


cdef inline bint cut(const uint8_t *at, Py_ssize_t left, Fields *fields) noexcept nogil:
    """Locate the fields of a record; False unless its lengths add up."""
    cdef Py_ssize_t size, head_size, length_size, rest
    cdef const uint8_t *next
    if left < 8:
        return False
    size, fields.magic = u32(at), u32(at + 4)
    if fields.magic != MAGIC_V1 and fields.magic != MAGIC_V2:
        return False
    if size > left or size < FIXED_SIZE:
        return False
    fields.size = size
    fields.sys_flag = <int32_t>u32(at + 36)
    fields.born_host.size = V6_SIZE if fields.sys_flag & BORN_V6 else V4_SIZE
    fields.store_host.size = V6_SIZE if fields.sys_flag & STORE_V6 else V4_SIZE
    head_size = FIXED_SIZE + fields.born_host.size + fields.store_host.size
    rest = size - head_size
    if rest < 0:
        return False
    fields.born_host.at = at + 48
    fields.store_timestamp = at + 48 + fields.born_host.size
    fields.store_host.at = fields.store_timestamp + 8
    next = at + head_size
    fields.body.at, fields.body.size = next, u32(next - 4)
    if fields.body.size > rest:
        return False
    next += fields.body.size
    rest -= fields.body.size
    length_size = 1 if fields.magic == MAGIC_V1 else 2
    if rest < length_size:
        return False
    if length_size == 1:
        fields.topic.size = <int8_t>next[0]
    else:
        fields.topic.size = <int16_t>(next[0] << 8 | next[1])
    next += length_size
    rest -= length_size
    if fields.topic.size < 0 or rest < fields.topic.size + 2:
        return False
    fields.topic.at = next
    next += fields.topic.size
    rest -= fields.topic.size + 2
    fields.properties.at, fields.properties.size = next + 2, <int16_t>(next[0] << 8 | next[1])
    return fields.properties.size == rest
