import subprocess
import sys
from pathlib import Path

import pytest

from bolide.store.errors import StoreInUse
from bolide.store.locking import StoreLock

TRY_LOCK = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
except OSError:
    sys.exit(1)
"""


def another_process_gets(path: Path) -> bool:
    return subprocess.run([sys.executable, "-c", TRY_LOCK, path], check=False).returncode == 0


def test_the_file_says_what_javas_does(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path / "lock")
    lock.acquire()
    assert (tmp_path / "lock").read_bytes() == b"lock"
    lock.release()


def test_another_process_is_kept_out_until_the_release(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path / "lock")
    lock.acquire()
    assert not another_process_gets(tmp_path / "lock")
    lock.release()
    assert another_process_gets(tmp_path / "lock")


def test_a_lock_held_by_another_process_is_respected(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    code = TRY_LOCK + "\nprint(flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        holder.stdout.readline()
        with pytest.raises(StoreInUse) as caught:
            StoreLock(path).acquire()
        assert caught.value.lock == path
        holder.communicate()
    lock = StoreLock(path)
    lock.acquire()
    lock.release()


def test_a_second_lock_in_this_process_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    lock = StoreLock(tmp_path / "lock")
    lock.acquire()
    with pytest.raises(StoreInUse):
        StoreLock(tmp_path / "link" / "lock").acquire()
    assert not another_process_gets(tmp_path / "lock")
    lock.release()
    lock.release()
    again = StoreLock(tmp_path / "lock")
    again.acquire()
    again.release()


def test_a_failure_that_is_no_lock_passes_through(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        StoreLock(tmp_path / "missing" / "lock").acquire()


def test_only_the_first_byte_is_locked(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = StoreLock(path)
    lock.acquire()
    code = TRY_LOCK.replace("1, 0)", "1, 1)")
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == 0
    lock.release()
