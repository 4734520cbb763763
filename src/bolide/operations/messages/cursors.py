"""Cursors: where a search goes on, as text for a query string.

A cursor has one position per queue, so that it stays right while messages come and go. It says
nothing of the filter: the search that it continues is repeated with the same parameters.
"""

import base64
import binascii
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from bolide.operations.errors import BadInput

_VERSION = 1
_LONGEST = 64 * 1024
_LARGEST = 1024 * 1024
_MAX_OFFSET = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A place between two messages of a queue, and the range that is searched."""

    broker: str
    queue_id: int
    position: int
    """Messages before it have smaller offsets, those behind it this one or larger ones."""
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A place between two messages of a topic."""

    topic: str
    spots: tuple[Spot, ...]
    is_back: bool = False
    """Whether the search goes back from here: against its order."""

    def encode(self) -> str:
        spots = [(s.broker, s.queue_id, s.position, s.low, s.high) for s in self.spots]
        data = msgspec.json.encode((_VERSION, self.topic, self.is_back, spots))
        return base64.urlsafe_b64encode(zlib.compress(data)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str, topic: str) -> "Cursor":
        """Raises BadInput for text that is no cursor, or one of another topic."""
        try:
            _, of_topic, is_back, spots = _read(text)
        except (ValueError, binascii.Error, zlib.error, msgspec.MsgspecError) as exc:
            raise BadInput(
                "cursor", "this is no cursor of a search: leave it out to begin again"
            ) from exc
        if of_topic != topic:
            raise BadInput("cursor", f"it belongs to topic {of_topic!r}: leave it out")
        if any(not 0 <= number <= _MAX_OFFSET for spot in spots for number in spot[1:]):
            raise BadInput("cursor", "it has offsets that no queue has: leave it out")
        return cls(
            topic=topic,
            is_back=is_back,
            spots=tuple(
                Spot(broker=broker, queue_id=number, position=position, low=low, high=high)
                for broker, number, position, low, high in spots
            ),
        )


_Content = tuple[int, str, bool, list[tuple[str, int, int, int, int]]]


def _read(text: str) -> _Content:
    if len(text) > _LONGEST:
        raise ValueError(len(text))
    data = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    inflater = zlib.decompressobj()
    plain = inflater.decompress(data, _LARGEST)
    content = msgspec.json.decode(plain, type=_Content)
    if content[0] != _VERSION:
        raise ValueError(content[0])
    return content


def cursor_text(topic: str, spots: Iterable[Spot], *, is_back: bool = False) -> str:
    return Cursor(topic=topic, spots=tuple(spots), is_back=is_back).encode()
