"""Where a timer goes on: by what it, or RocketMQ, wrote down before the last stop or crash."""

import logging
from dataclasses import dataclass, field

from bolide.broker.timers.delivered import Identity, delivered_since
from bolide.kernel import read_record
from bolide.model.names import TIMER_TOPIC
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.store.message_store import MessageStore
from bolide.store.timers import Found, TimerCheckpoint, TimerFiles

log = logging.getLogger(__name__)

_TOO_FAR_BACK_MS = 24 * 3600 * 1000
"""If the clock was set back further, slots of now and of then might be the same ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    checkpoint: TimerCheckpoint
    cursor: int
    """The first slot to look at."""
    queue_offset: int
    """The first message to put into a slot."""
    settled_ms: int = 0
    settled_to: int = 0
    """See `Enqueuer`."""
    delivered: set[Identity] = field(default_factory=set)
    """What went out of the slots to look at."""

    @property
    def delivered_from(self) -> int | None:
        return self.checkpoint.mark.delivered_from if self.checkpoint.mark else None

    @property
    def carried_to(self) -> int:
        return self.checkpoint.mark.carried_to if self.checkpoint.mark else 0


def open_files(files: TimerFiles, store: MessageStore, now_ms: int) -> Start:
    """Open the files and see how far deliveries were. Blocks.

    Raises:
        DamagedFile: one of them is not what the settings say.
    """
    found = files.open()
    check, now = found.checkpoint, files.number(now_ms)
    if found.is_whole and check.read_time > now_ms + _TOO_FAR_BACK_MS:
        log.warning("the clock went back by more than a day: timers are put into their slots anew")
        files.begin_anew()
        found = found._replace(is_whole=False)
    if not found.is_whole:
        return Start(
            checkpoint=check,
            cursor=now,
            queue_offset=store.min_offset(TIMER_TOPIC, 0),
            settled_ms=check.read_time,
            settled_to=check.queue_offset,
        )
    cursor = files.number(check.read_time)
    if cursor > now:
        files.clear(now, cursor)  # all delivered: they are to be used again
        cursor = now
    elif files.first_slot is None or files.first_slot > cursor:
        cursor = min(files.first_slot or now, now)
    return Start(
        checkpoint=check,
        cursor=cursor,
        queue_offset=_queue_offset(found, store),
        delivered=delivered_since(store.log, check.mark.delivered_from) if check.mark else set(),
    )


def _queue_offset(found: Found, store: MessageStore) -> int:
    """RocketMQ's checkpoint may be ahead of its log, if it did not stop by itself."""
    check = found.checkpoint
    if check.mark or store.recovery.clean or found.last is None:
        return check.queue_offset
    record = _record_at(store, found.last.physical_offset)
    return min(check.queue_offset, record.queue_offset + 1) if record else check.queue_offset


def _record_at(store: MessageStore, place: int) -> Record | None:
    data = store.record_at(place)
    try:
        record = read_record(data) if data is not None else None
    except BadRecord:
        return None
    return record if isinstance(record, Record) and record.topic == TIMER_TOPIC else None
