"""Plain sends, from the bytes received into the log; `_sends` has the compiled twin.

The caller holds the store's lock and says where there is room. What is not plain, does not fit or
goes to a topic that is not in the table ends it: the ordinary way takes that one.
"""

import struct
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from bolide.kernel import reference
from bolide.kernel.plain_ends import (
    COMMIT,
    PlainEnd,
    PlainHalf,
    committed_draft,
    op_draft,
    origin_pairs,
    read_plain_end,
    read_plain_half,
)
from bolide.kernel.plain_sends import PlainSend, asks_for_nothing, read_plain_send
from bolide.kernel.units import Units
from bolide.model.message import SysFlag
from bolide.model.properties import PropertyName
from bolide.protocol import binary_fields
from bolide.protocol.batch import BadBatch, iter_batch
from bolide.protocol.frame import Frame, FrameFlag, HeaderEncoding
from bolide.protocol.framing import encode_frame
from bolide.protocol.property_string import PAIR_END, decode_properties, encode_properties
from bolide.protocol.record import Placement, RecordDraft, encode_record
from bolide.protocol.record_errors import RecordTooLarge
from bolide.version import ROCKETMQ_VERSION

_PREFIX = struct.Struct(">II")
_ITEM = struct.Struct(">Iqq")
_END = PAIR_END.encode()
_PREPARED = int(SysFlag.PREPARED)
_MAX_COMMON = 8
"""Properties that a batch may have itself."""


class Slot:
    """A topic that plain sends may go to."""

    def __init__(self, topic: bytes, queues: int, has_window: bool) -> None:
        self.topic = topic
        self.name = topic.decode()
        self.queues = queues
        self.has_window = has_window
        """Repeats by DEDUP_KEY are found: what has one is for the ordinary way."""
        self.units: list[Units | None] = [None] * queues


Ended = tuple[int, int, int]
"""A transaction that has ended: the queue offset of its half message, the bits of sysFlag that say
how, and the queue offset of its op message."""

Touched = tuple[str, int, Units]
"""Topic, queue id, and the newest units of the queue."""


class _Place:
    """Where the next record goes."""

    def __init__(self, view: memoryview, at: int, room: int, physical: int, timestamp: int) -> None:
        self.view = view
        self.at = at
        self.room = room
        self.physical_offset = physical
        self.timestamp = timestamp

    def pass_over(self, size: int) -> None:
        self.at += size
        self.room -= size
        self.physical_offset += size


class _Stored(NamedTuple):
    physical_offset: int
    queue_offset: int


class _Taken(NamedTuple):
    """What became of one request."""

    end: int
    """Where the next begins."""
    messages: int
    answer: bytes = b""


def answer_parts(region: str, trace_on: str) -> tuple[str, str]:
    """What stands in every answer before its opaque, and behind it."""
    marks = msgspec.json.encode({"MSG_REGION": region, "TRACE_ON": trace_on}).decode()[1:]
    return (
        f'{marks},"flag":1,"language":"PYTHON","opaque":',
        f',"serializeTypeCurrentRPC":"JSON","version":{ROCKETMQ_VERSION}}}',
    )


def binary_answer_parts(region: str, trace_on: str) -> tuple[bytes, bytes]:
    """Of an answer with a binary header what comes before its fields, and the last of these."""
    head = binary_fields.encode(Frame(flag=FrameFlag.RESPONSE))
    marks = binary_fields.encode(Frame(fields={"MSG_REGION": region, "TRACE_ON": trace_on}))
    return head, marks[len(head) :]


