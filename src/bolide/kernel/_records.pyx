# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled version of `records`, which documents the functions.

Common cases are handled on pointers, with a bounds check before every access. Unusual and invalid
input is passed unchanged to `records`, which raises the errors.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from bolide.kernel._bytes cimport publish32, put32, put64, u32, u64
from bolide.kernel._crc cimport crc, crc_init
from bolide.kernel._fields cimport Fields, Slice, cut
from bolide.kernel._layouts cimport (
    BLANK_SIZE,
    BORN_V6,
    COMMIT,
    COMPRESSED,
    ENTRY_SIZE,
    FIXED_SIZE,
    HEADER_SIZE,
    INNER_BATCH,
    INT_DIGITS,
    ITEM_SIZE,
    LONG_DIGITS,
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES_SIZE,
    MAX_V1_TOPIC_SIZE,
    OFFSET_AT,
    PREPARED,
    ROLLBACK,
    SEAL_SIZE,
    SLOT_SIZE,
    STORE_V6,
    UNIT_SIZE,
    V4_SIZE,
    V6_SIZE,
    WRAPPED,
)

from bolide.kernel._names cimport (
    Named,
    cut_bytes,
    cut_text,
    find_named,
    key_hash,
    key_prefix,
    next_word,
    tags_code,
    tags_hash,
)

from bolide.kernel import index_entries, units
from bolide.kernel import records as reference
from bolide.kernel.results import Check, QueueRun, Scan, Stop
from bolide.model import properties
from bolide.model.message import SysFlag
from bolide.protocol import hosts, record, record_seal
from bolide.protocol.record import MAX_BODY_SIZE, Record

crc_init()

cdef enum:
    SEAL_NAME_SIZE = 9
    CHECK_BODY = 1
    CHECK_SEAL = 2

cdef const char *SEAL_NAME = b"__CRC32#\x01"
cdef bytes SCHEDULE_TOPIC = reference.SCHEDULE_TOPIC

assert (Check.NONE, Check.BODY, Check.SEAL) == (0, CHECK_BODY, CHECK_SEAL)

LAYOUTS = {
    "MAGIC_V1": (MAGIC_V1, record.MAGIC_V1),
    "MAGIC_V2": (MAGIC_V2, record.MAGIC_V2),
    "FIXED_SIZE": (FIXED_SIZE, record.FIXED_SIZE),
    "OFFSET_AT": (OFFSET_AT, record.OFFSET_AT),
    "V4_SIZE": (V4_SIZE, hosts.V4_SIZE),
    "V6_SIZE": (V6_SIZE, hosts.V6_SIZE),
    "MAX_V1_TOPIC_SIZE": (MAX_V1_TOPIC_SIZE, record.MAX_V1_TOPIC_SIZE),
    "MAX_PROPERTIES_SIZE": (MAX_PROPERTIES_SIZE, record.MAX_PROPERTIES_SIZE),
    "SEAL_SIZE": (SEAL_SIZE, record_seal.SEAL_SIZE),
    "UNIT_SIZE": (UNIT_SIZE, units.UNIT_SIZE),
    "BLANK_SIZE": (BLANK_SIZE, units.BLANK_SIZE),
    "HEADER_SIZE": (HEADER_SIZE, index_entries.HEADER_SIZE),
    "SLOT_SIZE": (SLOT_SIZE, index_entries.SLOT_SIZE),
    "ENTRY_SIZE": (ENTRY_SIZE, index_entries.ENTRY_SIZE),
    "ITEM_SIZE": (ITEM_SIZE, index_entries.ITEM_SIZE),
    "COMPRESSED": (COMPRESSED, SysFlag.COMPRESSED),
    "PREPARED": (PREPARED, SysFlag.PREPARED),
    "COMMIT": (COMMIT, SysFlag.COMMIT),
    "ROLLBACK": (ROLLBACK, SysFlag.ROLLBACK),
    "BORN_V6": (BORN_V6, SysFlag.BORN_HOST_V6),
    "STORE_V6": (STORE_V6, SysFlag.STORE_HOST_V6),
    "INNER_BATCH": (INNER_BATCH, SysFlag.INNER_BATCH),
    "WRAPPED": (WRAPPED, SysFlag.INNER_BATCH | SysFlag.NEEDS_UNWRAP),
    "INT_DIGITS": (INT_DIGITS, properties.INT_DIGITS),
    "LONG_DIGITS": (LONG_DIGITS, properties.LONG_DIGITS),
}
"""What `_layouts` spells out for all compiled code, beside its definition."""

