"""A process that is killed while it copies or compacts leaves the old or the new state."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from bolide.store.layout import Layout
from bolide.store.message_store import MessageStore
from bolide.store.verify.report import Report
from bolide.store.verify.verifier import verify
from tests.support.compaction import PER_FILE, compaction_config, newest, opened, put, read_all
from tests.support.faults import KillingDisk

FIRST = [(f"k{number % 7}", b"v%d" % number) for number in range(4 * PER_FILE + 3)]
SECOND = [*FIRST, *[(f"k{number % 3}", b"" if number == 5 else b"w") for number in range(25)]]

COPYING = [
    "segment-made",
    "records-written",
    "segment-closed",
    "torn-compaction",
    "sync-compaction",
]
COMPACTING = [
    *COPYING, "compacted", "committed", "replace-segment", "remove-segment", "replaced",
    "before-position", "replace-aside", "replace-renamed",
]  # fmt: skip


def killed(work: Callable[[], None]) -> bool:
    """Run work in a child process; whether it was killed."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("moment", COPYING)
def test_a_kill_while_messages_are_copied_loses_none(tmp_path: Path, moment: str, nth: int) -> None:
    def live() -> None:
        store = opened(tmp_path, disk=KillingDisk(tmp_path, moment, nth))
        put(store, FIRST[:25])
        put(store, FIRST[25:])
        store.close()

    assert killed(live)
    store = opened(tmp_path)
    count = store.max_offset("Latest", 0)
    assert count in (25, len(FIRST))
    store.compaction.run()
    assert read_all(store) == newest(FIRST[:count], 0)
    check(store)


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("moment", COMPACTING)
def test_a_kill_while_a_log_is_compacted_leaves_the_old_or_the_new_one(
    tmp_path: Path, moment: str, nth: int
) -> None:
    store = opened(tmp_path)
    put(store, FIRST)
    store.compaction.compact_all()
    put(store, SECOND[len(FIRST) :])
    store.close()

    def live() -> None:
        store = opened(tmp_path, disk=KillingDisk(tmp_path, moment, nth))
        store.compaction.compact_all()
        store.close()

    if not killed(live) and nth == 1:
        pytest.fail(f"{moment} did not come")
    store = opened(tmp_path)
    old, new = newest_twice(SECOND)
    assert read_all(store) in (old, new)
    store.compaction.compact_all()
    assert read_all(store) == new
    check(store)


def newest_twice(values: list[tuple[str, bytes]]) -> tuple[list[object], list[object]]:
    """What is left of SECOND before and after the second compaction."""
    before = newest(values[: len(FIRST)], 4 * PER_FILE)
    rest = [(offset, *value) for offset, value in enumerate(values)][len(FIRST) :]
    end = 4 * PER_FILE + 2 * PER_FILE  # the files that were begun are full
    return [*before, *rest], list(newest(values, end))


def check(store: MessageStore) -> None:
    """Close the store, and look at its files."""
    found = read_all(store)
    store.close()
    root = store.config.value.root
    report: Report = verify(Layout.of(compaction_config(root)))
    assert report.sound, report.findings
    assert report.compacted
    for directory in root.glob("compaction/compaction*/Latest/0"):
        assert all(path.name.isdigit() and path.is_file() for path in directory.iterdir())
    store = opened(root)
    assert read_all(store) == found
    store.close()
