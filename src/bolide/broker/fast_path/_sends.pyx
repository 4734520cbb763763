# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Plain sends, batches, half messages and ends of transactions: from received bytes into the log.

`SendFlow.run` serves what the plans of one sender cover and stops at the first request that it cannot
serve; the handlers serve that one. It decides no policy: a plan says that gate and admission let the
sender do this. Nothing is written before every check of a request has passed. Replies are the same
bytes that the handlers would write.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp, memcpy, memset

from bolide.broker.fast_path._output cimport (
    Output,
    put,
    put_bytes,
    put_number,
    put_number_field,
    put_pair,
    reserve,
)
from bolide.broker.fast_path._properties cimport Prefixes, begins, holds, is_interpreted, load_prefixes
from bolide.broker.fast_path._record_writer cimport (
    Cursor,
    RecordFields,
    add_common,
    add_keys,
    committed_fields,
    fill,
    item_fields,
    properties_size,
    reserve_keys,
    single_fields,
    slice_of,
)
from bolide.broker.fast_path._send_requests cimport (
    INTERPRETED,
    ITEM_HEAD,
    PLAIN,
    SEND_BATCH_MESSAGE,
    SEND_MESSAGE_V2,
    Item,
    Reading,
    Send,
    find_access_key,
    read_frame,
    read_item,
    read_send,
)
from bolide.broker.fast_path._transactions cimport (
    End,
    Half,
    read_end,
    read_half,
)
from bolide.kernel._bytes cimport MAX_DIGITS, put32, u32, u64, write_number
from bolide.kernel._crc cimport crc_init
from bolide.kernel._fields cimport Slice
from bolide.kernel._header cimport BINARY_HEAD, Header
from bolide.kernel._layouts cimport (
    COMMIT,
    FIXED_SIZE,
    MAX_PROPERTIES_SIZE,
    OFFSET_AT,
    PREPARED,
    UNIT_SIZE,
    V4_SIZE,
    V6_SIZE,
)
from bolide.kernel._names cimport Named, find_named, key_prefix, tags_code
from bolide.kernel._signatures cimport SigningKey
from bolide.kernel._units cimport Units

from bolide.broker.fast_path.fall_through import FallThrough
from bolide.broker.metrics.traffic import SIZE_BOUNDS
from bolide.model import properties as names
from bolide.model.properties import PropertyName
from bolide.protocol import signature
from bolide.protocol.codes import RequestCode

crc_init()

cdef enum:
    END_TRANSACTION = 37
    MAX_COMMON = 8  # properties of a batch itself
    SIZES = 7  # buckets of `SIZE_BOUNDS`, and one for larger messages

cdef enum Stop:  # the values of `FallThrough`, checked below
    SERVED = 0
    OTHER_REQUEST = 1
    UNUSUAL_HEADER = 2
    UNPREPARED = 3
    INTERPRETED_PROPERTY = 4
    QUEUE = 5
    TOO_LARGE = 6
    DEDUP_KEY = 7
    LOG_FILE_FULL = 8
    TRANSACTION = 9
    BAD_BATCH = 10
    ERROR = 11
    SIGNATURE = 17

# This file spells names and numbers out that are defined elsewhere. One that has changed there must
# stop the import, and not as an ImportError, which means that there is no compiled code.
for _name, _value in (
    ("SERVED", SERVED), ("OTHER_REQUEST", OTHER_REQUEST), ("UNUSUAL_HEADER", UNUSUAL_HEADER),
    ("UNPREPARED", UNPREPARED), ("INTERPRETED_PROPERTY", INTERPRETED_PROPERTY), ("QUEUE", QUEUE),
    ("TOO_LARGE", TOO_LARGE), ("DEDUP_KEY", DEDUP_KEY), ("LOG_FILE_FULL", LOG_FILE_FULL),
    ("TRANSACTION", TRANSACTION), ("BAD_BATCH", BAD_BATCH), ("ERROR", ERROR), ("SIGNATURE", SIGNATURE),
):
    if FallThrough[_name] != _value:
        raise RuntimeError(f"FallThrough.{_name} is {FallThrough[_name]}, compiled as {_value}")
SPELLED_NAMES = {
    PropertyName.UNIQUE_ID: "UNIQ_KEY", PropertyName.TRANSACTION_PREPARED: "TRAN_MSG",
    PropertyName.PRODUCER_GROUP: "PGROUP", PropertyName.REAL_TOPIC: "REAL_TOPIC",
    PropertyName.REAL_QUEUE_ID: "REAL_QID", PropertyName.TRANSACTION_ID: "__transactionId__",
    PropertyName.DEDUP_KEY: "DEDUP_KEY", PropertyName.KEYS: "KEYS", PropertyName.TAGS: "TAGS",
    RequestCode.SEND_MESSAGE_V2: SEND_MESSAGE_V2, RequestCode.END_TRANSACTION: END_TRANSACTION,
    RequestCode.SEND_BATCH_MESSAGE: SEND_BATCH_MESSAGE, signature.ACCESS_KEY: "AccessKey",
    signature.SIGNATURE: "Signature", signature.SECURITY_TOKEN: "SecurityToken",
}
"""What this file and its parts spell out, by its definition."""
for _name, _value in SPELLED_NAMES.items():
    if _name != _value:
        raise RuntimeError(f"{_name!r} is compiled as {_value!r}")

