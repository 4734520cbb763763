"""The epochs of a log: the file, the epoch at a position, and where two logs are equal."""

import errno
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bolide.protocol.ha import EpochStart
from bolide.replication.epochs import (
    Epochs,
    are_possible,
    common_point,
    decode_epochs,
    encode_epochs,
)
from bolide.store.errors import DamagedFile
from tests.support.faults import FaultyDisk


def starts(*entries: tuple[int, int]) -> list[EpochStart]:
    return [EpochStart(*each) for each in entries]


def epochs_in(path: Path | None, *entries: tuple[int, int]) -> Epochs:
    epochs = Epochs(path)
    for each in entries:
        epochs.begin(*each)
    return epochs


# ---- the file


def test_the_file_has_a_count_a_checksum_and_a_line_for_each_epoch(tmp_path: Path) -> None:
    path = tmp_path / "epochFileCheckpoint"
    epochs_in(path, (1, 0), (4, 8192))
    crc = crc32(b"1-0\n4-8192\n") & 0x7FFF_FFFF
    assert path.read_text() == f"2\n{crc}\n1-0\n4-8192\n"


def test_a_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "epochFileCheckpoint"
    epochs_in(path, (1, 0), (4, 8192))
    again = Epochs(path)
    again.load()
    assert list(again) == starts((1, 0), (4, 8192))
    assert again.last == EpochStart(4, 8192)


def test_a_store_without_the_file_has_no_epochs(tmp_path: Path) -> None:
    epochs = Epochs(tmp_path / "absent")
    epochs.load()
    assert len(epochs) == 0
    assert epochs.last is None


