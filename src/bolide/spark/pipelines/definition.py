"""What a pipeline is, as plain values: a stream (`Pipeline`) or a batch job (`Job`).

Nothing runs here: `bolide.spark.pipelines.runner` starts pipelines and reports their progress. The
module does not import pyspark, so a pipeline can be inspected without Spark.
"""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from bolide.errors import BolideError, ConfigError
from bolide.spark.pipelines.times import ONCE, Trigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

INPUT = "input"
"""The SQL name of a step's input."""


class Screen(Protocol):
    """Output and stop flag of a run: the terminal, and the reports to the cluster.

    All methods are thread-safe.
    """

    def say(self, line: str) -> None:
        """Print a line on standard error."""

    def show(self, table: "Table") -> None:
        """Print a result on standard output: as a table, or as JSON with --json."""

    def advance(self, done: int, total: int | None = None) -> None:
        """Report the rows processed so far, and the total if known; may be called often."""

    @property
    def stop_requested(self) -> bool:
        """Whether a stop is requested: finish the work in progress, and return."""


@dataclass(frozen=True, slots=True)
class Table:
    """A result table; cells are texts, numbers, booleans or None."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run: its tables, and the failure (exit code 1) if there was one."""

    tables: tuple[Table, ...] = ()
    rows: int = 0
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A batch job: `run` returns when it is done, or soon after `screen.stop_requested`."""

    name: str
    text: str
    """One-line description for `explain` and `status`."""
    run: Callable[["SparkSession", Screen], Outcome]
    kind: str = ""
    """As of `Pipeline`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Arguments of `spark.readStream`; options of `rocketmq` are documented in the reference."""

    format: str = "rocketmq"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may contain secrets
    schema: str | None = None

    @property
    def is_rocketmq(self) -> bool:
        return self.format == "rocketmq"

    def load(self, spark: "SparkSession") -> "DataFrame":
        reader = spark.readStream.format(self.format).options(**self.options)
        return (reader.schema(self.schema) if self.schema else reader).load()


@dataclass(frozen=True, slots=True)
class Step:
    """One transformation, and its description for `explain`."""

    text: str
    apply: Callable[["DataFrame"], "DataFrame"]


class Sink(Protocol):
    """The target of a pipeline."""

    @property
    def text(self) -> str:
        """One-line description."""

    def writer(self, frame: "DataFrame", screen: Screen) -> "DataStreamWriter":
        """The writer, to which the runner adds name, checkpoint and trigger."""

    def start(self, writer: "DataStreamWriter") -> "StreamingQuery":
        """Start the query of the completed writer."""


@dataclass(frozen=True, slots=True)
class EachBatch:
    """A sink that calls a function with a batch's rows, its number and the screen.

    An interrupted batch is repeated with the same number and rows.
    """

    text: str
    write: Callable[["DataFrame", int, Screen], None]
    output_mode: str = "append"

    def writer(self, frame: "DataFrame", screen: Screen) -> "DataStreamWriter":
        def write(rows: "DataFrame", batch: int) -> None:
            self.write(rows, batch, screen)

        return frame.writeStream.outputMode(self.output_mode).foreachBatch(write)

    def start(self, writer: "DataStreamWriter") -> "StreamingQuery":
        return writer.start()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A stream without an end, or with the trigger `ONCE` up to the messages present at its start.

    `around` is a context manager that is entered before the stream starts and left after it ends,
    also on failure: the place for locks and repairs. `summarize` returns the tables to show after
    a successful run.
    """

    name: str
    source: Source
    sink: Sink
    checkpoint: str
    steps: tuple[Step, ...] = ()
    trigger: Trigger = ONCE
    kind: str = ""
    """Name of the built-in pipeline, or `file`; for reports."""
    commit_group: str | None = None
    """Consumer group that gets the position after each batch; None to derive it from the name."""
    around: "Callable[[SparkSession, Screen], AbstractContextManager[object]] | None" = None
    summarize: "Callable[[SparkSession, Screen], Sequence[Table]] | None" = None

    @property
    def group(self) -> str:
        return self.commit_group or f"bolide-pipeline-{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSink:
    """Arguments of `DataFrame.writeStream`; `table` names a table of the catalog."""

    format: str | None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may contain secrets
    output_mode: str = "append"
    partition_by: tuple[str, ...] = ()
    table: str | None = None

    @property
    def text(self) -> str:
        location = self.table or self.options.get("path") or self.options.get("topic")
        return " ".join(word for word in (self.format, location) if word)

    def writer(self, frame: "DataFrame", screen: Screen) -> "DataStreamWriter":
        del screen  # Spark's own sinks report no progress
        writer = frame.writeStream.outputMode(self.output_mode).options(**self.options)
        writer = writer.format(self.format) if self.format else writer
        return writer.partitionBy(*self.partition_by) if self.partition_by else writer

    def start(self, writer: "DataStreamWriter") -> "StreamingQuery":
        return writer.toTable(self.table) if self.table else writer.start()


