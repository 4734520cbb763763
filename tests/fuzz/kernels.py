"""Targets that compare the compiled kernel with its twins in plain Python."""

import struct
from collections.abc import Iterable
from typing import Any

from bolide.kernel import (
    Check,
    _columns,
    _frames,
    _gathering,
    _index,
    _messages,
    _records,
    _send_frames,
    _signatures,
    columns,
    gathering,
    index_entries,
    messages,
    records,
    send_frames,
    signatures,
)
from bolide.protocol import framing, inner_batch
from bolide.protocol.compression import CodecMissing
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame
from bolide.protocol.record import read_record
from bolide.protocol.record_errors import BadRecord
from tests.fuzz import samples
from tests.fuzz.agreement import Disagreement, agree

_UNIT = struct.Struct(">qiq")


def frame(data: bytes) -> None:
    """A frame without its length; what is decoded is encoded to the same bytes by both."""
    agree(lambda: framing.decode_frame(data), lambda: _frames.decode_frame(data), ProtocolError)
    try:
        found = framing.decode_frame(data)
    except ProtocolError:
        return
    _encode(found)


def _encode(found: Frame) -> None:
    agree(
        lambda: framing.encode_frame(found), lambda: _frames.encode_frame(found),
        ValueError, ProtocolError,
    )  # fmt: skip


def mended_frame(data: bytes) -> None:
    """A header of any bytes, whose length is right: byte 0 is the encoding, 2 more its length."""
    if len(data) < 3:
        return
    size = min(int.from_bytes(data[1:3]), len(data) - 3)
    frame(struct.pack(">I", (data[0] & 1) << 24 | size) + data[3:])


def mended_seeds() -> list[bytes]:
    return _mended(samples.frames())


def _mended(frames: Iterable[bytes]) -> list[bytes]:
    seeds = []
    for wire in frames:
        (word,) = struct.unpack_from(">I", wire, 4)
        seeds.append(bytes([word >> 24]) + struct.pack(">H", word & 0xFFFF) + wire[8:])
    return seeds


def signed_frame(data: bytes) -> None:
    """A frame as for `mended_frame`, as it is and with its signature made right.

    Compiled code may take a right signature for wrong, if the header is unusual, but no wrong one
    for right.
    """
    if len(data) < 3:
        return
    size = min(int.from_bytes(data[1:3]), len(data) - 3)
    wire = struct.pack(">II", len(data) + 1, (data[0] & 1) << 24 | size) + data[3:]
    right = samples.signed_anew(wire)
    _verify(wire, wire)
    _verify(right, right)
    if right != wire:  # and when another body follows, of which it is not the signature
        _verify(right[:-1] + bytes([right[-1] ^ 1]), right)
    _sign(data[1 : 1 + data[0]], data)


def _verify(wire: bytes, before: bytes) -> None:
    for data, position in ((wire, 0), (before + wire, len(before)), (wire[:-1], 0), (wire, 1)):
        is_right = signatures.SigningKey(samples.SECRET).is_signed(data, position)
        key = _signatures.SigningKey(samples.SECRET)
        key.is_signed(before, 0)  # it remembers the order of the fields
        if key.is_signed(data, position) and not is_right:
            raise Disagreement(f"compiled code takes the signature of {data!r} for right")


def _sign(secret: bytes, content: bytes) -> None:
    """Signatures by the processor's instructions and without them."""
    for extended in (False, True):
        _signatures.use_sha_extensions(extended)
        agree(
            lambda: signatures.SigningKey(secret).sign(content),
            lambda: _signatures.SigningKey(secret).sign(content),
        )


def signed_seeds() -> list[bytes]:
    return _mended(samples.signed_frames())


def record(data: bytes) -> None:
    """Records from bytes of any kind, one by one and back to back."""
    for check_crc in (False, True):
        agree(
            lambda check_crc=check_crc: read_record(data, check_crc=check_crc),  # type: ignore[misc]
            lambda check_crc=check_crc: _records.read_record(data, check_crc=check_crc),  # type: ignore[misc]
            BadRecord,
        )
    agree(lambda: _shown(messages, data), lambda: _shown(_messages, data), BadRecord)
    agree(lambda: messages.joined_flags(data), lambda: _messages.joined_flags(data))


