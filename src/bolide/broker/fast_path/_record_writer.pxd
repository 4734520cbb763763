# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Writing records and their index keys straight into the log (layout: `protocol.record`)."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from bolide.kernel._bytes cimport publish32, put32, put64, u32, u64
from bolide.kernel._crc cimport crc
from bolide.kernel._fields cimport Slice
from bolide.kernel._layouts cimport BORN_V6, COMMIT, ITEM_SIZE, MAGIC_V1, STORE_V6, V6_SIZE
from bolide.kernel._names cimport Named, key_hash, next_word, tags_hash
from bolide.broker.fast_path._send_requests cimport Item, Send
from bolide.broker.fast_path._transactions cimport Half


cdef struct RecordFields:  # all of a record but its position and topic
    int32_t queue_id
    int32_t flag
    uint32_t sys_flag
    int64_t born_timestamp
    Slice born_host
    uint32_t tries
    int64_t half_at
    Slice body
    Slice properties
    Slice suffix
    Named named


cdef struct Cursor:  # where the next record goes
    const uint8_t *start  # of the memory that holds `at`
    uint8_t *at
    Py_ssize_t room
    int64_t physical_offset
    int64_t timestamp
    Slice born_host


cdef inline Slice slice_of(bytes data) noexcept:
    return Slice(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef inline RecordFields single_fields(Send *send, Cursor *cursor, Slice suffix) noexcept nogil:
    cdef RecordFields fields
    fields.queue_id, fields.flag, fields.sys_flag = send.queue_id, send.flag, send.sys_flag
    fields.born_timestamp, fields.born_host = send.born_timestamp, cursor.born_host
    fields.tries, fields.half_at = 0, 0
    fields.body, fields.properties, fields.suffix = send.body, send.properties, suffix
    fields.named = send.named
    return fields


cdef inline RecordFields item_fields(Send *send, Item *item, Cursor *cursor, Slice suffix) noexcept nogil:
    """The fields of one message of a batch; `named` is left unset."""
    cdef RecordFields fields = single_fields(send, cursor, suffix)
    fields.flag, fields.body, fields.properties = item.flag, item.body, item.properties
    return fields


cdef inline void add_common(RecordFields *fields, Named *common) noexcept nogil:
    """Properties that the broker appends take precedence over those of the message."""
    if common.tags.size:
        fields.named.tags = common.tags
    if common.keys.size:
        fields.named.keys = common.keys


cdef inline RecordFields committed_fields(Half *half, int64_t physical_offset) noexcept nogil:
    """The fields of a committed half message, for its real topic."""
    cdef RecordFields fields
    cdef const uint8_t *at = half.fields.born_host.at - 48
    cdef const uint8_t *behind = half.fields.store_host.at + half.fields.store_host.size
    fields.queue_id, fields.flag = <int32_t>half.queue_id, <int32_t>u32(at + 16)
    fields.sys_flag = <uint32_t>half.fields.sys_flag & ~<uint32_t>(BORN_V6 | STORE_V6) | COMMIT
    fields.born_timestamp, fields.born_host = <int64_t>u64(at + 40), half.fields.born_host
    fields.tries, fields.half_at = u32(behind), physical_offset
    fields.body, fields.properties = half.fields.body, half.fields.properties
    fields.suffix = Slice(behind, 0)
    fields.named.tags, fields.named.keys, fields.named.unique_id = half.tags, half.keys, half.unique_id
    return fields


cdef inline Py_ssize_t properties_size(RecordFields *fields) noexcept nogil:
    return fields.properties.size + needs_separator(fields) + fields.suffix.size


cdef inline void fill(
    RecordFields *fields, bytes topic, bytes store_host, Py_ssize_t size, int64_t queue_offset, Cursor *cursor
) noexcept:
    cdef uint8_t *at = cursor.at
    cdef uint8_t *next
    cdef uint32_t sys_flag = fields.sys_flag
    cdef Py_ssize_t topic_size = PyBytes_GET_SIZE(topic)
    cdef Py_ssize_t properties = properties_size(fields)
    if fields.born_host.size == V6_SIZE:
        sys_flag |= BORN_V6
    if PyBytes_GET_SIZE(store_host) == V6_SIZE:
        sys_flag |= STORE_V6
    put32(at + 4, MAGIC_V1)
    put32(at + 8, crc(fields.body.at, fields.body.size))
    put32(at + 12, <uint32_t>fields.queue_id)
    put32(at + 16, <uint32_t>fields.flag)
    put64(at + 20, <uint64_t>queue_offset)
    put64(at + 28, <uint64_t>cursor.physical_offset)
    put32(at + 36, sys_flag)
    put64(at + 40, <uint64_t>fields.born_timestamp)
    next = put_slice(at + 48, fields.born_host)
    put64(next, <uint64_t>cursor.timestamp)
    next = put_slice(next + 8, slice_of(store_host))
    put32(next, fields.tries)
    put64(next + 4, <uint64_t>fields.half_at)
    put32(next + 12, <uint32_t>fields.body.size)
    next = put_slice(next + 16, fields.body)
    next[0] = <uint8_t>topic_size
    next = put_slice(next + 1, slice_of(topic))
    next[0] = <uint8_t>(properties >> 8)
    next[1] = <uint8_t>properties
    next = put_slice(next + 2, fields.properties)
    if needs_separator(fields):
        next[0] = 2
        next += 1
    put_slice(next, fields.suffix)
    publish32(at, <uint32_t>size)


cdef inline uint8_t *put_slice(uint8_t *at, Slice part) noexcept nogil:
    memcpy(at, part.at, part.size)
    return at + part.size


cdef inline bint needs_separator(RecordFields *fields) noexcept nogil:
    cdef Slice properties = fields.properties
    return properties.size > 0 and properties.at[properties.size - 1] != 2


cdef inline int add_keys(bytearray keys, uint32_t prefix, Named *found, Cursor *cursor) except -1:
    cdef Slice word, words = found.keys
    if found.unique_id.size:
        add_item(keys, key_hash(prefix, found.unique_id), cursor)
    while next_word(&words, &word):
        add_item(keys, key_hash(prefix, word), cursor)
    if found.tags.size:
        add_item(keys, tags_hash(prefix, found.tags), cursor)
    return 0


cdef inline int reserve_keys(bytearray keys, Py_ssize_t properties) except -1:
    """See that the keys of messages with so many bytes of properties can be added later."""
    cdef Py_ssize_t size
    if keys is not None:
        size = PyByteArray_GET_SIZE(keys)
        PyByteArray_Resize(keys, size + ITEM_SIZE * (1 + properties // 2))
        PyByteArray_Resize(keys, size)
    return 0


cdef inline int add_item(bytearray keys, uint32_t hash_, Cursor *cursor) except -1:
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(keys)
    cdef uint8_t *item
    PyByteArray_Resize(keys, size + ITEM_SIZE)
    item = <uint8_t *>PyByteArray_AS_STRING(keys) + size
    put32(item, hash_)
    put64(item + 4, <uint64_t>cursor.physical_offset)
    put64(item + 12, <uint64_t>cursor.timestamp)
    return 0
