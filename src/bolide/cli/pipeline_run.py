"""`bolide pipeline run` and `bolide pipeline explain`.

Each built-in pipeline is a command whose options are generated from the pipeline's option class;
the command FILE runs a pipeline declared in a YAML file.
"""

import dataclasses
import difflib
import inspect
import signal
import sys
import threading
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bolide.cli import pipeline_options as opt
from bolide.cli.command_line import FAILED, Refusing, fail, settings_of, spark_needed
from bolide.cli.pipeline_options import FILE
from bolide.errors import ConfigError
from bolide.spark.bundle import ship_settings
from bolide.spark.pipelines.builtin import BUILT_INS, BuiltIn, RunSettings, make_options
from bolide.spark.pipelines.definition import Job, Pipeline
from bolide.spark.pipelines.errors import RunFailed
from bolide.spark.pipelines.monitoring.display import choose_display, show_json, show_text
from bolide.spark.pipelines.monitoring.reporter import REPORT_INTERVAL
from bolide.spark.pipelines.times import parse_trigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ONLY_RUN = {"verbs": ("run",)}
_INTERRUPTED = 130
"""As shells have it."""
Make = Callable[[RunSettings], Pipeline | Job]


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


def run_work(make: Make, words: Words) -> None:
    """Run it to its end, or until SIGINT or SIGTERM."""
    with spark_needed(), Refusing():
        from bolide.spark.pipelines import runner  # noqa: PLC0415
        from bolide.spark.pipelines.runner import refuse_second_run  # noqa: PLC0415

        settings = words.settings()
        work = make(settings)
        connection = runner.find_connection(work, settings)
        if connection is not None and not words.force:
            refuse_second_run(connection, work.name, needed=runner.reads_cluster(work))
        once = isinstance(work, Job) or work.trigger.once
        controls = runner.RunControls(
            display=partial(choose_display, work.name, once=once, stream=sys.stderr),
            show=show_json if words.as_json else show_text,
            interval=words.report_interval,
            force=True,
        )
        with _session(words) as spark, _stop_on_signals() as stop:
            try:
                outcome = runner.run(work, spark, connection, controls=controls, stop=stop)
            except RunFailed as exc:
                fail(f"pipeline {work.name} failed: {exc}", FAILED)
        if outcome.failure:
            fail(outcome.failure, FAILED)


def explain_work(make: Make, words: Words) -> None:
    """Print what it would do."""
    with spark_needed(), Refusing():
        from bolide.spark.pipelines.runner import explain  # noqa: PLC0415

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


_CARRY: dict[str, Callable[[Make, Words], None]] = {"run": run_work, "explain": explain_work}
_FILE_TEXT = "A pipeline of your own, declared in a YAML file."
_FILE_EXAMPLE = "orders.yaml --once"


def load(verb: str) -> dict[str, Any]:
    """All commands, as a group has them."""
    app = typer.Typer(rich_markup_mode=None)
    for name, entry in BUILT_INS.entries.items():
        built_in = BUILT_INS[name]
        app.command(
            name,
            help=built_in.text,
            short_help=entry.summary,
            epilog=_example(verb, name, built_in.example),
        )(_command(built_in, verb))
    app.command(FILE, help=_FILE_TEXT, epilog=_example(verb, "", _FILE_EXAMPLE))(_file(verb))
    return dict(typer.main.get_group(app).commands)


def _example(verb: str, name: str, words: str) -> str:
    # The first sign keeps the line from being wrapped.
    return "\b\nExample: " + " ".join(filter(None, ("bolide pipeline", verb, name, words)))


def _command(built_in: BuiltIn, verb: str) -> Callable[..., None]:
    own = list(_own_parameters(built_in.options))
    names = {parameter.name for parameter in own}

    def call(**values: Any) -> None:
        words = {name: values.pop(name) for name in names}
        given = {name: _value(value) for name, value in words.items() if value is not None}
        _CARRY[verb](lambda run: built_in.plan(make_options(built_in, given), run), Words(**values))

    return _with_parameters(call, [*own, *_common(verb)])


def _file(verb: str) -> Callable[..., None]:
    def call(file: Any, **values: Any) -> None:
        from bolide.spark.pipelines.declared import read_pipeline  # noqa: PLC0415

        _CARRY[verb](lambda run: read_pipeline(_existing(file), run), Words(**values))

    argument = inspect.Parameter("file", inspect.Parameter.KEYWORD_ONLY, annotation=opt.File)
    return _with_parameters(call, [argument, *_common(verb)])


def _existing(file: Path) -> Path:
    """Raises ConfigError; a word that nearly is the name of a built-in gets that told."""
    if not file.exists():
        near = difflib.get_close_matches(str(file), BUILT_INS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(BUILT_INS)}"
        raise ConfigError(f"{str(file)!r} is neither a file nor a built-in pipeline; {hint}")
    return file


# Parameters


def _own_parameters(options: type[Any]) -> Iterator[inspect.Parameter]:
    hints = typing.get_type_hints(options)
    for item in dataclasses.fields(options):
        given = item.default is not dataclasses.MISSING
        kind, default = _plain(hints[item.name]), item.default
        if kind == list[str]:
            kind, default = list[str] | None, None
        yield inspect.Parameter(
            item.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default if given else inspect.Parameter.empty,
            annotation=Annotated[kind, _option(item)],
        )


def _option(item: "dataclasses.Field[Any]") -> Any:
    word = f"--{item.name.replace('_', '-')}"
    declared = f"{word}/--no-{word.removeprefix('--')}" if item.default is True else word
    facts = item.metadata
    return typer.Option(
        declared, help=facts["doc"], min=facts["low"], max=facts["high"], metavar=facts["metavar"]
    )


def _plain(hint: Any) -> Any:
    """The type as typer knows it: a tuple of texts is a list."""
    return list[str] if typing.get_origin(hint) is tuple else hint


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _common(verb: str) -> list[inspect.Parameter]:
    """What every command of the verb takes: the fields of `Words`, as far as they concern it."""
    hints = typing.get_type_hints(Words, include_extras=True)
    return [
        inspect.Parameter(
            item.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=item.default,
            annotation=hints[item.name],
        )
        for item in dataclasses.fields(Words)
        if verb in item.metadata.get("verbs", (verb,))
    ]


def _with_parameters(
    call: Callable[..., None], parameters: list[inspect.Parameter]
) -> Callable[..., None]:
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call
