"""Trace records, in which clients report what they did with messages (`TraceDataEncoder`).

The body of a message on the trace topic is text: records terminated by character 2, of fields
separated by character 1. The first field is the kind of the record; the number of fields at the
end depends on the version of the client:

    Pub             time region group topic msgId tags keys storeHost bodyLength cost msgType
                    then success | offsetMsgId success | offsetMsgId success clientHost
    SubBefore       time region group requestId msgId retryTimes keys
    SubAfter        requestId msgId cost success keys [contextCode [time group]]
    EndTransaction  time region group topic msgId tags keys storeHost msgType
                    transactionId state fromCheck
    Recall          time region group topic msgId success

Times are milliseconds since 1970 by the client's clock, costs are milliseconds. Java writes `null`
for absent values and escapes nothing; Bolide replaces characters 1 and 2 in a text, and text that
UTF-8 cannot encode, by a question mark. 4.9 ends a SubAfter for the cloud with character 1, so the
next record begins inside it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from bolide.model.properties import KEY_SEPARATOR

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"

PUB: Final = "Pub"
SUB_BEFORE: Final = "SubBefore"
SUB_AFTER: Final = "SubAfter"
END_TRANSACTION: Final = "EndTransaction"
RECALL: Final = "Recall"

DEFAULT_REGION: Final = "DefaultRegion"
MESSAGE_TYPES: Final = ("Normal", "TransHalf", "TransCommit", "Delay", "Order")
OUTCOMES: Final = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")


class TraceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record; fields that its kind does not have are None."""

    kind: str
    time_ms: int | None = None
    region: str | None = None
    group: str | None = None
    topic: str | None = None
    message_id: str | None = None
    offset_message_id: str | None = None
    tags: str | None = None
    keys: str | None = None
    store_host: str | None = None
    client_host: str | None = None
    body_length: int | None = None
    cost_ms: int | None = None
    success: bool | None = None
    message_type: str | None = None
    request_id: str | None = None
    retry_times: int | None = None
    outcome: str | None = None
    transaction_id: str | None = None
    transaction_state: str | None = None
    from_check: bool | None = None

    def index_keys(self) -> Iterator[str]:
        """Keys under which the trace message is indexed: the id and the keys of the message."""
        if self.message_id:
            yield _plain(self.message_id)
        yield from filter(None, _plain(self.keys or "").split(KEY_SEPARATOR))


class Unreadable(msgspec.Struct, frozen=True):
    """A malformed record."""

    problem: str


_SENT = ("time_ms", "region", "group", "topic", "message_id", "tags", "keys", "store_host")
_PUB = (*_SENT, "body_length", "cost_ms", "message_type")
_SUB_AFTER = (
    "request_id", "message_id", "cost_ms", "success", "keys", "outcome", "time_ms", "group",
)  # fmt: skip
_FIELDS: Mapping[str, tuple[str, ...]] = {
    PUB: (*_PUB, "offset_message_id", "success", "client_host"),
    SUB_BEFORE: (*_SENT[:3], "request_id", "message_id", "retry_times", "keys"),
    SUB_AFTER: _SUB_AFTER,
    END_TRANSACTION: (
        *_SENT, "message_type", "transaction_id", "transaction_state", "from_check",
    ),
    RECALL: ("time_ms", "region", "group", "topic", "message_id", "success"),
}  # fmt: skip
_WRITTEN = dict(_FIELDS) | {PUB: _FIELDS[PUB][:-1]}
_NEEDED = {PUB: 11, SUB_BEFORE: 6, SUB_AFTER: 4, END_TRANSACTION: 12, RECALL: 6}
_SHOWN = {"time_ms": "time"}
_CLOUD_END = 7  # fields of a SubAfter for the cloud, including its kind
_BEGINNINGS = [[kind] for kind in _FIELDS]
_LONGEST_EXCERPT = 80
_UNWRITABLE = str.maketrans(dict.fromkeys(FIELD_END + RECORD_END, "?"))
_MAX_INT = 2**31 - 1
_MAX_TIME = 221_845_392_000_000
"""The year 9000: `datetime` ends soon after it."""


