"""Rows of one task as Arrow columns, and the errors that name a row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bolide.errors import BolideError

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


class RowFailed(BolideError):
    """A row cannot be sent; the message names the row and the reason."""

    def __init__(self, partition: int, row: int, topic: str | None, key: str | None, reason: str):
        position = f"row {row} of partition {partition}"
        details = [f"topic {topic!r}" if topic else "", f"keys {key!r}" if key else ""]
        text = ", ".join(filter(None, [position, *details]))
        super().__init__(f"{text}: {reason}")
        self.partition, self.row, self.topic, self.key = partition, row, topic, key
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.partition, self.row, self.topic, self.key, self.reason)


class RowsFailed(BolideError):
    """Rows could not be sent within the configured patience; the last failure is the cause."""

    def __init__(self, partition: int, first: int, last: int, topic: str, reason: str) -> None:
        super().__init__(
            f"rows {first} to {last} of partition {partition}, topic {topic!r}: {reason}"
        )
        self.partition, self.first, self.last, self.topic = partition, first, last, topic
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.partition, self.first, self.last, self.topic, self.reason)


@dataclass(frozen=True, slots=True)
class Task:
    """Identity of a task: query and batch of a stream, or the job of a batch write."""

    query: str
    batch: str = "0"
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows with their numbers in the partition, counted from 0."""

    batch: pa.RecordBatch
    task: Task
    numbers: Numbers
    topic: str | None
    """The target topic of all rows, if they share one."""

    def __post_init__(self) -> None:
        assert len(self.numbers) == self.batch.num_rows

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def text(self, name: str) -> pa.Array:
        """A column as strings; empty strings become null."""
        return empty_to_null(self.batch.column(name).cast(pa.string()))

    def whole_numbers(self, name: str) -> pa.Array:
        return self.batch.column(name).cast(pa.int64())

    def take(self, chosen: Numbers, topic: str) -> "Rows":
        """A subset of the rows, all for one topic."""
        return Rows(self.batch.take(pa.array(chosen)), self.task, self.numbers[chosen], topic)

    def refuse(self, bad: pa.Array, reason: str) -> None:
        """Raises RowFailed for the first row whose mask is true; null counts as false."""
        index = pc.index(bad, pa.scalar(True)).as_py()
        if index >= 0:
            raise self.failure(index, reason)

    def failure(self, index: int, reason: str) -> RowFailed:
        topic = self.topic or self._text_at(index, "topic")
        keys = self._text_at(index, "keys")
        return RowFailed(self.task.partition, int(self.numbers[index]), topic, keys, reason)

    def _text_at(self, index: int, name: str) -> str | None:
        if name not in self.batch.schema.names:
            return None
        value = self.batch.column(name)[index].as_py()
        return " ".join(map(str, value)) if isinstance(value, list) else value


def empty_to_null(texts: pa.Array) -> pa.Array:
    empty = pc.equal(pc.binary_length(texts), 0)
    return pc.if_else(empty, pa.scalar(None, pa.string()), texts)


def map_distinct(column: pa.Array, convert: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """Convert the values of a column, each distinct value once."""
    encoded = column.dictionary_encode()
    values = [convert(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(values, kind).take(encoded.indices)
