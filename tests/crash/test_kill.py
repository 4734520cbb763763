"""A process that is killed at any moment loses nothing that it acknowledged."""

import signal
from pathlib import Path

import pytest

from bolide.store.config import FlushMode
from tests.crash.victim import Victim


@pytest.mark.parametrize("mode", FlushMode)
def test_what_was_acknowledged_survives_kills(tmp_path: Path, mode: FlushMode) -> None:
    victim = Victim(tmp_path / "store", mode)
    victim.lead_lives(8, tmp_path / "copy", seed=1)
    # These kills may all come before the thread of retention had its turn: this one does not.
    code = victim.live(appends=100_000, until=lambda: _oldest(victim) > 0)
    assert code == -signal.SIGKILL, "retention has not removed anything"
    victim.check(tmp_path / "copy")
    victim.lead_lives(2, tmp_path / "copy", seed=2)


def _oldest(victim: Victim) -> int:
    return int(min((victim.root / "commitlog").iterdir()).name)


@pytest.mark.parametrize("mode", FlushMode)
def test_a_life_after_kills_ends_and_begins_cleanly(tmp_path: Path, mode: FlushMode) -> None:
    victim = Victim(tmp_path / "store", mode)
    victim.lead_lives(2, tmp_path / "copy", seed=2)
    assert victim.live(appends=50) == 0
    assert not (tmp_path / "store" / "abort").exists()
    victim.check(tmp_path / "copy")


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize("seed", range(10, 15))
def test_hundreds_of_kills_lose_nothing(tmp_path: Path, mode: FlushMode, seed: int) -> None:
    Victim(tmp_path / "store", mode).lead_lives(25, tmp_path / "copy", seed)
