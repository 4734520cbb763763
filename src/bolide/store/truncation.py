"""Truncates the log of an open store: what a deposed master wrote and its successor does not have.

The part that is cut off is kept in files below `cut/`, so that nothing is discarded.
The cut is on the disk before the function returns: a replica reports its position only then, and
bytes that came back after a power cut would differ from the master's.
"""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bolide.store.timers import remove_derived
from bolide.store.torn_tail import keep_files, save_tail

if TYPE_CHECKING:
    from bolide.store.message_store import MessageStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Truncation:
    """What a truncation removed."""

    position: int
    """End of the log afterwards."""
    removed: int
    """Bytes that were cut off."""
    records: int = 0
    """Messages among them."""
    kept_aside: list[Path] = field(default_factory=list)
    """Files with what was cut off."""


def truncate_store(store: "MessageStore", position: int) -> Truncation:
    """Cut log, consume queues and index at a record boundary; nothing may append meanwhile. Blocks.

    If nothing is left of the log, it goes on where the file of that position begins.

    Raises:
        OSError: the disk fails; the log is not shorter, and the call has to be repeated.
    """
    end = store.log.end
    if position >= end:
        return Truncation(end, 0)
    if position <= store.log.min_offset:
        return restart_store(store, position - position % store.config.value.commit_log_file_size)
    remove_derived(store.config.value.root)  # slots lead to messages that may be cut off
    store.flush()
    # Without the lock, as it may take long.
    kept, records = save_tail(store.log, position, _aside(store))
    with store.exclusively():
        store.maintenance.withdraw_checkpoint(position)
        store.queues.truncate(position, thoroughly=True)
        store.forget_keys(position)
        if store.index:
            store.index.truncate(position)
        # Before the log: if that fails, what is left of it has no units until it is dispatched.
        store.replica.dispatched = min(store.replica.dispatched, position)
        store.kinds.cut(position)
        store.recount_units()
        store.log.last_record = -1
        store.log.cut(position)
    return _done(store, Truncation(position, end - position, records, kept))


def restart_store(store: "MessageStore", position: int) -> Truncation:
    """Remove log, consume queues and index; the log goes on where a file begins. Blocks.

    The log files are not copied: they keep a name in `cut/`.

    Raises:
        OSError: the disk fails; the call has to be repeated.
    """
    end = store.log.end
    remove_derived(store.config.value.root)
    store.flush()
    kept = keep_files(store.log, _aside(store))
    with store.exclusively():
        removed = end - store.log.min_offset
        records = sum(queue.max_offset - queue.min_offset for queue in store.queues)
        store.maintenance.withdraw_checkpoint(-1)
        store.queues.restart()
        store.kinds.restart()
        store.forget_keys(0)
        if store.index:
            store.index.clear()
        store.log.clear(position)
        store.replica.dispatched = position
        store.recount_units()
        store.log.last_record = -1
    return _done(store, Truncation(position, removed, records, kept))


def _aside(store: "MessageStore") -> Path:
    return store.config.value.root / "cut"


def _done(store: "MessageStore", cut: Truncation) -> Truncation:
    # If it fails there is no recovery point, and recovery walks more of the log.
    store.maintenance.checkpoint()
    log.error(
        "%s bytes of the log are cut off, it goes on at %s: %s messages are kept aside in %s",
        cut.removed, cut.position, cut.records,
        ", ".join(map(str, cut.kept_aside)) or "no file: none whole",
    )  # fmt: skip
    return cut