if SIZE_BOUNDS != (1024, 4096, 512 * 1024, 1024 * 1024, 2 * 1024 * 1024, 4 * 1024 * 1024):
    raise RuntimeError(f"SIZE_BOUNDS is {SIZE_BOUNDS}, compiled otherwise")

cdef tuple _interpreted = tuple([each.encode() for each in names.INTERPRETED_PREFIXES])
cdef tuple _set_on_halves = tuple([each.encode() for each in names.SET_ON_HALVES_PREFIXES])
cdef tuple _special_halves = tuple([each.encode() for each in names.SPECIAL_HALF_PREFIXES])
cdef Prefixes INTERPRETED_NAMES, SET_ON_HALVES, SPECIAL_HALVES
load_prefixes(&INTERPRETED_NAMES, _interpreted)
load_prefixes(&SET_ON_HALVES, _set_on_halves)
load_prefixes(&SPECIAL_HALVES, _special_halves)

cdef uint8_t hex_digits[512]
for _number, _letter in enumerate(bytearray(b"".join([b"%02X" % each for each in range(256)]))):
    hex_digits[_number] = _letter


cdef inline int bucket_of(Py_ssize_t size) noexcept nogil:
    """The bucket of `SIZE_BOUNDS` that a size is in."""
    if size <= 1024:
        return 0
    if size <= 4096:
        return 1
    if size <= 524288:
        return 2
    if size <= 1048576:
        return 3
    return 4 if size <= 2097152 else 5 if size <= 4194304 else 6


cdef inline bint is_sharded(Slice properties) noexcept nogil:
    """Whether a message belongs to an order by a sharding key."""
    return begins(properties.at, properties.at + properties.size, b"__SHARDINGKEY\x01", 14) or holds(
        properties, b"\x02__SHARDINGKEY\x01", 15
    )


cdef inline void put_hex(Output *out, uint64_t number) noexcept nogil:
    cdef int place
    for place in range(8):
        memcpy(out.data + out.size + 2 * place, hex_digits + 2 * (number >> (56 - 8 * place) & 255), 2)
    out.size += 16


cdef class SendTarget:
    """A topic that plans point at: what the checks of the handlers found out about it.

    Shared by the plans of all senders. When something about the topic changes, `is_open` becomes
    False and all of them are void at once.

    Args:
        queues: how many queue ids may be sent to.
        has_window: messages with a dedup key need a look at the window.
    """
    cdef readonly bytes topic
    cdef readonly str name
    cdef readonly int32_t queues
    cdef readonly bint has_window
    cdef public bint is_open
    cdef list tails
    cdef uint32_t prefix
    cdef int64_t sizes[2][SIZES]  # messages without and with a sharding key that were not taken yet
    cdef int64_t totals[2]
    cdef bint is_counted

    def __init__(self, bytes topic, int32_t queues, bint has_window):
        self.topic = topic
        self.name = topic.decode()
        self.queues = queues
        self.has_window = has_window
        self.is_open = True
        self.tails = [None] * queues
        self.prefix = key_prefix(slice_of(topic))
        memset(&self.sizes, 0, sizeof(self.sizes))
        self.totals[0] = self.totals[1] = 0
        self.is_counted = False

    def take_sizes(self):
        """Messages since the last call, without and with a sharding key: counts by size, and bytes."""
        cdef int kind
        taken = tuple([([self.sizes[kind][each] for each in range(SIZES)], self.totals[kind]) for kind in range(2)])
        memset(&self.sizes, 0, sizeof(self.sizes))
        self.totals[0] = self.totals[1] = 0
        self.is_counted = False
        return taken

    def open_queue(self, int32_t queue_id, Units tail not None):
        """Tell where the units of a queue go. Raises IndexError for a queue it does not have."""
        if not 0 <= queue_id < self.queues:
            raise IndexError(queue_id)
        self.tails[queue_id] = tail

    cdef Units tail(self, int32_t queue_id):
        """The tail of a queue; None if it is not known, or the queue was removed."""
        cdef Units tail = <Units>self.tails[queue_id]
        return None if tail is None or tail.is_closed else tail


