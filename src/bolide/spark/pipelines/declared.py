"""A pipeline declared in one small YAML file; docs/reference/pipelines.md tells its keys."""

import re
from collections.abc import Callable
from pathlib import Path

from bolide.errors import ConfigError
from bolide.spark.options import SourceOptions
from bolide.spark.pipelines.builtin import RunSettings
from bolide.spark.pipelines.definition import (
    FormatSink,
    Pipeline,
    Sink,
    Source,
    Step,
    check_target,
    jdbc_sink,
    python_step,
    sql_step,
)
from bolide.spark.pipelines.times import Trigger, parse_trigger
from bolide.spark.pipelines.yaml_document import Table, Value, read_table
from bolide.spark.sink.options import SinkOptions

KEYS = (
    "name", "nameServer", "source", "steps", "sink", "checkpoint", "trigger", "commitGroup",
)  # fmt: skip
EVERY_10_SECONDS = Trigger(10.0)

_ROCKETMQ = "rocketmq"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_OUTPUT_MODES = ("append", "update", "complete")
_OWN_SINK_KEYS = {"format", "mode", "partitionBy", "table", "unique"}


def read_pipeline(file: Path, run: RunSettings) -> Pipeline:
    """The pipeline that a file declares; what the run is told beats what stands there.

    Raises:
        BadFile: it cannot be meant so; names line and column.
        ConfigError: the file cannot be read.
    """
    table = read_table(file, "the pipeline")
    table.refuse_others(KEYS)
    name = check_name(run.name) if run.name else _name(table, file)
    reach = _Reach(run, table.find_text("nameServer"))
    return Pipeline(
        name=name,
        source=_source(table.require("source"), reach),
        steps=_steps(table["steps"], file.parent) if "steps" in table else (),
        sink=_sink(table.require("sink"), reach),
        checkpoint=run.checkpoint or table.find_text("checkpoint") or run.checkpoint_of(name),
        trigger=run.trigger_of(_trigger(table)),
        commit_group=run.commit_group or table.find_text("commitGroup"),
    )


def check_name(name: str) -> str:
    """Raises ConfigError where a directory or a consumer group cannot have that name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"name {name!r}: letters, digits, _ and -, at most 100")
    return name


def _name(table: Table, file: Path) -> str:
    return table["name"].checked(check_name) if "name" in table else check_name(file.stem)


def _trigger(table: Table) -> Trigger:
    return table["trigger"].checked(parse_trigger) if "trigger" in table else EVERY_10_SECONDS


class _Reach:
    """The options by which source and sink reach the cluster."""

    def __init__(self, run: RunSettings, name_server: str | None) -> None:
        self._run = run
        self._name_server = run.name_server or name_server

    def source(self, own: dict[str, str]) -> Source:
        return self._run.source(**self._default(own))

    def sink(self, own: dict[str, str]) -> dict[str, str]:
        return self._default(self._run.connection | own)

    def _default(self, own: dict[str, str]) -> dict[str, str]:
        return {"nameServer": self._name_server} | own if self._name_server else own


# Source


def _source(value: Value, reach: _Reach) -> Source:
    if not value.is_table:
        return value.checked(lambda topic: _checked(reach.source({"topic": topic})))
    table = value.table()
    kind = table.find_text("format") or _ROCKETMQ
    if kind != _ROCKETMQ:
        options = table.texts(without={"format", "schema"})
        return Source(format=kind, options=options, schema=table.find_text("schema"))
    return table.checked(lambda: _checked(reach.source(table.texts(without={"format"}))))


def _checked(source: Source) -> Source:
    options = SourceOptions.of(source.options)
    options.start("earliest")
    options.reading()
    return source


# Steps


def _steps(value: Value, directory: Path) -> tuple[Step, ...]:
    steps = []
    for number, item in enumerate(value.items(), 1):
        if not item.is_table:
            raise item.error(f"step {number}: say `sql: …` or `python: …`, each in a list item")
        steps.append(_step(item.table(), f"step {number}", directory))
    return tuple(steps)


def _step(table: Table, title: str, directory: Path) -> Step:
    table.refuse_others(("sql", "python"))
    if len(table) != 1:
        raise table.error(f"{title} must have either the key 'sql' or the key 'python'")
    ((key, value),) = table.items()
    place = f"{value.place}: {title}"
    if key == "sql":
        return sql_step(value.text(), place)
    value.checked(lambda target: check_target(target, directory))
    return python_step(value.text(), place, directory)


# Sink


def _sink(value: Value, reach: _Reach) -> Sink:
    if not value.is_table:
        return value.checked(lambda topic: _topic_sink(reach.sink({"topic": topic})))
    table = value.table()
    kind = table.find_text("format") or _guessed_format(table)
    make = _SINKS.get(kind or "", _format_sink)
    return make(table, kind, reach)


def _guessed_format(table: Table) -> str | None:
    """The format that a key gives away; None where a table of the catalog is meant."""
    for key, kind in (("topic", _ROCKETMQ), ("url", "jdbc"), ("path", "parquet")):
        if key in table:
            return kind
    if "table" in table:
        return None
    raise table.error("sink needs the key 'format', or one of 'topic', 'path', 'url', 'table'")


def _rocketmq_sink(table: Table, kind: str | None, reach: _Reach) -> Sink:
    del kind
    options = reach.sink(table.texts(without={"format", "mode"}))
    mode = _output_mode(table)
    return table.checked(lambda: _topic_sink(options, mode))


def _topic_sink(options: dict[str, str], mode: str = "append") -> Sink:
    SinkOptions.of(options)
    return FormatSink(format=_ROCKETMQ, options=options, output_mode=mode)


def _jdbc_sink(table: Table, kind: str | None, reach: _Reach) -> Sink:
    del kind, reach
    table.require("url")
    if "table" not in table and "dbtable" not in table:
        raise table.error("a jdbc sink needs the key 'table'")
    options = table.texts(without=_OWN_SINK_KEYS)
    options.setdefault("dbtable", table.find_text("table") or "")
    return jdbc_sink(options, table["unique"].texts() if "unique" in table else ())


def _format_sink(table: Table, kind: str | None, reach: _Reach) -> Sink:
    del reach
    if kind in _FILES:
        table.require("path")
    return FormatSink(
        format=kind,
        options=table.texts(without=_OWN_SINK_KEYS),
        output_mode=_output_mode(table),
        partition_by=table["partitionBy"].texts() if "partitionBy" in table else (),
        table=table.find_text("table"),
    )


def _output_mode(table: Table) -> str:
    mode = table.find_text("mode") or "append"
    if mode not in _OUTPUT_MODES:
        raise table["mode"].error(f"mode {mode!r}: one of {', '.join(_OUTPUT_MODES)}")
    return mode


_FILES = ("parquet", "json", "csv", "orc", "text")
_SINKS: dict[str, Callable[[Table, str | None, _Reach], Sink]] = {
    _ROCKETMQ: _rocketmq_sink,
    "jdbc": _jdbc_sink,
}
