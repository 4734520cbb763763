"""Time options: milliseconds, or a date in the format of RocketMQ's tools."""

import time
from datetime import datetime

import typer

TIME_FORMATS = "now, milliseconds or yyyy-MM-dd#HH:mm:ss:SSS"
_TIME = "%Y-%m-%d#%H:%M:%S:%f"


def parse_time(text: str) -> int:
    """A time option in milliseconds; raises a usage error."""
    if text == "now":
        return int(time.time() * 1000)
    if text.removeprefix("-").isdecimal() and text.isascii():
        return int(text)
    try:
        return int(datetime.strptime(text, _TIME).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError) as exc:
        raise typer.BadParameter(f"time {text!r} is none of {TIME_FORMATS}") from exc
