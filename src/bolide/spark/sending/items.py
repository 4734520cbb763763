"""Rows as the items of batch sends (`protocol.batch`), encoded a column at a time.

Items lie back to back in one buffer, so a request's body is a slice of it: no row is touched by
itself. 5 to 10 times less work than by a message object for each row.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bolide.client.producer.outgoing import make_ids
from bolide.model.properties import PropertyName
from bolide.spark.sending.columns import Columns
from bolide.spark.sending.properties import SPARK_ROW, PropertyTexts
from bolide.spark.sending.rows import Numbers, Rows
from bolide.spark.sink_options import SinkOptions

_HEAD = np.dtype([("size", ">u4"), ("magic_crc", "V8"), ("flag", ">i4"), ("body_size", ">u4")])
_LENGTH = np.dtype(">i2")
_INT = 2**31


class ItemEncoder:
    """Encodes rows with these columns."""

    def __init__(self, columns: Columns, options: SinkOptions) -> None:
        self._columns = columns
        self._options = options
        self._texts = PropertyTexts(columns, options)

    def encode(self, rows: Rows, dedup_keys: pa.Array | None) -> pa.Array:
        """One item for each row. Raises RowFailed for one that cannot be sent."""
        bodies = self._bodies(rows)
        added = [(PropertyName.UNIQUE_ID, pa.array(make_ids(len(rows))))]
        if self._options.mark_rows:
            added.append((SPARK_ROW, row_names(rows)))
        if dedup_keys is not None:
            added.append((PropertyName.DEDUP_KEY, dedup_keys))
        texts = self._texts.of(rows, added).cast(pa.binary())
        head = np.zeros(len(rows), _HEAD)
        head["body_size"] = pc.binary_length(bodies).to_numpy()
        head["flag"] = self._flags(rows)
        lengths = pc.binary_length(texts).to_numpy()
        head["size"] = _HEAD.itemsize + head["body_size"] + _LENGTH.itemsize + lengths
        parts = (_fixed(head), bodies, _fixed(lengths.astype(_LENGTH)), texts)
        return pc.binary_join_element_wise(*parts, b"")

    def _bodies(self, rows: Rows) -> pa.Array:
        bodies = rows.batch.column("body").cast(pa.binary())
        sizes, most = pc.binary_length(bodies), self._options.max_message_size
        rows.refuse(pc.is_null(bodies), "column body: it is null")
        rows.refuse(pc.equal(sizes, 0), "column body: it is empty")
        rows.refuse(
            pc.greater(sizes, most), f"column body: it is over {most} bytes (maxMessageSize)"
        )
        return bodies

    def _flags(self, rows: Rows) -> Numbers | int:
        if not self._columns.has("flag"):
            return 0
        flags = pc.fill_null(rows.whole_numbers("flag"), 0)
        odd = pc.or_(pc.less(flags, -_INT), pc.greater_equal(flags, _INT))
        rows.refuse(odd, "column flag: it is no number of 32 bits")
        return flags.to_numpy()  # type: ignore[no-any-return]


def row_names(rows: Rows) -> pa.Array:
    """The names of rows, as the property SPARK_ROW has them."""
    task = rows.task
    prefix = f"{task.query}/{task.batch}/{task.partition}/"
    return pc.binary_join_element_wise(prefix, pa.array(rows.numbers).cast(pa.string()), "")


def _fixed(values: "np.ndarray[Any, Any]") -> pa.Array:
    kind = pa.binary(values.dtype.itemsize)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)]).cast(pa.binary())
