"""Positions and lag of a streaming query, read from its progress.

Spark has no metrics for Python sources, but its progress contains the offsets of a source as JSON:
where the last batch began and ended, and where the queues ended when the batch was planned.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from bolide.arrow.errors import BadPosition
from bolide.arrow.offsets import from_plain
from bolide.model.message_queue import MessageQueue

Progress = Any
"""`query.lastProgress`: a `StreamingQueryProgress`, or a dict of its JSON."""


def lag(progress: Progress) -> dict[MessageQueue, int]:
    """The lag of each queue of the query in offsets; other kinds of sources are ignored."""
    latest = _merged(progress, "latestOffset")
    return {
        queue: max(0, latest.get(queue, offset) - offset)
        for queue, offset in positions(progress).items()
    }


def positions(progress: Progress) -> dict[MessageQueue, int]:
    """The end offsets of the last batch: the positions that a consumer group would commit."""
    return _merged(progress, "endOffset")


def rows_written(progress: Progress) -> int | None:
    """Rows that the sink wrote in the last batch; None if the sink does not count them."""
    plain = progress if isinstance(progress, Mapping) else msgspec.json.decode(progress.json)
    written = (plain.get("sink") or {}).get("numOutputRows", -1)
    return written if isinstance(written, int) and written >= 0 else None


def _merged(progress: Progress, which: str) -> dict[MessageQueue, int]:
    found: dict[MessageQueue, int] = {}
    for source in _sources(progress):
        found |= _offsets(source.get(which))
    return found


def _sources(progress: Progress) -> Iterator[Mapping[str, Any]]:
    if progress is None:
        return
    plain = progress if isinstance(progress, Mapping) else msgspec.json.decode(progress.json)
    yield from plain["sources"]


def _offsets(value: object) -> dict[MessageQueue, int]:
    """Decode the offsets of a source, as text or plain JSON; empty for other kinds of sources."""
    try:
        return from_plain(msgspec.json.decode(value) if isinstance(value, str | bytes) else value)
    except (msgspec.DecodeError, BadPosition):
        return {}
