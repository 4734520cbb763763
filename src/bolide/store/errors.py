"""Errors of the store.

StoreError
├── StoreInUse         another process, or another store of this one, has the directory open
├── StoreUnwritable    no appends for now: disk full, failing, or nearly full; reads go on
│   ├── NoLease            a master whose lease has ended, if the settings require one
│   ├── ReplicaRefuses     this store is a replica: only its master's bytes are appended
│   └── ReplicasNotEnough  fewer replicas are in sync than the settings ask for
├── StoreClosed        the store is not open
├── DamagedFile        a file's length or contents contradict its name or the settings
├── UnsupportedStore   the store has queues, tables or topics of a kind only RocketMQ supports
└── NotInMemory        a read would have to wait for the disk, and the caller asked not to
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
    """The store refuses appends.

    A refused message never becomes readable, unless an earlier reply acknowledged it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the store takes no messages: {reason}")
        self.reason = reason


class ReplicaRefuses(StoreUnwritable):
    def __init__(self) -> None:
        super().__init__("this broker is a slave, send to the master of its group")


class NoLease(StoreUnwritable):
    def __init__(self) -> None:
        super().__init__(
            "no controller confirms that this broker is the master, and masterLeaseRequired=true"
        )


class ReplicasNotEnough(StoreUnwritable):
    def __init__(self, count: int, needed: int, setting: str = "minInSyncReplicas") -> None:
        super().__init__(
            f"in-sync replicas not enough: {count}, and {setting}={needed}; start the"
            " other replicas of the group"
        )
        self.count = count
        self.needed = needed


class StoreClosed(StoreError):
    def __init__(self) -> None:
        super().__init__("the store is closed")


class DamagedFile(StoreError):
    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class UnsupportedStore(StoreError):
    def __init__(self, path: Path, what: str, advice: str) -> None:
        super().__init__(f"{path}: {what}, which Bolide does not serve: {advice}")
        self.path = path


class NotInMemory(StoreError):
    def __init__(self, path: Path | str, position: int) -> None:
        super().__init__(f"{path} at {position} is not in memory")
        self.path = path
        self.position = position
