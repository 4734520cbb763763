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
from bolide.cli.command_line import FAILED, ExitOnError, fail, parse_settings, require_spark
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


_FILE_TEXT = "A pipeline of your own, declared in a YAML file."
_FILE_EXAMPLE = "orders.yaml --once"
_ONLY_RUN = {"verbs": ("run",)}
_INTERRUPTED = 130
"""Exit code that shells use for SIGINT."""
Make = Callable[[RunSettings], Pipeline | Job]


@dataclass(kw_only=True)
class RunArguments:
    """The command line arguments that all pipelines share."""

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
    report: opt.Report = field(default=True, metadata=_ONLY_RUN)
    report_interval: opt.ReportInterval = field(default=REPORT_INTERVAL, metadata=_ONLY_RUN)
    as_json: opt.Json = field(default=False, metadata=_ONLY_RUN)

    def settings(self) -> RunSettings:
        """Raises ConfigError."""
        return RunSettings(
            name_server=self.name_server or "",
            source_options=parse_settings(self.option),
            name=self.name,
            once=self.once,
            trigger=parse_trigger(self.every) if self.every else None,
            checkpoint=self.checkpoint,
            commit_group=self.commit_group,
        )


def run_pipeline(make: Make, arguments: RunArguments) -> None:
    """Run a pipeline to its end, or until SIGINT or SIGTERM."""
    with require_spark(), ExitOnError():
        from bolide.spark.pipelines import runner  # noqa: PLC0415
        from bolide.spark.pipelines.runner import refuse_second_run  # noqa: PLC0415

        settings = arguments.settings()
        work = make(settings)
        connection = runner.find_connection(work, settings)
        if connection is not None and not arguments.force:
            refuse_second_run(connection, work.name, needed=runner.reads_cluster(work))
        once = isinstance(work, Job) or work.trigger.once
        controls = runner.RunControls(
            display=partial(choose_display, work.name, once=once, stream=sys.stderr),
            show=show_json if arguments.as_json else show_text,
            report=arguments.report,
            interval=arguments.report_interval,
            force=True,
        )
        with _session(arguments) as spark, _stop_on_signals() as stop:
            try:
                outcome = runner.run(work, spark, connection, controls=controls, stop=stop)
            except RunFailed as exc:
                fail(f"pipeline {work.name} failed: {exc}", FAILED)
        if outcome.failure:
            fail(outcome.failure, FAILED)


def explain_pipeline(make: Make, arguments: RunArguments) -> None:
    """Print what a pipeline would do."""
    with require_spark(), ExitOnError():
        from bolide.spark.pipelines.runner import explain  # noqa: PLC0415

        work = make(arguments.settings())
        with _session(arguments) as spark:
            print(explain(work, spark))


@contextmanager
def _session(arguments: RunArguments) -> "Iterator[SparkSession]":
    from bolide.spark.session import session  # noqa: PLC0415

    conf = {"spark.ui.enabled": "false"}
    if arguments.ship is not None:
        if not arguments.ship.is_file():
            raise ConfigError(
                f"--ship {arguments.ship}: there is no such file; `bolide pipeline bundle`"
            )
        conf |= ship_settings(arguments.ship)
    conf |= parse_settings(arguments.conf)
    with _leave_on_interrupt():
        spark = session(
            "bolide pipeline", name_server=arguments.name_server, master=arguments.master, conf=conf
        )
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _leave_on_interrupt() -> Iterator[None]:
    """Exit directly on SIGINT while Spark starts; py4j would log a KeyboardInterrupt."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(_INTERRUPTED)

    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """The first signal requests a stop, the second one interrupts."""
    stop = threading.Event()

    def request_stop(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, request_stop) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_VERBS: dict[str, Callable[[Make, RunArguments], None]] = {
    "run": run_pipeline,
    "explain": explain_pipeline,
}


def load(verb: str) -> dict[str, Any]:
    """The commands of `bolide pipeline run` or `bolide pipeline explain`."""
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


def _example(verb: str, name: str, arguments: str) -> str:
    # \b prevents click from wrapping the line.
    return "\b\nExample: " + " ".join(filter(None, ("bolide pipeline", verb, name, arguments)))


def _command(built_in: BuiltIn, verb: str) -> Callable[..., None]:
    own = list(_own_parameters(built_in.options))
    names = {parameter.name for parameter in own}

    def call(**values: Any) -> None:
        arguments = {name: values.pop(name) for name in names}
        given = {name: _as_tuple(value) for name, value in arguments.items() if value is not None}
        _VERBS[verb](
            lambda run: built_in.plan(make_options(built_in, given), run), RunArguments(**values)
        )

    return _with_parameters(call, [*own, *_common_parameters(verb)])


def _file(verb: str) -> Callable[..., None]:
    def call(file: Any, **values: Any) -> None:
        from bolide.spark.pipelines.declared import read_pipeline  # noqa: PLC0415

        _VERBS[verb](lambda run: read_pipeline(_require_file(file), run), RunArguments(**values))

    argument = inspect.Parameter("file", inspect.Parameter.KEYWORD_ONLY, annotation=opt.File)
    return _with_parameters(call, [argument, *_common_parameters(verb)])


def _require_file(file: Path) -> Path:
    """Raises ConfigError if the file does not exist; suggests similar built-in names."""
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
        kind, default = _option_type(hints[item.name]), item.default
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


def _option_type(hint: Any) -> Any:
    """The type for typer, which has lists of strings instead of tuples."""
    return list[str] if typing.get_origin(hint) is tuple else hint


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _common_parameters(verb: str) -> list[inspect.Parameter]:
    """Parameters of every command of a verb, from the fields of `RunArguments`."""
    hints = typing.get_type_hints(RunArguments, include_extras=True)
    return [
        inspect.Parameter(
            item.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=item.default,
            annotation=hints[item.name],
        )
        for item in dataclasses.fields(RunArguments)
        if verb in item.metadata.get("verbs", (verb,))
    ]


def _with_parameters(
    call: Callable[..., None], parameters: list[inspect.Parameter]
) -> Callable[..., None]:
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call
