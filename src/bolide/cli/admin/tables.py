"""What admin commands print: tables for people, JSON for programs."""

import sys
from collections.abc import Mapping
from datetime import datetime

import msgspec

from bolide.protocol.bodies.message_queue import MessageQueue

_GAP = "  "


class Table:
    """Columns under titles, as wide as they need to be."""

    def __init__(self, *titles: str) -> None:
        self._rows: list[tuple[str, ...]] = [titles]

    def add(self, *cells: object) -> None:
        self._rows.append(tuple(map(str, cells)))

    def print(self) -> None:
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        for row in self._rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            print(_GAP.join(cells).rstrip())


def print_json(value: object) -> None:
    """One line; structs by their wire names."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def by_queue(table: Mapping[MessageQueue, object]) -> list[dict[str, object]]:
    """What is known of each queue, in one object with the queue's own names."""
    return [
        msgspec.to_builtins(queue) | msgspec.to_builtins(value)
        for queue, value in sorted(table.items(), key=lambda item: item[0])
    ]


def time_text(timestamp_ms: int, *, millis: bool = True) -> str:
    """As RocketMQ's tools write it, in local time; the number itself where it is no time."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000).astimezone()
    except (ValueError, OverflowError, OSError):  # a client may have sent any number
        return str(timestamp_ms)
    text = f"{moment:%Y-%m-%d %H:%M:%S}"
    return f"{text},{timestamp_ms % 1000:03d}" if millis else text


def java_map(values: Mapping[str, object]) -> str:
    """`{a=1, b=2}`."""
    return "{" + ", ".join(f"{key}={value}" for key, value in values.items()) + "}"


def java_text(value: object) -> str:
    """A value as Java prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)
