"""Figures and times as people read them; what is unknown is a dash, and never 0."""

from datetime import datetime
from time import time
from typing import Final

from bolide.console.ui.view import View

UNKNOWN: Final = "—"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def count(value: float | None) -> str:
    """1234567 as 1,234,567."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def short_count(value: float | None) -> str:
    """1234567 as 1.23M."""
    if value is None:
        return UNKNOWN
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    return f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Messages per second: 0.4, 12.3 or 4,567."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.1f}"


def size(value: float | None) -> str:
    """Bytes: 1536 as 1.5 KiB."""
    if value is None:
        return UNKNOWN
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"


def percent(share: float | None) -> str:
    """0.25 as 25 %."""
    return UNKNOWN if share is None else f"{share * 100:.0f} %"


def duration(view: View, seconds: float | None) -> str:
    """90 as 1 min 30 s; the two largest units."""
    if seconds is None:
        return UNKNOWN
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    rest = int(seconds)
    parts = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        number, rest = divmod(rest, length)
        if number:
            parts.append(f"{number} {view.t(unit)}")
    return " ".join(parts[:2])


def moment(view: View, milliseconds: float | None) -> str:
    """A time since 1970 in the time zone of the page: 2026-11-19 20:15:03."""
    if milliseconds is None or milliseconds <= 0:
        return UNKNOWN
    try:
        at = datetime.fromtimestamp(milliseconds / 1000, view.time_zone)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return at.strftime("%Y-%m-%d %H:%M:%S")


def ago(view: View, milliseconds: float | None) -> str:
    """How long ago a time since 1970 is."""
    if milliseconds is None or milliseconds <= 0:
        return UNKNOWN
    seconds = time() - milliseconds / 1000
    if seconds < 0:
        return view.t("in {time}", time=duration(view, -seconds))
    return view.t("{time} ago", time=duration(view, max(seconds, 1)))
