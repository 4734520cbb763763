"""Append checks and values shared by all stores: draft sizes, append results, reserved room."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from bolide.kernel import record_size
from bolide.model.message import SysFlag
from bolide.model.names import UNLIMITED_TOPICS
from bolide.model.properties import PropertyName, delay_level_of
from bolide.protocol import record_seal
from bolide.protocol.hosts import V4_SIZE, V6_SIZE
from bolide.protocol.property_string import NAME_END, PAIR_END, decode_properties
from bolide.protocol.record import RecordDraft

TRANSACTION = int(SysFlag.ROLLBACK)
"""Mask of both bits of the transaction type."""
ROLLBACK = int(SysFlag.ROLLBACK)
NOT_QUEUED = (int(SysFlag.PREPARED), ROLLBACK)

_INNER_BATCH = int(SysFlag.INNER_BATCH)
_PAIR_END = PAIR_END.encode()
_HOST_SIZES = (V4_SIZE, V6_SIZE)
_UNLIMITED_TOPICS = frozenset(topic.encode() for topic in UNLIMITED_TOPICS)
_MAX_OWN_SIZE = 4 * 1024 * 1024


class Appended(NamedTuple):
    """The position of an appended message. `store_timestamp` is in milliseconds."""

    physical_offset: int
    size: int
    queue_offset: int
    store_timestamp: int
    generation: int
    """Number of failed flushes before the append, for `wait_flushed`."""

    @property
    def end(self) -> int:
        return self.physical_offset + self.size


class AppendRoom:
    """Free room at the end of the log, for a caller that encodes records itself.

    `Store.reserve` returns it with the append lock held; `Store.publish` ends the reservation and
    releases the lock. A store reuses one instance for all reservations, because an allocation for
    each would cost more than setting the fields.
    """

    __slots__ = (
        "at", "keys", "physical_offset", "readable_from", "size", "target", "timestamp",
    )  # fmt: skip

    target: memoryview | bytearray
    """The memory to write to. Bytes before `at` belong to older records: read only."""
    at: int
    """Index in `target` at which the next record begins."""
    size: int
    """Bytes available from `at` on; all of them are zero."""
    physical_offset: int
    """Position in the log of the byte at `at`."""
    timestamp: int
    """Store timestamp of the records, in milliseconds."""
    readable_from: int
    """Physical offset from which older records can be read in `target`."""
    keys: bytearray | None
    """Receives an item per key, in the format of `kernel.Scan.keys`; None without a key index."""


def measure(draft: RecordDraft, max_body_size: int) -> int:
    """Return the size of the record of a draft.

    Args:
        max_body_size: limit of messages; records of `UNLIMITED_TOPICS` may be larger.

    Raises:
        RecordTooLarge: body, topic or properties are over their limits.
        ValueError: a number does not fit its field.
    """
    if len(draft.born_host) not in _HOST_SIZES or len(draft.store_host) not in _HOST_SIZES:
        raise ValueError("a host is 4 or 16 bytes of address and 4 of port")
    if draft.topic in _UNLIMITED_TOPICS:
        max_body_size = max(max_body_size, _MAX_OWN_SIZE)
    try:
        return record_size(draft, max_body_size)
    except struct.error as exc:
        raise ValueError(f"a number of the message fits no field: {exc}") from exc


def is_inner_batch(draft: RecordDraft) -> bool:
    """Whether the body of a draft is a batch of messages."""
    return bool(draft.sys_flag & _INNER_BATCH)


def refuse_inner_batches(drafts: Sequence[RecordDraft]) -> None:
    """Raises ValueError for an inner batch, which only `append` to a batch queue accepts."""
    for draft in filter(is_inner_batch, drafts):
        raise ValueError(
            f"topic {draft.topic.decode(errors='replace')!r} takes no batches in one record,"
            " which is for queue.type=BatchCQ: send the messages of the batch one behind the other"
        )


def with_inner_base(draft: RecordDraft, queue_offset: int) -> RecordDraft:
    """Add the property with the queue offset of an inner batch's first message."""
    properties = bytes(draft.properties)
    if properties and not properties.endswith(_PAIR_END):
        properties += _PAIR_END
    base = f"{PropertyName.INNER_BASE}{NAME_END}{queue_offset}{PAIR_END}".encode()
    return draft._replace(properties=properties + base)


def check_one_queue(drafts: Sequence[RecordDraft]) -> None:
    """Raises ValueError unless all drafts belong to one topic and queue."""
    if len({(draft.topic, draft.queue_id) for draft in drafts}) != 1:
        raise ValueError("the messages of a batch go to one topic and queue")


def with_seal_room(draft: RecordDraft) -> RecordDraft:
    properties = record_seal.with_seal_room(bytes(draft.properties))
    return draft._replace(properties=properties)


def with_end(draft: RecordDraft) -> RecordDraft:
    """Terminate properties that end in a zero byte, which recovery takes for a torn record."""
    if draft.properties[-1:] == b"\0":
        return draft._replace(properties=bytes(draft.properties) + _PAIR_END)
    return draft


def delivery_time(draft: RecordDraft, timestamp: int, code: int, delays: tuple[int, ...]) -> int:
    """The delivery time, which a delayed message's unit holds in place of the tags code.

    It is `code` if the draft has no valid delay level, as in `kernel.scan`.
    """
    properties = decode_properties(str(draft.properties, "utf-8", "replace"))
    level = delay_level_of(properties)
    return timestamp + delays[min(level, len(delays) - 1)] if level else code
