"""Disks that fail, that kill the process, and that lose power."""

import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bolide.store.disk import Disk

SECTOR = 512
"""What a disk writes whole or not at all; pages of 4096 bytes can be torn."""

Data = bytes | bytearray | memoryview


def path_of(descriptor: int) -> Path:
    """The path an open file has now; Linux says it."""
    return Path(f"/proc/self/fd/{descriptor}").readlink()


@dataclass(eq=False, slots=True)
class _Fault:
    call: str
    where: str
    error: int
    partly: bool


class FaultyDisk(Disk):
    """Calls fail with an OSError while told to; what was told last counts first."""

    def __init__(self) -> None:
        self._faults: list[_Fault] = []
        self.calls: Counter[str] = Counter()

    @contextmanager
    def failing(
        self, call: str, error: int, where: str = "", *, partly: bool = False
    ) -> Iterator[None]:
        """Let calls of that name on paths with `where` in them fail.

        Partly: of the first one, half is written.
        """
        fault = _Fault(call, where, error, partly)
        self._faults.append(fault)
        try:
            yield
        finally:
            self._faults.remove(fault)

    def allocate(self, path: Path, size: int) -> int:
        self._meet("allocate", path)
        return super().allocate(path, size)

    def create_sparse(self, path: Path, size: int) -> int:
        self._meet("create_sparse", path)
        return super().create_sparse(path, size)

    def write(self, descriptor: int, data: Data, at: int) -> None:
        def half() -> None:
            super(FaultyDisk, self).write(descriptor, memoryview(data)[: len(data) // 2], at)

        self._meet("write", path_of(descriptor), half)
        super().write(descriptor, data, at)

    def sync(self, descriptor: int) -> None:
        self._meet("sync", path_of(descriptor))
        super().sync(descriptor)

    def replace(self, path: Path, data: bytes) -> None:
        self._meet("replace", path)
        super().replace(path, data)

    def _meet(self, call: str, path: Path, half: Callable[[], object] = lambda: None) -> None:
        self.calls[call] += 1
        for fault in reversed(self._faults):
            if fault.call == call and fault.where in str(path):
                if fault.partly:
                    fault.partly = False
                    half()
                raise OSError(fault.error, os.strerror(fault.error), str(path))


class KillingDisk(Disk):
    """Ends the process as SIGKILL does, at the n-th time a moment comes.

    Moments are the disk's own steps, and its calls by kind of file: `sync-commitlog` comes before
    that call, `torn-commitlog` in the middle of a write.
    """

    def __init__(self, root: Path, moment: str, nth: int = 1) -> None:
        self._root = root
        self._moment = moment
        self._left = nth

    def step(self, name: str) -> None:
        if name == self._moment:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
                signal.pause()  # the signal may take a moment: nothing more may happen

    def create_sparse(self, path: Path, size: int) -> int:
        self._call("create", path)
        return super().create_sparse(path, size)

    def write(self, descriptor: int, data: Data, at: int) -> None:
        path = path_of(descriptor)
        self._call("write", path)
        if self._moment == f"torn-{self._kind(path)}":
            if self._left == 1:
                super().write(descriptor, memoryview(data)[: len(data) // 2], at)
            self._call("torn", path)
        super().write(descriptor, data, at)

    def zero(self, descriptor: int, start: int, end: int) -> None:
        self._call("zero", path_of(descriptor))
        super().zero(descriptor, start, end)

    def sync(self, descriptor: int) -> None:
        self._call("sync", path_of(descriptor))
        super().sync(descriptor)

    def remove(self, path: Path) -> None:
        self._call("remove", path)
        super().remove(path)

    def _call(self, name: str, path: Path) -> None:
        self.step(f"{name}-{self._kind(path)}")

    def _kind(self, path: Path) -> str:
        try:
            return path.relative_to(self._root).parts[0]
        except ValueError:
            return ""


@dataclass(eq=False, slots=True)
class _File:
    """What of a file is on the disk; `content` is what a removed one held at last."""

    durable: bytes | None = None
    """None: it was never synced."""
    content: bytes = b""


_NOTHING = _File()


@dataclass(slots=True)
class _Directory:
    """Names whose entries are on the disk; None is a directory."""

    durable: dict[str, _File | None] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    """Names in the order they went, since the last sync."""


class PowerCutDisk(Disk):
    """Knows what would be left if the power went now, and writes that down as a directory.

    With a journal, as file systems mostly have one, a sync of any file makes all names sure.

    A file has what it had when it was synced last; of each sector changed since it has the old or
    the new bytes. A name made or replaced since its directory was synced is there or not. Names
    that were removed come back from the latest removal on: directories are journalled in order.
    What lies below `root` when the disk is made is on it.
    """

    def __init__(self, root: Path, *, journal: bool = False) -> None:
        self._root = root
        self._journal = journal
        self._files: dict[int, _File] = {}  # by inode
        self._directories: dict[Path, _Directory] = {}
        self._new = 1.0
        self._replacing = Path()
        self._making = False
        self.on_moment: Callable[[str], None] = lambda _moment: None
        """Called around everything that changes what is on the disk."""
        for directory, _, names in os.walk(root):
            for name in names:
                self._note_content(Path(directory, name))
        self._note_all_names()

    # ---- what the store does

    def allocate(self, path: Path, size: int) -> int:
        self._making = True
        return super().allocate(path, size)

    def create_sparse(self, path: Path, size: int) -> int:
        descriptor = super().create_sparse(path, size)
        self._forget(path)
        self.on_moment("created")
        return descriptor

    def write(self, descriptor: int, data: Data, at: int) -> None:
        super().write(descriptor, data, at)
        self.on_moment("written")

    def sync(self, descriptor: int) -> None:
        inode = os.fstat(descriptor).st_ino
        if self._making:
            self._files.pop(inode, None)  # the number may have been another file's
            self._making = False
        self.on_moment("before sync")
        super().sync(descriptor)
        size = os.fstat(descriptor).st_size
        self._file(inode).durable = os.pread(descriptor, size, 0)
        if self._journal:
            self._note_all_names()
        self.on_moment("synced")

    def sync_directory(self, path: Path) -> None:
        self.on_moment("before directory sync")
        super().sync_directory(path)
        self._note_names(path)
        self.on_moment("directory synced")

    def remove(self, path: Path) -> None:
        if path.exists():
            file = self._detach(path)
            file.content = path.read_bytes()
            self._directory(path.parent).removed.append(path.name)
        super().remove(path)
        self.on_moment("removed")

    def replace(self, path: Path, data: bytes) -> None:
        self._replacing = path
        backup = path.with_name(path.name + ".bak")
        if backup.exists():
            self._detach(backup)
        super().replace(path, data)
        self._note_names(path.parent)
        self.on_moment("replaced")

    def step(self, name: str) -> None:
        if name == "replace-aside":  # the snapshot has synced it
            aside = self._replacing.with_name(self._replacing.name + ".tmp")
            self._forget(aside)
            self._note_content(aside)
        self.on_moment(name)

    # ---- what is left of it

    def cut(self, target: Path, chance: random.Random, new: float | None = None) -> None:
        """Write what would be left of the root into a new directory.

        `new` is how much of what was not synced is there, 0 to 1; by chance if not said.
        """
        self._new = chance.choice((0.0, 0.5, 0.9, 1.0)) if new is None else new
        self._cut_directory(self._root, target, chance)

    def _cut_directory(self, source: Path, target: Path, chance: random.Random) -> None:
        target.mkdir(parents=True)
        known = self._directory(source)
        present = self._present(source)
        undone = chance.randrange(len(known.removed) + 1)
        back = set(known.removed[len(known.removed) - undone :])
        for name in sorted(known.durable.keys() | present.keys()):
            old, new = known.durable.get(name, _NOTHING), present.get(name, _NOTHING)
            if name not in known.removed:
                left = new if new is old or self._flip(chance) else old
            elif new is _NOTHING:
                left = old if name in back else new
            else:  # made again: the removal came first
                left = new if self._flip(chance) else _NOTHING
            if left is None:
                self._cut_directory(source / name, target / name, chance)
            elif left is not _NOTHING:
                (target / name).write_bytes(self._left_of(left, chance))

    def _present(self, directory: Path) -> dict[str, _File | None]:
        if not directory.is_dir():
            return {}
        found: dict[str, _File | None] = {}
        for path in directory.iterdir():
            if path.is_dir():
                found[path.name] = None
            else:
                file = found[path.name] = self._file(path.stat().st_ino)
                file.content = path.read_bytes()
        return found

    def _left_of(self, file: _File, chance: random.Random) -> bytes:
        new, old = file.content, file.durable
        if old is None:  # its length comes with the first sync, at the latest
            if not self._flip(chance):
                return b""
            old = bytes(len(new))
        if len(old) != len(new):
            return new if self._flip(chance) else old
        sectors = []
        for at in range(0, len(new), SECTOR):
            changed = old[at : at + SECTOR] != new[at : at + SECTOR]
            kept = new if changed and self._flip(chance) else old
            sectors.append(kept[at : at + SECTOR])
        return b"".join(sectors)

    def _flip(self, chance: random.Random) -> bool:
        return chance.random() < self._new

    def _file(self, inode: int) -> _File:
        return self._files.setdefault(inode, _File())

    def _directory(self, path: Path) -> _Directory:
        return self._directories.setdefault(path, _Directory())

    def _detach(self, path: Path) -> _File:
        """The file is about to go, and another may get its inode."""
        return self._files.pop(path.stat().st_ino, _File())

    def _forget(self, path: Path) -> None:
        """The inode is that of a new file now."""
        self._files[path.stat().st_ino] = _File()

    def _note_content(self, path: Path) -> None:
        self._file(path.stat().st_ino).durable = path.read_bytes()

    def _note_all_names(self) -> None:
        for directory, _, _ in os.walk(self._root):
            self._note_names(Path(directory))

    def _note_names(self, path: Path) -> None:
        known = self._directory(path)
        known.durable = self._present(path)
        known.removed.clear()


def copy_store(source: Path, target: Path) -> Path:
    """A copy to look at, or to damage, while the original goes on."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))