cdef class SendPlans:
    """What one identity may do without asking again: for each kind of request its targets.

    `singles`, `batches` and `halves` have a `SendTarget` by topic. `ends` has the producer groups whose
    transactions it may end, each followed by a zero byte and the topic if the request names one. All
    names are bytes, as they lie in requests. `signed` has the plans of those who present an access
    key on the same connection, by that key; `signed_ends` says that one of them may end transactions.

    Args:
        access_key: that the identity presents; None if it presents none.
        secret: with which its requests must be signed; None if they need no signature.
    """
    cdef readonly dict singles
    cdef readonly dict batches
    cdef readonly dict halves
    cdef readonly set ends
    cdef readonly dict signed
    cdef public bint signed_ends
    cdef readonly bytes access_key
    cdef readonly bytes secret
    cdef SigningKey key

    def __init__(self, bytes access_key=None, bytes secret=None):
        self.singles = {}
        self.batches = {}
        self.halves = {}
        self.ends = set()
        self.signed = {}
        self.access_key = access_key
        self.secret = secret
        self.key = None if secret is None else SigningKey(secret)

    def __len__(self):
        own = len(self.singles) + len(self.batches) + len(self.halves) + len(self.ends)
        return own + sum(map(len, self.signed.values()))

    def __bool__(self):
        return bool(self.singles or self.ends or self.signed or self.batches or self.halves)

    cdef SendPlans of(self, Slice access_key):
        """The plans of those who present an access key, of nobody if its address is NULL."""
        if access_key.at == NULL:
            return self
        return <SendPlans>self.signed.get(access_key.at[: access_key.size])

    cdef inline bint is_of(self, Slice access_key) noexcept:
        if access_key.at == NULL or self.access_key is None:
            return access_key.at == NULL and self.access_key is None
        return (
            PyBytes_GET_SIZE(self.access_key) == access_key.size
            and memcmp(PyBytes_AS_STRING(self.access_key), access_key.at, access_key.size) == 0
        )

    cdef inline bint is_right(self, Header *header, Send *send) noexcept:
        """Whether a request is signed as it must be."""
        return self.key is None or self.key.is_right(header, send.binary, send.body)

    cdef SendTarget find(self, Send *send):
        cdef dict targets = self.halves if send.is_half else self.singles if send.code == SEND_MESSAGE_V2 else self.batches
        cdef SendTarget target = <SendTarget>targets.get(send.topic.at[: send.topic.size])
        return None if target is None or not target.is_open else target


