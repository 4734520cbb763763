"""The files of timers, messages with a delivery time: timer log, timer wheel, checkpoint."""

from bolide.store.timers.checkpoint import TimerCheckpoint, TimerRecoveryPoint
from bolide.store.timers.files import (
    LoadedSlots,
    OpenedTimers,
    TimerFiles,
    adopt_checkpoint,
    remove_derived,
)
from bolide.store.timers.timer_log import DELETE, PLAIN, ROLL, TimerEntry, TimerKey
from bolide.store.timers.wheel import SLOTS

__all__ = [
    "DELETE",
    "PLAIN",
    "ROLL",
    "SLOTS",
    "LoadedSlots",
    "OpenedTimers",
    "TimerCheckpoint",
    "TimerEntry",
    "TimerFiles",
    "TimerKey",
    "TimerRecoveryPoint",
    "adopt_checkpoint",
    "remove_derived",
]
