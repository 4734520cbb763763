"""Truncates the log of an open store: what a deposed master wrote and its successor does not have.

The part that is cut off is copied to files below `cut/` first, so that nothing is discarded.
The cut is on the disk before the function returns: a replica reports its position only then, and
bytes that came back after a power cut would differ from the master's.
"""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bolide.store.timers import remove_derived
from bolide.store.torn_tail import save_tail

if TYPE_CHECKING:
    from bolide.store.message_store import MessageStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Truncation:
    """What a truncation removed."""

    position: int
    """New end of the log."""
    removed: int
    """Bytes that were cut off."""
    records: int = 0
    """Messages among them."""
    kept_aside: list[Path] = field(default_factory=list)
    """Files with a copy of what was cut off."""


def truncate_store(store: "MessageStore", position: int) -> Truncation:
    """Cut log, consume queues and index at a record boundary; nothing may append meanwhile. Blocks.

    Raises:
        OSError: the disk fails.
    """
    end = store.log.end
    if position >= end:
        return Truncation(end, 0)
    aside = store.config.value.root / "cut"
    remove_derived(store.config.value.root)  # slots lead to messages that may be cut off
    with store.exclusively():
        kept, records = save_tail(store.log, position, aside)
        store.queues.truncate(position, thoroughly=True)
        store.forget_keys(position)
        if store.index:
            store.index.truncate(position)
        if position < store.log.min_offset:  # nothing in common with the master
            store.log.clear(position)
        else:
            store.log.cut(position)
        store.recount_units()
        store.log.last_record = -1
    store.maintenance.checkpoint()
    cut = Truncation(position, end - position, records, kept)
    log.error(
        "the log was cut from %s to %s, where it differs from the master's: %s messages are kept"
        " aside in %s", end, position, records, ", ".join(map(str, kept)) or "no file: none whole",
    )  # fmt: skip
    return cut