def jdbc_sink(options: Mapping[str, str], unique: tuple[str, ...] = ()) -> EachBatch:
    """A database table, written by Spark's JDBC writer.

    An interrupted batch is repeated. With `unique` columns no row is added twice: the first batch
    of a run, the only one that can be a repeat, is compared with the rows of the table.
    """
    return EachBatch(f"jdbc {options.get('dbtable', '')}", _JdbcWriter(options, unique).write)


class _JdbcWriter:
    def __init__(self, options: Mapping[str, str], unique: tuple[str, ...]) -> None:
        self._options = options
        self._unique = list(unique)
        self._may_repeat = bool(unique)

    def write(self, rows: "DataFrame", batch: int, screen: Screen) -> None:
        del batch, screen
        if self._may_repeat:
            existing = rows.sparkSession.read.format("jdbc").options(**self._options).load()
            rows = rows.join(existing.select(*self._unique), on=self._unique, how="left_anti")
        rows.write.format("jdbc").options(**self._options).mode("append").save()
        self._may_repeat = False


class StepFailed(ConfigError):
    """A step failed; the message names the step and its location."""


def sql_step(text: str, location: str) -> Step:
    def apply(frame: "DataFrame") -> "DataFrame":
        frame.createOrReplaceTempView(INPUT)
        return frame.sparkSession.sql(text)

    return Step(f"sql: {' '.join(text.split())}", _with_location(location, apply))


def python_step(target: str, location: str, directory: Path) -> Step:
    """`package.module:function`, or `./file.py:function` beside the pipeline's file."""
    module, _, name = target.rpartition(":")

    def apply(frame: "DataFrame") -> "DataFrame":
        from pyspark.sql import DataFrame  # noqa: PLC0415

        made = require_function(module, name, directory)(frame)
        if not isinstance(made, DataFrame):
            raise StepFailed(f"{target} gave {type(made).__name__}, not a DataFrame")
        return made

    return Step(f"python: {target}", _with_location(location, apply))


def check_target(target: str, directory: Path) -> None:
    """Raises ConfigError for a malformed target or a missing file; imports nothing."""
    module, _, name = target.rpartition(":")
    if not module or not name.isidentifier():
        raise ConfigError(f"{target!r}: use module:function or ./file.py:function")
    if is_file(module) and not (directory / module).is_file():
        raise ConfigError(f"{target!r}: there is no file {directory / module}")


def is_file(module: str) -> bool:
    return module.endswith(".py")


def require_function(
    module: str, name: str, directory: Path
) -> Callable[["DataFrame"], "DataFrame"]:
    """Raises ConfigError if the function does not exist; errors of the module itself propagate."""
    found = _load_file(directory / module) if is_file(module) else importlib.import_module(module)
    function = getattr(found, name, None)
    if not callable(function):
        raise ConfigError(f"{module} has no function {name!r}")
    known: Callable[[DataFrame], DataFrame] = function
    return known


def _load_file(path: Path) -> ModuleType:
    """Load a file as a module with a unique name; its functions are pickled by value."""
    from pyspark import cloudpickle  # noqa: PLC0415

    name = f"bolide_step_{path.stem}_{abs(hash(path.resolve())):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be loaded as a Python module")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # untyped
    return module


def _with_location(
    location: str, apply: Callable[["DataFrame"], "DataFrame"]
) -> Callable[["DataFrame"], "DataFrame"]:
    def applied(frame: "DataFrame") -> "DataFrame":
        try:
            return apply(frame)
        except Exception as exc:
            raise StepFailed(f"{location}: {_describe(exc)}") from exc

    return applied


def _describe(exc: Exception) -> str:
    """The first line of an error; errors of user code get their type and location as well."""
    if isinstance(exc, BolideError) or hasattr(
        exc, "getCondition"
    ):  # Spark's own errors are descriptive
        return first_line(exc)
    frames = traceback.extract_tb(exc.__traceback__)
    at = next((frame for frame in reversed(frames) if "pyspark" not in frame.filename), None)
    where = f" ({Path(at.filename).name}, line {at.lineno})" if at else ""
    return f"{type(exc).__name__}: {first_line(exc)}{where}"


def first_line(exc: BaseException) -> str:
    """The error message without the plans and traces that Spark appends."""
    lines = str(exc).strip().splitlines()
    return lines[0] if lines else type(exc).__name__
