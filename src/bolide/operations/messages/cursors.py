"""Cursors: where a search goes on, as text for a query string.

A cursor has one position per queue, so that it stays right while messages come and go. It says
nothing of the filter: the search that it continues is repeated with the same parameters.
"""

import base64
import binascii
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from bolide.operations.errors import BadInput

_VERSION = 1
_LONGEST = 64 * 1024
_LARGEST = 1024 * 1024
_MAX_OFFSET = 2**63 - 1
_NO_CURSOR = "this is no cursor of this search: leave it out to begin again"

T = TypeVar("T")
SpotTuple = tuple[str, int, int, int, int]


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
        return pack((_VERSION, self.topic, self.is_back, spot_tuples(self.spots)))

    @classmethod
    def decode(cls, text: str, topic: str) -> "Cursor":
        """Raises BadInput for text that is no cursor, or one of another topic."""
        version, of_topic, is_back, spots = unpack(text, tuple[int, str, bool, list[SpotTuple]])
        if version != _VERSION:
            raise BadInput("cursor", _NO_CURSOR)
        if of_topic != topic:
            raise BadInput("cursor", f"it belongs to topic {of_topic!r}: leave it out")
        return cls(topic=topic, is_back=is_back, spots=spots_of(spots))


def cursor_text(topic: str, spots: Iterable[Spot], *, is_back: bool = False) -> str:
    return Cursor(topic=topic, spots=tuple(spots), is_back=is_back).encode()


def spot_tuples(spots: Iterable[Spot]) -> list[SpotTuple]:
    return [(s.broker, s.queue_id, s.position, s.low, s.high) for s in spots]


def spots_of(tuples: Iterable[SpotTuple]) -> tuple[Spot, ...]:
    """Raises BadInput for numbers that no queue has."""
    found = tuple(
        Spot(broker=broker, queue_id=number, position=position, low=low, high=high)
        for broker, number, position, low, high in tuples
    )
    for spot in found:
        numbers = (spot.queue_id, spot.position, spot.low, spot.high)
        if any(not 0 <= number <= _MAX_OFFSET for number in numbers):
            raise BadInput("cursor", "it has offsets that no queue has: leave it out")
    return found


def pack(content: object) -> str:
    """Text for a query string."""
    data = zlib.compress(msgspec.json.encode(content))
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unpack(text: str, shape: type[T]) -> T:
    """What `pack` made text of; raises BadInput for anything else."""
    if len(text) > _LONGEST:
        raise BadInput("cursor", _NO_CURSOR)
    try:
        data = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        return msgspec.json.decode(zlib.decompressobj().decompress(data, _LARGEST), type=shape)
    except (ValueError, binascii.Error, zlib.error, msgspec.MsgspecError) as exc:
        raise BadInput("cursor", _NO_CURSOR) from exc
