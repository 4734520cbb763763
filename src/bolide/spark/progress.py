"""What a query's progress says of the queues it reads: Spark has no metrics of Python sources.

Spark's progress has the offsets of a source as JSON: where the last batch began and ended, and
where the queues ended when it was planned.
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
    """How many offsets each queue of the query's topics is behind; nothing of other sources."""
    latest = _merged(progress, "latestOffset")
    return {
        queue: max(0, latest.get(queue, offset) - offset)
        for queue, offset in positions(progress).items()
    }


def positions(progress: Progress) -> dict[MessageQueue, int]:
    """Up to where the last batch has read: what a consumer group would commit."""
    return _merged(progress, "endOffset")


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
    """Of a text or its plain form; what another kind of source has there is none of ours."""
    try:
        return from_plain(msgspec.json.decode(value) if isinstance(value, str | bytes) else value)
    except (msgspec.DecodeError, BadPosition):
        return {}
