"""Carries out `bolide sql`: session, query, output."""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, TextIO

from pyspark.errors import PySparkException

from bolide.cli.sql_output import print_csv, print_json, print_table
from bolide.spark.pipelines.failures import reason_of
from bolide.spark.session import session
from bolide.spark.sql import query, unlogged
from bolide.spark.view import Views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_PRINT: dict[str, Callable[[Sequence[str], Iterable[Sequence[object]], TextIO], None]] = {
    "table": print_table,
    "json": print_json,
    "csv": print_csv,
}


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
            return reason_of(exc)
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
