import os
import resource
from pathlib import Path

import pytest

from bolide.store import descriptors as module
from bolide.store.descriptors import DescriptorCache, read_at, usual_limit
from bolide.store.errors import NotInMemory


def make_file(path: Path, data: bytes = b"0123456789") -> str:
    path.write_bytes(data)
    return str(path)


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_a_descriptor_is_kept_for_the_next_user(tmp_path: Path) -> None:
    path, kept = make_file(tmp_path / "a"), DescriptorCache()
    with kept.use(path) as first:
        pass
    with kept.use(path) as second:
        assert second == first
    kept.close()
    assert not is_open(first)


def test_two_users_at_once_have_a_descriptor_each(tmp_path: Path) -> None:
    path, kept = make_file(tmp_path / "a"), DescriptorCache()
    with kept.use(path) as first, kept.use(path) as second:
        assert first != second
    assert [is_open(first), is_open(second)].count(True) == 1
    kept.close()


def test_files_used_in_turn_stay_open_as_far_as_there_is_room(tmp_path: Path) -> None:
    paths, kept = [make_file(tmp_path / name) for name in "abcd"], DescriptorCache(limit=2)
    open_before = []
    for _ in range(2):
        for path in paths:
            open_before.append(path in kept._idle)
            with kept.use(path):
                pass
    assert open_before == [False] * 4 + [True, True, False, False]
    assert list(kept._idle) == paths[:2]
    kept.close()


def test_files_that_nobody_uses_any_more_make_room_in_the_end(tmp_path: Path) -> None:
    paths, kept = [make_file(tmp_path / name) for name in "abcd"], DescriptorCache(limit=2)
    for path in paths[:2] + paths[2:] * 40:
        with kept.use(path):
            pass
    assert set(kept._idle) == set(paths[2:])
    kept.close()


def test_most_of_the_files_that_may_be_open_are_left_to_connections() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 512 <= usual_limit() <= max(512, soft // 2)


def test_a_descriptor_of_a_removed_file_is_not_used_again(tmp_path: Path) -> None:
    path, kept = make_file(tmp_path / "a", b"old"), DescriptorCache()
    with kept.use(path):
        pass
    kept.remove(path, (tmp_path / "a").unlink)
    make_file(tmp_path / "a", b"new")
    with kept.use(path) as descriptor:
        assert os.read(descriptor, 3) == b"new"
    kept.close()


def test_who_uses_a_file_while_it_is_replaced_does_not_give_the_old_one_back(
    tmp_path: Path,
) -> None:
    path, kept = make_file(tmp_path / "a", b"old"), DescriptorCache()

    def move_away() -> None:
        (tmp_path / "a").rename(tmp_path / "aside")

    with kept.use(path) as old:
        kept.remove(path, move_away)
        new = os.open(make_file(tmp_path / "a", b"new"), os.O_RDWR)
        kept.add(path, new)
        assert os.read(old, 3) == b"old"
    with kept.use(path) as descriptor:
        assert os.read(descriptor, 3) == b"new"
    kept.close()


def test_an_error_of_the_user_gives_the_descriptor_back(tmp_path: Path) -> None:
    path, kept = make_file(tmp_path / "a"), DescriptorCache()
    with pytest.raises(RuntimeError), kept.use(path):
        raise RuntimeError
    assert list(kept._idle) == [path]
    kept.close()


def test_a_read_ends_where_the_file_does(tmp_path: Path) -> None:
    descriptor = os.open(make_file(tmp_path / "a"), os.O_RDONLY)
    assert read_at(descriptor, 4, 2) == b"2345"
    assert read_at(descriptor, 100, 7) == b"789"
    assert read_at(descriptor, 5, 10) == b""
    os.close(descriptor)


def test_bytes_in_the_page_cache_need_no_wait(tmp_path: Path) -> None:
    if module._ONLY_CACHED is None:
        pytest.skip("this system cannot say what is in the page cache")
    descriptor = os.open(make_file(tmp_path / "a"), os.O_RDONLY)
    try:
        assert read_at(descriptor, 4, 0, may_block=False) == b"0123"
    except NotInMemory as exc:
        if not isinstance(exc.__cause__, OSError):
            raise
        pytest.skip(f"this file system cannot say what is in the page cache: {exc.__cause__}")
    finally:
        os.close(descriptor)


def test_without_a_way_to_ask_a_read_that_may_not_block_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ONLY_CACHED", None)
    descriptor = os.open(make_file(tmp_path / "a"), os.O_RDONLY)
    with pytest.raises(NotInMemory) as caught:
        read_at(descriptor, 4, 3, may_block=False, path="name")
    assert (caught.value.path, caught.value.position) == ("name", 3)
    os.close(descriptor)
