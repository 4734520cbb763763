"""Keys by which a topic with a de-duplication window knows a row that comes a second time."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from bolide.spark.sending.columns import Columns
from bolide.spark.sending.items import row_names
from bolide.spark.sending.rows import Rows
from bolide.spark.sink_options import Dedup, SinkOptions

MAX_LENGTH = 255


class RepeatKeys:
    """Keys of rows in their order: it remembers where the last row came from.

    Rows of one place are numbered: a row of the source may have become several. That is right as
    long as they stand together, as they do without a shuffle.
    """

    def __init__(self, columns: Columns, options: SinkOptions) -> None:
        self._columns = columns
        self._dedup = options.dedup
        self._last: str | None = None
        self._count = 0

    def of(self, rows: Rows) -> pa.Array | None:
        """Null where a row has none. Raises RowFailed for one that must have one."""
        if not self._columns.is_keyed or not len(rows):
            return None
        found = list(self._candidates(rows))
        keys = pc.coalesce(*found) if len(found) > 1 else found[0]
        if self._dedup is not Dedup.AUTO:
            rows.refuse(pc.is_null(keys), "it has no dedup_key, and nothing says where it is from")
        rows.refuse(
            pc.greater(pc.utf8_length(keys), MAX_LENGTH),
            f"its key for de-duplication is over {MAX_LENGTH} characters",
        )
        rows.refuse(
            pc.match_substring_regex(keys, "[[:cntrl:]]"),
            "its key for de-duplication holds control characters",
        )
        return keys

    def _candidates(self, rows: Rows) -> Iterator[pa.Array]:
        if self._columns.has("dedup_key"):
            yield rows.text("dedup_key")
        if self._dedup is Dedup.AUTO:
            return
        if self._columns.source is not None:
            yield self._numbered(source_places(rows, self._columns.source))
        if self._dedup is Dedup.ROW:
            yield row_names(rows)

    def _numbered(self, places: pa.Array) -> pa.Array:
        """The places, from the second row of one on with `#1`, `#2` …"""
        before = pa.concat_arrays([pa.array([self._last], pa.string()), places[:-1]])
        if pc.any(pc.equal(places, before)).as_py():
            return pa.array([self._number(place) for place in places.to_pylist()], pa.string())
        self._last, self._count = places[-1].as_py(), 0
        return places

    def _number(self, place: str | None) -> str | None:
        self._count = self._count + 1 if place == self._last else 0
        self._last = place
        return f"{place}#{self._count}" if place and self._count else place


def source_places(rows: Rows, source: tuple[str, ...]) -> pa.Array:
    """Where rows came from, as `src:topic/broker/queue@offset`; null where a part is missing."""
    topic, broker, queue, offset = (rows.batch.column(name).cast(pa.string()) for name in source)
    return pc.binary_join_element_wise("src:", topic, "/", broker, "/", queue, "@", offset, "")
