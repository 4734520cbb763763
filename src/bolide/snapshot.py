"""A small file that is replaced whole: after a crash there is the old one or the new one."""

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path


def replace(path: Path, data: bytes, step: Callable[[str], object] = lambda _: None) -> None:
    """Write `data` aside, sync it, keep the old file as `.bak`, move it in place. Blocks.

    `step` is told of each moment at which a crash is of interest.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".tmp")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        aside.unlink(missing_ok=True)  # on a full disk it is in the way
        raise
    step("replace-aside")
    backup = path.with_name(path.name + ".bak")
    if path.exists():
        # A second name for the old file: at no moment is there none under `path`.
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
    """The contents to try in order: the file, then its backup; none if there is no file. Blocks."""
    if not path.exists():
        return []  # it was never written, or somebody took it away: the backup is no replacement
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
