"""Transactions as the broker's fast path reads them: their half messages, and how they end.

A half message is plain if it is sent alone and asks for nothing else, and an END_TRANSACTION if it
commits or rolls back a half message that its producer has just sent. Whatever is not plain takes
the ordinary way, `broker.transactions`; that must store the same for a plain one, byte for byte.
"""

import re
import struct
from typing import Annotated, Literal, NamedTuple

import msgspec

from bolide.kernel import reference
from bolide.model.message import SysFlag
from bolide.model.names import HALF_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame, FrameFlag
from bolide.protocol.framing import decode_frame, encode_frame
from bolide.protocol.property_string import decode_properties
from bolide.protocol.record import Record, RecordDraft
from bolide.protocol.record_errors import BadRecord

COMMIT, ROLLBACK = int(SysFlag.COMMIT), int(SysFlag.ROLLBACK)

_END_TRANSACTION = 37
_PREFIX = struct.Struct(">II")
_BINARY_CODE, _JSON_CODE = b"\x00\x25", b'"code":37'
_HEADER_SIZE = 0xFFFFFF
_USUAL_FLAGS = 0x701 | SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
_MOST_PAIRS = 24
_NUMBER = re.compile("0|[1-9][0-9]{0,17}")

_PAIRS = re.compile("(?:[^\x01\x02]+\x01[^\x01\x02]+\x02)*(?:[^\x01\x02]+\x01[^\x01\x02]+)?")
_SET_BY_BROKER = re.compile("TRAN|REAL_|__transactionId__")
_SPECIAL = re.compile(
    "DELAY|TIMER_|__STARTDELIVERTIME|CHECK_IMMUNITY_TIME|TRAN_PREPARED_QUEUE_OFFSET"
)
"""What makes a half wait, or another one than the first of its transaction."""

_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class _EndFields(msgspec.Struct, rename="camel"):
    producer_group: str
    tran_state_table_offset: _Offset
    commit_log_offset: _Offset
    commit_or_rollback: Literal[8, 12]
    msg_id: str
    topic: str = ""
    from_transaction_check: bool = False
    transaction_id: str = ""


class PlainEnd(NamedTuple):
    """What a producer wants to become of a half message."""

    group: str
    queue_offset: int
    physical_offset: int
    state: int
    answer: bytes
    """Empty if it wants none."""


class PlainHalf(NamedTuple):
    """A half message as it lies in the log, and where it belongs."""

    record: Record
    properties: dict[str, str]
    topic: bytes
    queue_id: int


def pairs_of(properties: str) -> dict[str, str] | None:
    """The properties, if they would be written in the same way again."""
    if not properties.isascii() or not _PAIRS.fullmatch(properties):
        return None
    pairs = decode_properties(properties)
    count = properties.count("\x01")
    return pairs if len(pairs) == count <= _MOST_PAIRS else None


def wishes_half(properties: str, asks: re.Pattern[str]) -> bool:
    """Whether a message is sent in a transaction and asks for nothing else.

    Args:
        asks: how the names begin of what makes a message ask.
    """
    pairs = pairs_of(properties)
    if pairs is None or pairs.pop(PropertyName.TRANSACTION_PREPARED, "") != "true":
        return False
    return not any(_SET_BY_BROKER.match(name) or asks.match(name) for name in pairs)


def origin_pairs(properties: str, unique_id: str, group: str, topic: str, queue_id: int) -> bytes:
    """What a broker adds to the properties of a half message, its marks aside."""
    pairs = {PropertyName.TRANSACTION_ID: unique_id}
    if PropertyName.PRODUCER_GROUP not in decode_properties(properties):
        pairs[PropertyName.PRODUCER_GROUP] = group
    pairs |= {PropertyName.REAL_TOPIC: topic, PropertyName.REAL_QUEUE_ID: str(queue_id)}
    return "".join([f"{name}\x01{value}\x02" for name, value in pairs.items()]).encode()


def read_plain_end(data: bytes, position: int) -> tuple[int, PlainEnd] | None:
    """The plain end that lies whole at `position`, and where the next frame begins."""
    header_at = position + _PREFIX.size
    if len(data) < header_at:
        return None
    length, mark = _PREFIX.unpack_from(data, position)
    end: int = position + 4 + length
    if end > len(data):
        return None
    header_end = header_at + (mark & _HEADER_SIZE)
    is_binary = data.startswith(_BINARY_CODE, header_at)
    if not is_binary and data.find(_JSON_CODE, header_at, header_end) < 0:
        return None
    try:
        frame = decode_frame(data[position + 4 : end])
        if frame.code != _END_TRANSACTION or frame.is_response or frame.remark:
            return None
        found = msgspec.convert(_numbered(frame.fields or {}), _EndFields, strict=False)
    except (ProtocolError, ValueError):  # msgspec's errors are ValueErrors
        return None
    return end, PlainEnd(
        found.producer_group,
        found.tran_state_table_offset,
        found.commit_log_offset,
        found.commit_or_rollback,
        b"" if frame.is_one_way else _answer(frame),
    )


def _answer(frame: Frame) -> bytes:
    return encode_frame(
        Frame(flag=FrameFlag.RESPONSE, opaque=frame.opaque, encoding=frame.encoding)
    )


def _numbered(fields: dict[str, str]) -> dict[str, str | int]:
    state = fields.get("commitOrRollback", "")
    return fields | {"commitOrRollback": int(state) if state in {"8", "12"} else state}


def read_plain_half(data: bytes | memoryview, wish: PlainEnd) -> PlainHalf | None:
    """The half message that a plain end means, which lies at the front of `data`."""
    try:
        record = reference.read_record(data)
    except BadRecord:
        return None
    if not isinstance(record, Record) or not _is_meant(record, wish):
        return None
    text = str(record.properties, "utf-8", "replace")
    pairs = pairs_of(text) if text.endswith("\x02") else None
    if pairs is None or pairs.get(PropertyName.PRODUCER_GROUP) != wish.group:
        return None
    queue_id = pairs.get(PropertyName.REAL_QUEUE_ID, "")
    if not _NUMBER.fullmatch(queue_id) or any(map(_SPECIAL.match, pairs)):
        return None
    topic = pairs.get(PropertyName.REAL_TOPIC, "").encode()
    return PlainHalf(record, pairs, topic, int(queue_id))


def committed_draft(half: PlainHalf, store_host: bytes) -> RecordDraft:
    """A half message as it goes where it belongs."""
    record = half.record
    return RecordDraft(
        half.topic, bytes(record.body), bytes(record.properties), half.queue_id,
        record.born_timestamp, record.born_host, store_host, record.flag,
        record.sys_flag | COMMIT, record.reconsume_times, record.physical_offset,
    )  # fmt: skip


def op_draft(topic: bytes, wish: PlainEnd, store_host: bytes, timestamp: int) -> RecordDraft:
    """What says that a half message is done with, and how."""
    offset, state = wish.queue_offset, wish.state
    properties = f"TAGS\x01d\x02BOLIDE_STATE\x01{state}\x02BOLIDE_ORIGIN\x01{offset}\x02".encode()
    return RecordDraft(
        topic, str(offset).encode(), properties, 0, timestamp, store_host, store_host
    )


def _is_meant(record: Record, wish: PlainEnd) -> bool:
    return (
        record.topic == HALF_TOPIC
        and record.version == 1
        and not record.sys_flag & ~_USUAL_FLAGS
        and (record.physical_offset, record.queue_offset)
        == (wish.physical_offset, wish.queue_offset)
    )