class Sends:
    """Takes plain sends and answers them.

    Args:
        store_host: the broker's address as records hold it.
        host_digits: the same as hex digits, the first part of every offset id.
        find: the units of a queue, made if there are none.
    """

    def __init__(
        self, store_host: bytes, host_digits: str, find: Callable[[bytes, int], Units]
    ) -> None:
        self.slots: dict[bytes, Slot] = {}
        """By topic; replaced as a whole."""
        self.last_record = -1
        """Where the newest record lies."""
        self._store_host = store_host
        self._host_digits = host_digits
        self._find = find
        self.changed: list[Units] = []
        """Those with units that their owner was not told of: `Units.is_changed`; to be emptied."""
        self._touched: list[Touched] = []
        self.takes_halves = False
        """Whether messages may be sent in transactions."""
        self.readable_from = sys.maxsize
        """Where the part of the log begins in which half messages are looked for: those before
        might have to come from the disk."""
        self._halves: Slot | None = None
        self._ended: list[Ended] = []

    def open_transactions(self, halves: Slot, ops: Slot, claim: Callable[[int], bool]) -> None:
        """Take half messages, if that is allowed, and ends of transactions too.

        Args:
            halves: the topic of half messages.
            ops: that of op messages, which say what half messages are done with.
            claim: told a half message's queue offset, says whether its transaction is open; if so
                it no longer is.
        """
        self._halves, self._ops, self._claim = halves, ops, claim

    def take_ended(self) -> Sequence[Ended]:
        """The transactions that have ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def configure(
        self, *, suffix: bytes, region: str, trace_on: str, max_body: int, max_batch: int
    ) -> None:
        """Say what every message gets, what every answer tells, and how much a send may bring.

        Args:
            suffix: a property string.
        """
        self._suffix = suffix
        self._before_opaque, self._behind_opaque = answer_parts(region, trace_on)
        self._marks = {"MSG_REGION": region, "TRACE_ON": trace_on}
        self._max_body = max_body
        self._max_batch = max_batch

    def take_touched(self) -> list[Touched]:
        """The queues appended to since the last call; `Units.take_fresh` tells how much."""
        touched, self._touched = self._touched, []
        return touched

    def take(  # noqa: PLR0913, PLR0917  one call for a buffer
        self,
        data: bytes,
        position: int,
        longest: int,
        most: int,
        born_host: bytes,
        target: memoryview | bytearray,
        at: int,
        room: int,
        physical_offset: int,
        timestamp: int,
        keys: bytearray | None,
    ) -> tuple[int, bytes, int, int]:
        """Take the plain sends that lie in `data` from `position` on.

        Args:
            longest: bytes that a frame may have.
            most: messages after which to stop.
            target: where to write, `room` bytes from `at` on, all zero.
            physical_offset: that of the byte at `at`.
            keys: gets an item for each key, as `Scan.keys` has them; None: there is no index.

        Returns:
            Where it stopped; the answers, joined; how many bytes and how many messages it wrote.

        Raises:
            ValueError: there is no such room in the target.
        """
        if at < 0 or room < 0 or at + room > len(target):
            raise ValueError(f"{room} bytes at {at} of {len(target)}")
        place = _Place(memoryview(target), at, room, physical_offset, timestamp)
        answers: list[bytes] = []
        count = 0
        while count < most:
            taken = self._take_send(data, position, longest, born_host, place, keys)
            taken = taken or self._take_end(data, position, longest, place, keys)
            if taken is None:
                break
            answers.append(taken.answer)
            count += taken.messages
            position = taken.end
        return position, b"".join(answers), room - place.room, count

    def _take_send(
        self,
        data: bytes,
        position: int,
        longest: int,
        born_host: bytes,
        place: _Place,
        keys: bytearray | None,
    ) -> _Taken | None:
        send = read_plain_send(data, position)
        if send is None or send.end - position > longest:
            return None
        slot = self.slots.get(send.topic.encode())
        if slot is None or send.queue_id >= slot.queues:
            return None
        try:
            drafts = self._drafts(send, slot, born_host)
            if send.is_half:
                slot, drafts = self._half(send, slot, drafts)
            stored = self._store(slot, drafts, place, keys) if drafts else []
        except Exception:  # noqa: BLE001  the ordinary way meets it too and answers
            return None
        if not stored:
            return None
        return _Taken(send.end, len(stored), b"" if send.one_way else self._answer(send, stored))

    def _drafts(self, send: PlainSend, slot: Slot, born_host: bytes) -> list[RecordDraft]:
        if len(send.body) > self._max_body:
            return []
        properties = _joined(send.properties.encode(), self._suffix)
        draft = RecordDraft(
            slot.topic, send.body, properties, send.queue_id, send.born_timestamp, born_host,
            self._store_host, send.flag, send.sys_flag,
        )  # fmt: skip
        if send.is_batch:
            return [] if slot.has_window else self._batch(send, draft)
        if slot.has_window and PropertyName.DEDUP_KEY in send.properties:
            return []
        return [draft]

    def _half(
        self, send: PlainSend, slot: Slot, drafts: list[RecordDraft]
    ) -> tuple[Slot, list[RecordDraft]]:
        """Have a message wait for the end of its transaction."""
        if self._halves is None or not self.takes_halves:
            return slot, []
        more = origin_pairs(send.properties, send.unique_id, send.group, send.topic, send.queue_id)
        return self._halves, [
            draft._replace(
                topic=self._halves.topic,
                queue_id=0,
                properties=bytes(draft.properties) + more,
                sys_flag=draft.sys_flag & ~_PREPARED,
            )
            for draft in drafts
        ]

    def _take_end(
        self, data: bytes, position: int, longest: int, place: _Place, keys: bytearray | None
    ) -> _Taken | None:
        """End the transaction of which a plain end lies here."""
        found = read_plain_end(data, position) if self._halves is not None else None
        if found is None or found[0] - position > longest:
            return None
        end, wish = found
        try:  # all that can fail comes before the claim
            drafts = self._end_drafts(wish, place)
            if drafts is None:
                return None
            records = [encode_record(draft, len(draft.body)) for _, draft in drafts]
            for slot, draft in drafts:
                self._units_of(slot, draft.queue_id)
            if sum(map(len, records)) > place.room or not self._claim(wish.queue_offset):
                return None
        except Exception:  # noqa: BLE001  the ordinary way meets it too and answers
            return None
        for (slot, draft), record in zip(drafts, records, strict=True):
            stored = self._put(draft, record, self._touch(slot, draft.queue_id), place, keys)
        self._ended.append((wish.queue_offset, wish.state, stored.queue_offset))
        return _Taken(end, len(drafts), wish.answer)

    def _end_drafts(self, wish: PlainEnd, place: _Place) -> list[tuple[Slot, RecordDraft]] | None:
        """The message if it is committed, and the op message."""
        half = self._find_half(wish, place)
        if half is None:
            return None
        host, timestamp = self._store_host, place.timestamp
        op = self._ops, op_draft(self._ops.topic, wish, host, timestamp)
        if wish.state != COMMIT:
            return [op]
        slot = self.slots.get(half.topic)
        if slot is None or half.queue_id >= slot.queues or len(half.record.body) > self._max_body:
            return None
        if slot.has_window and PropertyName.DEDUP_KEY in half.properties:
            return None
        return [(slot, committed_draft(half, host)), op]

    def _find_half(self, wish: PlainEnd, place: _Place) -> PlainHalf | None:
        back = place.physical_offset - wish.physical_offset
        if wish.physical_offset < self.readable_from or not 0 < back <= place.at:
            return None
        assert self._halves is not None
        if wish.queue_offset >= self._units_of(self._halves, 0).end:
            return None
        return read_plain_half(place.view[place.at - back : place.at], wish)

    def _batch(self, send: PlainSend, draft: RecordDraft) -> list[RecordDraft]:
        own = decode_properties(send.properties)
        if len(own) > _MAX_COMMON:
            return []
        own.pop(PropertyName.UNIQUE_ID, None)
        common = encode_properties(own).encode() + self._suffix
        drafts: list[RecordDraft] = []
        try:
            for item in iter_batch(send.body):
                properties = bytes(item.properties)
                if not asks_for_nothing(str(properties, "utf-8", "replace")):
                    return []
                joined = _joined(properties, common)
                drafts.append(draft._replace(body=item.body, properties=joined, flag=item.flag))
        except BadBatch:
            return []
        return drafts if len(drafts) <= self._max_batch else []

    def _store(
        self, slot: Slot, drafts: list[RecordDraft], place: _Place, keys: bytearray | None
    ) -> list[_Stored]:
        """All of them, or none if there is no room or one cannot be a record."""
        try:
            records = [encode_record(draft, len(draft.body)) for draft in drafts]
        except RecordTooLarge:
            return []
        if sum(map(len, records)) > place.room:
            return []
        units = self._touch(slot, drafts[0].queue_id)
        return [
            self._put(draft, record, units, place, keys)
            for draft, record in zip(drafts, records, strict=True)
        ]

    def _touch(self, slot: Slot, queue_id: int) -> Units:
        units = self._units_of(slot, queue_id)
        if units.fresh == 0:
            self._touched.append((slot.name, queue_id, units))
        if not units.is_changed:
            units.is_changed = True
            self.changed.append(units)
        return units

    def _units_of(self, slot: Slot, queue_id: int) -> Units:
        units = slot.units[queue_id]
        if units is None or units.is_closed:
            units = slot.units[queue_id] = self._find(slot.topic, queue_id)
        return units

    def _put(
        self,
        draft: RecordDraft,
        record: bytearray,
        units: Units,
        place: _Place,
        keys: bytearray | None,
    ) -> _Stored:
        physical, timestamp, size = place.physical_offset, place.timestamp, len(record)
        code, hashes = reference.describe(draft.topic, draft.properties)
        if keys is not None:
            for each in hashes:
                keys += _ITEM.pack(each, physical, timestamp)
        queue_offset = units.add(physical, size, code)
        placed = Placement(queue_offset, physical, timestamp)
        reference.write_encoded(place.view, place.at, record, placed)
        self.last_record = physical
        place.pass_over(size)
        return _Stored(physical, queue_offset)

    def _answer(self, send: PlainSend, stored: list[_Stored]) -> bytes:
        ids = ",".join([f"{self._host_digits}{each.physical_offset:016X}" for each in stored])
        if send.is_binary:
            return self._binary_answer(send, ids, stored[0].queue_offset)
        transaction = "" if send.is_batch else f'"transactionId":"{send.unique_id}",'
        header = (
            f'{{"code":0,"extFields":{{"msgId":"{ids}","queueId":"{send.queue_id}",'
            f'"queueOffset":"{stored[0].queue_offset}",{transaction}'
            f"{self._before_opaque}{send.opaque}{self._behind_opaque}"
        ).encode()
        return _PREFIX.pack(4 + len(header), len(header)) + header

    def _binary_answer(self, send: PlainSend, ids: str, queue_offset: int) -> bytes:
        fields = {
            "msgId": ids, "queueId": str(send.queue_id), "queueOffset": str(queue_offset)
        }  # fmt: skip
        if not send.is_batch:
            fields["transactionId"] = send.unique_id
        return encode_frame(
            Frame(
                fields=fields | self._marks,
                flag=FrameFlag.RESPONSE,
                opaque=send.opaque,
                encoding=HeaderEncoding.ROCKETMQ,
            )
        )


def _joined(properties: bytes, more: bytes) -> bytes:
    joint = b"" if not properties or properties.endswith(_END) else _END
    return properties + joint + more
