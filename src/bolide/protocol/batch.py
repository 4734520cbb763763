"""The body of a batch send (request 320), and of an inner batch record.

Contiguous messages (`MessageDecoder.encodeMessages`), each:

| Size  | Field                                            |
| ----- | ------------------------------------------------ |
| 4     | size of the whole item                           |
| 4     | magic, written as 0 and ignored                  |
| 4     | CRC of the body, written as 0 and ignored        |
| 4     | flag                                             |
| 4 + n | body                                             |
| 2 + n | properties; the length is a signed short         |

Topic, queue and the other fields are in the request's header, common to all messages.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bolide.model.message import Message
from bolide.protocol.errors import ProtocolError
from bolide.protocol.property_string import decode_properties, encode_properties
from bolide.protocol.record_errors import RecordTooLarge

Buffer = bytes | bytearray | memoryview

_MAX_PROPERTIES_SIZE = 0x7FFF
_HEAD = struct.Struct(">I8xiI")
_SHORT = struct.Struct(">h")


class BadBatch(ProtocolError):
    """The message at `position` of the body is truncated or its lengths do not add up."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"batch at {position}: {reason}")
        self.position = position
        self.reason = reason


class BatchItem(NamedTuple):
    """One message of a batch; body and properties are views."""

    flag: int
    body: memoryview
    properties: memoryview

    def message(self, topic: str) -> Message:
        properties = decode_properties(str(self.properties, "utf-8", "replace"))
        return Message.unchecked(topic, bytes(self.body), properties, self.flag)


def encode_batch(messages: Iterable[Message]) -> bytes:
    """Raises RecordTooLarge if the properties of a message are too long."""
    return b"".join(map(_encode_item, messages))


def iter_batch(buffer: Buffer) -> Iterator[BatchItem]:
    """Decode the messages lazily; BadBatch is raised when the bad one is reached."""
    view, position = memoryview(buffer), 0
    while position < len(view):
        item, position = _read_item(view, position)
        yield item


def _encode_item(message: Message) -> bytes:
    return encode_item(message.flag, message.body, encode_properties(message.properties))


def encode_item(flag: int, body: bytes, text: str) -> bytes:
    """Encode one message from its property string. Raises RecordTooLarge."""
    properties = text.encode()
    if len(properties) > _MAX_PROPERTIES_SIZE:
        raise RecordTooLarge("properties", len(properties), _MAX_PROPERTIES_SIZE)
    size = _HEAD.size + len(body) + _SHORT.size + len(properties)
    head = _HEAD.pack(size, flag, len(body))
    return b"".join((head, body, _SHORT.pack(len(properties)), properties))


def _read_item(view: memoryview, position: int) -> tuple[BatchItem, int]:
    """Return the message at `position` and where the next one begins."""
    try:
        size, flag, body_size = _HEAD.unpack_from(view, position)
        body_at = position + _HEAD.size
        body_end = body_at + body_size
        (properties_size,) = _SHORT.unpack_from(view, body_end)
    except struct.error as exc:
        raise BadBatch(position, f"cut off, {len(view) - position} bytes are left") from exc
    properties_at, end = body_end + _SHORT.size, position + size
    if properties_size < 0 or properties_at + properties_size != end or end > len(view):
        raise BadBatch(position, f"its fields do not add up to {size} bytes")
    return BatchItem(flag, view[body_at:body_end], view[properties_at:end]), end
