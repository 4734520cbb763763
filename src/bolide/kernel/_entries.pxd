# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Records to be: what goes into them, how they are written, and the keys that find them."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from bolide.kernel._bytes cimport publish32, put32, put64, u32, u64
from bolide.kernel._crc cimport crc
from bolide.kernel._fields cimport BORN_V6, MAGIC_V1, STORE_V6, V6_SIZE, Slice
from bolide.kernel._names cimport Named, key_hash, next_word
from bolide.kernel._plain_sends cimport Item, Send
from bolide.kernel._transactions cimport COMMIT, Half

cdef enum:
    ITEM_SIZE = 20  # of a key, as `Scan.keys` has them


cdef struct Entry:  # all of a record but its place and topic
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


cdef struct Place:
    const uint8_t *start  # of the memory that `at` lies in
    uint8_t *at
    Py_ssize_t room
    int64_t physical_offset
    int64_t timestamp
    Slice born_host


cdef inline Slice slice_of(bytes data) noexcept:
    return Slice(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef inline Entry entry_of(Send *send, Place *place, Slice suffix) noexcept nogil:
    cdef Entry entry
    entry.queue_id, entry.flag, entry.sys_flag = send.queue_id, send.flag, send.sys_flag
    entry.born_timestamp, entry.born_host = send.born_timestamp, place.born_host
    entry.tries, entry.half_at = 0, 0
    entry.body, entry.properties, entry.suffix = send.body, send.properties, suffix
    entry.named = send.named
    return entry


cdef inline Entry item_entry(Send *send, Item *item, Place *place, Slice suffix) noexcept nogil:
    """The entry of a message of a batch; `named` is not looked for."""
    cdef Entry entry = entry_of(send, place, suffix)
    entry.flag, entry.body, entry.properties = item.flag, item.body, item.properties
    return entry


cdef inline void add_common(Entry *entry, Named *common) noexcept nogil:
    """What stands behind the properties of a message counts before its own."""
    if common.tags.size:
        entry.named.tags = common.tags
    if common.keys.size:
        entry.named.keys = common.keys


cdef inline Entry committed(Half *half, int64_t physical_offset) noexcept nogil:
    """A half message as it goes where it belongs."""
    cdef Entry entry
    cdef const uint8_t *at = half.fields.born_host.at - 48
    cdef const uint8_t *behind = half.fields.store_host.at + half.fields.store_host.size
    entry.queue_id, entry.flag = <int32_t>half.queue_id, <int32_t>u32(at + 16)
    entry.sys_flag = <uint32_t>half.fields.sys_flag & ~<uint32_t>(BORN_V6 | STORE_V6) | COMMIT
    entry.born_timestamp, entry.born_host = <int64_t>u64(at + 40), half.fields.born_host
    entry.tries, entry.half_at = u32(behind), physical_offset
    entry.body, entry.properties = half.fields.body, half.fields.properties
    entry.suffix = Slice(behind, 0)
    entry.named.tags, entry.named.keys, entry.named.unique_id = half.tags, half.keys, half.unique_id
    return entry


cdef inline Py_ssize_t properties_size(Entry *entry) noexcept nogil:
    return entry.properties.size + needs_joint(entry) + entry.suffix.size


cdef inline void fill(
    Entry *entry, bytes topic, bytes store_host, Py_ssize_t size, int64_t queue_offset, Place *place
) noexcept:
    cdef uint8_t *at = place.at
    cdef uint8_t *next
    cdef uint32_t sys_flag = entry.sys_flag
    cdef Py_ssize_t topic_size = PyBytes_GET_SIZE(topic)
    cdef Py_ssize_t properties = properties_size(entry)
    if entry.born_host.size == V6_SIZE:
        sys_flag |= BORN_V6
    if PyBytes_GET_SIZE(store_host) == V6_SIZE:
        sys_flag |= STORE_V6
    put32(at + 4, MAGIC_V1)
    put32(at + 8, crc(entry.body.at, entry.body.size))
    put32(at + 12, <uint32_t>entry.queue_id)
    put32(at + 16, <uint32_t>entry.flag)
    put64(at + 20, <uint64_t>queue_offset)
    put64(at + 28, <uint64_t>place.physical_offset)
    put32(at + 36, sys_flag)
    put64(at + 40, <uint64_t>entry.born_timestamp)
    next = put_slice(at + 48, entry.born_host)
    put64(next, <uint64_t>place.timestamp)
    next = put_slice(next + 8, slice_of(store_host))
    put32(next, entry.tries)
    put64(next + 4, <uint64_t>entry.half_at)
    put32(next + 12, <uint32_t>entry.body.size)
    next = put_slice(next + 16, entry.body)
    next[0] = <uint8_t>topic_size
    next = put_slice(next + 1, slice_of(topic))
    next[0] = <uint8_t>(properties >> 8)
    next[1] = <uint8_t>properties
    next = put_slice(next + 2, entry.properties)
    if needs_joint(entry):
        next[0] = 2
        next += 1
    put_slice(next, entry.suffix)
    publish32(at, <uint32_t>size)


cdef inline uint8_t *put_slice(uint8_t *at, Slice part) noexcept nogil:
    memcpy(at, part.at, part.size)
    return at + part.size


cdef inline bint needs_joint(Entry *entry) noexcept nogil:
    cdef Slice properties = entry.properties
    return properties.size > 0 and properties.at[properties.size - 1] != 2


cdef inline int add_keys(bytearray keys, uint32_t prefix, Named *found, Place *place) except -1:
    cdef Slice word, words = found.keys
    if found.unique_id.size:
        add_item(keys, key_hash(prefix, found.unique_id), place)
    while next_word(&words, &word):
        add_item(keys, key_hash(prefix, word), place)
    return 0


cdef inline int add_item(bytearray keys, uint32_t hash_, Place *place) except -1:
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(keys)
    cdef uint8_t *item
    PyByteArray_Resize(keys, size + ITEM_SIZE)
    item = <uint8_t *>PyByteArray_AS_STRING(keys) + size
    put32(item, hash_)
    put64(item + 4, <uint64_t>place.physical_offset)
    put64(item + 12, <uint64_t>place.timestamp)
    return 0
