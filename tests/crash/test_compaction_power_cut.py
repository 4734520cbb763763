"""When the power goes, a compaction log is cut where the commit log ends, and copied again."""

import random
from pathlib import Path

import pytest

from bolide.store import checkpoint
from tests.support.compaction import PER_FILE, TOPIC, newest, opened, put, read_all
from tests.support.faults import PowerCutDisk

VALUES = [(f"k{number % 7}", b"v%d" % number) for number in range(4 * PER_FILE + 3)]
MOST_CUTS = 12


@pytest.mark.parametrize("seed", range(5))
def test_a_power_cut_leaves_what_the_commit_log_has(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_BOOT_ID", tmp_path / "boot_id")
    (tmp_path / "boot_id").write_text("1")
    chance = random.Random(seed)
    root = tmp_path / "store"
    root.mkdir()
    disk = PowerCutDisk(root, journal=seed % 2 == 0)
    cuts: list[tuple[Path, int]] = []
    flushed = 0

    def maybe_cut(_: str) -> None:
        if len(cuts) < MOST_CUTS and chance.random() < 0.1:
            cuts.append((tmp_path / f"cut-{len(cuts)}", flushed))
            disk.cut(cuts[-1][0], chance)

    store = opened(root, disk=disk)
    disk.on_moment = maybe_cut
    for begin in range(0, len(VALUES), 6):
        put(store, VALUES[begin : begin + 6])
        flushed = len(VALUES[: begin + 6])
        if chance.random() < 0.5:
            store.compaction.finish()
    store.close()

    (tmp_path / "boot_id").write_text("2")
    assert cuts
    for cut, promised in cuts:
        store = opened(cut)
        count = store.max_offset(TOPIC, 0)
        assert count >= promised
        store.compaction.run()
        assert not count or read_all(store) == newest(VALUES[:count], 0)
        store.compaction.compact_all()
        kept = {key: body for _, key, body in read_all(store)} if count else {}
        assert kept == dict(VALUES[:count])
        store.close()