def encode_record(record: TraceRecord) -> str:
    """Encode a record as 5.x clients do, including its end."""
    texts = (_written(name, getattr(record, name)) for name in _WRITTEN[record.kind])
    return FIELD_END.join((record.kind, *map(_plain, texts))) + RECORD_END


def read_records(text: str) -> Iterator[TraceRecord | Unreadable]:
    """Decode the records of one trace message."""
    for record in text.split(RECORD_END):
        for fields in _separated(record.split(FIELD_END)):
            if fields != [""]:
                yield _read(fields)


def _plain(text: str) -> str:
    """Replace characters that would break the record format."""
    if text.isascii() and text.isprintable():
        return text
    return text.encode(errors="replace").decode().translate(_UNWRITABLE)


def _written(name: str, value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    numbered = _NUMBERED.get(name)
    return str(value if numbered is None else numbered.index(str(value)))


def _separated(fields: list[str]) -> Iterator[list[str]]:
    """Split where a record begins although the previous one was not terminated."""
    while fields[0] == SUB_AFTER and fields[_CLOUD_END : _CLOUD_END + 1] in _BEGINNINGS:
        yield fields[:_CLOUD_END]
        fields = fields[_CLOUD_END:]
    yield fields


def _read(fields: list[str]) -> TraceRecord | Unreadable:
    kind, *values = fields
    names = _FIELDS.get(kind)
    if names is None:
        return Unreadable(f"no kind of record is called {kind[:_LONGEST_EXCERPT]!r}")
    if len(values) < _NEEDED[kind]:
        return Unreadable(f"{kind} has {len(values)} fields of at least {_NEEDED[kind]}")
    told: dict[str, Any] = {}
    for name, value in zip(_names(kind, len(values)), values, strict=False):
        try:
            told[name] = _READERS.get(name, _text)(value)
        except (ValueError, IndexError):
            excerpt = value[:_LONGEST_EXCERPT]
            return Unreadable(f"{_SHOWN.get(name, name)} of {kind} is {excerpt!r}")
    if kind in {PUB, SUB_AFTER, RECALL}:
        told.setdefault("success", True)  # the default of Java's decoder
    return TraceRecord(kind=kind, **told)


def _names(kind: str, count: int) -> tuple[str, ...]:
    """Return the field names of a record with this number of values."""
    if kind == PUB and count == len(_PUB) + 1:
        return (*_PUB, "success")
    if kind == SUB_AFTER and count == len(_SUB_AFTER) - 1:
        return _SUB_AFTER[:-2]  # for the cloud: a separator without a field behind it
    return _FIELDS[kind]


def _text(value: str) -> str | None:
    return None if value in {"", "null"} else value


def _number(least: int, most: int) -> Callable[[str], int]:
    """Make a bounded parser: clients may send any number, and huge ones break later processing."""

    def read(value: str) -> int:
        number = int(value)
        if not least <= number <= most:
            raise ValueError(number)
        return number

    return read


def _boolean(value: str) -> bool:
    return value.lower() == "true"


def _named(names: tuple[str, ...]) -> Callable[[str], str]:
    def read(value: str) -> str:
        number = int(value)
        if number < 0:
            raise IndexError(number)
        return names[number]

    return read


_NUMBERED: Mapping[str, tuple[str, ...]] = {"message_type": MESSAGE_TYPES, "outcome": OUTCOMES}
_READERS: Mapping[str, Callable[[str], Any]] = {
    "time_ms": _number(0, _MAX_TIME),
    "body_length": _number(-_MAX_INT, _MAX_INT),
    "cost_ms": _number(-_MAX_INT, _MAX_INT),
    "retry_times": _number(-_MAX_INT, _MAX_INT),
    "success": _boolean,
    "from_check": _boolean,
    **{name: _named(names) for name, names in _NUMBERED.items()},
}
