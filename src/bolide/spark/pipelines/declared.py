"""A pipeline declared in a YAML file; docs/reference/pipelines.md documents the keys."""

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
from bolide.spark.pipelines.yaml_document import YamlMapping, YamlNode, read_mapping
from bolide.spark.sink.options import SinkOptions

KEYS = (
    "name", "nameServer", "source", "steps", "sink", "checkpoint", "trigger", "commitGroup",
)  # fmt: skip
_DEFAULT_TRIGGER = Trigger(10.0)

_ROCKETMQ = "rocketmq"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_OUTPUT_MODES = ("append", "update", "complete")
_SINK_KEYS = {"format", "mode", "partitionBy", "table", "unique"}


def read_pipeline(file: Path, run: RunSettings) -> Pipeline:
    """The pipeline that a file declares; settings of the run override those of the file.

    Raises:
        BadFile: the content is invalid; names line and column.
        ConfigError: the file cannot be read.
    """
    mapping = read_mapping(file, "the pipeline")
    mapping.check_keys(KEYS)
    name = check_name(run.name) if run.name else _name(mapping, file)
    cluster = _ClusterOptions(run, mapping.find_text("nameServer"))
    return Pipeline(
        kind="file",
        name=name,
        source=_source(mapping.require("source"), cluster),
        steps=_steps(mapping["steps"], file.parent) if "steps" in mapping else (),
        sink=_sink(mapping.require("sink"), cluster),
        checkpoint=run.checkpoint or mapping.find_text("checkpoint") or run.checkpoint_of(name),
        trigger=run.trigger_of(_trigger(mapping)),
        commit_group=run.commit_group or mapping.find_text("commitGroup"),
    )


def check_name(name: str) -> str:
    """Raises ConfigError unless the name is valid for a directory and a consumer group."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"name {name!r}: letters, digits, _ and -, at most 100")
    return name


def _name(mapping: YamlMapping, file: Path) -> str:
    return mapping["name"].checked(check_name) if "name" in mapping else check_name(file.stem)


def _trigger(mapping: YamlMapping) -> Trigger:
    return mapping["trigger"].checked(parse_trigger) if "trigger" in mapping else _DEFAULT_TRIGGER


class _ClusterOptions:
    """The options with which source and sink reach the cluster."""

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


def _source(value: YamlNode, cluster: _ClusterOptions) -> Source:
    if not value.is_mapping:
        return value.checked(lambda topic: _checked(cluster.source({"topic": topic})))
    mapping = value.mapping()
    kind = mapping.find_text("format") or _ROCKETMQ
    if kind != _ROCKETMQ:
        options = mapping.texts(without={"format", "schema"})
        return Source(format=kind, options=options, schema=mapping.find_text("schema"))
    return mapping.checked(lambda: _checked(cluster.source(mapping.texts(without={"format"}))))


def _checked(source: Source) -> Source:
    options = SourceOptions.of(source.options)
    options.start("earliest")
    options.reading()
    return source


# Steps


def _steps(value: YamlNode, directory: Path) -> tuple[Step, ...]:
    steps = []
    for number, item in enumerate(value.items(), 1):
        if not item.is_mapping:
            raise item.error(f"step {number}: write `sql: …` or `python: …`, each in a list item")
        steps.append(_step(item.mapping(), f"step {number}", directory))
    return tuple(steps)


def _step(mapping: YamlMapping, title: str, directory: Path) -> Step:
    mapping.check_keys(("sql", "python"))
    if len(mapping) != 1:
        raise mapping.error(f"{title} must have either the key 'sql' or the key 'python'")
    ((key, value),) = mapping.items()
    place = f"{value.place}: {title}"
    if key == "sql":
        return sql_step(value.text(), place)
    value.checked(lambda target: check_target(target, directory))
    return python_step(value.text(), place, directory)


# Sink


def _sink(value: YamlNode, cluster: _ClusterOptions) -> Sink:
    if not value.is_mapping:
        return value.checked(lambda topic: _topic_sink(cluster.sink({"topic": topic})))
    mapping = value.mapping()
    kind = mapping.find_text("format") or _guessed_format(mapping)
    make = _SINKS.get(kind or "", _format_sink)
    return make(mapping, kind, cluster)


def _guessed_format(mapping: YamlMapping) -> str | None:
    """The format that a key implies; None for a table of the catalog."""
    for key, kind in (("topic", _ROCKETMQ), ("url", "jdbc"), ("path", "parquet")):
        if key in mapping:
            return kind
    if "table" in mapping:
        return None
    raise mapping.error("sink needs the key 'format', or one of 'topic', 'path', 'url', 'table'")


def _rocketmq_sink(mapping: YamlMapping, kind: str | None, cluster: _ClusterOptions) -> Sink:
    del kind
    options = cluster.sink(mapping.texts(without={"format", "mode"}))
    mode = _output_mode(mapping)
    return mapping.checked(lambda: _topic_sink(options, mode))


def _topic_sink(options: dict[str, str], mode: str = "append") -> Sink:
    SinkOptions.of(options)
    return FormatSink(format=_ROCKETMQ, options=options, output_mode=mode)


def _jdbc_sink(mapping: YamlMapping, kind: str | None, cluster: _ClusterOptions) -> Sink:
    del kind, cluster
    mapping.require("url")
    if "table" not in mapping and "dbtable" not in mapping:
        raise mapping.error("a jdbc sink needs the key 'table'")
    options = mapping.texts(without=_SINK_KEYS)
    options.setdefault("dbtable", mapping.find_text("table") or "")
    return jdbc_sink(options, mapping["unique"].texts() if "unique" in mapping else ())


def _format_sink(mapping: YamlMapping, kind: str | None, cluster: _ClusterOptions) -> Sink:
    del cluster
    if kind in _FILES:
        mapping.require("path")
    return FormatSink(
        format=kind,
        options=mapping.texts(without=_SINK_KEYS),
        output_mode=_output_mode(mapping),
        partition_by=mapping["partitionBy"].texts() if "partitionBy" in mapping else (),
        table=mapping.find_text("table"),
    )


def _output_mode(mapping: YamlMapping) -> str:
    mode = mapping.find_text("mode") or "append"
    if mode not in _OUTPUT_MODES:
        raise mapping["mode"].error(f"mode {mode!r}: one of {', '.join(_OUTPUT_MODES)}")
    return mode


_FILES = ("parquet", "json", "csv", "orc", "text")
_SINKS: dict[str, Callable[[YamlMapping, str | None, _ClusterOptions], Sink]] = {
    _ROCKETMQ: _rocketmq_sink,
    "jdbc": _jdbc_sink,
}
