"""Dead letters as a CSV or JSON document, made piece by piece."""

import csv
import io
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import asdict
from enum import StrEnum

from bolide.admin.dead_letters import DeadLetter, Selection
from bolide.model.message import StoredMessage
from bolide.operations.cluster import Cluster
from bolide.operations.dead_letters.listing import extent_of
from bolide.operations.dead_letters.views import body_text, letter_view
from bolide.operations.messages.sending import BodyFormat

_CHUNK = 200
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Spreadsheets take a cell that begins so for a formula."""


class ExportFormat(StrEnum):
    """The format of an export."""

    CSV = "csv"
    JSON = "json"


async def export_letters(
    cluster: Cluster, selection: Selection, export_format: ExportFormat
) -> AsyncIterator[str]:
    """The dead letters that match, oldest first, as a CSV or JSON document in pieces.

    CSV has a line for each with its body as text, or in hexadecimal digits behind `hex:`.
    """
    extent = await extent_of(cluster, selection, [])
    is_json = export_format is ExportFormat.JSON
    yield "[" if is_json else _csv_line(_COLUMNS)
    rest, separator = extent, "\n"
    while rest.messages:
        part = await cluster.admin.dead_letters.browse(
            selection, rest, count=_CHUNK, budget=_CHUNK, oldest_first=True
        )
        for letter, message in part.letters:
            row = _export_row(letter, message)
            if is_json:
                yield separator + json.dumps(row, ensure_ascii=False)
                separator = ",\n"
            else:
                yield _csv_line(_cell(row[name]) for name in _COLUMNS)
        if not part.scanned:
            break
        rest = part.rest
    if is_json:
        yield "\n]\n"


_COLUMNS = (
    "position", "message_id", "offset_message_id", "origin_topic", "origin_message_id", "keys",
    "tags", "tries", "born_ms", "died_ms", "reason", "body", "properties",
)  # fmt: skip


def _export_row(letter: DeadLetter, message: StoredMessage) -> dict[str, object]:
    row = asdict(letter_view(letter, message))
    body, body_format = body_text(message.body)
    if body_format is BodyFormat.HEX:
        body = f"hex:{body}"
    row |= {"body": body, "properties": dict(message.properties)}
    return {name: row[name] for name in _COLUMNS}


def _cell(value: object) -> str:
    if isinstance(value, list):
        value = " ".join(value)
    elif isinstance(value, dict):
        value = json.dumps(value, ensure_ascii=False)
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _csv_line(cells: Iterable[str]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue()
