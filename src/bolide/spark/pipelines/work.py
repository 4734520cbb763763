"""What a pipeline is, as plain values: a stream to keep running (`Pipeline`), or a batch (`Job`).

Nothing here runs: `bolide.spark.pipelines.runner` does, and tells on the topic BOLIDE_PIPELINES
how far it is. pyspark is not imported: a pipeline may be looked at without Spark.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from bolide.spark.pipelines.triggers import ONCE, Trigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class Screen(Protocol):
    """Where work tells how far it is: the terminal, and the topic BOLIDE_PIPELINES.

    All of it may be called from any thread.
    """

    def say(self, line: str) -> None:
        """Tell the person in front of it, on standard error."""

    def show(self, table: "Table") -> None:
        """Give a result, on standard output: as a table, or as JSON with --json."""

    def advance(self, done: int, total: int | None = None) -> None:
        """Rows dealt with so far, and of how many if that is known; call it as often as wanted."""

    @property
    def stop_asked(self) -> bool:
        """Somebody wants the work to end: finish what is under way, and return."""


@dataclass(frozen=True, slots=True)
class Table:
    """A result for people and programs; cells are texts, numbers, booleans or None."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended: what it has to show, and what was wrong (exit code 1) if anything was."""

    tables: tuple[Table, ...] = ()
    rows: int = 0
    wrong: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Work with an end: `run` returns when it is done, or soon after `screen.stop_asked`."""

    name: str
    text: str
    """What it does, in one line, for `explain` and `status`."""
    run: Callable[["SparkSession", Screen], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What `spark.readStream` is told; options of `rocketmq` are in the reference of options."""

    format: str = "rocketmq"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # has secrets
    schema: str | None = None

    def load(self, spark: "SparkSession") -> "DataFrame":
        reader = spark.readStream.format(self.format).options(**self.options)
        return (reader.schema(self.schema) if self.schema else reader).load()


@dataclass(frozen=True, slots=True)
class Step:
    """One transformation, and how to call it in `explain`."""

    text: str
    apply: Callable[["DataFrame"], "DataFrame"]


class Sink(Protocol):
    """Where the rows go."""

    @property
    def text(self) -> str:
        """What it is, in one line."""

    def writer(self, frame: "DataFrame", screen: Screen) -> "DataStreamWriter":
        """The writer; the runner adds name, checkpoint and trigger."""

    def start(self, writer: "DataStreamWriter") -> "StreamingQuery":
        """Start it with what the runner added."""


@dataclass(frozen=True, slots=True)
class EachBatch:
    """A sink that is a function of a batch's rows, its number and the screen.

    A batch whose run was cut off comes again with the same number and rows.
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
    """Work without an end, or (trigger `ONCE`) up to what is there when it starts.

    `around` is entered before the stream starts and left after it has ended, however that was:
    the place for locks and repairs. `closing` gives what to show after a run that went well.
    """

    name: str
    source: Source
    sink: Sink
    checkpoint: str
    steps: tuple[Step, ...] = ()
    trigger: Trigger = ONCE
    commit_group: str | None = None
    """Consumer group that gets the position after each batch; None: by the name."""
    around: "Callable[[SparkSession, Screen], AbstractContextManager[object]] | None" = None
    closing: "Callable[[SparkSession, Screen], Sequence[Table]] | None" = None

    @property
    def group(self) -> str:
        return self.commit_group or f"bolide-pipeline-{self.name}"
