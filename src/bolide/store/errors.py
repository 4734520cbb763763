"""What can go wrong with a store.

StoreError
├── StoreInUse         another process, or another part of this one, has the directory open
├── StoreUnwritable    no appends for now: disk full, failing, or nearly full; reads go on
├── StoreClosed        it is not open any more
├── DamagedFile        a file is not what its name and the settings say
├── UnservedStore      it has queues, tables or topics of a kind that only RocketMQ serves
└── NotInMemory        a read would have to wait for the disk; the caller asked not to
"""

from pathlib import Path

from bolide.errors import BolideError


class StoreError(BolideError):
    """Root of the store's errors."""


class StoreInUse(StoreError):
    def __init__(self, lock: Path) -> None:
        super().__init__(f"{lock} is locked: another broker has this store open")
        self.lock = lock


class StoreUnwritable(StoreError):
    """Nothing of what was refused will ever be readable unless an earlier answer said otherwise."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the store takes no messages: {reason}")
        self.reason = reason


class StoreClosed(StoreError):
    def __init__(self) -> None:
        super().__init__("the store is closed")


class DamagedFile(StoreError):
    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class UnservedStore(StoreError):
    def __init__(self, place: Path, what: str, advice: str) -> None:
        super().__init__(f"{place}: {what}, which Bolide does not serve: {advice}")
        self.place = place


class NotInMemory(StoreError):
    def __init__(self, path: Path | str, position: int) -> None:
        super().__init__(f"{path} at {position} is not in memory")
        self.path = path
        self.position = position
