"""The epochs of a log: which master wrote which part of it (RocketMQ: `EpochFileCache`).

An epoch begins when a master is elected and ends where the next one begins. Two logs are equal up
to the end of the newest epoch that both have with the same start. A replica finds that point when
it connects to a master and cuts off what it has behind it.

The file, `epochFileCheckpoint`, is text: the number of entries, a CRC-32 of the entry lines without
its sign bit, then a line `epoch-startOffset` for each.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from zlib import crc32

from bolide.protocol.ha import EpochStart
from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile

log = logging.getLogger(__name__)

_CRC_MASK = 0x7FFF_FFFF
_HEAD_LINES = 2


class Epochs:
    """The epochs of one log in ascending order; saved on every change.

    Args:
        path: file of the epochs; None keeps them in memory only.
    """

    def __init__(self, path: Path | None = None, disk: Disk | None = None) -> None:
        self._path = path
        self._disk = disk or Disk()
        self._entries: list[EpochStart] = []

    def __iter__(self) -> Iterator[EpochStart]:
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def load(self) -> None:
        """Read the file, if there is one. Blocks.

        Raises:
            DamagedFile: the file is damaged; without it a replica cannot tell which part of its
                log is sound, so it must copy the whole log again.
        """
        if self._path is not None and self._path.exists():
            try:
                self._entries = decode_epochs(self._path.read_text())
            except ValueError as exc:
                raise DamagedFile(
                    self._path, f"{exc}; remove it with the store to copy the log anew"
                ) from exc

    @property
    def last(self) -> EpochStart | None:
        return self._entries[-1] if self._entries else None

    def begin(self, epoch: int, start: int) -> None:
        """Record that an epoch begins at a log position. Blocks.

        Entries of later epochs, and of earlier ones that begin behind it, are void. An epoch that
        is known with the same start is left as it is.
        """
        if self.last == (epoch, start):
            return
        kept = [each for each in self._entries if each.epoch < epoch and each.start <= start]
        self._replace([*kept, EpochStart(epoch, start)])

    def truncate(self, position: int) -> None:
        """Remove the epochs that begin at or behind a position, where the log was cut. Blocks."""
        self._replace([each for each in self._entries if each.start < position])

    def drop_behind(self, end: int) -> None:
        """Remove the epochs that begin behind the end of the log. Blocks.

        A power cut or a lost disk leaves them: it shortens the log, but not this file.
        """
        self._replace([each for each in self._entries if each.start <= end])

    def clear(self) -> None:
        """Remove all epochs: the log was removed. Blocks."""
        self._replace([])

    def at(self, position: int) -> tuple[EpochStart, int] | None:
        """The epoch that contains the byte at a position, and where it ends (-1: it is the last).

        None before the first epoch.
        """
        entries = self._entries
        for index in range(len(entries) - 1, -1, -1):
            if entries[index].start <= position:
                end = entries[index + 1].start if index + 1 < len(entries) else -1
                return entries[index], end
        return None

    def _replace(self, entries: list[EpochStart]) -> None:
        """Save these entries, and only then adopt them: a caller tries again after a failure."""
        if entries == self._entries:
            return
        if self._path is not None:
            self._disk.replace(self._path, encode_epochs(entries).encode())
        self._entries = entries


def encode_epochs(entries: Iterable[EpochStart]) -> str:
    lines = [f"{each.epoch}-{each.start}" for each in entries]
    crc = crc32("".join(f"{line}\n" for line in lines).encode()) & _CRC_MASK
    return "".join(f"{line}\n" for line in (len(lines), crc, *lines))


def decode_epochs(text: str) -> list[EpochStart]:
    """Raises ValueError if the text is no file of epochs or its checksum is wrong."""
    lines = text.split("\n")
    if len(lines) < _HEAD_LINES:
        raise ValueError("it has no head")
    count, crc = int(lines[0]), int(lines[1])
    found = [line for line in lines[_HEAD_LINES:] if line]
    if len(found) != count:
        raise ValueError(f"it has {len(found)} entries, its head says {count}")
    if crc32("".join(f"{line}\n" for line in found).encode()) & _CRC_MASK != crc:
        raise ValueError("its checksum is wrong")
    return [EpochStart(*map(int, line.split("-"))) for line in found]


def are_possible(epochs: Sequence[EpochStart], end: int) -> bool:
    """Whether these can be the epochs of a log that a master has begun to write."""
    return bool(epochs) and all(
        one.epoch < other.epoch and one.start <= other.start
        for one, other in pairwise((EpochStart(-1, 0), *epochs, EpochStart(2**31, end)))
    )


def common_point(
    own: Sequence[EpochStart], own_end: int, masters: Sequence[EpochStart], masters_end: int
) -> int | None:
    """The position up to which two logs are equal; None if they have no epoch in common.

    Args:
        own: epochs of the replica's log, which ends at `own_end`.
        masters: epochs of the master's log, which ends at `masters_end`.
    """
    ends = dict(_ends(masters, masters_end))
    for entry, end in reversed(list(_ends(own, own_end))):
        if entry in ends:
            return min(end, ends[entry])
    return None


def _ends(entries: Sequence[EpochStart], end: int) -> Iterator[tuple[EpochStart, int]]:
    """Each epoch with the position where it ends."""
    ends = [*(each.start for each in entries[1:]), end]
    yield from zip(entries, ends[: len(entries)], strict=True)
