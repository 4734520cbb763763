"""A walk over a log file gives every sound record, whatever lies between."""

from pathlib import Path

import pytest

from bolide.kernel import write_record
from bolide.protocol.record import encode_blank
from bolide.store import log_walk
from bolide.store.log_walk import Damage, LogEnd, LogWalk, SoundRecords, is_unused, read_one
from tests.support.filled_store import draft

START = 8192
SIZE = 8192


class File:
    """A log file under the hands of a test."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / f"{START:020d}"
        self.data = bytearray(SIZE)
        self.places: list[int] = []
        at = 0
        for number in range(12):
            self.places.append(at)
            body = b"x" * 50 * number
            at += write_record(
                self.data, at, draft(number, body=body), number, START + at, 1_700_000_000_000
            )
        self.end = at

    def walk(self) -> list[SoundRecords | Damage | LogEnd]:
        self.path.write_bytes(self.data)
        return list(LogWalk(self.path, SIZE).run())

    def offsets(self) -> list[int]:
        """Queue offsets of the records that a walk gives."""
        items = [item for item in self.walk() if isinstance(item, SoundRecords)]
        return [record.queue_offset for item in items for record in item.records()]


@pytest.fixture(params=[256, 1 << 24], ids=["small strides", "one stride"])
def file(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> File:
    monkeypatch.setattr(log_walk, "_STRIDE", request.param)
    return File(tmp_path)


def test_all_records_are_given_in_order(file: File) -> None:
    assert file.offsets() == list(range(12))
    assert file.walk()[-1] == LogEnd(START + file.end, closed=False)


def test_a_blank_record_closes_the_file(file: File) -> None:
    file.data[file.end : file.end + 8] = encode_blank(SIZE - file.end)
    file.data[file.end + 100] = 7  # what follows it is nobody's

    assert file.walk()[-1] == LogEnd(START + SIZE, closed=True)


def test_a_blank_record_of_a_wrong_size_is_damage(file: File) -> None:
    file.data[file.end : file.end + 8] = encode_blank(SIZE - file.end - 1)

    *_, damage, ended = file.walk()

    assert isinstance(damage, Damage) and "a blank record" in damage.reason
    assert (damage.at, damage.followed) == (START + file.end, False)
    assert ended == LogEnd(START + file.end, closed=False)


@pytest.mark.parametrize("number", [0, 5, 10])
@pytest.mark.parametrize("position", [0, 3, 4, 8, 30, 84, 88])
def test_damage_lasts_until_the_next_sound_record(file: File, number: int, position: int) -> None:
    file.data[file.places[number] + position] ^= 0x11

    (damage,) = [item for item in file.walk() if isinstance(item, Damage)]

    assert (damage.at, damage.end) == (
        START + file.places[number], START + file.places[number + 1],
    )  # fmt: skip
    assert damage.followed
    assert file.offsets() == [offset for offset in range(12) if offset != number]


def test_zeros_in_the_middle_are_damage(file: File) -> None:
    file.data[file.places[4] : file.places[7]] = bytes(file.places[7] - file.places[4])

    (damage,) = [item for item in file.walk() if isinstance(item, Damage)]

    assert damage.reason == "zeros where a record should begin"
    assert file.offsets() == [0, 1, 2, 3, 7, 8, 9, 10, 11]


def test_a_record_inside_a_body_is_not_taken_for_one_of_the_log(file: File) -> None:
    inner = bytes(file.data[: file.places[1]])
    assert len(inner) < 50 * 11 - 100
    at = file.places[11] + 100
    file.data[at : at + len(inner)] = inner  # breaks the body's CRC

    assert file.offsets() == list(range(11))


def test_a_file_that_was_cut_gives_what_is_left(file: File) -> None:
    del file.data[file.places[6] + 60 :]

    assert file.offsets() == [0, 1, 2, 3, 4, 5]


def test_a_file_of_zeros_is_unused(file: File) -> None:
    file.walk()
    assert not is_unused(file.path)
    file.path.write_bytes(bytes(SIZE))
    assert is_unused(file.path)
    file.path.write_bytes(bytes(SIZE - 1) + b"x")
    assert not is_unused(file.path)


def test_one_record_is_read_by_its_place(file: File) -> None:
    file.walk()

    record = read_one(file.path, START + file.places[3])

    assert not isinstance(record, str)
    assert record.queue_offset == 3
    assert read_one(file.path, START + file.places[3] + 1) == "no record begins there"
    assert read_one(file.path, START + SIZE) == "the file ends before it"
