"""Rows of a query as a table, as JSON lines or as CSV."""

import base64
import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, TextIO

_WIDEST = 80
"""Characters of a cell in a table; the other formats cut nothing."""


def print_json(columns: Sequence[str], rows: Iterable[Sequence[object]], to: TextIO) -> None:
    for row in rows:
        document = dict(zip(columns, map(plain, row), strict=True))
        print(json.dumps(document, ensure_ascii=False), file=to)


def print_csv(columns: Sequence[str], rows: Iterable[Sequence[object]], to: TextIO) -> None:
    writer = csv.writer(to, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([as_text(value, null="") for value in row])


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], to: TextIO) -> None:
    """Wide cells are cut on a terminal only: elsewhere a program may read them."""
    from rich.box import MINIMAL  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=MINIMAL, show_edge=False)
    shown = [list(row) for row in rows]
    for index, column in enumerate(columns):
        numbers = all(isinstance(row[index], int | float | Decimal | None) for row in shown)
        table.add_column(Text(column), justify="right" if shown and numbers else "left")
    for row in shown:
        table.add_row(*(Text(_cut(as_text(value, null="NULL"))) for value in row))
    width = None if to.isatty() else 10_000
    Console(file=to, width=width).print(table, crop=False)


def as_text(value: object, *, null: str) -> str:
    found = plain(value)
    if found is None:
        return null
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def plain(value: object) -> Any:
    """A value of Spark as JSON has it: bytes that are no text become base64 with that name."""
    if isinstance(value, bytes | bytearray):
        return _text_of(bytes(value))
    if isinstance(value, date | datetime | timedelta | Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(each) for key, each in value.items()}
    if hasattr(value, "asDict"):  # a struct
        return {key: plain(each) for key, each in value.asDict().items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def _text_of(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _cut(text: str) -> str:
    if not sys.stdout.isatty() or len(text) <= _WIDEST:
        return text
    return text[: _WIDEST - 1] + "…"
