"""The pipelines that come with Bolide, and how another one joins them.

A built-in is a module with a constant `BUILT_IN` and a line in `_MODULES` here. Its options are a
frozen dataclass whose fields are made by `choice`; the command line is made of it, so that
`bolide pipeline run NAME --some-field …` and `--help` need no further code:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class ArchiveOptions:
        topic: str = choice("Topics to archive, with commas between them.")
        path: str = choice("Where the table is.", metavar="PATH")
        value_schema: str | None = choice("Columns of a JSON body, as DDL.", default=None)
        file_mib: int = choice("Size of a file.", default=128, low=1)
        tags: tuple[str, ...] = choice("A tag to take; may be given often.", default=())
        compact: bool = choice("Put small files together.", default=False)
        output: Literal["table", "parquet"] = choice("What to make.", default="table")

    def plan(options: ArchiveOptions, run: RunSettings) -> Pipeline | Job: ...

    BUILT_IN = BuiltIn("archive", ArchiveOptions, plan, example="--topic orders --path /data/lake")

`plan` makes values and does no I/O; a mistake of the user is a ConfigError. What every run has
(name servers, credentials, --once, --every, --name, --checkpoint, master, conf, --json …) is in
`RunSettings` and not repeated. The docstring of the options class is the command's help text.
Fields without a default are options that must be given. Names of fields may not be those of
`RunSettings`.
"""

import dataclasses
import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bolide.arrow.cluster import Connection
from bolide.config import options_of
from bolide.errors import ConfigError
from bolide.spark.options import ConnectionOptions
from bolide.spark.pipelines.definition import Job, Pipeline, Source
from bolide.spark.pipelines.times import ONCE, Trigger

HOME_VARIABLE = "BOLIDE_HOME"


class Entry(NamedTuple):
    """Where a built-in is, and what it does: the list of them loads none."""

    module: str
    summary: str


_HERE = "bolide.spark.pipelines"


_MODULES = {
    "archive": Entry(f"{_HERE}.archive", "Topics to Parquet by topic and hour, exactly once."),
    "reconcile": Entry(f"{_HERE}.reconcile", "Prove that an archive has every message once."),
    "compact": Entry(f"{_HERE}.compact", "Put the small files of an archive together."),
    "replay": Entry(f"{_HERE}.replay", "An archive back to a topic, by time and filter."),
    "trace": Entry(f"{_HERE}.trace", "Message trace to latencies, slow paths and failures."),
    "lag": Entry(f"{_HERE}.lag", "Consumer positions over time to lag and drain forecasts."),
    "dlq": Entry(f"{_HERE}.dead_letters", "Dead letters by cause and time, and a re-drive list."),
    "mirror": Entry(f"{_HERE}.mirror", "A topic to a topic, changed by SQL, across clusters."),
}


_STARTS = {"startingoffsets", "startingtimestamp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What every run is told, whatever it runs."""

    name_server: str = ""
    """As `host:port;host:port`; empty: as NAMESRV_ADDR says."""
    source_options: Mapping[str, str] = field(default_factory=dict, repr=False)  # has secrets
    """Further options of the source (credentials, TLS, limits), by the names of the reference."""
    name: str | None = None
    once: bool = False
    trigger: Trigger | None = None
    checkpoint: str | None = None
    commit_group: str | None = None

    def named(self, default: str) -> str:
        """The pipeline's name: what the user says, or `default` (`archive-orders`)."""
        return self.name or default

    def source(self, **options: object) -> Source:
        """The source `rocketmq` with these options; None leaves one out; the user's own win.

        It starts at the oldest messages unless something else is said: a pipeline leaves out
        nothing that is there.
        """
        own = {key: str(value) for key, value in options.items() if value is not None}
        chosen = own | self.connection | dict(self.source_options)
        if not {key.lower() for key in chosen} & _STARTS:
            chosen["startingOffsets"] = "earliest"
        return Source(options=chosen)

    @property
    def connection(self) -> dict[str, str]:
        """The options by which source and sink alike reach the cluster."""
        known = {key.lower() for key in options_of(ConnectionOptions)}
        given = {key: text for key, text in self.source_options.items() if key.lower() in known}
        return {"nameServer": self.name_server} | given if self.name_server else given

    def connect(self) -> Connection:
        """The same for clients of ours; raises ConfigError."""
        return ConnectionOptions.of(self.connection).connection()

    def checkpoint_of(self, name: str) -> str:
        return self.checkpoint or default_checkpoint(name)

    def trigger_of(self, default: Trigger) -> Trigger:
        """When to take batches: `--once` beats `--every`, which beats `default`."""
        return ONCE if self.once else self.trigger or default


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A pipeline by its name: what it can be told, and how it is made of that."""

    name: str
    options: type[Any]
    plan: Callable[[Any, RunSettings], Pipeline | Job]
    example: str = ""

    @property
    def text(self) -> str:
        return (self.options.__doc__ or "").strip()


class BuiltIns(Mapping[str, BuiltIn]):
    """By name; a module is loaded when it is asked for."""

    def __init__(self, entries: Mapping[str, Entry] = _MODULES) -> None:
        self.entries = entries

    def __getitem__(self, name: str) -> BuiltIn:
        found: BuiltIn = importlib.import_module(self.entries[name].module).BUILT_IN
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


BUILT_INS = BuiltIns()


def cli_option(
    doc: str,
    *,
    default: Any = dataclasses.MISSING,
    low: float | None = None,
    high: float | None = None,
    metavar: str | None = None,
) -> Any:
    """Declare an option as a dataclass field.

    Args:
        doc: what it does, in one sentence.
        default: the value if it is not given; without one it must be.
        low: lowest number.
        high: highest number.
        metavar: what stands for the value in the help text.
    """
    metadata = {"doc": doc, "low": low, "high": high, "metavar": metavar}
    return dataclasses.field(default=default, metadata=metadata)


def make_options(built_in: BuiltIn, given: Mapping[str, object]) -> Any:
    """The options of a built-in by field name.

    Raises:
        ConfigError: one is missing or unknown; names it.
    """
    known = {item.name: item for item in dataclasses.fields(built_in.options)}
    if unknown := sorted(given.keys() - known.keys()):
        raise ConfigError(f"{built_in.name} has no option {unknown[0]!r}")
    needed = {name for name, item in known.items() if item.default is dataclasses.MISSING}
    if missing := sorted(needed - given.keys()):
        raise ConfigError(f"{built_in.name} needs the option {missing[0]!r}")
    return built_in.options(**given)


def parse_key_values(words: Iterable[str], *, option: str) -> dict[str, str]:
    """By name, of `KEY=VALUE` each.

    Raises:
        ConfigError: one is not; names the option that it was given for.
    """
    return dict(_key_value(word, option) for word in words)


def _key_value(word: str, option: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals:
        raise ConfigError(f"{option} {word!r} is not of the form key=value")
    return key.strip(), value.strip()


def pipeline_home() -> Path:
    """`$BOLIDE_HOME/pipelines`; `~/.bolide/pipelines` if that is not set."""
    home = os.environ.get(HOME_VARIABLE)
    return (Path(home) if home else Path.home() / ".bolide") / "pipelines"


def default_checkpoint(name: str) -> str:
    """On a cluster of machines a checkpoint belongs on storage that all of them reach."""
    return str(pipeline_home() / name / "checkpoint")
