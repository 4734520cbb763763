"""The registry of built-in pipelines, and the settings that all runs share.

A built-in is a module with a constant `BUILT_IN` and an entry in `_MODULES`. Its options are a
frozen dataclass whose fields are declared with `cli_option`. The command line is generated from it,
so that `bolide pipeline run NAME --some-field …` and `--help` need no further code:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class ArchiveOptions:
        topic: str = cli_option("Topics to archive, with commas between them.")
        path: str = cli_option("Where the table is.", metavar="PATH")
        value_schema: str | None = cli_option("Columns of a JSON body, as DDL.", default=None)
        file_mib: int = cli_option("Size of a file.", default=128, low=1)
        tags: tuple[str, ...] = cli_option("A tag; may be given often.", default=())
        compact: bool = cli_option("Put small files together.", default=False)
        output: Literal["table", "parquet"] = cli_option("What to make.", default="table")

    def plan(options: ArchiveOptions, run: RunSettings) -> Pipeline | Job: ...

    BUILT_IN = BuiltIn("archive", ArchiveOptions, plan, example="--topic orders --path /data/lake")

`plan` returns plain values and does no I/O; it raises ConfigError for user errors. Options that
every run has (NameServers, credentials, --once, --every, --name, --checkpoint, master, conf, --json
…) are in `RunSettings` and not repeated; field names must differ from those of `RunSettings`. The
docstring of the options class is the help text of the command. Fields without a default are
required.
"""

import dataclasses
import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bolide.arrow.cluster import Connection
from bolide.config import from_reference, options_of
from bolide.errors import ConfigError
from bolide.spark.options import ConnectionOptions
from bolide.spark.pipelines.definition import Job, Pipeline, Source
from bolide.spark.pipelines.times import ONCE, Trigger

HOME_VARIABLE = "BOLIDE_HOME"


class Entry(NamedTuple):
    """Module and summary of a built-in, so that listing them imports none."""

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
    """Settings of a run, whatever it runs."""

    name_server: str = ""
    """As `host:port;host:port`; empty for NAMESRV_ADDR."""
    source_options: Mapping[str, str] = field(default_factory=dict, repr=False)  # has secrets
    """Further options of the source (credentials, TLS, limits), as the reference names them."""
    name: str | None = None
    once: bool = False
    trigger: Trigger | None = None
    checkpoint: str | None = None
    commit_group: str | None = None

    def named(self, default: str) -> str:
        """The name of the pipeline: the user's, or `default` (such as `archive-orders`)."""
        return self.name or default

    def source(self, **options: object) -> Source:
        """A `rocketmq` source; options that are None are left out, and the user's options win.

        Reads from the earliest message unless an option sets the start, so that a pipeline skips
        no message.
        """
        own = {key: str(value) for key, value in options.items() if value is not None}
        chosen = own | self.connection | dict(self.source_options)
        if not {key.lower() for key in chosen} & _STARTS:
            chosen["startingOffsets"] = "earliest"
        return Source(options=chosen)

    @property
    def connection(self) -> dict[str, str]:
        """The options with which source and sink reach the cluster."""
        known = {key.lower() for key in options_of(ConnectionOptions)}
        given = {key: text for key, text in self.source_options.items() if key.lower() in known}
        return {"nameServer": self.name_server} | given if self.name_server else given

    def connect(self) -> Connection:
        """A connection for Bolide clients. Raises ConfigError."""
        return ConnectionOptions.of(self.connection).connection()

    def checkpoint_of(self, name: str) -> str:
        return self.checkpoint or default_checkpoint(name)

    def trigger_of(self, default: Trigger) -> Trigger:
        """The trigger: `--once`, else `--every`, else `default`."""
        return ONCE if self.once else self.trigger or default


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in pipeline: its name, its options, and the function that plans it."""

    name: str
    options: type[Any]
    plan: Callable[[Any, RunSettings], Pipeline | Job]
    example: str = ""

    @property
    def text(self) -> str:
        return (self.options.__doc__ or "").strip()


class BuiltIns(Mapping[str, BuiltIn]):
    """Built-ins by name; modules are imported on access."""

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
    """Declare a command-line option as a dataclass field.

    Args:
        doc: one-sentence description.
        default: the default value; without one the option is required.
        low: minimum of a number.
        high: maximum of a number.
        metavar: placeholder of the value in the help text.
    """
    metadata = {"doc": doc, "low": low, "high": high, "metavar": metavar}
    return dataclasses.field(default=default, metadata=metadata)


def make_options(built_in: BuiltIn, given: Mapping[str, object]) -> Any:
    """Build the options of a built-in from values by field name.

    Raises:
        ConfigError: an option is missing or unknown; names the option.
    """
    known = {item.name: item for item in dataclasses.fields(built_in.options)}
    if unknown := sorted(given.keys() - known.keys()):
        raise ConfigError(f"{built_in.name} has no option {unknown[0]!r}")
    needed = {name for name, item in known.items() if item.default is dataclasses.MISSING}
    if missing := sorted(needed - given.keys()):
        raise ConfigError(f"{built_in.name} needs the option {missing[0]!r}")
    return built_in.options(**given)


def parse_key_values(words: Iterable[str], *, option: str) -> dict[str, str]:
    """Parse `KEY=VALUE` words of a command line; a value `${NAME}` is read from the environment.

    Raises:
        ConfigError: a word has another form; names the option it was given for.
    """
    return dict(_key_value(word, option) for word in words)


def _key_value(word: str, option: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals:
        raise ConfigError(f"{option} {word!r} is not of the form key=value")
    return key.strip(), from_reference(value.strip())


def pipeline_home() -> Path:
    """`$BOLIDE_HOME/pipelines`, or `~/.bolide/pipelines` if the variable is not set."""
    home = os.environ.get(HOME_VARIABLE)
    return (Path(home) if home else Path.home() / ".bolide") / "pipelines"


def default_checkpoint(name: str) -> str:
    """A local path; on a Spark cluster a checkpoint belongs on shared storage."""
    return str(pipeline_home() / name / "checkpoint")