for _name, (_compiled, _defined) in LAYOUTS.items():
    if _compiled != _defined:  # not as an ImportError, which means that there is no compiled code
        raise RuntimeError(f"{_name} is {_defined:#x}, compiled as {_compiled:#x}")


def body_crc(buffer):
    cdef Py_buffer source
    cdef uint32_t value
    PyObject_GetBuffer(buffer, &source, PyBUF_SIMPLE)
    with nogil:
        value = crc(<const uint8_t *>source.buf, source.len)
    PyBuffer_Release(&source)
    return value


# Writing a record


cdef struct Draft:
    int64_t queue_id
    int64_t born_timestamp
    int64_t flag
    int64_t sys_flag
    int64_t reconsume_times
    int64_t prepared_transaction_offset
    int64_t size
    Py_ssize_t head_size
    Py_buffer topic
    Py_buffer body
    Py_buffer properties


def record_size(draft, max_body_size=MAX_BODY_SIZE):
    cdef Draft parts
    cdef bint plain
    if not open_draft(draft, &parts):
        return reference.record_size(draft, max_body_size)
    plain = parts.body.len <= max_body_size
    close_draft(&parts)
    return parts.size if plain else reference.record_size(draft, max_body_size)


def write_record(target, Py_ssize_t position, draft, queue_offset, physical_offset, store_timestamp):
    cdef Draft parts
    cdef Py_buffer room
    cdef int64_t place[3]
    cdef bint done = False
    if (
        to_int64(queue_offset, &place[0])
        and to_int64(physical_offset, &place[1])
        and to_int64(store_timestamp, &place[2])
        and open_draft(draft, &parts)
    ):
        try:
            PyObject_GetBuffer(target, &room, PyBUF_WRITABLE)
            if 0 <= position <= room.len and parts.size <= room.len - position:
                fill(<uint8_t *>room.buf + position, &parts, draft[5], draft[6], place)
                done = True
            PyBuffer_Release(&room)
        finally:
            close_draft(&parts)
    if done:
        return parts.size
    return reference.write_record(
        target, position, draft, queue_offset, physical_offset, store_timestamp
    )


