"""Modes of the files and directories that servers create: not for other users of the machine.

The umask can only make them tighter.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

FILE_MODE: Final = 0o640
SECRET_MODE: Final = 0o600
"""For files that hold passwords or keys."""
DIRECTORY_MODE: Final = 0o750


def make_directory(path: Path) -> None:
    """Create a directory, and its parents, unless it exists.

    `Path.mkdir` would create parents with the mode that the umask allows.
    """
    try:
        path.mkdir(DIRECTORY_MODE, exist_ok=True)
    except FileNotFoundError:
        make_directory(path.parent)
        path.mkdir(DIRECTORY_MODE, exist_ok=True)


def create_file(path: Path, mode: int = FILE_MODE) -> BinaryIO:
    """Open a file for writing; an existing one is emptied and keeps its mode.

    A symbolic link is not followed.
    """
    return open(path, "wb", opener=_opener(os.O_NOFOLLOW, mode))


def create_new_file(path: Path, mode: int = FILE_MODE) -> BinaryIO:
    """Open a file that does not exist yet for writing.

    Raises:
        FileExistsError: somebody has made it, or a symbolic link of that name.
    """
    return open(path, "xb", opener=_opener(os.O_NOFOLLOW, mode))


def ensure_secret_file(path: Path) -> None:
    """Create an empty file for its owner only; an existing one is closed to others.

    A symbolic link is not followed.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, SECRET_MODE)
    try:
        mode = stat.S_IMODE(os.fstat(file).st_mode)
        if mode & ~SECRET_MODE:
            os.fchmod(file, mode & SECRET_MODE)
    finally:
        os.close(file)


def _opener(more_flags: int, mode: int) -> Callable[[str, int], int]:
    return lambda path, flags: os.open(path, flags | more_flags, mode)
