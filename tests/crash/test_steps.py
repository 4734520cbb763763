"""A process that is killed at a named moment of its work loses nothing that it acknowledged."""

import signal
from pathlib import Path

import pytest

from bolide.store.config import FlushMode
from tests.crash.victim import Victim

ASYNC, SYNC = FlushMode.ASYNC, FlushMode.SYNC

STEPS = [
    "allocated", "before-blank", "rolled", "mid-flush", "before-index", "before-checkpoint",
    "mid-checkpoint", "replace-aside", "replace-backup", "replace-renamed",
]  # fmt: skip

CALLS = [
    "sync-commitlog", "sync-consumequeue", "sync-index", "sync-checkpoint",
    "create-consumequeue", "write-consumequeue", "torn-consumequeue", "torn-checkpoint",
    "remove-commitlog", "remove-consumequeue", "remove-index",
]  # fmt: skip

# Each first as early as it comes, then when files have rolled and checkpoints were written.
MOMENTS = [
    *[(step, nth, mode) for step in STEPS for nth, mode in ((1, ASYNC), (4, SYNC))],
    *[(call, nth, mode) for call in CALLS for nth, mode in ((1, SYNC), (3, ASYNC))],
    ("write-commitlog", 1, SYNC),
    ("torn-commitlog", 1, SYNC),
    ("torn-commitlog", 6, SYNC),
]

# What a start after a crash does: it drops what is doubtful and writes it again.
RECOVERY = ["zero-commitlog", "zero-consumequeue", "write-consumequeue", "sync-commitlog"]


@pytest.mark.parametrize(("moment", "nth", "mode"), MOMENTS)
def test_a_kill_there_loses_nothing(tmp_path: Path, moment: str, nth: int, mode: FlushMode) -> None:
    victim = Victim(tmp_path / "store", mode)
    assert victim.live(moment=moment, nth=nth, appends=5000) == -signal.SIGKILL
    victim.check(tmp_path / "copy")


@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize("moment", RECOVERY)
def test_a_kill_during_recovery_loses_nothing(tmp_path: Path, moment: str, mode: FlushMode) -> None:
    victim = Victim(tmp_path / "store", mode)
    assert victim.live(acks=150) == -signal.SIGKILL
    assert victim.live(moment=moment, appends=800) == -signal.SIGKILL
    victim.check(tmp_path / "copy")