@pytest.mark.parametrize(
    "text",
    [
        "", "1\n", "x\n0\n", "1\n0\n1-0\n", "2\n{crc}\n1-0\n", "1\n{crc}\n1-1\n", "1\n{crc}\n10\n",
        "1\n{crc}\n1-0\n2-5\n", "1\n\n1-0\n",
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "epochFileCheckpoint"
    path.write_text(text.format(crc=crc32(b"1-0\n") & 0x7FFF_FFFF))
    with pytest.raises(DamagedFile, match="epochFileCheckpoint"):
        Epochs(path).load()


def test_every_changed_byte_of_a_file_is_noticed() -> None:
    text = encode_epochs(starts((1, 0), (12, 345)))
    for at in range(len(text) - 1):
        for other in ("7", "-", "\n", "x"):
            if other != text[at]:
                with pytest.raises(ValueError, match=r".*"):
                    decode_epochs(text[:at] + other + text[at + 1 :])


# ---- changes


def test_beginning_an_epoch_voids_later_ones() -> None:
    epochs = epochs_in(None, (1, 0), (3, 100), (5, 200))
    epochs.begin(4, 150)
    assert list(epochs) == starts((1, 0), (3, 100), (4, 150))


def test_beginning_an_epoch_voids_those_that_begin_behind_it() -> None:
    """A power cut has shortened the log, but not the list."""
    epochs = epochs_in(None, (1, 0), (2, 1000))
    epochs.begin(4, 700)
    assert list(epochs) == starts((1, 0), (4, 700))


def test_epochs_behind_the_end_of_the_log_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "epochs"
    epochs_in(path, (1, 0), (2, 700), (3, 701)).drop_behind(700)
    again = Epochs(path)
    again.load()
    assert list(again) == starts((1, 0), (2, 700))


@pytest.mark.parametrize(
    "change",
    [
        lambda epochs: epochs.begin(3, 200),
        lambda epochs: epochs.truncate(100),
        lambda epochs: epochs.drop_behind(50),
        lambda epochs: epochs.clear(),
    ],
)
def test_a_change_that_cannot_be_saved_is_not_made(
    tmp_path: Path, change: Callable[[Epochs], None]
) -> None:
    """The next attempt saves it, as memory and file are the same."""
    disk = FaultyDisk()
    epochs = Epochs(tmp_path / "epochs", disk)
    epochs.begin(1, 0)
    epochs.begin(2, 100)
    with disk.failing("replace", errno.ENOSPC), pytest.raises(OSError, match="No space"):
        change(epochs)
    assert list(epochs) == starts((1, 0), (2, 100))

    change(epochs)
    again = Epochs(tmp_path / "epochs")
    again.load()
    assert list(again) == list(epochs) != starts((1, 0), (2, 100))


def test_beginning_the_last_epoch_again_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "epochs"
    epochs = epochs_in(path, (1, 0))
    before = path.stat().st_mtime_ns, path.stat().st_ino
    epochs.begin(1, 0)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


def test_epochs_that_begin_behind_a_cut_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "epochs"
    epochs_in(path, (1, 0), (2, 100), (3, 200)).truncate(100)
    again = Epochs(path)
    again.load()
    assert list(again) == starts((1, 0))


def test_all_epochs_go_with_the_log(tmp_path: Path) -> None:
    path = tmp_path / "epochs"
    epochs_in(path, (1, 0), (2, 100)).clear()
    again = Epochs(path)
    again.load()
    assert list(again) == []


@pytest.mark.parametrize(
    ("position", "found"),
    [
        (0, None),
        (9, None),
        (10, (EpochStart(1, 10), 100)),
        (99, (EpochStart(1, 10), 100)),
        (100, (EpochStart(3, 100), 200)),  # epoch 2 is empty
        (200, (EpochStart(5, 200), -1)),
        (10_000, (EpochStart(5, 200), -1)),
    ],
)
def test_the_epoch_at_a_position(position: int, found: tuple[EpochStart, int] | None) -> None:
    assert epochs_in(None, (1, 10), (2, 100), (3, 100), (5, 200)).at(position) == found


# ---- where two logs are equal


@pytest.mark.parametrize(
    ("own", "own_end", "masters", "masters_end", "point"),
    [
        pytest.param([(1, 0)], 50, [(1, 0)], 80, 50, id="behind in the same epoch"),
        pytest.param([(1, 0)], 80, [(1, 0)], 50, 50, id="ahead in the same epoch"),
        pytest.param([(1, 0)], 80, [(1, 0), (2, 60)], 90, 60, id="a tail of a deposed master"),
        pytest.param([(1, 0), (2, 70)], 80, [(1, 0), (3, 60)], 90, 60, id="two successors"),
        pytest.param(
            [(1, 0), (2, 50)], 80, [(1, 0), (3, 60)], 90, 50, id="the own one was shorter"
        ),
        pytest.param([(1, 0)], 60, [(1, 0), (2, 60), (3, 60)], 90, 60, id="an empty epoch there"),
        pytest.param([(1, 0), (2, 60)], 60, [(1, 0), (3, 60)], 90, 60, id="an empty epoch here"),
        pytest.param(
            [(2, 60)], 80, [(1, 0), (2, 60)], 90, 80, id="retention has removed the start"
        ),
        pytest.param([(2, 60)], 80, [(3, 90)], 95, None, id="nothing in common"),
        pytest.param([], 80, [(1, 0)], 95, None, id="no epochs here"),
        pytest.param([(1, 0)], 80, [], 95, None, id="no epochs there"),
    ],
)
def test_where_two_logs_are_equal(
    own: list[tuple[int, int]],
    own_end: int,
    masters: list[tuple[int, int]],
    masters_end: int,
    point: int | None,
) -> None:
    assert common_point(starts(*own), own_end, starts(*masters), masters_end) == point


@pytest.mark.parametrize(
    ("entries", "end", "possible"),
    [
        ([(1, 0)], 0, True),
        ([(1, 0), (2, 0), (5, 70)], 70, True),
        ([], 70, False),
        ([(1, 71)], 70, False),
        ([(2, 0), (2, 5)], 70, False),
        ([(2, 0), (1, 5)], 70, False),
        ([(1, 10), (2, 5)], 70, False),
        ([(-1, 0)], 70, False),
        ([(1, -5)], 70, False),
    ],
)
def test_epochs_that_no_log_can_have(
    entries: list[tuple[int, int]], end: int, *, possible: bool
) -> None:
    assert are_possible(starts(*entries), end) is possible


class Replica:
    """The simple model: a log is the list of epochs that its bytes were written in."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.epochs = Epochs()

    def follow(self, master: "Replica", size: int) -> None:
        """Cut at the common point, then copy so many bytes of the master."""
        point: int | None = 0
        if self.written:
            own, masters = list(self.epochs), list(master.epochs)
            point = common_point(own, len(self.written), masters, len(master.written))
            equal = 0
            while (
                equal < min(len(self.written), len(master.written))
                and self.written[equal] == master.written[equal]
            ):
                equal += 1
            assert (point or 0) == equal, "the logs are equal up to another position"
            del self.written[point or 0 :]
        self.epochs.truncate(point or 0)
        for at in range(len(self.written), min(len(self.written) + size, len(master.written))):
            found = master.epochs.at(at)
            assert found is not None
            if self.epochs.last is None or self.epochs.last.epoch < found[0].epoch:
                self.epochs.begin(*found[0])
            self.written.append(master.written[at])


STEPS = st.lists(
    st.tuples(st.sampled_from(["elect", "write", "follow"]), st.integers(0, 2), st.integers(0, 6)),
    max_size=40,
)


@example([("write", 0, 1), ("elect", 1, 0), ("elect", 0, 0), ("follow", 1, 1), ("follow", 1, 0)])
@given(STEPS)
def test_replicas_find_the_common_point_after_any_elections(
    steps: list[tuple[str, int, int]],
) -> None:
    """Masters are elected uncleanly on purpose: any replica, however far behind it is."""
    replicas = [Replica() for _ in range(3)]
    master, epoch = replicas[0], 1
    master.epochs.begin(1, 0)
    for step, which, size in steps:
        chosen = replicas[which]
        if step == "elect":
            master, epoch = chosen, epoch + 1
            master.epochs.begin(epoch, len(master.written))
        elif step == "write":
            master.written += [epoch] * size
        elif chosen is not master:
            chosen.follow(master, size)
            assert chosen.written == master.written[: len(chosen.written)]
