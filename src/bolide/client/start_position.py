"""Where a group begins in a queue that it has no offset for."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

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
        """Raises ValueError that names the argument; without a timestamp it is half an hour ago."""
        try:
            begin = From(consume_from)
        except ValueError:
            words = ", ".join(From)
            raise ValueError(f"consume_from {consume_from!r} is none of {words}") from None
        if timestamp is None:
            return cls(begin, int((now - _HALF_AN_HOUR.total_seconds()) * 1000))
        return cls(begin, timestamp_ms(timestamp))


def timestamp_ms(given: Timestamp) -> int:
    """Milliseconds since 1970. Raises ValueError for a text of another form."""
    moment = _parsed(given) if isinstance(given, str) else given
    return int((moment.timestamp() if isinstance(moment, datetime) else moment) * 1000)


def timestamp_text(ms: int) -> str:
    """The form that RocketMQ's tools show."""
    return datetime.fromtimestamp(ms / 1000).astimezone().strftime(_FORMAT)


def _parsed(text: str) -> datetime:
    try:
        if len(text) == 14:  # strptime would take shorter ones too
            return datetime.strptime(text, _FORMAT).astimezone()
    except ValueError:
        pass
    raise ValueError(f"consume_timestamp {text!r} is not of the form 20131223171201")