cdef class SendFlow:
    """Serves sends; one for a broker.

    Args:
        store_host: the broker's address as records hold it.
        host_digits: the same in hex digits, the first part of every offset id.
        halves: the topic of half messages.
        ops: the topic of op messages, which record how half messages ended.
    """
    cdef readonly SendTarget halves
    cdef readonly SendTarget ops
    cdef bytes store_host
    cdef bytes host_digits
    cdef bytes suffix
    cdef Named in_suffix
    cdef bytes reply_fields
    cdef bytes reply_end
    cdef bytes binary_head
    cdef bytes binary_fields
    cdef Py_ssize_t ids_at
    cdef Py_ssize_t max_body
    cdef Py_ssize_t max_batch
    cdef list touched
    cdef list counted
    cdef list ended
    cdef int64_t requests[3]
    cdef readonly list changed
    cdef readonly int64_t last_record
    cdef readonly object error
    cdef readonly object missing_queue
    cdef Output out
    cdef Output scratch
    cdef Output common
    cdef Py_ssize_t reply_at
    cdef int64_t readable_from
    cdef set claimed
    cdef int stop

    def __cinit__(self):
        self.touched = []
        self.counted = []
        self.requests[0] = self.requests[1] = self.requests[2] = 0
        self.changed = []
        self.ended = []
        self.last_record = -1

    def __init__(self, bytes store_host, str host_digits, SendTarget halves not None, SendTarget ops not None):
        self.store_host = store_host
        self.host_digits = host_digits.encode()
        self.halves = halves
        self.ops = ops

    def __dealloc__(self):
        free(self.out.data)
        free(self.scratch.data)
        free(self.common.data)

    def configure(
        self,
        *,
        bytes suffix,
        bytes reply_fields,
        bytes reply_end,
        bytes binary_head,
        bytes binary_fields,
        Py_ssize_t max_body,
        Py_ssize_t max_batch,
    ):
        """Set what every message gets, what every reply says, and how large a send may be.

        Args:
            suffix: the property string that the broker appends to those of a message.
            reply_fields: JSON of a reply behind its own fields, up to the opaque.
            reply_end: JSON behind the opaque.
            binary_head: a binary reply header up to its fields.
            binary_fields: the last of its fields.
        """
        self.suffix = suffix
        find_named(slice_of(suffix), &self.in_suffix)
        self.reply_fields = reply_fields
        self.reply_end = reply_end
        self.binary_head, self.binary_fields = binary_head, binary_fields
        self.max_body = max_body
        self.max_batch = max_batch

    def drain_ended(self):
        """The transactions that ended since the last call.

        Of each: the queue offset of the half message, the bits of sysFlag that say how it ended, the
        queue offset of its op message, the topic, and when the message was made, in milliseconds.
        """
        if not self.ended:
            return ()
        ended, self.ended = self.ended, []
        return ended

    def drain_touched(self):
        """The queues appended to since the last call: topic, queue id, tail."""
        touched, self.touched = self.touched, []
        return touched

    def drain_counted(self):
        """The targets with messages whose sizes were not taken yet."""
        counted, self.counted = self.counted, []
        return counted

    def drain_requests(self):
        """Requests served since the last call: single sends, batches, ends of transactions."""
        served = self.requests[0], self.requests[1], self.requests[2]
        self.requests[0] = self.requests[1] = self.requests[2] = 0
        return served

    def drain_changed(self):
        """The tails that `Store.publish` must learn of."""
        if not self.changed:
            return ()
        changed, self.changed = self.changed, []
        return changed

    def run(
        self,
        bytes data,
        Py_ssize_t position,
        Py_ssize_t max_frame,
        Py_ssize_t max_messages,
        bytes born_host,
        SendPlans plans not None,
        set claimed,
        room,
    ):
        """Serve the sends in `data` from `position` on, as far as the plans cover them.

        Args:
            max_frame: bytes of the largest frame.
            max_messages: after so many it stops.
            born_host: the sender's address as records hold it.
            claimed: queue offsets of half messages whose end may be served; those served are
                removed from it. None if there are no ends of transactions.
            room: where to write, see `store.appending.AppendRoom`.

        Returns:
            Where it stopped, the replies joined, bytes and messages written, and why it stopped as a
            `FallThrough`; SERVED at the end, at an incomplete frame and after `max_messages`. With
            ERROR, `error` has the exception: it occurred before anything of that request was written.
            With QUEUE, `missing_queue` has the target and queue id whose tail is not known, if any.

        Raises:
            ValueError: the room is not what it says.
        """
        cdef Py_buffer into
        cdef Cursor cursor
        cdef Header header
        cdef Send send
        cdef SendTarget target = None
        cdef SendPlans mine = plans
        cdef Reading reading
        cdef Py_ssize_t count = 0, size, end = PyBytes_GET_SIZE(data), at = room.at, left = room.size
        cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef int64_t last_kind = 0
        cdef bytearray keys = room.keys
        if PyBytes_GET_SIZE(born_host) not in (V4_SIZE, V6_SIZE):
            raise ValueError("a host is 4 or 16 bytes of address and 4 of port")
        self.out.size = 0
        self.stop = SERVED
        self.error = self.missing_queue = None
        self.claimed = claimed
        self.readable_from = room.readable_from
        PyObject_GetBuffer(room.target, &into, PyBUF_WRITABLE)
        if at < 0 or left < 0 or at + left > into.len:
            size = into.len
            PyBuffer_Release(&into)
            raise ValueError(f"{left} bytes at {at} of {size}")
        try:
            cursor.at, cursor.room = <uint8_t *>into.buf + at, left
            cursor.physical_offset, cursor.timestamp = room.physical_offset, room.timestamp
            cursor.start, cursor.born_host = <uint8_t *>into.buf, slice_of(born_host)
            while position < end and count < max_messages:
                if end - position < 8 or <Py_ssize_t>u32(start + position) > end - position - 4:
                    break
                if not read_frame(start + position, end - position, &send, &header):
                    self.stop = UNUSUAL_HEADER
                    break
                if send.end > max_frame:
                    self.stop = TOO_LARGE
                    break
                if header.code == END_TRANSACTION:
                    send.opaque, send.one_way = header.opaque, header.flag & 2 != 0
                    size = self.serve_end(&header, &send, plans, &cursor, keys, &count)
                    if size == 0:
                        break
                    self.requests[2] += 1
                    position += send.end
                    continue
                if header.code != SEND_MESSAGE_V2 and header.code != SEND_BATCH_MESSAGE:
                    self.stop = OTHER_REQUEST
                    break
                reading = read_send(&header, &send, &self.scratch, &INTERPRETED_NAMES, &SET_ON_HALVES)
                if reading != PLAIN:
                    self.stop = INTERPRETED_PROPERTY if reading == INTERPRETED else UNUSUAL_HEADER
                    break
                if not mine.is_of(send.access_key):
                    mine, target = plans.of(send.access_key), None
                    if mine is None:
                        mine, self.stop = plans, UNPREPARED
                        break
                if target is None or last_kind != kind_of(&send) or not is_topic(target, send.topic):
                    target, last_kind = mine.find(&send), kind_of(&send)
                if target is None:
                    self.stop = UNPREPARED
                    break
                if send.queue_id >= target.queues:
                    self.stop = QUEUE
                    break
                if not mine.is_right(&header, &send):
                    self.stop = SIGNATURE
                    break
                if send.is_half:
                    size = self.serve_half(&send, target, &cursor, keys)
                    count += size > 0
                elif send.code == SEND_MESSAGE_V2:
                    size = self.serve_single(&send, target, &cursor, keys)
                    count += size > 0
                else:
                    size = self.serve_batch(&send, target, &cursor, keys, &count)
                if size == 0:
                    break
                self.requests[send.code != SEND_MESSAGE_V2] += 1
                position += send.end
        except Exception as exc:  # reported to the caller, who counts and logs it
            self.stop, self.error = ERROR, exc
        finally:
            PyBuffer_Release(&into)
            self.claimed = None
        replies = PyBytes_FromStringAndSize(<const char *>self.out.data, self.out.size)
        return position, replies, left - cursor.room, count, self.stop

    cdef Py_ssize_t serve_single(
        self, Send *send, SendTarget target, Cursor *cursor, bytearray keys
    ) except -1:
        """Store a single message; 0 if it is for the handlers."""
        cdef RecordFields fields
        if self.is_unfit(send, target):
            return 0
        fields = single_fields(send, cursor, slice_of(self.suffix))
        return self.store_single(send, target, &fields, cursor, keys)

    cdef bint is_unfit(self, Send *send, SendTarget target) noexcept:
        if send.body.size > self.max_body:
            self.stop = TOO_LARGE
            return True
        if target.has_window and holds(send.properties, b"DEDUP_KEY", 9):
            self.stop = DEDUP_KEY
            return True
        return False

    cdef Py_ssize_t store_single(
        self, Send *send, SendTarget target, RecordFields *fields, Cursor *cursor, bytearray keys
    ) except -1:
        """Store the only message of a send and reply; 0 if it does not fit."""
        cdef Units tail
        cdef int64_t queue_offset
        cdef Py_ssize_t size
        add_common(fields, &self.in_suffix)
        size = self.size_of(target, fields)
        if size == 0 or size > cursor.room:
            self.stop = LOG_FILE_FULL if size else TOO_LARGE
            return 0
        tail = self.tail_of(target, fields.queue_id)
        if tail is None:
            return 0
        self.touch(target, fields.queue_id, tail, 1)
        self.reserve_reply(send, 1)
        queue_offset = self.store(target, tail, fields, size, cursor, keys)
        self.count(target, fields, size)
        if not send.one_way:
            self.begin_reply(send)
            put_hex(&self.out, <uint64_t>(cursor.physical_offset - size))
            self.end_reply(send, queue_offset)
        return size

    cdef Py_ssize_t serve_half(
        self, Send *send, SendTarget target, Cursor *cursor, bytearray keys
    ) except -1:
        """Store a half message in the topic of such; 0 if it is for the handlers."""
        cdef RecordFields fields
        if self.is_unfit(send, target):
            return 0
        self.write_origin(send, target)
        fields = single_fields(send, cursor, Slice(self.common.data, self.common.size))
        fields.queue_id, fields.sys_flag = 0, fields.sys_flag & ~<uint32_t>PREPARED
        return self.store_single(send, self.halves, &fields, cursor, keys)

    cdef int write_origin(self, Send *send, SendTarget target) except -1:
        """Write what follows the properties of a half: the broker's own, and its real topic."""
        cdef Output *out = &self.common
        out.size = 0
        reserve(
            out, 128 + PyBytes_GET_SIZE(self.suffix) + send.named.unique_id.size + send.group.size
            + PyBytes_GET_SIZE(target.topic),
        )
        put_bytes(out, self.suffix)
        put_pair(out, b"__transactionId__\x01", 18, send.named.unique_id)
        if not send.has_group:
            put_pair(out, b"PGROUP\x01", 7, send.group)
        put_pair(out, b"REAL_TOPIC\x01", 11, slice_of(target.topic))
        put(out, b"REAL_QID\x01", 9)
        put_number(out, send.queue_id)
        put(out, b"\x02", 1)
        return 0

    cdef Py_ssize_t serve_end(
        self, Header *header, Send *send, SendPlans plans, Cursor *cursor, bytearray keys, Py_ssize_t *count
    ) except -1:
        """End a transaction whose half message is near the end of the log; 0 if it is for the handlers."""
        cdef End request
        cdef Half half
        cdef SendTarget target = None
        cdef RecordFields message, op
        cdef Units tail = None, op_tail
        cdef Py_ssize_t size = 0, op_size
        cdef uint8_t body[MAX_DIGITS]
        cdef int64_t op_offset
        if not read_end(header, &request) or not find_access_key(header, &send.access_key):
            self.stop = UNUSUAL_HEADER
            return 0
        plans = plans.of(send.access_key)
        if plans is None or end_key(&request) not in plans.ends:
            self.stop = UNPREPARED
            return 0
        if not plans.is_right(header, send):
            self.stop = SIGNATURE
            return 0
        op_tail = self.tail_of(self.ops, 0)
        if op_tail is None:
            return 0
        self.stop = TRANSACTION
        if self.claimed is None or request.queue_offset not in self.claimed:
            return 0
        if not self.find_half(&request, cursor, &half):
            return 0
        # Whoever ends a transaction must be known to send to its topic; the request may name another.
        target = <SendTarget>plans.halves.get(half.topic.at[: half.topic.size])
        if target is None or not target.is_open:
            self.stop = UNPREPARED
            return 0
        if request.state == COMMIT:
            if half.queue_id >= target.queues:
                return 0
            tail = self.tail_of(target, <int32_t>half.queue_id)
            if tail is None:
                return 0
            if target.has_window and half.has_dedup_key:
                self.stop = DEDUP_KEY
                return 0
            if half.fields.body.size > self.max_body:
                return 0
            message = committed_fields(&half, request.physical_offset)
            size = self.size_of(target, &message)
            if size == 0:
                return 0
        op = self.op_of(&request, body, cursor)
        op_size = self.size_of(self.ops, &op)
        if op_size == 0 or size + op_size > cursor.room:
            self.stop = LOG_FILE_FULL
            return 0
        op_tail.ensure(UNIT_SIZE)
        if size:
            tail.ensure(UNIT_SIZE)
        reserve(&self.out, 512 + PyBytes_GET_SIZE(self.reply_end))
        reserve_keys(keys, half.fields.properties.size + self.common.size)
        self.stop = SERVED
        self.claimed.remove(request.queue_offset)  # after this nothing can fail
        if size:
            self.touch(target, message.queue_id, tail, 1)
            self.store(target, tail, &message, size, cursor, keys)
        self.touch(self.ops, 0, op_tail, 1)
        op_offset = self.store(self.ops, op_tail, &op, op_size, cursor, keys)
        self.ended.append(
            (request.queue_offset, request.state, op_offset, target.name, <int64_t>u64(half.fields.born_host.at - 8))
        )
        if not send.one_way:
            self.reply_to_end(send)
        count[0] += 1 + (size > 0)
        return size + op_size

    cdef void reply_to_end(self, Send *send) noexcept:
        cdef Output *out = &self.out
        self.reply_at = out.size
        out.size += 8
        if send.binary:
            put_bytes(out, self.binary_head)
            put32(out.data + self.reply_at + 8 + 5, <uint32_t>send.opaque)
        else:
            put(out, b'{"code":0,"flag":1,"language":"PYTHON","opaque":', 48)
            put_number(out, send.opaque)
            put_bytes(out, self.reply_end)
        self.frame_reply(send)

    cdef bint find_half(self, End *request, Cursor *cursor, Half *half) except -1:
        """Find the half message of a transaction in the memory that is written to."""
        cdef int64_t back = cursor.physical_offset - request.physical_offset
        cdef Units tail = self.tail_of(self.halves, 0)
        cdef int64_t number
        if tail is None or request.physical_offset < self.readable_from:
            return False
        # The body of a message may have bytes that look like a half; the queue refers to real ones.
        number = request.queue_offset - tail.base
        if number < 0 or number >= tail.size // UNIT_SIZE:
            return False
        if <int64_t>u64(tail.data + number * UNIT_SIZE) != request.physical_offset:
            return False
        if back <= 0 or back > cursor.at - cursor.start:
            return False
        if not read_half(cursor.at - back, back, slice_of(self.halves.topic), &SPECIAL_HALVES, half):
            return False
        if <int64_t>u64(cursor.at - back + OFFSET_AT) != request.physical_offset:
            return False
        if <int64_t>u64(cursor.at - back + 20) != request.queue_offset:
            return False
        if half.group.size != request.group.size:
            return False
        return memcmp(half.group.at, request.group.at, request.group.size) == 0

    cdef RecordFields op_of(self, End *request, uint8_t *body, Cursor *cursor) except *:
        """The op message that records how a half message ended."""
        cdef RecordFields fields
        memset(&fields, 0, sizeof(fields))
        self.common.size = 0
        reserve(&self.common, 128)
        put(&self.common, b"TAGS\x01d\x02BOLIDE_STATE\x01", 20)
        put_number(&self.common, request.state)
        put(&self.common, b"\x02BOLIDE_ORIGIN\x01", 15)
        put_number(&self.common, request.queue_offset)
        put(&self.common, b"\x02", 1)
        fields.born_timestamp = cursor.timestamp
        fields.born_host = slice_of(self.store_host)
        fields.body = Slice(body, write_number(request.queue_offset, body))
        fields.properties = Slice(self.common.data, self.common.size)
        fields.named.tags = Slice(self.common.data + 5, 1)
        return fields

    cdef Py_ssize_t serve_batch(
        self, Send *send, SendTarget target, Cursor *cursor, bytearray keys, Py_ssize_t *count
    ) except -1:
        """Store the messages of a batch, all of them; 0 if it is for the handlers."""
        cdef const uint8_t *next = send.body.at
        cdef const uint8_t *end = next + send.body.size
        cdef Item item
        cdef RecordFields fields
        cdef Slice common
        cdef Named in_common
        cdef Py_ssize_t items = 0, total = 0, size, properties = 0
        cdef Units tail
        cdef int64_t first
        cdef int unique_ids = 0
        if send.body.size > self.max_body or target.has_window:
            self.stop = DEDUP_KEY if target.has_window else TOO_LARGE
            return 0
        self.stop = BAD_BATCH
        if not self.find_common(send.properties):
            return 0
        common = Slice(self.common.data, self.common.size)
        find_named(common, &in_common)
        while next < end:
            if not read_item(&next, end, &item):
                return 0
            if is_interpreted(item.properties, &INTERPRETED_NAMES, &unique_ids):
                self.stop = INTERPRETED_PROPERTY
                return 0
            fields = item_fields(send, &item, cursor, common)
            size = self.size_of(target, &fields)
            items += 1
            total += size
            properties += item.properties.size + common.size + 2
            if size == 0 or items > self.max_batch:
                self.stop = TOO_LARGE
                return 0
            if total > cursor.room:
                self.stop = LOG_FILE_FULL
                return 0
        if items == 0:
            return 0
        tail = self.tail_of(target, send.queue_id)
        if tail is None:
            return 0
        self.stop = SERVED
        self.touch(target, send.queue_id, tail, items)
        reserve_keys(keys, properties)
        self.reserve_reply(send, items)
        first = tail.base + tail.size // UNIT_SIZE
        if not send.one_way:
            self.begin_reply(send)
        next = send.body.at
        while next < end:
            read_item(&next, end, &item)
            fields = item_fields(send, &item, cursor, common)
            size = self.size_of(target, &fields)
            if not send.one_way:
                if item.body.at > send.body.at + ITEM_HEAD:
                    put(&self.out, b",", 1)
                    put_bytes(&self.out, self.host_digits)
                put_hex(&self.out, <uint64_t>cursor.physical_offset)
            find_named(item.properties, &fields.named)
            add_common(&fields, &in_common)
            self.store(target, tail, &fields, size, cursor, keys)
            self.count(target, &fields, size)
        if not send.one_way:
            self.end_reply(send, first)
        count[0] += items
        return total

    cdef bint find_common(self, Slice text) except -1:
        """Collect what every message of a batch gets: the batch's properties but its id, and ours."""
        cdef const uint8_t *next = text.at
        cdef const uint8_t *end = text.at + text.size
        cdef const uint8_t *pair_end
        cdef const uint8_t *name_end
        cdef Slice names[MAX_COMMON]
        cdef int count = 0, other
        self.common.size = 0
        reserve(&self.common, text.size + 1 + PyBytes_GET_SIZE(self.suffix))
        while next < end:
            pair_end = <const uint8_t *>memchr(next, 2, end - next)
            if pair_end == NULL:
                pair_end = end
            name_end = <const uint8_t *>memchr(next, 1, pair_end - next)
            if name_end == NULL or name_end == next or name_end + 1 == pair_end:
                return False
            if count == MAX_COMMON:
                return False
            names[count] = Slice(next, name_end - next)
            for other in range(count):
                if names[other].size == names[count].size and memcmp(names[other].at, next, names[other].size) == 0:
                    return False
            count += 1
            if not (name_end - next == 8 and memcmp(next, b"UNIQ_KEY", 8) == 0):
                put(&self.common, next, pair_end - next)
                put(&self.common, b"\x02", 1)
            next = pair_end + 1
        put_bytes(&self.common, self.suffix)
        return True

    cdef Units tail_of(self, SendTarget target, int32_t queue_id):
        """The tail of a queue; if there is none, `missing_queue` says so to the caller of `run`."""
        cdef Units tail = target.tail(queue_id)
        if tail is None:
            self.stop, self.missing_queue = QUEUE, (target, queue_id)
        return tail

    cdef Py_ssize_t size_of(self, SendTarget target, RecordFields *fields) noexcept:
        """Bytes of a record; 0 if its properties are too long for their length field."""
        cdef Py_ssize_t properties = properties_size(fields)
        if properties > MAX_PROPERTIES_SIZE:
            return 0
        return (
            FIXED_SIZE + fields.born_host.size + PyBytes_GET_SIZE(self.store_host) + fields.body.size
            + 1 + PyBytes_GET_SIZE(target.topic) + 2 + properties
        )

    cdef int touch(self, SendTarget target, int32_t queue_id, Units tail, Py_ssize_t count) except -1:
        """Reserve room for `count` units in a queue and note that the queue changes."""
        tail.ensure(count * UNIT_SIZE)
        if tail.fresh == 0:
            self.touched.append((target.name, queue_id, tail))
        if not tail.is_changed:
            tail.is_changed = True
            self.changed.append(tail)
        return 0

    cdef int reserve_reply(self, Send *send, Py_ssize_t count) except -1:
        """Reserve room for the reply: after this nothing can fail."""
        cdef Py_ssize_t id_size = PyBytes_GET_SIZE(self.host_digits) + 17
        return reserve(
            &self.out,
            512 + count * id_size + send.named.unique_id.size + PyBytes_GET_SIZE(self.reply_fields)
            + PyBytes_GET_SIZE(self.reply_end) + PyBytes_GET_SIZE(self.binary_fields),
        )

    cdef inline int count(self, SendTarget target, RecordFields *fields, Py_ssize_t size) except -1:
        """Count a message of a send, for metrics."""
        cdef int kind = is_sharded(fields.properties)
        if not target.is_counted:
            target.is_counted = True
            self.counted.append(target)
        target.sizes[kind][bucket_of(size)] += 1
        target.totals[kind] += size
        return 0

    cdef int64_t store(
        self, SendTarget target, Units tail, RecordFields *fields, Py_ssize_t size, Cursor *cursor, bytearray keys
    ) except -1:
        """Write a record, its unit and its keys, and advance the cursor; returns its queue offset."""
        cdef int64_t queue_offset
        if keys is not None:
            add_keys(keys, target.prefix, &fields.named, cursor)
        queue_offset = tail.put(cursor.physical_offset, size, tags_code(fields.named.tags))
        fill(fields, target.topic, self.store_host, size, queue_offset, cursor)
        self.last_record = cursor.physical_offset
        cursor.at += size
        cursor.room -= size
        cursor.physical_offset += size
        return queue_offset

    cdef void begin_reply(self, Send *send) noexcept:
        cdef Output *out = &self.out
        self.reply_at = out.size
        out.size += 8
        if send.binary:
            put_bytes(out, self.binary_head)
            put32(out.data + self.reply_at + 8 + 5, <uint32_t>send.opaque)
            put(out, b"\0\x05msgId\0\0\0\0", 11)
        else:
            put(out, b'{"code":0,"extFields":{"msgId":"', 32)
        self.ids_at = out.size
        put_bytes(out, self.host_digits)

    cdef void end_reply(self, Send *send, int64_t queue_offset) noexcept:
        cdef Output *out = &self.out
        if send.binary:
            self.end_binary(send, queue_offset)
        else:
            put(out, b'","queueId":"', 13)
            put_number(out, send.queue_id)
            put(out, b'","queueOffset":"', 17)
            put_number(out, queue_offset)
            if send.named.unique_id.size:
                put(out, b'","transactionId":"', 19)
                put(out, send.named.unique_id.at, send.named.unique_id.size)
            put(out, b'",', 2)
            put_bytes(out, self.reply_fields)
            put_number(out, send.opaque)
            put_bytes(out, self.reply_end)
        self.frame_reply(send)

    cdef void frame_reply(self, Send *send) noexcept:
        """Write the lengths in front of a reply, which consists of its header."""
        cdef uint8_t *start = self.out.data + self.reply_at
        cdef Py_ssize_t size = self.out.size - self.reply_at - 8
        put32(start, <uint32_t>(size + 4))
        put32(start + 4, <uint32_t>size | (<uint32_t>1 << 24 if send.binary else 0))

    cdef void end_binary(self, Send *send, int64_t queue_offset) noexcept:
        cdef Output *out = &self.out
        cdef uint8_t *start = out.data + self.reply_at
        put32(out.data + self.ids_at - 4, <uint32_t>(out.size - self.ids_at))
        put_number_field(out, b"\0\x07queueId", 9, send.queue_id)
        put_number_field(out, b"\0\x0bqueueOffset", 13, queue_offset)
        if send.named.unique_id.size:
            put(out, b"\0\x0dtransactionId", 15)
            put32(out.data + out.size, <uint32_t>send.named.unique_id.size)
            out.size += 4
            put(out, send.named.unique_id.at, send.named.unique_id.size)
        put_bytes(out, self.binary_fields)
        put32(
            start + 8 + BINARY_HEAD - 4, <uint32_t>(out.size - self.reply_at - 8 - BINARY_HEAD)
        )


cdef inline bint is_topic(SendTarget target, Slice topic) noexcept:
    return (
        PyBytes_GET_SIZE(target.topic) == topic.size
        and memcmp(PyBytes_AS_STRING(target.topic), topic.at, topic.size) == 0
    )


cdef inline int64_t kind_of(Send *send) noexcept:
    return -send.code if send.is_half else send.code


cdef inline bytes end_key(End *request):
    """What `SendPlans.ends` has for requests like this one."""
    group = request.group.at[: request.group.size]
    return group if request.topic.at == NULL else group + b"\0" + request.topic.at[: request.topic.size]


def find_ends(bytes data, Py_ssize_t position):
    """The queue offsets of the half messages that the END_TRANSACTION requests in `data` name."""
    cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data)
    cdef Header header
    cdef Send send
    cdef End request
    found = []
    while end - position >= 8 and <Py_ssize_t>u32(start + position) <= end - position - 4:
        if read_frame(start + position, end - position, &send, &header):
            if header.code == END_TRANSACTION and read_end(&header, &request):
                found.append(request.queue_offset)
        position += 4 + <Py_ssize_t>u32(start + position)
    return found
