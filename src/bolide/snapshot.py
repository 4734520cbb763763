"""Atomic replacement of a small file: after a crash the old or the new version exists."""

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from bolide.private_files import FILE_MODE, create_file, make_directory


def replace(
    path: Path,
    data: bytes,
    step: Callable[[str], object] = lambda _: None,
    *,
    mode: int = FILE_MODE,
) -> None:
    """Write `data` to a temporary file, sync it, keep the old file as `.bak`, rename. Blocks.

    Args:
        step: called with the name of each crash point, for tests.
        mode: of the file and its backup, unless that of the old file was tighter.
    """
    make_directory(path.parent)
    aside = path.with_name(path.name + ".tmp")
    aside.unlink(missing_ok=True)  # left by a crash; its mode may be another one
    if path.exists():
        mode &= stat.S_IMODE(path.stat().st_mode) | stat.S_IRUSR | stat.S_IWUSR
    try:
        with create_file(aside, mode) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        step("replace-aside")
        if path.exists():
            _back_up(path, mode)
        step("replace-backup")
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)  # frees space on a full disk
        raise
    step("replace-renamed")
    _sync_directory(path.parent)


def _back_up(path: Path, mode: int) -> None:
    """Keep a file as `.bak`, by a hard link, so that `path` exists at every moment."""
    backup = path.with_name(path.name + ".bak")
    backup.unlink(missing_ok=True)
    try:
        backup.hardlink_to(path)
        backup.chmod(mode & stat.S_IMODE(backup.stat().st_mode))
    except OSError:  # a file system without links, or a file of another user
        backup.unlink(missing_ok=True)
        with create_file(backup, mode) as file:
            file.write(path.read_bytes())


def read(path: Path) -> list[bytes]:
    """Return the contents to try: the file, then its backup; empty without a file. Blocks."""
    if not path.exists():
        return []  # never written, or removed on purpose: the backup does not count
    found = [path.read_bytes()]
    with contextlib.suppress(FileNotFoundError):
        found.append(path.with_name(path.name + ".bak").read_bytes())
    return found


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
