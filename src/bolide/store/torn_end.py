"""A last record whose write was cut short, though its lengths and its body's CRC are right.

No checksum covers what comes behind the body. Of a write that a crash cut short the rest is zero,
as the file was before; lengths tell that in every field but the last one, which is the properties
or, without any, the topic. No topic ends in a zero byte, and neither do the properties of a record
of ours (`appending.with_end`), so nothing that was acknowledged looks torn.
"""

import struct

from bolide.kernel import Scan
from bolide.protocol.record import Record, read_record
from bolide.store.checkpoint import Checkpoint

REASON = "the write of its last record was torn: the record ends in zeros"

_SIZE = struct.Struct(">I")
_EMPTY = bytes(8)


def is_ours(checkpoint: Checkpoint) -> bool:
    """Whether no record can be RocketMQ's, which stores the properties that it is given."""
    return checkpoint.mark is not None or checkpoint.log_timestamp == 0


def find_torn(view: memoryview, position: int, found: Scan) -> int | None:
    """Where the last of the records begins that were found from a position on, if it is torn."""
    end = found.end
    if not found.count or view[end - 1] or view[end : end + len(_EMPTY)] != _EMPTY:
        return None
    while (behind := position + int(_SIZE.unpack_from(view, position)[0])) < end:
        position = behind
    record = read_record(view, position)
    assert isinstance(record, Record)
    last = record.properties if record.properties else record.topic.encode()
    return position if last[-1:] == b"\0" else None
