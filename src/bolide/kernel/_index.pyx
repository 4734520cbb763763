# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled version of `index_entries`, which documents the functions."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from bolide.kernel._bytes cimport publish32, put32, put64, u32, u64
from bolide.kernel._layouts cimport ENTRY_SIZE, HEADER_SIZE, ITEM_SIZE, SLOT_SIZE

from bolide.kernel import index_entries

cdef enum:
    MAX_SECONDS = 0x7FFFFFFF


cdef bint fits(int64_t size, int64_t slots, int64_t entries) noexcept nogil:
    # By division: products of untrusted numbers may overflow.
    size -= HEADER_SIZE
    if slots < 1 or size < 0 or slots > size // SLOT_SIZE:
        return False
    return entries <= (size - slots * SLOT_SIZE) // ENTRY_SIZE


def put_keys(view, int64_t slots, int64_t capacity, int64_t count, int64_t begin_timestamp, keys):
    cdef Py_buffer target, items
    cdef int64_t added = 0, fresh = 0
    PyObject_GetBuffer(view, &target, PyBUF_WRITABLE)
    try:
        if count < 1 or not fits(target.len, slots, capacity):
            index_entries.refuse_misfit(target.len, slots, capacity, count)
        PyObject_GetBuffer(keys, &items, PyBUF_SIMPLE)
        try:
            if items.len % ITEM_SIZE:
                raise ValueError(f"{items.len} bytes are no whole number of items")
            with nogil:
                added = put_items(
                    <uint8_t *>target.buf, slots, capacity, count, begin_timestamp,
                    <const uint8_t *>items.buf, items.len // ITEM_SIZE, &fresh,
                )
        finally:
            PyBuffer_Release(&items)
    finally:
        PyBuffer_Release(&target)
    return added, fresh


cdef int64_t put_items(
    uint8_t *file, int64_t slots, int64_t capacity, int64_t count, int64_t begin,
    const uint8_t *item, int64_t items, int64_t *fresh,
) noexcept nogil:
    cdef uint8_t *entries = file + HEADER_SIZE + slots * SLOT_SIZE
    cdef uint8_t *slot
    cdef uint8_t *entry
    cdef uint32_t key_hash, previous
    cdef int64_t number = count, timestamp, seconds
    while items > 0 and number < capacity:
        key_hash = u32(item)
        timestamp = <int64_t>u64(item + 12)
        slot = file + HEADER_SIZE + key_hash % <uint64_t>slots * SLOT_SIZE
        previous = u32(slot)
        if previous >= number:
            previous = 0
        seconds = 0
        if begin > 0 and timestamp > begin:
            seconds = (timestamp - begin) // 1000
            if seconds > MAX_SECONDS:
                seconds = MAX_SECONDS
        entry = entries + number * ENTRY_SIZE
        put32(entry, key_hash)
        put64(entry + 4, u64(item + 4))
        put32(entry + 12, <uint32_t>seconds)
        put32(entry + 16, previous)
        publish32(slot, <uint32_t>number)
        fresh[0] += previous == 0
        number += 1
        item += ITEM_SIZE
        items -= 1
    return number - count


def find_keys(view, int64_t slots, int64_t count, uint32_t key_hash, seconds, Py_ssize_t limit):
    cdef Py_buffer source
    cdef const uint8_t *entries
    cdef int64_t least, most, number, above, physical_offset = 0
    least, most = seconds
    found = []
    PyObject_GetBuffer(view, &source, PyBUF_SIMPLE)
    try:
        if count < 1 or not fits(source.len, slots, count):
            index_entries.refuse_misfit(source.len, slots, count, count)
        entries = <const uint8_t *>source.buf + HEADER_SIZE + slots * SLOT_SIZE
        number = u32(<const uint8_t *>source.buf + HEADER_SIZE + key_hash % <uint64_t>slots * SLOT_SIZE)
        above = count
        while len(found) < limit:
            with nogil:
                number = next_match(entries, number, &above, key_hash, least, most, &physical_offset)
            if number < 0:
                break
            if not found or found[len(found) - 1] != physical_offset:
                found.append(physical_offset)
    finally:
        PyBuffer_Release(&source)
    return found


cdef int64_t next_match(
    const uint8_t *entries, int64_t number, int64_t *above, uint32_t key_hash,
    int64_t least, int64_t most, int64_t *physical_offset,
) noexcept nogil:
    """Find the next matching entry; returns the entry number to continue with, -1 at the end."""
    cdef const uint8_t *entry
    cdef int64_t after
    while 0 < number < above[0]:
        entry = entries + number * ENTRY_SIZE
        after = <int32_t>u32(entry + 12)
        if after < 0 or after < least:
            return -1
        above[0] = number
        number = u32(entry + 16)
        if u32(entry) == key_hash and after <= most:
            physical_offset[0] = <int64_t>u64(entry + 4)
            return number
    return -1


def rebuild_slots(view, int64_t slots, int64_t count):
    cdef Py_buffer target
    cdef int64_t used = 0
    PyObject_GetBuffer(view, &target, PyBUF_WRITABLE)
    try:
        if count < 1 or not fits(target.len, slots, count):
            index_entries.refuse_misfit(target.len, slots, count, count)
        with nogil:
            used = rebuild(<uint8_t *>target.buf, slots, count)
    finally:
        PyBuffer_Release(&target)
    return used


cdef int64_t rebuild(uint8_t *file, int64_t slots, int64_t count) noexcept nogil:
    cdef uint8_t *entry = file + HEADER_SIZE + slots * SLOT_SIZE
    cdef uint8_t *slot
    cdef uint32_t previous
    cdef int64_t number, used = 0
    memset(file + HEADER_SIZE, 0, slots * SLOT_SIZE)
    for number in range(1, count):
        entry += ENTRY_SIZE
        slot = file + HEADER_SIZE + u32(entry) % <uint64_t>slots * SLOT_SIZE
        previous = u32(slot)
        if u32(entry + 16) != previous:  # do not dirty pages that are already correct
            put32(entry + 16, previous)
        put32(slot, <uint32_t>number)
        used += previous == 0
    return used
