"""Valid encodings, from which mutations start: built from the declarations, not kept as files."""

import json
from collections.abc import Iterator
from typing import Any

from msgspec import inspect
from msgspec.structs import replace

from bolide.kernel import records
from bolide.model.message import Message
from bolide.protocol import fastjson
from bolide.protocol.batch import encode_batch
from bolide.protocol.codes import RequestCode
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame, HeaderEncoding
from bolide.protocol.framing import decode_frame, encode_frame
from bolide.protocol.header import Header
from bolide.protocol.record import RecordDraft
from bolide.protocol.requests import REQUESTS, RequestKind
from bolide.protocol.signature import ACCESS_KEY, SIGNATURE, signature

V4 = b"\x0a\x00\x00\x05\x00\x00\x2a\x9f"
V6 = bytes(range(16)) + b"\x00\x00\x2a\x9f"
ID = "7F00000112345678ABCDEF0000010000"
PROPERTIES = (
    b"",
    f"UNIQ_KEY\x01{ID}\x02TAGS\x01A\x02KEYS\x01a b\x02n\x013\x02".encode(),
    b"DELAY\x013\x02TAGS\x01A",
    "Ü\x01ü\x02".encode(),
)
_TEXTS = {
    "topic": "T", "group": "readers", "consumerGroup": "readers", "subscription": "*",
    "extraInfo": "0 1700000000000 60000 0 0 broker-a 0 0", "msgId": ID,
    "properties": PROPERTIES[1].decode(), "expressionType": "TAG", "topicFilterType": "SINGLE_TAG",
    "defaultTopic": "TBW102", "producerGroup": "producers", "offsetMsgId": ID, "order": "false",
}  # fmt: skip


def sample(shape: Any, name: str = "") -> Any:
    """A value of a type."""
    return _sample(inspect.type_info(shape), name, 0)


def _sample(kind: inspect.Type, name: str, depth: int) -> Any:  # noqa: PLR0911  one for each kind
    if isinstance(kind, inspect.StructType):
        return kind.cls(
            **{
                field.name: _sample(field.type, field.encode_name, depth + 1)
                for field in kind.fields
                if field.required or depth < 3
            }
        )
    if isinstance(kind, inspect.UnionType):
        chosen = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
        return _sample(chosen[0], name, depth)
    if isinstance(kind, inspect.DictType):
        return {_sample(kind.key_type, name, 9): _sample(kind.value_type, name, depth + 1)}
    if isinstance(kind, inspect.ListType):
        return [_sample(kind.item_type, name, depth + 1)]
    if isinstance(kind, inspect.EnumType):
        return next(iter(kind.cls))
    if isinstance(kind, inspect.IntType):
        return 1
    if isinstance(kind, inspect.BoolType):
        return True
    if isinstance(kind, inspect.FloatType):
        return 1.5
    if isinstance(kind, inspect.BytesType):
        return b"\x01"
    return None if isinstance(kind, inspect.NoneType) else _TEXTS.get(name, "x")


def header_of(kind: type[Header]) -> dict[str, str]:
    found: Header = sample(kind)
    return found.to_fields()


def body_of(kind: RequestKind) -> bytes:
    if kind.body is None:
        return b""
    if kind.body in (bytes, str):
        return b"key=value\n"
    return fastjson.encode(sample(kind.body))


def headers() -> dict[RequestCode, dict[str, str]]:
    """The fields of a request of every code."""
    return {code: header_of(kind.header) for code, kind in REQUESTS.items()}


def requests() -> Iterator[Frame]:
    """A request of every code."""
    for code, fields in headers().items():
        yield Frame(code=code, fields=fields, opaque=7, body=body_of(REQUESTS[code]))


def frames() -> Iterator[bytes]:
    """Requests as they stand on the wire, in both encodings; codes over 16 bits in one."""
    for frame in requests():
        yield encode_frame(frame)
        if frame.code <= 0x7FFF:
            frame.encoding = HeaderEncoding.ROCKETMQ
            yield encode_frame(frame)
    answer = Frame(code=0, fields={"msgId": ID, "queueId": "1", "queueOffset": "5"}, opaque=1)
    answer.flag = 1
    yield encode_frame(answer)


def record(draft: RecordDraft, queue_offset: int = 7, physical_offset: int = 0) -> bytes:
    target = bytearray(records.record_size(draft))
    records.write_record(target, 0, draft, queue_offset, physical_offset, 1700000000123)
    return bytes(target)


def drafts() -> Iterator[RecordDraft]:
    for properties in PROPERTIES:
        for host in (V4, V6):
            yield RecordDraft(b"TopicTest", b"hello", properties, 1, 1700000000000, host, V4)
    yield RecordDraft(b"T" * 200, b"", b"", 0, 0, V4, V6, 1, 4)
    yield RecordDraft(b"SCHEDULE_TOPIC_XXXX", b"x", b"DELAY\x012\x02", 1, 0, V4, V4)
    batch = encode_batch([Message("T", b"one"), Message("T", b"two", tags="A")])
    yield RecordDraft(b"T", batch, b"INNER_NUM\x012\x02", 0, 0, V4, V4, 0, 0x180)


def logs() -> Iterator[bytes]:
    """One record, and several back to back."""
    log = b""
    for draft in drafts():
        yield record(draft)
        log += record(draft, physical_offset=len(log))
    yield log
    yield log + bytes(64)


def json_bodies() -> Iterator[tuple[int, bytes]]:
    """Bodies with the number of their shape."""
    for number, shape in enumerate(shapes()):
        yield number, fastjson.encode(sample(shape))


def shapes() -> list[Any]:
    """The types of all JSON bodies."""
    given = [shape for kind in REQUESTS.values() for shape in (kind.body, kind.reply_body)]
    return [each for each in dict.fromkeys(given) if each not in (None, bytes, str)]


def odd_json() -> Iterator[bytes]:
    """What only Java reads."""
    yield from (
        b"{0:10,1:20}", b'{{"queueId":0,"topic":"T"}:5}', b"{'a':1,b:2,}", b'{"$ref":"$"}',
        b"[1,2,3]", b'"x"', b"null", b'{"a":1e400}', b"/* c */{}", b'{"a":"\\ud800"}',
        json.dumps({"a": [{"b": {"c": [1.5, -0.0, True, None]}}]}).encode(),
    )  # fmt: skip


# ---- signed requests

KEY, SECRET = "fuzz", b"secret-of-fuzz"


def signed(frame: Frame) -> Frame:
    """A request with the credentials of the account."""
    fields = {**(frame.fields or {}), ACCESS_KEY: KEY}
    fields[SIGNATURE] = signature(fields, frame.body, SECRET, frame.version)
    return replace(frame, fields=fields)


def signed_anew(wire: bytes) -> bytes:
    """A frame whose signature, if it has one, is made right in its place.

    So a mutation of a signed request is signed, however unusual its header has become.
    """
    try:
        frame = decode_frame(wire[4:])
    except ProtocolError:
        return wire
    fields = frame.fields or {}
    given = fields.get(SIGNATURE, "").encode(errors="replace")
    right = signature(fields, frame.body, SECRET, frame.version).encode()
    if len(given) != len(right) or wire.count(given) != 1:
        return wire
    return wire.replace(given, right)


def signed_frames() -> Iterator[bytes]:
    """As `frames`, with credentials."""
    for frame in requests():
        yield encode_frame(signed(frame))
        if frame.code <= 0x7FFF:
            yield encode_frame(signed(replace(frame, encoding=HeaderEncoding.ROCKETMQ)))
