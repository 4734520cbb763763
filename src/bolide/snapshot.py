"""Atomic replacement of a small file: after a crash the old or the new version exists."""

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path


def replace(path: Path, data: bytes, step: Callable[[str], object] = lambda _: None) -> None:
    """Write `data` to a temporary file, sync it, keep the old file as `.bak`, rename. Blocks.

    `step` is called with the name of each crash point, for tests.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".tmp")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        aside.unlink(missing_ok=True)  # frees space on a full disk
        raise
    step("replace-aside")
    backup = path.with_name(path.name + ".bak")
    if path.exists():
        # A hard link, so that `path` exists at every moment.
        backup.unlink(missing_ok=True)
        try:
            backup.hardlink_to(path)
        except OSError:  # a file system without links
            shutil.copyfile(path, backup)
    step("replace-backup")
    aside.replace(path)
    step("replace-renamed")
    _sync_directory(path.parent)


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
