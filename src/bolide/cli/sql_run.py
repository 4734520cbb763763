"""Run `bolide sql`: the Spark session, the query, and the output as table, JSON lines or CSV."""

import base64
import csv
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO

from pyspark.errors import PySparkException

from bolide.spark.pipelines.errors import failure_reason
from bolide.spark.session import session
from bolide.spark.sql import query, unlogged
from bolide.spark.view import Views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


_WIDEST = 80
"""Characters of a cell in a table; the other formats cut nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line says."""

    text: str
    name_server: str | None
    archive: str | None
    limit: int | None
    output: str
    value_schemas: Mapping[str, str]
    allow_gaps: bool
    options: Mapping[str, str] = field(repr=False)  # has secrets
    master: str
    conf: Mapping[str, str]


def run(asked: Asked) -> str | None:
    """Print the rows of a query; returns why it failed, if it did.

    Raises:
        BolideError: a topic or an archive is not there, or the two do not meet.
    """
    conf = {"spark.ui.enabled": "false", **asked.conf}
    spark = session("bolide sql", name_server=asked.name_server, master=asked.master, conf=conf)
    with py4j_silent():
        try:
            _take_zone_of(spark)
            with unlogged():
                _print(spark, asked)
        except PySparkException as exc:
            return failure_reason(exc)
        except KeyboardInterrupt:
            spark.sparkContext.setLogLevel("OFF")  # else it tells of each task that is cut short
            raise
        finally:
            spark.stop()
    return None


@contextmanager
def py4j_silent() -> Iterator[None]:
    """Ctrl-C just ends a query: no traces by py4j, which logs by the root logger as well."""
    loggers = [logging.getLogger(name) for name in ("py4j", None)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # pyspark's asks the JVM
    for logger in loggers:
        logger.addFilter(_is_critical)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_is_critical)
        signal.signal(signal.SIGINT, before)


def _is_critical(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.CRITICAL


def _take_zone_of(spark: "SparkSession") -> None:
    """Python gets times in the zone of its process; SQL sees them in that of the session."""
    os.environ["TZ"] = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    time.tzset()


def _print(spark: "SparkSession", asked: Asked) -> None:
    views = Views(spark, name_server=asked.name_server, archive=asked.archive, **asked.options)
    frame = query(
        spark, asked.text, views, value_schemas=asked.value_schemas, allow_gaps=asked.allow_gaps
    )
    rows, more = _rows(frame, asked.limit)
    _PRINT[asked.output](frame.columns, rows, sys.stdout)
    if more():
        print(f"The first {asked.limit} rows; --limit shows more.", file=sys.stderr)


def _rows(frame: "DataFrame", limit: int | None) -> tuple["Iterable[Row]", Callable[[], bool]]:
    """The rows to print, and whether there were more: one more than wanted is asked for."""
    if limit is None:
        return frame.toLocalIterator(prefetchPartitions=True), lambda: False
    found = frame.limit(limit + 1).collect()
    return islice(found, limit), lambda: len(found) > limit


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


_PRINT: dict[str, Callable[[Sequence[str], Iterable[Sequence[object]], TextIO], None]] = {
    "table": print_table,
    "json": print_json,
    "csv": print_csv,
}
