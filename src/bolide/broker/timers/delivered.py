"""What went out just before a crash: it is in the log, though no checkpoint tells of it."""

from collections.abc import Iterator
from typing import NamedTuple

from bolide.model.properties import PropertyName
from bolide.protocol.property_string import decode_properties
from bolide.protocol.record import RECORD_HEAD, Record, is_record_magic, read_record
from bolide.protocol.record_errors import BadRecord
from bolide.store.reading import ReadableLog

_MARKED = f"{PropertyName.TIMER_OUT_MS}\x01".encode()
_STRIDE = 4 * 1024 * 1024
_BLANK_MAGIC = 0xCBD43194


class Identity(NamedTuple):
    """What tells a delivery from all others."""

    topic: str
    unique_id: str
    due: str
    rolled: str

    @classmethod
    def of(cls, topic: str, properties: dict[str, str]) -> "Identity | None":
        unique_id = properties.get(PropertyName.UNIQUE_ID)
        due = properties.get(PropertyName.TIMER_OUT_MS)
        if unique_id is None or due is None:
            return None
        return cls(topic, unique_id, due, properties.get(PropertyName.TIMER_ROLL_TIMES, ""))


def delivered_since(log: ReadableLog, position: int) -> set[Identity]:
    """All that timers appended to a log from a position on, which is that of a record. Blocks."""
    found = set()
    for record in _records(log, max(position, log.min_offset)):
        properties = decode_properties(str(record.properties, "utf-8", "replace"))
        if identity := Identity.of(record.topic, properties):
            found.add(identity)
    return found


def _records(log: ReadableLog, position: int) -> Iterator[Record]:
    """The records that may be of a timer."""
    while position < log.written:
        block = log.read_block(position, RECORD_HEAD.size, _STRIDE, may_block=True)
        if block is None:
            return
        data, at = bytes(block), 0
        while at + RECORD_HEAD.size <= len(data):
            size, magic, _ = RECORD_HEAD.unpack_from(data, at)
            if magic == _BLANK_MAGIC:
                at += size
                break
            if not is_record_magic(magic):
                return
            if at + size > len(data):
                break
            if data.find(_MARKED, at, at + size) >= 0:
                yield from _readable(data, at)
            at += size
        if at == 0:
            data = bytes(log.read(position, size) or b"")
            yield from _readable(data, 0)
            at = max(len(data), 1)
        position += at


def _readable(data: bytes, at: int) -> Iterator[Record]:
    try:
        record = read_record(data, at)
    except BadRecord:
        return
    if isinstance(record, Record):
        yield record
