import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide.private_files import SECRET_MODE, create_file, ensure_secret_file, make_directory


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def everything_is_allowed() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_directory_and_its_parents_are_closed_to_other_users(tmp_path: Path) -> None:
    make_directory(tmp_path / "a" / "b")
    make_directory(tmp_path / "a" / "b")
    assert mode_of(tmp_path / "a") == mode_of(tmp_path / "a" / "b") == 0o750


def test_a_file_in_the_place_of_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(FileExistsError):
        make_directory(tmp_path / "a")
    with pytest.raises(NotADirectoryError):
        make_directory(tmp_path / "a" / "b")


def test_a_file_is_closed_to_other_users(tmp_path: Path) -> None:
    with create_file(tmp_path / "f") as file, create_file(tmp_path / "s", SECRET_MODE) as secret:
        file.write(b"x")
        secret.write(b"y")
    assert (mode_of(tmp_path / "f"), mode_of(tmp_path / "s")) == (0o640, 0o600)
    assert (tmp_path / "f").read_bytes() == b"x"


def test_a_secret_file_is_closed_to_others_even_if_it_was_not(tmp_path: Path) -> None:
    for name in ("new", "old", "tight"):
        path = tmp_path / name
        if name != "new":
            path.write_bytes(b"x")
            path.chmod(0o644 if name == "old" else 0o400)
        if name != "tight" or os.geteuid() == 0:
            ensure_secret_file(path)
        assert mode_of(path) == (0o400 if name == "tight" else 0o600)
    assert (tmp_path / "old").read_bytes() == b"x"
    (tmp_path / "link").symlink_to(tmp_path / "old")
    with pytest.raises(OSError, match="link"):
        ensure_secret_file(tmp_path / "link")


def test_the_umask_makes_a_file_tighter(tmp_path: Path) -> None:
    os.umask(0o077)
    create_file(tmp_path / "f").close()
    make_directory(tmp_path / "d")
    assert (mode_of(tmp_path / "f"), mode_of(tmp_path / "d")) == (0o600, 0o700)


def test_a_link_to_another_file_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"mine")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(OSError, match="link"):
        create_file(tmp_path / "link")
    assert target.read_bytes() == b"mine"