def _shown(kernel: Any, data: bytes) -> list[Any]:
    return [(each, dict(each.properties)) for each in kernel.read_messages(data, "broker-a")]


def scan(data: bytes) -> None:
    for check in Check:
        options: dict[str, Any] = {"check": check, "delays": (0, 1000, 5000)}
        agree(
            lambda options=options: records.scan(data, 0, len(data), 0, **options),  # type: ignore[misc]
            lambda options=options: _records.scan(data, 0, len(data), 0, **options),  # type: ignore[misc]
            ValueError,
        )


def column(data: bytes) -> None:
    for check_crc in (False, True):
        agree(
            lambda check_crc=check_crc: _columns_of(columns, data, check_crc),  # type: ignore[misc]
            lambda check_crc=check_crc: _columns_of(_columns, data, check_crc),  # type: ignore[misc]
            ValueError, CodecMissing,
        )  # fmt: skip


def _columns_of(kernel: Any, data: bytes, check_crc: bool) -> tuple[Any, ...]:
    made = kernel.Columns()
    walk = made.add(data, check_crc=check_crc)
    return tuple(walk), made.rows, made.size, made.left_compressed, _bytes(made.cut())


def _bytes(value: Any) -> Any:
    """Buffers of any type, as bytes."""
    if isinstance(value, tuple):
        return [_bytes(each) for each in value]
    return value if value is None or isinstance(value, int) else bytes(value)


def unwrapped(data: bytes) -> None:
    """Inner batches become records that can be read."""
    found = inner_batch.unwrap_records(data, 5)
    messages.read_messages(found)


def description(data: bytes) -> None:
    """Tags code and index keys of a topic and, after NUL, a property string."""
    topic, _, given = data.partition(b"\0")
    agree(lambda: records.describe(topic, given), lambda: _records.describe(topic, given))


def index(data: bytes) -> None:
    """A damaged index file: searched, extended and rebuilt."""
    if len(data) < 60:
        return
    slots, count, key = data[0] % 16, data[1] % 16, int.from_bytes(data[2:6]) & 0x7FFFFFFF
    agree(
        lambda: index_entries.find_keys(memoryview(data), slots, count, key, (0, 1 << 31), 32),
        lambda: _index.find_keys(memoryview(data), slots, count, key, (0, 1 << 31), 32),
        ValueError,
    )
    agree(
        lambda: _changed(index_entries, data, slots, count),
        lambda: _changed(_index, data, slots, count),
        ValueError,
    )


def _changed(kernel: Any, data: bytes, slots: int, count: int) -> tuple[Any, bytes]:
    copy = bytearray(data)
    keys = data[6:46]
    put = kernel.put_keys(memoryview(copy), slots, count + 4, count, 1000, keys)
    used = kernel.rebuild_slots(memoryview(copy), slots, count)
    return (put, used), bytes(copy)


def gather(data: bytes) -> None:
    """Units that point anywhere in a log: the first 100 bytes are units."""
    units, block = data[:100], memoryview(data[100:])
    arguments = (units, 0, block, 0, 8, 1 << 20)
    agree(lambda: gathering.gather(*arguments), lambda: _gathering.gather(*arguments))


def gather_seeds() -> list[bytes]:
    log, units = b"", b""
    for draft in list(samples.drafts())[:5]:
        made = samples.record(draft, physical_offset=len(log))
        units += _UNIT.pack(len(log), len(made), 5)
        log += made
    return [units + log]


def answers(data: bytes) -> None:
    """Replies to a producer; compiled code may leave more of them to the general decoder."""
    wanted = range(-(2**31), 2**31)
    end, expected = send_frames.read_answers(data, 0, wanted)
    compiled_end, found = _send_frames.read_answers(data, 0, wanted)
    if found != expected[: len(found)] or compiled_end > end:
        raise Disagreement(f"plain Python: {end} {expected}\ncompiled: {compiled_end} {found}")
