# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of `sends`, where everything is described.

It may leave to the ordinary way what its twin would take, never the other way round. Nothing is
written before all that can go wrong has been looked at.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp, memcpy, memset

from bolide.kernel._bytes cimport MAX_DIGITS, put32, u64, write_number
from bolide.kernel._crc cimport crc_init
from bolide.kernel._entries cimport (
    Entry,
    Place,
    add_common,
    add_keys,
    committed,
    entry_of,
    fill,
    item_entry,
    properties_size,
    slice_of,
)
from bolide.kernel._fields cimport FIXED_SIZE, V4_SIZE, V6_SIZE, Slice
from bolide.kernel._header cimport BINARY_HEAD, Header
from bolide.kernel._names cimport Named, find_named, key_prefix, tags_code
from bolide.kernel._output cimport (
    Output,
    put,
    put_bytes,
    put_number,
    put_number_field,
    put_pair,
    reserve,
)
from bolide.kernel._plain_sends cimport (
    ITEM_HEAD,
    MAX_PROPERTIES,
    SEND_MESSAGE_V2,
    Item,
    Send,
    read_frame,
    read_item,
    read_send,
)
from bolide.kernel._properties cimport asks, holds
from bolide.kernel._transactions cimport COMMIT, PREPARED, End, Half, read_end, read_half
from bolide.kernel._units cimport UNIT_SIZE, Units

from bolide.kernel.sends import answer_parts, binary_answer_parts

crc_init()

cdef enum:
    END_TRANSACTION = 37
    MAX_COMMON = 8  # properties of a batch itself

cdef int64_t NEVER = (1 << 63) - 1

cdef uint8_t hex_digits[512]
for _number, _letter in enumerate(bytearray(b"".join([b"%02X" % each for each in range(256)]))):
    hex_digits[_number] = _letter


cdef inline void put_hex(Output *out, uint64_t number) noexcept nogil:
    cdef int place
    for place in range(8):
        memcpy(out.data + out.size + 2 * place, hex_digits + 2 * (number >> (56 - 8 * place) & 255), 2)
    out.size += 16


cdef class Slot:
    cdef readonly bytes topic
    cdef readonly str name
    cdef readonly int32_t queues
    cdef readonly bint has_window
    cdef list units
    cdef uint32_t prefix

    def __init__(self, bytes topic, int32_t queues, bint has_window):
        self.topic = topic
        self.name = topic.decode()
        self.queues = queues
        self.has_window = has_window
        self.units = [None] * queues
        self.prefix = key_prefix(slice_of(topic))


