"""Durations, points in time and triggers, as users write them."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bolide.arrow.offsets import At, parse_position
from bolide.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)")
_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
}
_INTERVAL = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([a-z]+)")
_AVAILABLE = {"once", "available-now", "availablenow", "available now"}


def parse_duration(text: str, *, option: str) -> float:
    """Seconds of `10s`, `5m`, `1.5h`, `7d`, `200ms`.

    Raises:
        ConfigError: the text has another form, or is zero; names the option.
    """
    found = _SPAN.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not seconds:
        raise ConfigError(f"{option}={text!r}: use a duration such as 30s, 5m, 2h or 7d")
    return seconds


def parse_moment(text: str, *, option: str, now: float | None = None) -> datetime:
    """A point in time in UTC: ISO (UTC if it has no zone), or relative such as `-10m`.

    Raises:
        ConfigError: the text has neither form; names the option.
    """
    found = parse_position(text, option=option, now=now)
    if not isinstance(found, At):
        raise ConfigError(f"{option}={text!r}: use a time such as 2026-01-31T12:00:00Z or -10m")
    return datetime.fromtimestamp(found.timestamp_ms / 1000, UTC)


def format_duration(seconds: float) -> str:
    """The two largest units, such as `4 m 10 s`."""
    left = round(seconds)
    words: list[str] = []
    for unit in ("d", "h", "m", "s"):
        size = int(_SECONDS[unit])
        amount, left = divmod(left, size)
        if amount or (unit == "s" and not words):
            words.append(f"{amount} {unit}")
        elif words:
            break
    return " ".join(words[:2])


@dataclass(frozen=True, slots=True)
class Trigger:
    """Interval in seconds; None processes the available messages and ends."""

    interval: float | None

    @property
    def once(self) -> bool:
        return self.interval is None

    @property
    def text(self) -> str:
        return "once" if self.interval is None else f"every {self.interval:g} s"

    def on(self, writer: "DataStreamWriter") -> "DataStreamWriter":
        if self.interval is None:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{round(self.interval * 1000)} milliseconds")


ONCE = Trigger(None)


def parse_trigger(text: str) -> Trigger:
    """`once` (or `available-now`), or an interval such as `10 seconds`, `10s`, `500ms`, `1 min`.

    Raises:
        ConfigError: the text has neither form.
    """
    wanted = text.strip().lower()
    if wanted in _AVAILABLE:
        return ONCE
    found = _INTERVAL.fullmatch(wanted)
    if found is None or found[2] not in _UNITS:
        raise ConfigError(f"trigger {text!r}: use 'once', or an interval such as '10 seconds'")
    return Trigger(float(found[1]) * _UNITS[found[2]])
