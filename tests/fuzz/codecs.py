"""Targets of the protocol: what a decoder takes, it must be able to write and read again."""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from bolide.model.message import CompressionType
from bolide.protocol import fastjson, inner_batch, json_dialect
from bolide.protocol.batch import iter_batch
from bolide.protocol.bodies.registration import RegisterBrokerBody, compress
from bolide.protocol.bodies.registration import decompress as decompress_registration
from bolide.protocol.compression import decompress
from bolide.protocol.errors import ProtocolError
from bolide.protocol.framing import FrameDecoder, decode_frame
from bolide.protocol.header import Header
from bolide.protocol.message_id import OffsetId, UniqueId
from bolide.protocol.pop_info import (
    Receipt,
    normal_topic,
    read_message_offsets,
    read_order_counts,
    read_start_offsets,
)
from bolide.protocol.property_string import decode_properties, encode_properties
from bolide.protocol.recall_handle import RecallHandle
from bolide.protocol.tags import TagExpression, tags_code
from bolide.protocol.trace import read_records
from bolide.remoting.address import split_address
from tests.fuzz import samples

_MAX_PLAIN = 1 << 20


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


# ---- frames and headers


def stream(data: bytes) -> None:
    """Frames are the same however the bytes are cut into pieces."""
    whole = FrameDecoder(decode=decode_frame)
    expected = whole.feed(data)
    cut = FrameDecoder(decode=decode_frame)
    size = 1 + data[0] % 64 if data else 1
    found = [frame for at in range(0, len(data), size) for frame in cut.feed(data[at : at + size])]
    assert found == expected, "pieces give other frames than the whole"
    assert (whole.error is None) == (cut.error is None), "pieces give another error"


def header_classes() -> list[type[Header]]:
    found: list[type[Header]] = []
    pending = [Header]
    while pending:
        for each in pending.pop().__subclasses__():
            if each.__module__.startswith("bolide."):
                found.append(each)
                pending.append(each)
    return sorted(set(found), key=lambda kind: (kind.__module__, kind.__name__))


HEADERS = header_classes()


def header(data: bytes) -> None:
    """The first bytes choose the class; the rest, split at NUL, are the texts of its fields."""
    if len(data) < 2:
        return
    kind = HEADERS[int.from_bytes(data[:2]) % len(HEADERS)]
    names = kind.__struct_encode_fields__
    texts = text_of(data[2:]).split("\0")
    fields = {name: text for name, text in zip(names, texts, strict=False) if text != "-"}
    found = kind.from_fields(fields)
    again = kind.from_fields(found.to_fields())
    assert again == found, f"{found} is read as {again}"


def header_seeds() -> list[bytes]:
    seeds = []
    for number, kind in enumerate(HEADERS):
        fields = samples.header_of(kind)
        texts = [fields.get(name, "-") for name in kind.__struct_encode_fields__]
        seeds.append(number.to_bytes(2) + "\0".join(texts).encode())
    return seeds


# ---- bodies

SHAPES = samples.shapes()
_NO_JSON = re.compile(r"=-?(inf|nan)\b")
"""Numbers that are written as null."""


def body(data: bytes) -> None:
    if len(data) < 2:
        return
    shape: Any = SHAPES[int.from_bytes(data[:2]) % len(SHAPES)]
    found = fastjson.decode(data[2:], shape)
    for standard in (False, True):
        again = fastjson.decode(fastjson.encode(found, standard=standard), shape)
        assert again == found or _NO_JSON.search(repr(found)), f"{found!r} is read as {again!r}"


def body_seeds() -> list[bytes]:
    return [number.to_bytes(2) + text for number, text in samples.json_bodies()]


def json(data: bytes) -> None:
    json_dialect.parse(data)


def registration(data: bytes) -> None:
    decompress_registration(data[1:], with_mapping=bool(data[:1]) and bool(data[0] & 1))


def registration_seeds() -> list[bytes]:
    body = samples.sample(RegisterBrokerBody)
    return [bytes([mapped]) + compress(body, with_mapping=bool(mapped)) for mapped in (0, 1)]


# ---- texts


def property_string(data: bytes) -> None:
    found = decode_properties(text_of(data))
    assert decode_properties(encode_properties(found)) == found


def batch(data: bytes) -> None:
    list(iter_batch(data))
    inner_batch.count_items(data, 1000)


def message_ids(data: bytes) -> None:
    for kind in (OffsetId, UniqueId):
        _if_refused_too(data, lambda text, kind=kind: kind.decode(text))  # type: ignore[misc]


def receipts(data: bytes) -> None:
    def at_a_place(text: str) -> None:
        Receipt.decode(text, (0, 1))

    def one(text: str) -> None:
        found = Receipt.decode(text)
        assert Receipt.decode(found.encode()) == found

    for read in (one, at_a_place, read_start_offsets, read_message_offsets, read_order_counts):
        _if_refused_too(data, read)
    normal_topic(text_of(data), "g")


def recall_handles(data: bytes) -> None:
    RecallHandle.decode(text_of(data))


def tags(data: bytes) -> None:
    found = TagExpression.parse(text_of(data))
    for tag in found.tags:
        assert found.matches(tag)
        assert found.may_match(tags_code(tag)), tag


def trace(data: bytes) -> None:
    list(read_records(data.decode("utf-8", "replace")))


def compressed(data: bytes) -> None:
    kinds = list(CompressionType)
    kind = kinds[data[0] % len(kinds)] if data else kinds[0]
    plain = decompress(data[1:], kind.flags, _MAX_PLAIN)
    assert len(plain) <= _MAX_PLAIN


def addresses(data: bytes) -> None:
    split_address(text_of(data))


def _if_refused_too(data: bytes, read: Callable[[str], object]) -> None:
    """Read by several functions: a refusal of one must not keep the others from reading."""
    with suppress(ProtocolError):
        read(text_of(data))
