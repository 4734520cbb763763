"""The columns that the sink understands: their types, and what they are used for."""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bolide.arrow.schema import MESSAGE_FIELDS, VALUE
from bolide.errors import ConfigError
from bolide.spark.sink.options import Dedup, SinkOptions

_TEXT = ("string",)
_NUMBER = ("tinyint", "smallint", "int", "bigint")
_COLUMN_TYPES: Mapping[str, Collection[str]] = {
    "body": ("binary", "string"),
    "topic": _TEXT,
    "keys": ("string", "array<string>"),
    "tags": _TEXT,
    "properties": ("map<string,string>",),
    "delay": _NUMBER,
    "delay_level": _NUMBER,
    "sharding_key": _TEXT,
    "broker": _TEXT,
    "queue_id": _NUMBER,
    "queue_offset": _NUMBER,
    "flag": _NUMBER,
    "dedup_key": _TEXT,
    "source_topic": _TEXT,
    "source_broker": _TEXT,
    "source_queue_id": _NUMBER,
    "source_queue_offset": _NUMBER,
}
"""The columns that the sink interprets, with the Spark SQL types they may have."""
_IGNORED_COLUMNS = {field.name for field in MESSAGE_FIELDS} | {VALUE}
"""Columns that the source produces and the sink ignores."""
_NAMED_SOURCE = ("source_topic", "source_broker", "source_queue_id", "source_queue_offset")
_OWN_SOURCE = ("topic", "broker", "queue_id", "queue_offset")


@dataclass(frozen=True, slots=True)
class Columns:
    """How the sink uses the columns of a frame."""

    names: frozenset[str]
    source: tuple[str, ...] | None
    """The columns that give a row's origin: topic, broker, queue, offset."""
    is_routed: bool
    """Whether `queue_id` selects the target queue; in rows of the source it is the origin."""
    is_keyed: bool
    """Whether rows get a deduplication key."""

    @classmethod
    def of(cls, kinds: Mapping[str, str], options: SinkOptions) -> "Columns":
        """Check the columns of a frame, given as Spark SQL type names by column name.

        Raises:
            ConfigError: a column is missing, unknown or of a wrong type; names the column.
        """
        _check_kinds(kinds)
        _check_present(kinds, options)
        source = _source(kinds)
        _check_routing(kinds, options, source)
        return cls(
            names=frozenset(kinds) & _COLUMN_TYPES.keys(),
            source=source,
            is_routed="queue_id" in kinds and "queue_offset" not in kinds,
            is_keyed=_is_keyed(kinds, options, source),
        )

    def has(self, name: str) -> bool:
        return name in self.names


def _check_kinds(kinds: Mapping[str, str]) -> None:
    for name, kind in kinds.items():
        if name not in _COLUMN_TYPES and name not in _IGNORED_COLUMNS:
            near = difflib.get_close_matches(name, _COLUMN_TYPES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_COLUMN_TYPES)};"
            raise ConfigError(
                f"column {name} has no meaning for a message: {hint} drop or rename it"
            )
        if name in _COLUMN_TYPES and kind not in _COLUMN_TYPES[name]:
            wanted = " or ".join(_COLUMN_TYPES[name])
            raise ConfigError(f"column {name} is of type {kind}, and must be {wanted}: cast it")


def _check_present(kinds: Mapping[str, str], options: SinkOptions) -> None:
    if "body" not in kinds:
        raise ConfigError("column body is missing: it holds the bodies of messages")
    if options.topic is None and "topic" not in kinds:
        raise ConfigError("no topic: give the option topic, or a column topic")


def _source(kinds: Mapping[str, str]) -> tuple[str, ...] | None:
    given = [name for name in _NAMED_SOURCE if name in kinds]
    if given and len(given) < len(_NAMED_SOURCE):
        raise ConfigError(f"columns {', '.join(_NAMED_SOURCE)} belong together: give all or none")
    if given:
        return _NAMED_SOURCE
    return _OWN_SOURCE if all(name in kinds for name in _OWN_SOURCE) else None


def _check_routing(
    kinds: Mapping[str, str], options: SinkOptions, source: tuple[str, ...] | None
) -> None:
    if "broker" in kinds and "queue_id" not in kinds and "queue_offset" not in kinds:
        raise ConfigError("column broker has no effect without queue_id: add it, or drop broker")
    if options.keep_order and source is None:
        raise ConfigError(f"keepOrder needs to know where rows came from: {_source_hint()}")


def _is_keyed(
    kinds: Mapping[str, str], options: SinkOptions, source: tuple[str, ...] | None
) -> bool:
    if options.dedup is Dedup.FALSE:
        return False
    if options.dedup is Dedup.TRUE and source is None and "dedup_key" not in kinds:
        raise ConfigError(
            f"dedup=true needs a column dedup_key, or to know where rows came from:"
            f" {_source_hint()}; or set dedup=row, which uses the number of a row and is right"
            " only if a repeated batch has the same rows in the same order"
        )
    return options.dedup is not Dedup.AUTO or "dedup_key" in kinds


def _source_hint() -> str:
    return f"keep the source's columns {', '.join(_OWN_SOURCE)}, or give {', '.join(_NAMED_SOURCE)}"