cdef bint open_draft(object draft, Draft *parts) except -1:
    """Unpack a draft, to be released by `close_draft`; False if `records` must handle it."""
    cdef Py_ssize_t topic_size
    if not isinstance(draft, tuple) or len(<tuple>draft) != 11:
        return False
    fields = <tuple>draft
    if not isinstance(fields[5], bytes) or not isinstance(fields[6], bytes):
        return False
    if not (
        to_int32(fields[3], &parts.queue_id)
        and to_int64(fields[4], &parts.born_timestamp)
        and to_int32(fields[7], &parts.flag)
        and to_int32(fields[8], &parts.sys_flag)
        and to_int32(fields[9], &parts.reconsume_times)
        and to_int64(fields[10], &parts.prepared_transaction_offset)
    ):
        return False
    PyObject_GetBuffer(fields[0], &parts.topic, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(fields[1], &parts.body, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(fields[2], &parts.properties, PyBUF_SIMPLE)
        except:
            PyBuffer_Release(&parts.body)
            raise
    except:
        PyBuffer_Release(&parts.topic)
        raise
    topic_size = parts.topic.len
    parts.head_size = FIXED_SIZE + host_size(fields[5]) + host_size(fields[6])
    parts.size = (
        parts.head_size + parts.body.len + topic_size + parts.properties.len
        + (3 if topic_size <= MAX_V1_TOPIC_SIZE else 4)
    )
    if topic_size <= MAX_PROPERTIES_SIZE and parts.properties.len <= MAX_PROPERTIES_SIZE and parts.size <= 0xFFFFFFFF:
        return True
    close_draft(parts)
    return False


cdef void close_draft(Draft *parts) noexcept:
    PyBuffer_Release(&parts.topic)
    PyBuffer_Release(&parts.body)
    PyBuffer_Release(&parts.properties)


cdef bint to_int64(object value, int64_t *number) except -1:
    cdef int overflow = 0
    if not PyLong_Check(value):
        return False
    number[0] = PyLong_AsLongLongAndOverflow(value, &overflow)
    return overflow == 0


cdef bint to_int32(object value, int64_t *number) except -1:
    return to_int64(value, number) and number[0] == <int32_t>number[0]


cdef inline Py_ssize_t host_size(bytes host) noexcept:
    return V6_SIZE if PyBytes_GET_SIZE(host) == V6_SIZE else V4_SIZE


cdef uint8_t *put_host(uint8_t *at, bytes host) noexcept:
    """Write a host, truncated or zero-padded to its size, as `struct` does."""
    cdef Py_ssize_t size = host_size(host), given = PyBytes_GET_SIZE(host)
    memset(at, 0, size)
    memcpy(at, PyBytes_AS_STRING(host), given if given < size else size)
    return at + size


cdef void fill(uint8_t *at, Draft *parts, bytes born_host, bytes store_host, int64_t *place) noexcept:
    cdef Py_ssize_t topic_size = parts.topic.len, body_size = parts.body.len
    cdef uint8_t *next
    cdef uint32_t sys_flag = <uint32_t>parts.sys_flag & ~<uint32_t>(BORN_V6 | STORE_V6)
    if host_size(born_host) == V6_SIZE:
        sys_flag |= BORN_V6
    if host_size(store_host) == V6_SIZE:
        sys_flag |= STORE_V6
    put32(at + 4, MAGIC_V1 if topic_size <= MAX_V1_TOPIC_SIZE else MAGIC_V2)
    put32(at + 8, crc(<const uint8_t *>parts.body.buf, body_size))
    put32(at + 12, <uint32_t>parts.queue_id)
    put32(at + 16, <uint32_t>parts.flag)
    put64(at + 20, <uint64_t>place[0])
    put64(at + 28, <uint64_t>place[1])
    put32(at + 36, sys_flag)
    put64(at + 40, <uint64_t>parts.born_timestamp)
    next = put_host(at + 48, born_host)
    put64(next, <uint64_t>place[2])
    next = put_host(next + 8, store_host)
    put32(next, <uint32_t>parts.reconsume_times)
    put64(next + 4, <uint64_t>parts.prepared_transaction_offset)
    put32(next + 12, <uint32_t>body_size)
    next += 16
    memcpy(next, parts.body.buf, body_size)
    next += body_size
    if topic_size > MAX_V1_TOPIC_SIZE:
        next[0] = <uint8_t>(topic_size >> 8)
        next += 1
    next[0] = <uint8_t>topic_size
    memcpy(next + 1, parts.topic.buf, topic_size)
    next += 1 + topic_size
    next[0] = <uint8_t>(parts.properties.len >> 8)
    next[1] = <uint8_t>parts.properties.len
    memcpy(next + 2, parts.properties.buf, parts.properties.len)
    publish32(at, <uint32_t>parts.size)


# Reading a record


cdef bint body_is_sound(const uint8_t *at, Fields *fields) noexcept nogil:
    return fields.body.size == 0 or crc(fields.body.at, fields.body.size) == u32(at + 8)


def read_record(buffer, Py_ssize_t position=0, *, bint check_crc=False):
    cdef Py_buffer source
    cdef Fields fields
    record = None
    PyObject_GetBuffer(buffer, &source, PyBUF_SIMPLE)
    try:
        if 0 <= position <= source.len:
            at = <const uint8_t *>source.buf + position
            if cut(at, source.len - position, &fields):
                if not check_crc or body_is_sound(at, &fields):
                    record = make_record(buffer, <const uint8_t *>source.buf, at, &fields)
    finally:
        PyBuffer_Release(&source)
    if record is None:
        return reference.read_record(buffer, position, check_crc=check_crc)
    return record


cdef object make_record(object buffer, const uint8_t *start, const uint8_t *at, Fields *fields):
    cdef const uint8_t *behind_hosts = fields.store_host.at + fields.store_host.size
    view = memoryview(buffer)
    body_at = fields.body.at - start
    properties_at = fields.properties.at - start
    return tuple.__new__(Record, (
        fields.size,
        fields.magic,
        u32(at + 8),
        <int32_t>u32(at + 12),
        <int32_t>u32(at + 16),
        <int64_t>u64(at + 20),
        <int64_t>u64(at + OFFSET_AT),
        fields.sys_flag,
        <int64_t>u64(at + 40),
        cut_bytes(fields.born_host),
        <int64_t>u64(fields.store_timestamp),
        cut_bytes(fields.store_host),
        <int32_t>u32(behind_hosts),
        <int64_t>u64(behind_hosts + 4),
        view[body_at : body_at + fields.body.size],
        cut_text(fields.topic),
        view[properties_at : properties_at + fields.properties.size],
    ))


# Tags and keys


def describe(topic, properties):
    cdef Py_buffer name, text
    cdef Named named
    cdef Slice part
    cdef uint32_t prefix
    hashes = []
    PyObject_GetBuffer(topic, &name, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(properties, &text, PyBUF_SIMPLE)
        try:
            find_named(Slice(<const uint8_t *>text.buf, text.len), &named)
            prefix = key_prefix(Slice(<const uint8_t *>name.buf, name.len))
            if named.unique_id.size:
                hashes.append(key_hash(prefix, named.unique_id))
            while next_word(&named.keys, &part):
                hashes.append(key_hash(prefix, part))
            if named.tags.size:
                hashes.append(tags_hash(prefix, named.tags))
            code = tags_code(named.tags)
        finally:
            PyBuffer_Release(&text)
    finally:
        PyBuffer_Release(&name)
    return code, tuple(hashes)


# Scanning


cdef class Growing:
    """A growable byte buffer."""

    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    def __dealloc__(self):
        free(self.data)

    cdef uint8_t *add(self, Py_ssize_t size) except NULL:
        cdef uint8_t *data
        cdef Py_ssize_t capacity
        if self.size + size > self.capacity:
            capacity = 2 * self.capacity + 8 * size
            data = <uint8_t *>realloc(self.data, capacity)
            if data == NULL:
                raise MemoryError
            self.data, self.capacity = data, capacity
        self.size += size
        return self.data + self.size - size

    cdef bytes copy(self):
        return PyBytes_FromStringAndSize(<const char *>self.data, self.size)


cdef class Run(Growing):
    """Entries of one queue with consecutive offsets."""

    cdef bytes topic
    cdef int32_t queue_id
    cdef int64_t first_offset
    cdef int64_t last_offset

    cdef bint is_of(self, Slice topic, int32_t queue_id) noexcept:
        return (
            self.queue_id == queue_id
            and PyBytes_GET_SIZE(self.topic) == topic.size
            and memcmp(PyBytes_AS_STRING(self.topic), topic.at, topic.size) == 0
        )


cdef class Found:
    """The queue entries and keys collected by a scan."""

    cdef tuple delays
    cdef bint wants_keys
    cdef Py_ssize_t count
    cdef int64_t first_timestamp
    cdef int64_t last_timestamp
    cdef list runs
    cdef dict growing
    cdef Run last_run
    cdef Growing items
    cdef list batches

    def __cinit__(self, tuple delays, bint wants_keys):
        self.delays = delays
        self.wants_keys = wants_keys
        self.runs = []
        self.growing = {}
        self.items = Growing()
        self.batches = []

    cdef int add(self, const uint8_t *at, Fields *fields, Py_ssize_t position) except -1:
        cdef Named named
        cdef int64_t physical_offset = <int64_t>u64(at + OFFSET_AT)
        cdef int64_t timestamp = <int64_t>u64(fields.store_timestamp), code
        cdef int kind = fields.sys_flag & ROLLBACK
        cdef uint8_t *entry
        find_named(fields.properties, &named)
        if kind == PREPARED or kind == ROLLBACK:
            pass
        elif fields.sys_flag & INNER_BATCH:
            self.batches.append(position)
        else:
            code = self.code_of(fields.topic, &named, timestamp)
            entry = self.run_for(at, fields).add(UNIT_SIZE)
            put64(entry, <uint64_t>physical_offset)
            put32(entry + 8, <uint32_t>fields.size)
            put64(entry + 12, <uint64_t>code)
        if self.wants_keys and kind != ROLLBACK:
            self.add_keys(fields.topic, &named, physical_offset, timestamp)
        if self.count == 0:
            self.first_timestamp = timestamp
        self.last_timestamp = timestamp
        self.count += 1
        return 0

    cdef int64_t code_of(self, Slice topic, Named *named, int64_t timestamp) except? -1:
        cdef Py_ssize_t level, levels = len(self.delays) - 1
        if levels > 0 and named.delay.size and topic.size == PyBytes_GET_SIZE(SCHEDULE_TOPIC):
            if memcmp(topic.at, PyBytes_AS_STRING(SCHEDULE_TOPIC), topic.size) == 0:
                level = delay_level(named.delay)
                if level > 0:
                    delay = <int64_t>self.delays[level if level < levels else levels]
                    return <int64_t>(<uint64_t>timestamp + <uint64_t>delay)
        return tags_code(named.tags)

    cdef Run run_for(self, const uint8_t *at, Fields *fields):
        cdef int32_t queue_id = <int32_t>u32(at + 12)
        cdef int64_t queue_offset = <int64_t>u64(at + 20)
        cdef Run run = self.last_run
        key = None
        if run is None or not run.is_of(fields.topic, queue_id):
            key = (cut_bytes(fields.topic), queue_id)
            run = self.growing.get(key)
        if run is None or queue_offset == INT64_MIN or queue_offset - 1 != run.last_offset:
            if key is None:
                key = (run.topic, queue_id)
            run = Run()
            run.topic, run.queue_id, run.first_offset = key[0], queue_id, queue_offset
            self.growing[key] = run
            self.runs.append(run)
        run.last_offset = queue_offset
        self.last_run = run
        return run

    cdef int add_keys(
        self, Slice topic, Named *named, int64_t physical_offset, int64_t timestamp
    ) except -1:
        cdef uint32_t prefix
        cdef Slice word
        if not (named.unique_id.size or named.keys.size or named.tags.size):
            return 0
        prefix = key_prefix(topic)
        if named.unique_id.size:
            self.add_item(key_hash(prefix, named.unique_id), physical_offset, timestamp)
        while next_word(&named.keys, &word):
            self.add_item(key_hash(prefix, word), physical_offset, timestamp)
        if named.tags.size:
            self.add_item(tags_hash(prefix, named.tags), physical_offset, timestamp)
        return 0

    cdef int add_item(self, uint32_t hash_, int64_t physical_offset, int64_t timestamp) except -1:
        cdef uint8_t *item = self.items.add(ITEM_SIZE)
        put32(item, hash_)
        put64(item + 4, <uint64_t>physical_offset)
        put64(item + 12, <uint64_t>timestamp)
        return 0


cdef Py_ssize_t delay_level(Slice text) noexcept nogil:
    """Parse a delay level; 0 if the text is not a number of at most `INT_DIGITS` digits."""
    cdef Py_ssize_t level = 0, i
    if text.size > INT_DIGITS:
        return 0
    for i in range(text.size):
        if not 0x30 <= text.at[i] <= 0x39:
            return 0
        level = 10 * level + text.at[i] - 0x30
    return level


cdef bint seal_is_sound(const uint8_t *at, Py_ssize_t size) noexcept nogil:
    cdef const uint8_t *seal = at + size - SEAL_SIZE
    cdef uint32_t number
    cdef Py_ssize_t i
    if memcmp(seal, SEAL_NAME, SEAL_NAME_SIZE) != 0 or seal[SEAL_SIZE - 1] != 2:
        return False
    number = crc(at, size - SEAL_SIZE)
    for i in range(SEAL_NAME_SIZE, SEAL_SIZE - 1):  # least significant digit first
        if seal[i] != 0x30 + number % 10:
            return False
        number //= 10
    return True


cdef bint is_sound(const uint8_t *at, Py_ssize_t left, int64_t physical_offset, int check, Fields *fields) noexcept nogil:
    if not cut(at, left, fields) or <int64_t>u64(at + OFFSET_AT) != physical_offset:
        return False
    if check == CHECK_BODY:
        return body_is_sound(at, fields)
    return check != CHECK_SEAL or seal_is_sound(at, fields.size)


def scan(
    buffer,
    Py_ssize_t position,
    Py_ssize_t end,
    int64_t physical_offset,
    *,
    check=Check.BODY,
    tuple delays=(),
    bint keys=True,
):
    cdef Py_buffer source
    cdef Fields fields
    cdef int mode = check
    cdef Found found = Found(delays, keys)
    cdef Run run
    stop, reason = Stop.END, ""
    PyObject_GetBuffer(buffer, &source, PyBUF_SIMPLE)
    try:
        if position < 0 or end > source.len or not 0 <= physical_offset <= INT64_MAX - source.len:
            reference.refuse_outside(source.len, position, end, physical_offset)
        while position < end:
            at = <const uint8_t *>source.buf + position
            if not is_sound(at, source.len - position, physical_offset + position, mode, &fields):
                halt = reference.judge(buffer, position, physical_offset, check)
                if not isinstance(halt, reference.Halt):
                    halt = reference.Halt(Stop.DAMAGED, "it changed while it was read")
                stop, reason = halt
                break
            found.add(at, &fields, position)
            position += fields.size
    finally:
        PyBuffer_Release(&source)
    return Scan(
        position,
        stop,
        reason,
        found.count,
        found.first_timestamp,
        found.last_timestamp,
        [QueueRun(run.topic, run.queue_id, run.first_offset, run.copy()) for run in found.runs],
        found.items.copy(),
        found.batches,
    )
