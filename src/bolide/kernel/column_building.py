"""Growable column buffers in plain Python, used by `columns`."""

import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate, count
from typing import Any, Protocol, cast

from bolide.kernel.column_buffers import ColumnBuffers, Pairs, Strings
from bolide.kernel.property_columns import Properties, read_properties

FIELDS = 14
"""Number of fields per row in the input of `ColumnBuilder.add`."""

_LAST_MS = ((1 << 63) - 1) // 1000
_OFFSET_DIGITS = 16


class ColumnBuilder:
    """Collects rows into the buffers of `ColumnBuffers`."""

    def __init__(self, *, with_properties: bool) -> None:
        self._with_properties = with_properties
        self._columns = {name: make() for name, make in _COLUMNS.items()}
        self._pairs_end = array("i", [0])
        self._names = _Texts()
        self._values = _Texts()

    def add(self, fields: list[Any]) -> None:
        """Append rows, given as a flat list of `FIELDS` values per row."""
        (
            topic, queue_id, queue_offset, physical_offset, store_digits, texts, body, born, stored,
            born_host, store_host, times, sys_flag, flag,
        ) = (fields[number::FIELDS] for number in range(FIELDS))  # fmt: skip
        offset_ids = _offset_ids(store_digits, physical_offset)
        read = read_properties(texts)
        ids = [own or made for own, made in zip(read.unique_ids, offset_ids, strict=True)]
        rows = (
            topic, queue_id, queue_offset, physical_offset, ids, offset_ids, read.keys, read.tags,
            body, born, stored, born_host, store_host, times, sys_flag, flag,
        )  # fmt: skip
        for column, items in zip(self._columns.values(), rows, strict=True):
            column.add(items)
        if self._with_properties:
            self._add_pairs(read)

    def _add_pairs(self, read: Properties) -> None:
        self._pairs_end.extend([*accumulate(read.counts, initial=self._pairs_end.pop())])
        self._names.add(read.names)
        self._values.add(read.values)

    def cut(self, rows: int) -> ColumnBuffers:
        """Return the buffers of all rows; the builder must not be used afterwards."""
        columns = {name: column.cut() for name, column in self._columns.items()}
        pairs = self._cut_pairs() if self._with_properties else None
        return ColumnBuffers(rows=rows, **columns, properties=pairs)

    def _cut_pairs(self) -> Pairs:
        names, values = self._names.cut(), self._values.cut()
        return Pairs(self._pairs_end, self._pairs_end[-1], names, values)


def _offset_ids(store_digits: list[bytes], physical_offsets: list[int]) -> list[bytes]:
    """Store host and physical offset in hexadecimal digits; offsets are formatted in one call."""
    packed = struct.pack(f">{len(physical_offsets)}q", *physical_offsets)
    offset_digits = packed.hex().upper().encode()
    return [
        digits + offset_digits[at : at + _OFFSET_DIGITS]
        for digits, at in zip(store_digits, count(0, _OFFSET_DIGITS))
    ]


class _Column(Protocol):
    def add(self, items: Any, /) -> None: ...

    def cut(self) -> Any: ...


class _Texts:
    def __init__(self) -> None:
        self._offsets = array("i", [0])
        self._data = bytearray()

    def add(self, items: Sequence[bytes]) -> None:
        self._offsets.extend([*accumulate(map(len, items), initial=self._offsets.pop())])
        self._data += b"".join(items)

    def cut(self) -> Strings:
        return Strings(self._offsets, self._data)


class _NullableTexts:
    def __init__(self) -> None:
        self._texts = _Texts()
        self._rows = 0
        self._missing: list[int] = []

    def add(self, items: Sequence[bytes | None]) -> None:
        if None in items:
            rows = enumerate(items, self._rows)
            self._missing += [row for row, item in rows if item is None]
            items = [item or b"" for item in items]
        self._texts.add(cast("Sequence[bytes]", items))
        self._rows += len(items)

    def cut(self) -> Strings:
        texts = self._texts.cut()
        return texts._replace(valid=self._bits()) if self._missing else texts

    def _bits(self) -> bytearray:
        bits = bytearray(((1 << self._rows) - 1).to_bytes((self._rows + 7) // 8, "little"))
        for row in self._missing:
            bits[row // 8] ^= 1 << row % 8
        return bits


class _Numbers:
    def __init__(self, kind: str) -> None:
        self._numbers = array(kind)

    def add(self, items: Iterable[int]) -> None:
        self._numbers.extend(items)

    def cut(self) -> "array[int]":
        return self._numbers


class _Times(_Numbers):
    """Milliseconds converted to microseconds; out-of-range values are clamped."""

    def __init__(self) -> None:
        super().__init__("q")

    def add(self, items: Iterable[int]) -> None:
        try:
            super().add(array("q", [time * 1000 for time in items]))
        except OverflowError:
            super().add([max(min(time, _LAST_MS), -_LAST_MS) * 1000 for time in items])


_int, _long = partial(_Numbers, "i"), partial(_Numbers, "q")
_COLUMNS: dict[str, Callable[[], _Column]] = {
    "topic": _Texts,
    "queue_id": _int,
    "queue_offset": _long,
    "physical_offset": _long,
    "message_id": _Texts,
    "offset_message_id": _Texts,
    "keys": _NullableTexts,
    "tags": _NullableTexts,
    "body": _Texts,
    "born_timestamp": _Times,
    "store_timestamp": _Times,
    "born_host": _Texts,
    "store_host": _Texts,
    "reconsume_times": _int,
    "sys_flag": _int,
    "flag": _int,
}
