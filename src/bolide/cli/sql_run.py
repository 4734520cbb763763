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


_MAX_CELL_WIDTH = 80
"""Characters per table cell on a terminal; other output is not truncated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlRequest:
    """The arguments of the command line."""

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


def run(request: SqlRequest) -> str | None:
    """Print the rows of a query; returns the reason of a failure, or None.

    Raises:
        BolideError: a topic or an archive does not exist, or there is a gap between the two.
    """
    conf = {"spark.ui.enabled": "false", **request.conf}
    spark = session("bolide sql", name_server=request.name_server, master=request.master, conf=conf)
    with silence_py4j():
        try:
            _use_session_time_zone(spark)
            with unlogged():
                _print(spark, request)
        except PySparkException as exc:
            return failure_reason(exc)
        except KeyboardInterrupt:
            spark.sparkContext.setLogLevel("OFF")  # otherwise Spark logs each cancelled task
            raise
        finally:
            spark.stop()
    return None


@contextmanager
def silence_py4j() -> Iterator[None]:
    """Let Ctrl-C end a query without tracebacks from py4j, which also uses the root logger."""
    loggers = [logging.getLogger(name) for name in ("py4j", None)]
    # Replaces pyspark's handler, which calls the JVM.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
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


def _use_session_time_zone(spark: "SparkSession") -> None:
    """Set the process time zone, in which Python receives times, to that of the SQL session."""
    os.environ["TZ"] = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    time.tzset()


def _print(spark: "SparkSession", request: SqlRequest) -> None:
    views = Views(
        spark, name_server=request.name_server, archive=request.archive, **request.options
    )
    frame = query(
        spark,
        request.text,
        views,
        value_schemas=request.value_schemas,
        allow_gaps=request.allow_gaps,
    )
    rows, more = _rows(frame, request.limit)
    _PRINTERS[request.output](frame.columns, rows, sys.stdout)
    if more():
        print(f"The first {request.limit} rows; --limit shows more.", file=sys.stderr)


def _rows(frame: "DataFrame", limit: int | None) -> tuple["Iterable[Row]", Callable[[], bool]]:
    """The rows to print, and a function that returns whether there are more than `limit`."""
    if limit is None:
        return frame.toLocalIterator(prefetchPartitions=True), lambda: False
    found = frame.limit(limit + 1).collect()
    return islice(found, limit), lambda: len(found) > limit


def print_json(columns: Sequence[str], rows: Iterable[Sequence[object]], to: TextIO) -> None:
    for row in rows:
        document = dict(zip(columns, map(to_plain, row), strict=True))
        print(json.dumps(document, ensure_ascii=False), file=to)


def print_csv(columns: Sequence[str], rows: Iterable[Sequence[object]], to: TextIO) -> None:
    writer = csv.writer(to, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([as_text(value, null="") for value in row])


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], to: TextIO) -> None:
    """Truncates wide cells on a terminal only: elsewhere a program may read the output."""
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
        table.add_row(*(Text(_truncate(as_text(value, null="NULL"))) for value in row))
    width = None if to.isatty() else 10_000
    Console(file=to, width=width).print(table, crop=False)


def as_text(value: object, *, null: str) -> str:
    found = to_plain(value)
    if found is None:
        return null
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def to_plain(value: object) -> Any:
    """A Spark value as a JSON value; bytes that are not UTF-8 become `{"base64": …}`."""
    if isinstance(value, bytes | bytearray):
        return _bytes_to_plain(bytes(value))
    if isinstance(value, date | datetime | timedelta | Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return {str(to_plain(key)): to_plain(each) for key, each in value.items()}
    if hasattr(value, "asDict"):  # a struct
        return {key: to_plain(each) for key, each in value.asDict().items()}
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    return value


def _bytes_to_plain(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _truncate(text: str) -> str:
    if not sys.stdout.isatty() or len(text) <= _MAX_CELL_WIDTH:
        return text
    return text[: _MAX_CELL_WIDTH - 1] + "…"


_PRINTERS: dict[str, Callable[[Sequence[str], Iterable[Sequence[object]], TextIO], None]] = {
    "table": print_table,
    "json": print_json,
    "csv": print_csv,
}