cdef class Sends:
    cdef public dict slots
    cdef object find
    cdef bytes store_host
    cdef bytes host_digits
    cdef bytes suffix
    cdef Named in_suffix
    cdef bytes answer_tail
    cdef bytes last
    cdef bytes binary_head
    cdef bytes binary_marks
    cdef Py_ssize_t ids_at
    cdef Py_ssize_t max_body
    cdef Py_ssize_t max_batch
    cdef list touched
    cdef public list changed
    cdef Output out
    cdef Output scratch
    cdef Output common
    cdef Slot halves
    cdef Slot ops
    cdef object claim
    cdef public bint takes_halves
    cdef public int64_t readable_from
    cdef list ended
    cdef Py_ssize_t answer_at
    cdef readonly int64_t last_record

    def __cinit__(self):
        self.slots = {}
        self.touched = []
        self.changed = []
        self.ended = []
        self.readable_from = NEVER
        self.last_record = -1

    def __init__(self, bytes store_host, str host_digits, find):
        self.store_host = store_host
        self.host_digits = host_digits.encode()
        self.find = find

    def __dealloc__(self):
        free(self.out.data)
        free(self.scratch.data)
        free(self.common.data)

    def configure(
        self, *, bytes suffix, str region, str trace_on, Py_ssize_t max_body, Py_ssize_t max_batch
    ):
        before_opaque, behind_opaque = answer_parts(region, trace_on)
        self.suffix = suffix
        find_named(slice_of(suffix), &self.in_suffix)
        self.answer_tail = before_opaque.encode()
        self.last = behind_opaque.encode()
        self.binary_head, self.binary_marks = binary_answer_parts(region, trace_on)
        self.max_body = max_body
        self.max_batch = max_batch

    def open_transactions(self, Slot halves not None, Slot ops not None, claim not None):
        self.halves, self.ops, self.claim = halves, ops, claim

    def take_ended(self):
        if not self.ended:
            return ()
        ended, self.ended = self.ended, []
        return ended

    def take_touched(self):
        touched, self.touched = self.touched, []
        return touched

    def take(
        self,
        bytes data,
        Py_ssize_t position,
        Py_ssize_t longest,
        Py_ssize_t most,
        bytes born_host,
        target,
        Py_ssize_t at,
        Py_ssize_t room,
        int64_t physical_offset,
        int64_t timestamp,
        bytearray keys,
    ):
        cdef Py_buffer into
        cdef Place place
        cdef Header header
        cdef Send send
        cdef Slot slot = None
        cdef Py_ssize_t count = 0, size, end = PyBytes_GET_SIZE(data)
        cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
        if PyBytes_GET_SIZE(born_host) not in (V4_SIZE, V6_SIZE):
            raise ValueError("a host is 4 or 16 bytes of address and 4 of port")
        self.out.size = 0
        PyObject_GetBuffer(target, &into, PyBUF_WRITABLE)
        if at < 0 or room < 0 or at + room > into.len:
            size = into.len
            PyBuffer_Release(&into)
            raise ValueError(f"{room} bytes at {at} of {size}")
        try:
            place.at, place.room = <uint8_t *>into.buf + at, room
            place.physical_offset, place.timestamp = physical_offset, timestamp
            place.start, place.born_host = <uint8_t *>into.buf, slice_of(born_host)
            while position < end and count < most:
                if not read_frame(start + position, end - position, &send, &header):
                    break
                if send.end > longest:
                    break
                if header.code == END_TRANSACTION:
                    send.opaque, send.one_way = header.opaque, header.flag & 2 != 0
                    size = self.put_end(&header, &send, &place, keys, &count)
                    if size == 0:
                        break
                    position += send.end
                    continue
                if not read_send(&header, &send, &self.scratch):
                    break
                if slot is None or not is_topic(slot, send.topic):
                    slot = self.slots.get(send.topic.at[: send.topic.size])
                if slot is None or send.queue_id >= slot.queues:
                    break
                if send.is_half:
                    size = self.put_half(&send, slot, &place, keys)
                    count += size > 0
                elif send.code == SEND_MESSAGE_V2:
                    size = self.put_one(&send, slot, &place, keys)
                    count += size > 0
                else:
                    size = self.put_batch(&send, slot, &place, keys, &count)
                if size == 0:
                    break
                position += send.end
        except Exception:  # before anything of this send was noted: the ordinary way meets it too
            pass
        finally:
            PyBuffer_Release(&into)
        replies = PyBytes_FromStringAndSize(<const char *>self.out.data, self.out.size)
        return position, replies, room - place.room, count

    cdef Units units_of(self, Slot slot, int32_t queue_id):
        cdef Units units = <Units>slot.units[queue_id]
        if units is None or units.is_closed:
            units = slot.units[queue_id] = self.find(slot.topic, queue_id)
        return units

    cdef Py_ssize_t put_one(
        self, Send *send, Slot slot, Place *place, bytearray keys
    ) except -1:
        """Take a single message; 0 if that is not for us."""
        cdef Entry entry
        if self.is_unfit(send, slot):
            return 0
        entry = entry_of(send, place, slice_of(self.suffix))
        return self.put_entry(send, slot, &entry, place, keys)

    cdef bint is_unfit(self, Send *send, Slot slot) noexcept:
        if send.body.size > self.max_body:
            return True
        return slot.has_window and holds(send.properties, b"DEDUP_KEY", 9)

    cdef Py_ssize_t put_entry(
        self, Send *send, Slot slot, Entry *entry, Place *place, bytearray keys
    ) except -1:
        """Store the only message of a send and answer it; 0 if it is too long, or there is no room."""
        cdef Units units
        cdef int64_t queue_offset
        cdef Py_ssize_t size
        add_common(entry, &self.in_suffix)
        size = self.size_of(slot, entry)
        if size == 0 or size > place.room:
            return 0
        units = self.units_of(slot, entry.queue_id)
        self.touch(slot, entry.queue_id, units, 1)
        self.ready(send, 1)
        queue_offset = self.store(slot, units, entry, size, place, keys)
        if not send.one_way:
            self.begin_answer(send)
            put_hex(&self.out, <uint64_t>(place.physical_offset - size))
            self.end_answer(send, queue_offset)
        return size

    cdef Py_ssize_t put_half(
        self, Send *send, Slot slot, Place *place, bytearray keys
    ) except -1:
        """Take a message that waits for the end of its transaction; 0 if that is not for us."""
        cdef Entry entry
        if not self.takes_halves or self.halves is None or self.is_unfit(send, slot):
            return 0
        self.write_origin(send, slot)
        entry = entry_of(send, place, Slice(self.common.data, self.common.size))
        entry.queue_id, entry.sys_flag = 0, entry.sys_flag & ~<uint32_t>PREPARED
        return self.put_entry(send, self.halves, &entry, place, keys)

    cdef int write_origin(self, Send *send, Slot slot) except -1:
        """What stands behind the properties of a half: our marks, and where it belongs."""
        cdef Output *out = &self.common
        out.size = 0
        reserve(
            out, 128 + PyBytes_GET_SIZE(self.suffix) + send.named.unique_id.size + send.group.size
            + PyBytes_GET_SIZE(slot.topic),
        )
        put_bytes(out, self.suffix)
        put_pair(out, b"__transactionId__\x01", 18, send.named.unique_id)
        if not send.has_group:
            put_pair(out, b"PGROUP\x01", 7, send.group)
        put_pair(out, b"REAL_TOPIC\x01", 11, slice_of(slot.topic))
        put(out, b"REAL_QID\x01", 9)
        put_number(out, send.queue_id)
        put(out, b"\x02", 1)
        return 0

    cdef Py_ssize_t put_end(
        self, Header *header, Send *send, Place *place, bytearray keys, Py_ssize_t *count
    ) except -1:
        """End a transaction whose half message lies near; 0 if that is not for us."""
        cdef End wish
        cdef Half half
        cdef Slot slot = None
        cdef Entry message, op
        cdef Units units = None, op_units
        cdef Py_ssize_t size = 0, op_size
        cdef uint8_t body[MAX_DIGITS]
        cdef int64_t op_offset
        if self.claim is None or not read_end(header, &wish) or not self.find_half(&wish, place, &half):
            return 0
        if wish.state == COMMIT:
            slot = self.slots.get(half.topic.at[: half.topic.size])
            if slot is None or half.queue_id >= slot.queues or (slot.has_window and half.has_key):
                return 0
            if half.fields.body.size > self.max_body:
                return 0
            message = committed(&half, wish.physical_offset)
            size = self.size_of(slot, &message)
            if size == 0:
                return 0
            units = self.units_of(slot, <int32_t>half.queue_id)
        op = self.op_of(&wish, body, place)
        op_size = self.size_of(self.ops, &op)
        if op_size == 0 or size + op_size > place.room:
            return 0
        op_units = self.units_of(self.ops, 0)
        op_units.ensure(UNIT_SIZE)
        if size:
            units.ensure(UNIT_SIZE)
        reserve(&self.out, 512 + PyBytes_GET_SIZE(self.last))
        if not self.claim(wish.queue_offset):
            return 0
        if size:
            self.touch(slot, message.queue_id, units, 1)
            self.store(slot, units, &message, size, place, keys)
        self.touch(self.ops, 0, op_units, 1)
        op_offset = self.store(self.ops, op_units, &op, op_size, place, keys)
        self.ended.append((wish.queue_offset, wish.state, op_offset))
        if not send.one_way:
            self.answer_end(send)
        count[0] += 1 + (size > 0)
        return size + op_size

    cdef void answer_end(self, Send *send) noexcept:
        cdef Output *out = &self.out
        self.answer_at = out.size
        out.size += 8
        if send.binary:
            put_bytes(out, self.binary_head)
            put32(out.data + self.answer_at + 8 + 5, <uint32_t>send.opaque)
        else:
            put(out, b'{"code":0,"flag":1,"language":"PYTHON","opaque":', 48)
            put_number(out, send.opaque)
            put_bytes(out, self.last)
        self.frame_answer(send)

    cdef bint find_half(self, End *wish, Place *place, Half *half) except -1:
        """Find the half message that is to be ended in the memory that is written to."""
        cdef int64_t back = place.physical_offset - wish.physical_offset
        cdef Units units
        if wish.physical_offset < self.readable_from or back <= 0 or back > place.at - place.start:
            return False
        if not read_half(place.at - back, back, slice_of(self.halves.topic), half):
            return False
        if <int64_t>u64(place.at - back + 28) != wish.physical_offset:
            return False
        if <int64_t>u64(place.at - back + 20) != wish.queue_offset:
            return False
        if half.group.size != wish.group.size or memcmp(half.group.at, wish.group.at, wish.group.size):
            return False
        units = self.units_of(self.halves, 0)
        return wish.queue_offset < units.base + units.size // UNIT_SIZE

    cdef Entry op_of(self, End *wish, uint8_t *body, Place *place) except *:
        """What says that a half message is done with."""
        cdef Entry entry
        memset(&entry, 0, sizeof(entry))
        self.common.size = 0
        reserve(&self.common, 128)
        put(&self.common, b"TAGS\x01d\x02BOLIDE_STATE\x01", 20)
        put_number(&self.common, wish.state)
        put(&self.common, b"\x02BOLIDE_ORIGIN\x01", 15)
        put_number(&self.common, wish.queue_offset)
        put(&self.common, b"\x02", 1)
        entry.born_timestamp = place.timestamp
        entry.born_host = slice_of(self.store_host)
        entry.body = Slice(body, write_number(wish.queue_offset, body))
        entry.properties = Slice(self.common.data, self.common.size)
        entry.named.tags = Slice(self.common.data + 5, 1)
        return entry

    cdef Py_ssize_t put_batch(
        self, Send *send, Slot slot, Place *place, bytearray keys, Py_ssize_t *count
    ) except -1:
        """Take the messages of a batch, all of them; 0 if one is not for us."""
        cdef const uint8_t *next = send.body.at
        cdef const uint8_t *end = next + send.body.size
        cdef Item item
        cdef Entry entry
        cdef Slice common
        cdef Named in_common
        cdef Py_ssize_t items = 0, total = 0, size
        cdef Units units
        cdef int64_t first
        cdef int unique_ids = 0
        if send.body.size > self.max_body or slot.has_window:
            return 0
        if not self.find_common(send.properties):
            return 0
        common = Slice(self.common.data, self.common.size)
        find_named(common, &in_common)
        while next < end:
            if not read_item(&next, end, &item) or asks(item.properties, &unique_ids):
                return 0
            entry = item_entry(send, &item, place, common)
            size = self.size_of(slot, &entry)
            items += 1
            total += size
            if size == 0 or items > self.max_batch or total > place.room:
                return 0
        if items == 0:
            return 0
        units = self.units_of(slot, send.queue_id)
        self.touch(slot, send.queue_id, units, items)
        self.ready(send, items)
        first = units.base + units.size // UNIT_SIZE
        if not send.one_way:
            self.begin_answer(send)
        next = send.body.at
        while next < end:
            read_item(&next, end, &item)
            entry = item_entry(send, &item, place, common)
            size = self.size_of(slot, &entry)
            if not send.one_way:
                if item.body.at > send.body.at + ITEM_HEAD:
                    put(&self.out, b",", 1)
                    put_bytes(&self.out, self.host_digits)
                put_hex(&self.out, <uint64_t>place.physical_offset)
            find_named(item.properties, &entry.named)
            add_common(&entry, &in_common)
            self.store(slot, units, &entry, size, place, keys)
        if not send.one_way:
            self.end_answer(send, first)
        count[0] += items
        return total

    cdef bint find_common(self, Slice text) except -1:
        """What the messages of a batch have in common: the batch's own, but for its id, and ours."""
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

    cdef Py_ssize_t size_of(self, Slot slot, Entry *entry) noexcept:
        """The bytes of a record; 0 for one that no field could tell the size of."""
        cdef Py_ssize_t properties = properties_size(entry)
        if properties > MAX_PROPERTIES:
            return 0
        return (
            FIXED_SIZE + entry.born_host.size + PyBytes_GET_SIZE(self.store_host) + entry.body.size
            + 1 + PyBytes_GET_SIZE(slot.topic) + 2 + properties
        )

    cdef int touch(self, Slot slot, int32_t queue_id, Units units, Py_ssize_t count) except -1:
        """Have room in a queue for what is going to be noted there."""
        units.ensure(count * UNIT_SIZE)
        if units.fresh == 0:
            self.touched.append((slot.name, queue_id, units))
        if not units.is_changed:
            units.is_changed = True
            self.changed.append(units)
        return 0

    cdef int ready(self, Send *send, Py_ssize_t count) except -1:
        """Have room for the answer: from here on nothing can fail."""
        cdef Py_ssize_t id_size = PyBytes_GET_SIZE(self.host_digits) + 17
        return reserve(
            &self.out,
            512 + count * id_size + send.named.unique_id.size + PyBytes_GET_SIZE(self.answer_tail)
            + PyBytes_GET_SIZE(self.last) + PyBytes_GET_SIZE(self.binary_marks),
        )

    cdef int64_t store(
        self, Slot slot, Units units, Entry *entry, Py_ssize_t size, Place *place, bytearray keys
    ) except -1:
        """Write a record, note it, and go on behind it; returns its queue offset."""
        cdef int64_t queue_offset
        if keys is not None:
            add_keys(keys, slot.prefix, &entry.named, place)
        queue_offset = units.put(place.physical_offset, size, tags_code(entry.named.tags))
        fill(entry, slot.topic, self.store_host, size, queue_offset, place)
        self.last_record = place.physical_offset
        place.at += size
        place.room -= size
        place.physical_offset += size
        return queue_offset

    cdef void begin_answer(self, Send *send) noexcept:
        cdef Output *out = &self.out
        self.answer_at = out.size
        out.size += 8
        if send.binary:
            put_bytes(out, self.binary_head)
            put32(out.data + self.answer_at + 8 + 5, <uint32_t>send.opaque)
            put(out, b"\0\x05msgId\0\0\0\0", 11)
        else:
            put(out, b'{"code":0,"extFields":{"msgId":"', 32)
        self.ids_at = out.size
        put_bytes(out, self.host_digits)

    cdef void end_answer(self, Send *send, int64_t queue_offset) noexcept:
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
            put_bytes(out, self.answer_tail)
            put_number(out, send.opaque)
            put_bytes(out, self.last)
        self.frame_answer(send)

    cdef void frame_answer(self, Send *send) noexcept:
        """Write the lengths in front of the header of an answer, which is all of it."""
        cdef uint8_t *start = self.out.data + self.answer_at
        cdef Py_ssize_t size = self.out.size - self.answer_at - 8
        put32(start, <uint32_t>(size + 4))
        put32(start + 4, <uint32_t>size | (<uint32_t>1 << 24 if send.binary else 0))

    cdef void end_binary(self, Send *send, int64_t queue_offset) noexcept:
        cdef Output *out = &self.out
        cdef uint8_t *start = out.data + self.answer_at
        put32(out.data + self.ids_at - 4, <uint32_t>(out.size - self.ids_at))
        put_number_field(out, b"\0\x07queueId", 9, send.queue_id)
        put_number_field(out, b"\0\x0bqueueOffset", 13, queue_offset)
        if send.named.unique_id.size:
            put(out, b"\0\x0dtransactionId", 15)
            put32(out.data + out.size, <uint32_t>send.named.unique_id.size)
            out.size += 4
            put(out, send.named.unique_id.at, send.named.unique_id.size)
        put_bytes(out, self.binary_marks)
        put32(
            start + 8 + BINARY_HEAD - 4, <uint32_t>(out.size - self.answer_at - 8 - BINARY_HEAD)
        )


cdef inline bint is_topic(Slot slot, Slice topic) noexcept:
    return PyBytes_GET_SIZE(slot.topic) == topic.size and memcmp(PyBytes_AS_STRING(slot.topic), topic.at, topic.size) == 0
