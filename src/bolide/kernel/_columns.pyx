# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled version of `columns`, which documents the class.

Common records are copied between buffers directly. Invalid and unusual records are handled by the
functions of `columns`, which determine errors and rare results.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy

from bolide.kernel._bytes cimport u32, u64
from bolide.kernel._crc cimport crc, crc_init
from bolide.kernel._fields cimport Fields, Slice, cut
from bolide.kernel._layouts cimport COMPRESSED, PREPARED, V6_SIZE, WRAPPED

from bolide.kernel.column_buffers import EVERYTHING, ColumnBuffers, Pairs, Strings, Walk
from bolide.kernel.columns import (
    MAX_HOSTS,
    MAX_ROWS,
    MAX_SIZE,
    halt_at,
    host_texts,
    inflate,
)
from bolide.kernel.property_columns import as_utf_8, read_pairs
from bolide.kernel.records import refuse_outside
from bolide.kernel.results import Stop
from bolide.model.message import without_compression

crc_init()

cdef enum:
    MAX_HOST_TEXT = 64
    MAX_PAIRS = 64  # above that, a dictionary compares the names
    LEAST_ROOM = 64

cdef int64_t LAST_MS = INT64_MAX // 1000
cdef const char *DIGITS = b"0123456789ABCDEF"


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static inline int bolide_is_ascii(const uint8_t *p, size_t n) {
        uint64_t all = 0, word;
        for (; n >= 8; p += 8, n -= 8) {
            memcpy(&word, p, 8);
            all |= word;
        }
        for (; n > 0; p++, n--) all |= *p;
        return !(all & 0x8080808080808080u);
    }
    """
    bint is_ascii "bolide_is_ascii"(const uint8_t *at, size_t size) noexcept nogil


@cython.final
cdef class Grown:
    """A growable byte buffer; it must not grow once it was exported by the buffer protocol."""

    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    def __cinit__(self, Py_ssize_t capacity):
        self.grow(capacity if capacity > LEAST_ROOM else LEAST_ROOM)

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, True, flags)

    cdef int grow(self, Py_ssize_t capacity) except -1:
        cdef uint8_t *data = <uint8_t *>realloc(self.data, capacity)
        if data == NULL:
            raise MemoryError
        self.data, self.capacity = data, capacity
        return 0

    cdef inline uint8_t *add(self, Py_ssize_t size) except NULL:
        if self.size + size > self.capacity:
            self.grow(2 * self.capacity + size)
        self.size += size
        return self.data + self.size - size

    cdef inline int put32(self, int32_t value) except -1:
        memcpy(self.add(4), &value, 4)
        return 0

    cdef inline int put64(self, int64_t value) except -1:
        memcpy(self.add(8), &value, 8)
        return 0

    cdef Grown successor(self):
        """Return an empty buffer of about the same capacity."""
        return Grown(self.size + self.size // 8)


@cython.final
cdef class Texts:
    """A column of strings."""

    cdef Grown offsets
    cdef Grown data
    cdef Grown valid
    cdef int32_t rows
    cdef bint has_nulls

    def __cinit__(self, Texts before=None):
        self.offsets = Grown(0) if before is None else before.offsets.successor()
        self.data = Grown(0) if before is None else before.data.successor()
        self.valid = Grown(0)
        self.offsets.put32(0)

    cdef inline int put(self, Slice text) except -1:
        memcpy(self.data.add(text.size), text.at, text.size)
        return self.end_row()

    cdef inline int end_row(self) except -1:
        if self.data.size > INT32_MAX:
            raise OverflowError("a column has more than 2 GiB")
        self.offsets.put32(<int32_t>self.data.size)
        self.rows += 1
        return 0

    cdef inline int put_or_null(self, Slice text) except -1:
        """Append a text, or null if its address is NULL; must be used for all rows of the column."""
        if self.rows % 8 == 0:
            self.valid.add(1)[0] = 0
        if text.at == NULL:
            self.has_nulls = True
        else:
            self.valid.data[self.rows // 8] |= 1 << (self.rows % 8)
        return self.put(text)

    cdef object cut(self):
        return Strings(self.offsets, self.data, self.valid if self.has_nulls else None)


cdef struct Host:  # cache of the last host: packed and formatted
    Py_ssize_t size
    uint8_t packed[V6_SIZE]
    Py_ssize_t text_size
    uint8_t text[MAX_HOST_TEXT]
    uint8_t digits[2 * V6_SIZE]


cdef struct Named:
    Slice keys
    Slice tags
    Slice unique_id


cdef class Columns:
    cdef object wanted_topic
    cdef bint undelivered
    cdef int64_t first_offset, last_offset, first_time, last_time
    cdef bint with_properties
    cdef Py_ssize_t max_rows, max_size
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t left_compressed

    cdef dict topics
    cdef dict hosts
    cdef bytes topic_met
    cdef bytes topic_text
    cdef Host born_met
    cdef Host store_met

    cdef Texts topic, message_id, offset_message_id, keys, tags, body, born_host, store_host
    cdef Grown queue_id, queue_offset, physical_offset, born_timestamp, store_timestamp
    cdef Grown reconsume_times, sys_flag, flag
    cdef Grown pairs
    cdef Texts names, values

    def __init__(
        self,
        wanted=EVERYTHING,
        *,
        bint properties=True,
        Py_ssize_t max_rows=MAX_ROWS,
        Py_ssize_t max_size=MAX_SIZE,
    ):
        self.first_offset, self.last_offset = as_long(wanted.first_offset), as_long(wanted.end_offset - 1)
        self.first_time, self.last_time = as_long(wanted.since), as_long(wanted.until - 1)
        self.undelivered = wanted.undelivered
        self.wanted_topic = wanted.topic
        self.with_properties = properties
        self.max_rows = max_rows
        self.max_size = max_size
        self.topics, self.hosts = {}, {}
        self.born_met.size = self.store_met.size = 0
        self.queue_id = self.queue_offset = self.physical_offset = Grown(0)
        self.born_timestamp = self.store_timestamp = self.reconsume_times = Grown(0)
        self.sys_flag = self.flag = self.pairs = Grown(0)
        self.begin()

    cdef int begin(self) except -1:
        """Reset to empty columns with the capacity of the previous ones."""
        self.rows = self.size = self.left_compressed = 0
        self.topic, self.body = Texts(self.topic), Texts(self.body)
        self.message_id = Texts(self.message_id)
        self.offset_message_id = Texts(self.offset_message_id)
        self.keys, self.tags = Texts(self.keys), Texts(self.tags)
        self.born_host, self.store_host = Texts(self.born_host), Texts(self.store_host)
        self.names, self.values = Texts(self.names), Texts(self.values)
        self.queue_id, self.flag = self.queue_id.successor(), self.flag.successor()
        self.queue_offset = self.queue_offset.successor()
        self.physical_offset = self.physical_offset.successor()
        self.born_timestamp = self.born_timestamp.successor()
        self.store_timestamp = self.store_timestamp.successor()
        self.reconsume_times = self.reconsume_times.successor()
        self.sys_flag, self.pairs = self.sys_flag.successor(), self.pairs.successor()
        return self.pairs.put32(0)

    @property
    def is_full(self):
        return self.full()

    cdef inline bint full(self) noexcept:
        return self.rows >= self.max_rows or self.size >= self.max_size

    def add(
        self,
        buffer,
        Py_ssize_t position=0,
        end=None,
        *,
        physical_offset=None,
        bint check_crc=False,
        int64_t offset_delta=0,
    ):
        cdef Py_buffer source
        cdef Fields fields
        cdef Py_ssize_t last
        cdef bint is_placed = physical_offset is not None
        cdef int64_t base = 0
        cdef const uint8_t *at
        cdef int taken
        stop, reason = Stop.END, ""
        PyObject_GetBuffer(buffer, &source, PyBUF_SIMPLE)
        try:
            refuse_outside(
                source.len, position, source.len if end is None else end, physical_offset or 0
            )
            last = source.len if end is None else end
            base = physical_offset or 0
            while position < last:
                if self.full():
                    stop = Stop.FULL
                    break
                at = <const uint8_t *>source.buf + position
                taken = cut(at, source.len - position, &fields) and (
                    not is_placed or <int64_t>u64(at + 28) == base + position
                )
                if taken and fields.sys_flag & WRAPPED == WRAPPED:
                    stop = Stop.BATCH
                    break
                if taken:
                    taken = self.take(at, &fields, check_crc, offset_delta)
                if not taken:
                    stop, reason = halt_at(buffer, position, physical_offset, check_crc=check_crc)
                    break
                position += fields.size
        finally:
            PyBuffer_Release(&source)
        return Walk(position, stop, reason)

    def cut(self):
        pairs = None
        if self.with_properties:
            pairs = Pairs(self.pairs, self.names.rows, self.names.cut(), self.values.cut())
        found = ColumnBuffers(
            self.rows,
            self.topic.cut(),
            self.queue_id,
            self.queue_offset,
            self.physical_offset,
            self.message_id.cut(),
            self.offset_message_id.cut(),
            self.keys.cut(),
            self.tags.cut(),
            self.body.cut(),
            self.born_timestamp,
            self.store_timestamp,
            self.born_host.cut(),
            self.store_host.cut(),
            self.reconsume_times,
            self.sys_flag,
            self.flag,
            pairs,
        )
        self.begin()
        return found

    # ---- one record

    cdef bint take(self, const uint8_t *at, Fields *fields, bint check_crc, int64_t delta) except -1:
        """Add a record if wanted; False if its body is corrupt."""
        cdef int64_t offset = <int64_t>(u64(at + 20) + <uint64_t>delta)
        cdef int64_t stored = <int64_t>u64(fields.store_timestamp)
        if not (
            self.first_offset <= offset <= self.last_offset
            and self.first_time <= stored <= self.last_time
            and (self.undelivered or not fields.sys_flag & PREPARED)
            and self.wants_topic(fields.topic)
        ):
            return True
        if check_crc and fields.body.size and crc(fields.body.at, fields.body.size) != u32(at + 8):
            return False
        self.topic.put(slice_of(self.topic_text))
        self.queue_id.put32(<int32_t>u32(at + 12))
        self.flag.put32(<int32_t>u32(at + 16))
        self.queue_offset.put64(offset)
        self.physical_offset.put64(<int64_t>u64(at + 28))
        self.born_timestamp.put64(microseconds(<int64_t>u64(at + 40)))
        self.store_timestamp.put64(microseconds(stored))
        self.reconsume_times.put32(<int32_t>u32(fields.store_host.at + fields.store_host.size))
        self.put_hosts(fields)
        self.put_ids_and_properties(at, fields)
        self.put_body(fields)
        self.rows += 1
        return True

    cdef bint wants_topic(self, Slice raw) except -1:
        if self.topic_met is None or not is_same(raw, slice_of(self.topic_met)):
            self.topic_met = bytes_of(raw)
            try:
                self.topic_text = self.topics[self.topic_met]
            except KeyError:
                wanted = self.wanted_topic is None or self.wanted_topic(self.topic_met)
                self.topic_text = as_utf_8(self.topic_met) if wanted else None
                self.topics[self.topic_met] = self.topic_text
        return self.topic_text is not None

    cdef int put_hosts(self, Fields *fields) except -1:
        if not is_same(fields.born_host, Slice(&self.born_met.packed[0], self.born_met.size)):
            self.meet(fields.born_host, &self.born_met)
        if not is_same(fields.store_host, Slice(&self.store_met.packed[0], self.store_met.size)):
            self.meet(fields.store_host, &self.store_met)
        self.born_host.put(Slice(&self.born_met.text[0], self.born_met.text_size))
        return self.store_host.put(Slice(&self.store_met.text[0], self.store_met.text_size))

    cdef int meet(self, Slice packed, Host *host) except -1:
        raw = bytes_of(packed)
        texts = self.hosts.get(raw)
        if texts is None:
            if len(self.hosts) >= MAX_HOSTS:
                self.hosts.clear()
            texts = self.hosts[raw] = host_texts(raw)
        text, digits = <bytes>texts[0], <bytes>texts[1]
        assert PyBytes_GET_SIZE(text) <= MAX_HOST_TEXT
        host.size, host.text_size = packed.size, PyBytes_GET_SIZE(text)
        memcpy(host.packed, packed.at, packed.size)
        memcpy(host.text, PyBytes_AS_STRING(text), host.text_size)
        memcpy(host.digits, PyBytes_AS_STRING(digits), 2 * packed.size)
        return 0

    cdef int put_ids_and_properties(self, const uint8_t *at, Fields *fields) except -1:
        cdef Named named = Named(Slice(NULL, 0), Slice(NULL, 0), Slice(NULL, 0))
        cdef Slice text = fields.properties
        cdef Slice offset_id
        clean = None
        if not is_ascii(text.at, text.size):
            clean = as_utf_8(bytes_of(text))
            text = slice_of(clean)
        if not self.put_pairs(text, &named):
            clean = read_pairs(bytes_of(text))
            self.put_many(clean, &named)
        offset_id.size = 2 * fields.store_host.size + 16
        offset_id.at = self.offset_message_id.data.add(offset_id.size)
        memcpy(<uint8_t *>offset_id.at, self.store_met.digits, 2 * fields.store_host.size)
        write_hex(<uint8_t *>offset_id.at + 2 * fields.store_host.size, u64(at + 28))
        self.offset_message_id.end_row()
        self.message_id.put(offset_id if named.unique_id.at == NULL else named.unique_id)
        self.keys.put_or_null(named.keys)
        return self.tags.put_or_null(named.tags)

    cdef bint put_pairs(self, Slice text, Named *named) except -1:
        """Append pairs; False, with nothing appended, if there are more than MAX_PAIRS."""
        cdef Slice names[MAX_PAIRS]
        cdef Slice values[MAX_PAIRS]
        cdef Slice name, value
        cdef Py_ssize_t count = 0, i
        cdef const uint8_t *next = text.at
        cdef const uint8_t *end = text.at + text.size
        cdef const uint8_t *pair_end
        cdef const uint8_t *name_end
        while next < end:
            pair_end = <const uint8_t *>memchr(next, 2, end - next)
            if pair_end == NULL:
                pair_end = end
            name_end = <const uint8_t *>memchr(next, 1, pair_end - next)
            if name_end != NULL and next < name_end and name_end + 1 < pair_end:
                name = Slice(next, name_end - next)
                value = Slice(name_end + 1, pair_end - name_end - 1)
                for i in range(count):
                    if is_same(name, names[i]):
                        values[i] = value
                        break
                else:
                    if count == MAX_PAIRS:
                        return False
                    names[count], values[count] = name, value
                    count += 1
            next = pair_end + 1
        for i in range(count):
            note(names[i], values[i], named)
        if self.with_properties:
            for i in range(count):
                self.names.put(names[i])
                self.values.put(values[i])
            self.pairs.put32(self.names.rows)
        return True

    cdef int put_many(self, dict pairs, Named *named) except -1:
        for name, value in pairs.items():
            note(slice_of(name), slice_of(value), named)
            if self.with_properties:
                self.names.put(slice_of(name))
                self.values.put(slice_of(value))
        if self.with_properties:
            self.pairs.put32(self.names.rows)
        return 0

    cdef int put_body(self, Fields *fields) except -1:
        cdef Slice body = fields.body
        cdef int32_t sys_flag = fields.sys_flag
        if sys_flag & COMPRESSED:
            plain = inflate(bytes_of(body), sys_flag)
            if plain is None:
                self.left_compressed += 1
            else:
                body, sys_flag = slice_of(plain), without_compression(sys_flag)
        self.sys_flag.put32(sys_flag)
        self.size += body.size + fields.properties.size
        return self.body.put(body)


cdef inline bint is_same(Slice one, Slice other) noexcept nogil:
    return one.size == other.size and memcmp(one.at, other.at, one.size) == 0


cdef inline Slice slice_of(bytes text) noexcept:
    return Slice(<const uint8_t *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef inline bytes bytes_of(Slice part):
    return PyBytes_FromStringAndSize(<const char *>part.at, part.size)


cdef inline void note(Slice name, Slice value, Named *named) noexcept nogil:
    if name.size == 4:
        if memcmp(name.at, b"TAGS", 4) == 0:
            named.tags = value
        elif memcmp(name.at, b"KEYS", 4) == 0:
            named.keys = value
    elif name.size == 8 and memcmp(name.at, b"UNIQ_KEY", 8) == 0:
        named.unique_id = value


cdef inline void write_hex(uint8_t *at, uint64_t number) noexcept nogil:
    cdef int i
    for i in range(15, -1, -1):
        at[i] = DIGITS[number & 15]
        number >>= 4


cdef inline int64_t microseconds(int64_t ms) noexcept nogil:
    if ms > LAST_MS:
        ms = LAST_MS
    elif ms < -LAST_MS:
        ms = -LAST_MS
    return ms * 1000


cdef int64_t as_long(object number) except? -1:
    return max(min(number, INT64_MAX), INT64_MIN)
