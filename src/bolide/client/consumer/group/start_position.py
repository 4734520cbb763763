"""The start position of a group in a queue without a committed offset."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from bolide.client.consumer.group.offsets import OffsetStore
from bolide.client.instance.instance import ClientInstance
from bolide.errors import ConfigError
from bolide.model.message_queue import MessageQueue
from bolide.model.names import RETRY_PREFIX
from bolide.protocol.bodies.heartbeat import ConsumeFromWhere

_FORMAT = "%Y%m%d%H%M%S"
_HALF_AN_HOUR = timedelta(minutes=30)


class ConsumeFrom(StrEnum):
    """The values of the setting `consume_from`."""

    LAST = "last"
    FIRST = "first"
    TIMESTAMP = "timestamp"

    @property
    def on_wire(self) -> ConsumeFromWhere:
        """The value that heartbeats carry."""
        return _ON_WIRE[self]


_ON_WIRE = {
    ConsumeFrom.LAST: ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    ConsumeFrom.FIRST: ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ConsumeFrom.TIMESTAMP: ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
}

Timestamp = str | datetime | float
"""`"20131223171201"` in local time, a datetime, or seconds since 1970."""


@dataclass(frozen=True, slots=True)
class StartPosition:
    """The policy of one consumer; `timestamp_ms` is used only with `ConsumeFrom.TIMESTAMP`."""

    consume_from: ConsumeFrom = ConsumeFrom.LAST
    timestamp_ms: int = 0

    @classmethod
    def of(cls, consume_from: str, timestamp: Timestamp | None, now: float) -> "StartPosition":
        """Validate the settings; the default timestamp is half an hour ago. Raises ConfigError."""
        try:
            position = ConsumeFrom(consume_from)
        except ValueError:
            words = ", ".join(ConsumeFrom)
            raise ConfigError(f"consume_from={consume_from!r}: must be one of {words}") from None
        if timestamp is None:
            return cls(position, int((now - _HALF_AN_HOUR.total_seconds()) * 1000))
        return cls(position, timestamp_ms(timestamp))


class StartOffsetResolver:
    """Finds the offset a consumer begins at: the committed one, or that of its start position."""

    def __init__(
        self, instance: ClientInstance, offsets: OffsetStore, start: StartPosition
    ) -> None:
        self._instance = instance
        self._offsets = offsets
        self._start = start

    async def resolve(self, queue: MessageQueue) -> int:
        """Raises BolideError if the offset cannot be determined now."""
        stored = await self._offsets.read(queue)
        if stored is not None:
            return stored
        start = await self._first_offset(queue)
        # Commit at once, so that the group has an offset even if this client dies.
        await self._offsets.write({queue: start}, wait=False)
        return start

    async def _first_offset(self, queue: MessageQueue) -> int:
        consume_from, lookups = self._start.consume_from, self._instance.lookups
        if consume_from is ConsumeFrom.FIRST:
            return 0  # the broker corrects it to the first existing offset
        if queue.topic.startswith(RETRY_PREFIX):
            return 0 if consume_from is ConsumeFrom.LAST else await lookups.max_offset(queue)
        if consume_from is ConsumeFrom.TIMESTAMP:
            return await lookups.search_offset(queue, self._start.timestamp_ms)
        return await lookups.max_offset(queue)


def timestamp_ms(given: Timestamp) -> int:
    """Milliseconds since 1970. Raises ConfigError for a string in another format."""
    moment = _parsed(given) if isinstance(given, str) else given
    return int((moment.timestamp() if isinstance(moment, datetime) else moment) * 1000)


def _parsed(text: str) -> datetime:
    try:
        if len(text) == 14:  # strptime accepts shorter ones too
            return datetime.strptime(text, _FORMAT).astimezone()
    except ValueError:
        pass
    raise ConfigError(f"consume_timestamp={text!r}: must be of the form 20131223171201")
