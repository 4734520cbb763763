"""Where a group begins in a queue that it has no offset for."""

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


class From(StrEnum):
    """The words of `consume_from`."""

    LAST = "last"
    FIRST = "first"
    TIMESTAMP = "timestamp"

    @property
    def announced(self) -> ConsumeFromWhere:
        return _ANNOUNCED[self]


_ANNOUNCED = {
    From.LAST: ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    From.FIRST: ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    From.TIMESTAMP: ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
}

Timestamp = str | datetime | float
"""`"20131223171201"` in local time, a datetime, or seconds since 1970."""


@dataclass(frozen=True, slots=True)
class StartPosition:
    """The policy of one consumer; `timestamp_ms` counts only for `From.TIMESTAMP`."""

    begin: From = From.LAST
    timestamp_ms: int = 0

    @classmethod
    def of(cls, consume_from: str, timestamp: Timestamp | None, now: float) -> "StartPosition":
        """Raises ConfigError; without a timestamp it is half an hour ago."""
        try:
            begin = From(consume_from)
        except ValueError:
            words = ", ".join(From)
            raise ConfigError(f"consume_from={consume_from!r}: must be one of {words}") from None
        if timestamp is None:
            return cls(begin, int((now - _HALF_AN_HOUR.total_seconds()) * 1000))
        return cls(begin, timestamp_ms(timestamp))


class Locator:
    """Says where a consumer begins in a queue: at the group's offset, or where its policy says."""

    def __init__(
        self, instance: ClientInstance, offsets: OffsetStore, start: StartPosition
    ) -> None:
        self._instance = instance
        self._offsets = offsets
        self._start = start

    async def locate(self, queue: MessageQueue) -> int:
        """Raises BolideError if it cannot be found out now."""
        stored = await self._offsets.read(queue)
        if stored is not None:
            return stored
        start = await self._first_offset(queue)
        # From here on the group has a place in the queue, also if this client dies at once.
        await self._offsets.write({queue: start}, wait=False)
        return start

    async def _first_offset(self, queue: MessageQueue) -> int:
        begin, lookups = self._start.begin, self._instance.lookups
        if begin is From.FIRST:
            return 0  # the broker tells the first one there is
        if queue.topic.startswith(RETRY_PREFIX):
            return 0 if begin is From.LAST else await lookups.max_offset(queue)
        if begin is From.TIMESTAMP:
            return await lookups.search_offset(queue, self._start.timestamp_ms)
        return await lookups.max_offset(queue)


def timestamp_ms(given: Timestamp) -> int:
    """Milliseconds since 1970. Raises ConfigError for a text of another form."""
    moment = _parsed(given) if isinstance(given, str) else given
    return int((moment.timestamp() if isinstance(moment, datetime) else moment) * 1000)


def _parsed(text: str) -> datetime:
    try:
        if len(text) == 14:  # strptime would take shorter ones too
            return datetime.strptime(text, _FORMAT).astimezone()
    except ValueError:
        pass
    raise ConfigError(f"consume_timestamp={text!r}: must be of the form 20131223171201")
