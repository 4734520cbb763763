"""The files of messages that wait for their time: timer log, timer wheel and their checkpoint."""

from bolide.store.timers.checkpoint import TimerCheckpoint, TimerMark
from bolide.store.timers.files import Found, Loaded, TimerFiles
from bolide.store.timers.units import DELETE, PLAIN, ROLL, Waiting, WaitingKey
from bolide.store.timers.wheel import SLOTS

__all__ = [
    "DELETE",
    "PLAIN",
    "ROLL",
    "SLOTS",
    "Found",
    "Loaded",
    "TimerCheckpoint",
    "TimerFiles",
    "TimerMark",
    "Waiting",
    "WaitingKey",
]
