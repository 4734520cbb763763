"""Results of commands for programs: JSON, YAML or CSV, as chosen with `--output`.

A command makes one document of plain values and structs, whatever the format. In CSV every item of
a list is a row; the fields of nested objects are columns with dotted names. The properties of a
message are one cell: they are others in each row.
"""

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from bolide.logs import one_line, plain_json

_ONE_CELL = {"properties"}


class Format(StrEnum):
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


Output = Annotated[
    Format | None, typer.Option("--output", help="Print a document instead of a table.")
]
"""For commands that are not of `bolide admin`, whose options are added to all of them at once."""
JsonFlag = Annotated[bool, typer.Option("--json", help="The same as --output json.")]


def chosen_format(output: Format | None, as_json: bool) -> Format | None:
    """The format that the two options choose; None for a table."""
    if as_json and output not in {None, Format.JSON}:
        raise typer.BadParameter(f"--json and --output {output} exclude each other")
    return Format.JSON if as_json else output


class _Stream:
    """The documents that a command prints one after the other."""

    def __init__(self, form: Format) -> None:
        self.form = form
        self._columns: list[str] = []
        self._is_first = True

    def write(self, value: object) -> None:
        plain = msgspec.to_builtins(value, str_keys=True)
        match self.form:
            case Format.JSON:
                text = plain_json(msgspec.json.encode(value).decode()) + "\n"
            case Format.YAML:
                text = ("" if self._is_first else "---\n") + _yaml(plain)
            case Format.CSV:
                text = self._csv(plain)
        self._is_first = False
        sys.stdout.write(text)
        sys.stdout.flush()

    def _csv(self, plain: object) -> str:
        rows = [_flat(row) for row in _rows(plain)]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        if columns != self._columns:
            self._columns = columns
            writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()


_stream: ContextVar[_Stream | None] = ContextVar("documents", default=None)


@contextmanager
def documents_in(form: Format) -> Iterator[None]:
    """Print documents in a format; those of one command are one stream."""
    token = _stream.set(_Stream(form))
    try:
        yield
    finally:
        _stream.reset(token)


def print_document(value: object) -> None:
    """Print a document in the chosen format, JSON on one line unless chosen otherwise."""
    (_stream.get() or _Stream(Format.JSON)).write(value)


def _yaml(plain: object) -> str:
    import yaml  # noqa: PLC0415  other formats do without

    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=False, width=100)
    return text.removesuffix("...\n")


def _rows(plain: Any) -> Iterable[dict[str, Any]]:
    """The rows of a document: the items of the list that it is or has, else of the object."""
    if isinstance(plain, list):
        return [item if isinstance(item, dict) else {"value": item} for item in plain]
    if not isinstance(plain, dict):
        return [{"value": plain}]
    lists = {name: each for name, each in plain.items() if _is_table(each)}
    if len(lists) == 1:
        ((name, items),) = lists.items()
        others = {key: each for key, each in plain.items() if key != name}
        return [item | others for item in items]
    if plain and all(isinstance(each, dict) for each in plain.values()):
        return [{"key": key} | each for key, each in plain.items()]
    return [plain]


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in row.items():
        if isinstance(value, dict) and value and name not in _ONE_CELL:
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = _cell(value)
    return found


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return one_line(value)
    return plain_json(msgspec.json.encode(value).decode())
