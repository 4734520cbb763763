"""Carries out `pipeline run` and `pipeline explain`: session, signals, display, exit code."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from bolide.cli import pipeline_options as opt
from bolide.cli.exits import FAILED, Refusing, fail
from bolide.cli.options import settings_of
from bolide.cli.spark_needed import spark_needed
from bolide.errors import ConfigError
from bolide.spark.bundle import ship_settings
from bolide.spark.pipelines.builtin import RunSettings
from bolide.spark.pipelines.failures import RunFailed
from bolide.spark.pipelines.reporting import REPORT_INTERVAL
from bolide.spark.pipelines.screens import choose_display, show_json, show_text
from bolide.spark.pipelines.triggers import parse_trigger
from bolide.spark.pipelines.work import Job, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ONLY_RUN = {"verbs": ("run",)}
_INTERRUPTED = 130
"""As shells have it."""


@dataclass(kw_only=True)
class Words:
    """What the command line says, whatever the pipeline."""

    name_server: opt.NameServer = None
    option: opt.SourceOption = None
    once: opt.Once = False
    every: opt.Every = None
    name: opt.Name = None
    checkpoint: opt.Checkpoint = None
    commit_group: opt.CommitGroup = None
    master: opt.Master = "local[*]"
    conf: opt.Conf = None
    ship: opt.Ship = field(default=None, metadata=_ONLY_RUN)
    force: opt.Force = field(default=False, metadata=_ONLY_RUN)
    report_interval: opt.ReportInterval = field(default=REPORT_INTERVAL, metadata=_ONLY_RUN)
    as_json: opt.Json = field(default=False, metadata=_ONLY_RUN)

    def settings(self) -> RunSettings:
        """Raises ConfigError."""
        return RunSettings(
            name_server=self.name_server or "",
            source_options=settings_of(self.option),
            name=self.name,
            once=self.once,
            trigger=parse_trigger(self.every) if self.every else None,
            checkpoint=self.checkpoint,
            commit_group=self.commit_group,
        )


Make = Callable[[RunSettings], Pipeline | Job]


def run_work(make: Make, words: Words) -> None:
    """Run it to its end, or until SIGINT or SIGTERM."""
    with spark_needed(), Refusing():
        from bolide.spark.pipelines import runner  # noqa: PLC0415
        from bolide.spark.pipelines.second_runs import refuse_second  # noqa: PLC0415

        settings = words.settings()
        work = make(settings)
        connection = runner.find_connection(work, settings)
        if connection is not None and not words.force:
            refuse_second(connection, work.name, needed=runner.reads_cluster(work))
        once = isinstance(work, Job) or work.trigger.once
        manner = runner.Manner(
            display=partial(choose_display, work.name, once=once, stream=sys.stderr),
            show=show_json if words.as_json else show_text,
            interval=words.report_interval,
            force=True,
        )
        with _session(words) as spark, _stop_on_signals() as stop:
            try:
                outcome = runner.run(work, spark, connection, manner=manner, stop=stop)
            except RunFailed as exc:
                fail(f"pipeline {work.name} failed: {exc}", FAILED)
        if outcome.wrong:
            fail(outcome.wrong, FAILED)


def explain_work(make: Make, words: Words) -> None:
    """Print what it would do."""
    with spark_needed(), Refusing():
        from bolide.spark.pipelines.explaining import explain  # noqa: PLC0415

        work = make(words.settings())
        with _session(words) as spark:
            print(explain(work, spark))


@contextmanager
def _session(words: Words) -> "Iterator[SparkSession]":
    from bolide.spark.session import session  # noqa: PLC0415

    conf = {"spark.ui.enabled": "false"}
    if words.ship is not None:
        if not words.ship.is_file():
            raise ConfigError(
                f"--ship {words.ship}: there is no such file; `bolide pipeline bundle`"
            )
        conf |= ship_settings(words.ship)
    conf |= settings_of(words.conf)
    with _leave_on_interrupt():
        spark = session(
            "bolide pipeline", name_server=words.name_server, master=words.master, conf=conf
        )
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _leave_on_interrupt() -> Iterator[None]:
    """There is nothing to finish while Spark starts; py4j logs a trace of a KeyboardInterrupt."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(_INTERRUPTED)

    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """The first signal asks for a stop, the second does not wait for it."""
    stop = threading.Event()

    def ask(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
