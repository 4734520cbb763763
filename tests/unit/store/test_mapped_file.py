import os
from pathlib import Path

import pytest

from bolide.store import mapped_file
from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile
from bolide.store.mapped_file import MappedFile

SIZE = 64 * 1024


@pytest.fixture(params=[False, True], ids=["in order", "random"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> MappedFile:
    return MappedFile.create(tmp_path / "0", SIZE, Disk(), random=request.param)


def test_stores_into_the_mapping_are_in_the_file(file: MappedFile) -> None:
    file.view[100:105] = b"hello"
    with file.path.open("rb") as plain:
        plain.seek(100)
        assert plain.read(5) == b"hello"
    assert file.find(b"hello", 0, SIZE) == 100
    assert file.find(b"hello", 101, SIZE) == -1
    assert file.close()


def test_advice_ends_with_the_file(file: MappedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def note(_address: int, length: int, _advice: int) -> None:
        lengths.append(length)

    monkeypatch.setattr(mapped_file, "_madvise", note)
    file.release(0, 10 * SIZE)
    file.populate(2 * SIZE, 3 * SIZE)
    assert lengths == [SIZE]
    file.close()


def test_reading_ahead_is_switched_for_the_descriptor_until_the_file_is_closed(
    file: MappedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    advised: list[int] = []

    def note(_descriptor: int, _start: int, _length: int, advice: int) -> None:
        advised.append(advice)

    monkeypatch.setattr(os, "posix_fadvise", note)
    file.read_ahead(enabled=False)
    file.read_ahead(enabled=True)
    assert advised == [os.POSIX_FADV_RANDOM, os.POSIX_FADV_NORMAL]
    assert file.abandon()
    file.read_ahead(enabled=False)
    assert len(advised) == 2


@pytest.mark.parametrize("size", [SIZE - 1, SIZE + 1, 0])
def test_a_file_of_another_length_is_damaged(tmp_path: Path, size: int) -> None:
    path = tmp_path / "0"
    path.write_bytes(bytes(size))
    with pytest.raises(DamagedFile) as caught:
        MappedFile.open(path, SIZE)
    assert caught.value.path == path
    assert str(size) in caught.value.reason


def test_a_file_is_opened_again_with_what_it_held(file: MappedFile) -> None:
    file.view[:3] = b"abc"
    file.close()
    again = MappedFile.open(file.path, SIZE)
    assert bytes(again.view[:4]) == b"abc\0"
    again.close()


def test_a_file_that_is_read_stays_until_the_reader_is_done(file: MappedFile) -> None:
    file.view[:5] = b"hello"
    reader = file.view[:5].toreadonly()
    descriptor = file.descriptor
    assert not file.close()
    assert bytes(reader) == b"hello"
    reader.release()
    assert file.close()
    assert file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_descriptor_in_use_stays_open(file: MappedFile) -> None:
    with file.in_use():
        assert not file.close()
        assert os.pread(file.descriptor, 1, 0) == b"\0"
    assert file.close()
    with pytest.raises(ValueError, match="is closed"), file.in_use():
        pass


def test_an_abandoned_file_is_gone_with_its_last_reader(file: MappedFile) -> None:
    file.view[:5] = b"hello"
    reader, descriptor = file.view[:5].toreadonly(), file.descriptor
    with file.in_use():
        assert not file.abandon()
    assert file.abandon()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert bytes(reader) == b"hello"
    reader.release()
    assert file.close()


def test_populating_and_releasing_change_nothing_that_can_be_read(file: MappedFile) -> None:
    file.view[:5] = b"hello"
    file.populate(0, SIZE)
    file.populate(5000, 5001)
    file.release(0, SIZE)
    file.release(10, 10)
    assert bytes(file.view[:6]) == b"hello\0"
    assert file.close()
