"""Files that are replaced whole."""

import os
import stat
from pathlib import Path

import pytest

from bolide import snapshot


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "directory" / "kvConfig.json"
    snapshot.replace(path, b"one")
    assert snapshot.read(path) == [b"one"]


def test_nothing_is_read_where_nothing_was_written(tmp_path: Path) -> None:
    assert snapshot.read(tmp_path / "kvConfig.json") == []


def test_the_old_file_is_kept_as_a_backup(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    for data in (b"one", b"two", b"three"):
        snapshot.replace(path, data)
    assert snapshot.read(path) == [b"three", b"two"]
    assert {each.name for each in tmp_path.iterdir()} == {path.name, path.name + ".bak"}


def test_the_backup_is_no_replacement_for_a_file_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    snapshot.replace(path, b"one")
    snapshot.replace(path, b"two")
    path.unlink()
    assert snapshot.read(path) == []


def test_the_new_name_is_synced_with_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    snapshot.replace(tmp_path / "kvConfig.json", b"one")
    assert synced == [False, True]


def test_a_file_left_aside_by_a_crash_is_no_hindrance(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.with_name("kvConfig.json.tmp").write_bytes(b"half of something lon")
    snapshot.replace(path, b"one")
    assert snapshot.read(path) == [b"one"]


@pytest.mark.parametrize("step", ["fsync", "link", "replace"])
def test_a_failure_at_any_step_leaves_the_old_contents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "kvConfig.json"
    snapshot.replace(path, b"one")

    def fail(*_: object) -> None:
        raise InterruptedError("power is gone")

    monkeypatch.setattr(os, step, fail)
    if step == "link":
        monkeypatch.setattr(Path, "read_bytes", fail)  # of the copy that is made instead
    with pytest.raises(InterruptedError):
        snapshot.replace(path, b"two")
    monkeypatch.undo()
    assert snapshot.read(path)[0] == b"one"
    assert not path.with_name("kvConfig.json.tmp").exists()


def test_a_file_of_another_user_is_copied_for_the_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(b"one")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("not the owner")

    monkeypatch.setattr(os, "chmod", refuse)
    snapshot.replace(path, b"two")
    assert snapshot.read(path) == [b"two", b"one"]
    assert stat.S_IMODE(path.with_name("broker.conf.bak").stat().st_mode) & 0o007 == 0


def test_a_file_system_without_links_has_a_backup_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    snapshot.replace(tmp_path / "file", b"one")
    snapshot.replace(tmp_path / "file", b"two")
    assert snapshot.read(tmp_path / "file") == [b"two", b"one"]


def test_a_reader_never_misses_the_file_while_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "file", []
    snapshot.replace(path, b"one")
    for name in ("link", "unlink", "replace"):
        real = getattr(os, name)

        def look(*arguments: object, _real: object = real, **named: object) -> object:
            seen.append(path.read_bytes())
            return _real(*arguments, **named)  # type: ignore[operator]  # one of the three

        monkeypatch.setattr(os, name, look)
    snapshot.replace(path, b"two")
    assert set(seen) == {b"one"}
    assert path.read_bytes() == b"two"


@pytest.mark.parametrize(
    ("old", "asked", "new"), [(0o644, 0o640, 0o640), (0o600, 0o640, 0o600), (0o666, 0o600, 0o600)]
)
def test_a_file_never_becomes_readable_by_more_than_before(
    tmp_path: Path, old: int, asked: int, new: int
) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(b"one")
    path.chmod(old)
    snapshot.replace(path, b"two", mode=asked)
    files = (path, path.with_name("broker.conf.bak"))
    assert [stat.S_IMODE(each.stat().st_mode) for each in files] == [new, new]


def test_what_a_crash_left_does_not_decide_the_mode(tmp_path: Path) -> None:
    left = tmp_path / "topics.json.tmp"
    left.touch(0o666)
    left.chmod(0o666)
    snapshot.replace(tmp_path / "topics.json", b"one")
    assert stat.S_IMODE((tmp_path / "topics.json").stat().st_mode) & ~0o640 == 0
