"""What crashes of our broker and of RocketMQ's leave behind, and what a start makes of it."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bolide.store.dump import Selection, dump
from bolide.store.errors import DamagedFile
from bolide.store.layout import Layout
from bolide.store.verify import verify
from bolide.store.verify.report import Part
from tests.support.compaction import (
    LOG_SIZE,
    PER_FILE,
    QUEUE_SIZE,
    TOPIC,
    log_of,
    newest,
    opened,
    put,
    read_all,
)

VALUES = [(f"k{number % 4}", b"v%d" % number) for number in range(3 * PER_FILE + 5)]
OLD, NEW = newest(VALUES, 0), newest(VALUES, 3 * PER_FILE)
LOG, QUEUE = f"compaction/compactionLog/{TOPIC}/0", f"compaction/compactionCq/{TOPIC}/0"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store that was not compacted."""
    store = opened(tmp_path / "old")
    put(store, VALUES)
    store.close()
    return tmp_path / "old"


@pytest.fixture
def new(old: Path, tmp_path: Path) -> Path:
    """The same store after a compaction."""
    root = Path(shutil.copytree(old, tmp_path / "new"))
    store = opened(root)
    store.compaction.compact_all()
    store.close()
    return root


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def content(root: Path) -> list[tuple[int, str, bytes]]:
    """What a consumer reads after a start, and after another one."""
    store = opened(root)
    found = read_all(store)
    store.close()
    store = opened(root)
    assert read_all(store) == found
    store.close()
    for part in (LOG, QUEUE):
        assert all(name.isdigit() for name in files(root / part))
    assert files(root / LOG) == files(root / QUEUE)
    return found


def test_a_log_begins_empty_and_has_full_files(old: Path) -> None:
    names = [f"{number * LOG_SIZE:020d}" for number in range(4)]
    assert files(old / LOG) == files(old / QUEUE) == names
    assert {(old / LOG / name).stat().st_size for name in names} == {LOG_SIZE}
    assert {(old / QUEUE / name).stat().st_size for name in names} == {QUEUE_SIZE}


def test_a_compaction_leaves_a_gap_between_the_names(new: Path) -> None:
    assert files(new / LOG) == [f"{0:020d}", f"{3 * LOG_SIZE:020d}"]
    assert content(new) == NEW


@pytest.mark.parametrize("killed", ["moving", "removing"])
def test_files_that_rocketmq_was_replacing_are_restored_or_removed(
    old: Path, new: Path, killed: str
) -> None:
    """RocketMQ renames the old files, moves the new ones, and then removes the old ones."""
    new_log = (new / LOG / f"{0:020d}").read_bytes()
    for path in sorted((old / LOG).iterdir())[:3]:
        path.rename(path.with_name(f"{path.name}.delete"))
    compacting = old / LOG / "compacting"
    compacting.mkdir()
    (old / QUEUE / "compacting").mkdir()
    shutil.copy(new / QUEUE / f"{0:020d}", old / QUEUE / "compacting")
    if killed == "moving":
        (compacting / f"{LOG_SIZE:020d}").write_bytes(bytes(LOG_SIZE))
    (old / LOG / f"{0:020d}").write_bytes(new_log)

    assert content(old) == (OLD if killed == "moving" else NEW)


def test_queue_files_that_rocketmq_did_not_replace_are_written_anew(old: Path, new: Path) -> None:
    shutil.rmtree(old / LOG)
    shutil.copytree(new / LOG, old / LOG)
    wanted = (new / QUEUE / f"{0:020d}").read_bytes()
    stale = old / QUEUE / f"{0:020d}"
    stale.rename(stale.with_name(f"{stale.name}.delete"))

    assert content(old) == NEW
    assert stale.read_bytes()[: 4 * 46] == wanted[: 4 * 46]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(bytes(QUEUE_SIZE)),
        lambda path: path.write_bytes(b"\x01" + path.read_bytes()[1:]),
        lambda path: path.write_bytes(path.read_bytes()[:100]),
    ],
)
@pytest.mark.parametrize("number", [0, 3])
def test_a_queue_file_is_written_anew_from_its_log_file(
    old: Path, number: int, damage: Callable[[Path], object]
) -> None:
    damage(old / QUEUE / f"{number * LOG_SIZE:020d}")
    assert content(old) == OLD


def test_a_torn_end_is_cut_and_copied_again(old: Path) -> None:
    path = old / LOG / f"{3 * LOG_SIZE:020d}"
    data = bytearray(path.read_bytes())
    end = data.rindex(b"KEYS")
    data[end - 60 : end + 20] = bytes(80)
    path.write_bytes(data)
    (old / "abort").touch()

    store = opened(old)
    assert log_of(store).max_offset == len(VALUES) - 1
    store.compaction.run()
    assert log_of(store).max_offset == len(VALUES)
    assert read_all(store) == OLD
    store.close()


def test_existing_files_keep_their_sizes(old: Path) -> None:
    store = opened(old, compaction_file_size=100_000, compaction_queue_file_size=4600)
    put(store, VALUES)
    assert log_of(store).sizes == (LOG_SIZE, QUEUE_SIZE)
    assert read_all(store) == newest([*VALUES, *VALUES], 0)
    store.close()


def test_a_log_out_of_order_is_reported_and_not_served(
    old: Path, caplog: pytest.LogCaptureFixture
) -> None:
    renamed = old / LOG / f"{4 * LOG_SIZE:020d}"
    for name in (LOG, QUEUE):
        shutil.copy(old / name / f"{3 * LOG_SIZE:020d}", old / name / renamed.name)
    reposition(renamed, old / QUEUE / renamed.name)
    store = opened(old)
    assert "move the directory away" in caplog.text
    with pytest.raises(DamagedFile, match="begins with queue offset"):
        store.read(TOPIC, 0, 0)
    store.close()


def reposition(log: Path, queue: Path) -> None:
    """Let a copied segment say that it has another place."""
    start, old_start = int(log.name), int(log.name) - LOG_SIZE
    data, units = bytearray(log.read_bytes()), bytearray(queue.read_bytes())
    at = 0
    while int.from_bytes(data[at : at + 4]) and at < 5 * 200:
        place = int.from_bytes(data[at + 28 : at + 36]) - old_start + start
        data[at + 28 : at + 36] = place.to_bytes(8)
        at += int.from_bytes(data[at : at + 4])
    for at in range(0, 5 * 46, 46):
        units[at : at + 8] = (int.from_bytes(units[at : at + 8]) - old_start + start).to_bytes(8)
    log.write_bytes(data)
    queue.write_bytes(units)


def test_the_tools_read_a_compaction_log(new: Path) -> None:
    bodies = [bytes(record.body) for record in dump(new / LOG, Selection(), pytest.fail)]
    assert bodies == [body for _, _, body in NEW]
    report = verify(Layout.read_off(new))
    assert (report.sound, report.compacted, report.notes) == (True, len(NEW), [])


@pytest.mark.parametrize(
    ("part", "at", "reason"),
    [(LOG, 88, "."), (QUEUE, 50, r"says \(.*, the log has"), (QUEUE, 0, "says")],
)
def test_damage_of_a_compaction_log_is_reported(new: Path, part: str, at: int, reason: str) -> None:
    path = new / part / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[at : at + 8] = b"\x77" * 8
    path.write_bytes(data)
    report = verify(Layout.read_off(new))
    assert Part.COMPACTION in report.damages
    assert any(re.search(reason, each.reason) and each.file == path for each in report.findings)
