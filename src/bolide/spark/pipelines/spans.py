"""Lengths and points of time, as people write and read them."""

import re
from datetime import UTC, datetime

from bolide.arrow.offsets import At, parse_position
from bolide.errors import ConfigError

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)")


def parse_span(text: str, *, option: str) -> float:
    """Seconds of `10s`, `5m`, `1.5h`, `7d`, `200ms`.

    Raises:
        ConfigError: it is none of these, or zero; names the option.
    """
    found = _SPAN.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not seconds:
        raise ConfigError(f"{option}={text!r}: say a length of time such as 30s, 5m, 2h or 7d")
    return seconds


def parse_moment(text: str, *, option: str, now: float | None = None) -> datetime:
    """A point of time in UTC: ISO (UTC if it names no zone) or `-10m`, before now.

    Raises:
        ConfigError: it is neither; names the option.
    """
    found = parse_position(text, option=option, now=now)
    if not isinstance(found, At):
        raise ConfigError(f"{option}={text!r}: say a time such as 2026-01-31T12:00:00Z or -10m")
    return datetime.fromtimestamp(found.timestamp_ms / 1000, UTC)


def span_text(seconds: float) -> str:
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
