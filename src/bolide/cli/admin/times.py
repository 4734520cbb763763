"""Time options: milliseconds, or a date in the format of RocketMQ's tools."""

import time
from datetime import datetime

import typer

TIME_FORMATS = "now, milliseconds or yyyy-MM-dd#HH:mm:ss:SSS"
END = "-1"
"""The end of the queue, where a command says so."""
_DAY = 86_400
_TIME = "%Y-%m-%d#%H:%M:%S:%f"


def parse_time(text: str) -> int:
    """A time option in milliseconds; raises a usage error."""
    if text == "now":
        return int(time.time() * 1000)
    if text == END:
        return -1
    try:
        if text.isdecimal() and text.isascii():
            return _in_range(int(text))
        return _in_range(int(datetime.strptime(text, _TIME).astimezone().timestamp() * 1000))
    except (ValueError, OverflowError) as exc:
        raise typer.BadParameter(f"time {text!r} is none of {TIME_FORMATS}") from exc


def _in_range(milliseconds: int) -> int:
    if not 0 <= milliseconds < 2**63:
        raise ValueError(milliseconds)
    return milliseconds


def check_seconds(value: float | None) -> float | None:
    """Callback of options for an interval: click takes `nan` and `inf` for numbers in any range."""
    if value is not None and not 0.1 <= value <= _DAY:
        raise typer.BadParameter(f"{value} is not between 0.1 and {_DAY} seconds")
    return value
