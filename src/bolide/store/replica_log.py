"""The log of a replica: bytes as its master sent them, and the queue units of whole records.

A master sends its log as a stream of bytes that is cut anywhere, so the end of a replica's log may
lie within a record. `end` is what the replica has and reports to its master; `dispatched` is the
end of the last whole record, up to which queue units and index keys exist. While a store replicates
it must take no other appends, which would make its log differ from the master's.
"""

import logging
import struct
import threading
from collections.abc import Callable
from typing import NamedTuple

from bolide.errors import BolideError
from bolide.kernel import Check, Scan, Stop, scan
from bolide.protocol.record import MAGIC_BLANK
from bolide.store.commit_log import CommitLog, LogFile
from bolide.store.health import DISK_SPACE, Health
from bolide.store.key_index import PendingKeys
from bolide.store.queue_dispatch import QueueDispatch
from bolide.store.queue_kinds import QueueKinds
from bolide.store.queue_table import QueueKey, QueueTable

log = logging.getLogger(__name__)

_HEAD = struct.Struct(">Ii")
_STRIDE = 4 * 1024 * 1024


class LogMismatch(BolideError):
    """What the master sent does not continue the log of this replica."""


class ReplicatedQueue(NamedTuple):
    """A queue that received records, with the log position behind them."""

    topic: bytes
    queue_id: int
    end: int


class ReplicaLog:
    """Appends a master's bytes to the log; thread-safe by the store's lock.

    Args:
        appended: called with the physical offset of the newest bytes, as
            `StoreMaintenance.appended`.
        add_units: called with the number of queue offsets that a dispatch added.
    """

    def __init__(  # noqa: PLR0913  parts of one store
        self,
        commit_log: CommitLog,
        queues: QueueTable,
        keys: PendingKeys,
        *,
        lock: threading.Lock,
        health: Health,
        delays: tuple[int, ...],
        appended: Callable[[int], None],
        add_units: Callable[[int], None],
        kinds: QueueKinds,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._keys = keys
        self._lock = lock
        self._health = health
        self._delays = delays
        self._appended = appended
        self._add_units = add_units
        self._kinds = kinds
        self._dispatch = QueueDispatch(
            commit_log,
            queues,
            gaps_allowed=True,
            on_skipped=kinds.note_skipped,
            left_out=kinds.left_out,
        )
        self.is_active = False
        """Whether the store replicates a master's log."""
        self.dispatched = 0

    @property
    def end(self) -> int:
        """Log position that the next bytes of the master must have."""
        return self._log.end

    def begin(self) -> None:
        """Take bytes of a master from now on, and no other appends.

        The log of a replica that goes on with another master may end within a record, so what was
        not dispatched yet stays so.
        """
        with self._lock:
            end = self._log.end
            self.dispatched = min(self.dispatched, end) if self.is_active else end
            self.is_active = True

    def finish(self) -> None:
        """Cut what follows the last whole record, and take appends again. Blocks.

        The caller has called `MessageStore.exclusively`.

        Raises:
            OSError: the disk fails; the call has to be repeated.
        """
        self.cut_incomplete()
        self._kinds.apply_proofs()  # the settings of these topics will not come
        while self._kinds.step():
            pass
        self.is_active = False

    def cut_incomplete(self) -> None:
        """Dispatch the whole records, and cut what follows them. Blocks.

        The caller has called `MessageStore.exclusively`.
        """
        try:
            self._dispatch_whole()
        except LogMismatch as exc:
            log.warning("%s", exc)
        if self._log.end > self.dispatched:
            log.warning(
                "cutting %s bytes of a record that the master did not send whole",
                self._log.end - self.dispatched,
            )
            self._log.cut(self.dispatched)

    def append(self, physical_offset: int, data: memoryview) -> None:
        """Append bytes that begin at a position of the master's log.

        A replica without a log begins where its master does.

        Raises:
            LogMismatch: the bytes do not begin where this log ends.
            StoreUnwritable: the disk fails. Until it is mended nothing may be appended: what lies
                behind the last sound record is erased then.
            OSError: the next file cannot be allocated.
        """
        with self._lock:
            if self._health.causes.keys() - {DISK_SPACE}:
                self._health.check()
            if not self._log.files and not self._log.end:
                self._log.open_at(physical_offset)
                self.dispatched = physical_offset
            if physical_offset != self._log.end:
                raise LogMismatch(
                    f"the master sent bytes from {physical_offset}, this log ends at"
                    f" {self._log.end}"
                )
            self._log.put_raw(data)

    def dispatch(self) -> list[ReplicatedQueue]:
        """Add queue units and keys of the records that have become whole.

        Returns:
            The queues that received messages.

        Raises:
            LogMismatch: the master's bytes are no records, or its files have another length.
        """
        with self._lock:
            touched = self._dispatch_whole()
            if self.dispatched > 0:
                self._appended(self.dispatched - 1)
        return [ReplicatedQueue(*key, end) for key, end in touched.items()]

    def _dispatch_whole(self) -> dict[QueueKey, int]:
        touched: dict[QueueKey, int] = {}
        while self.dispatched < self._log.written:
            file = self._log.find_file(self.dispatched)
            assert file is not None
            if not self._dispatch_some(file, touched):
                break
        return touched

    def _dispatch_some(self, file: LogFile, touched: dict[QueueKey, int]) -> bool:
        """Dispatch the records at the front; returns whether more may be dispatched."""
        start = self.dispatched - file.start
        received = min(self._log.written, file.end) - file.start
        view = file.view[:received]
        found = scan(
            view,
            start,
            min(start + _STRIDE, received),
            file.start,
            check=Check.NONE,  # TCP and the master have checked the bytes
            delays=self._delays,
            keys=self._keys.items is not None,
        )
        if found.count:
            self._add(found, file.start + found.end, touched)
        if found.stop is Stop.END:
            return found.end < received
        return self._stopped(file, view, found)

    def _add(self, found: Scan, end: int, touched: dict[QueueKey, int]) -> None:
        added = self._dispatch.add(found, end)
        self._add_units(sum(added.values()))
        if self._keys.items is not None:
            self._keys.items += found.keys
        self.dispatched = end
        touched |= dict.fromkeys(added, end)

    def _stopped(self, file: LogFile, view: memoryview, found: Scan) -> bool:
        """Judge what follows the whole records: a blank, the first part of a record, or damage."""
        at, left = found.end, len(view) - found.end
        if left < _HEAD.size:
            return False
        size, magic = _HEAD.unpack_from(view, at)
        if found.stop is Stop.BLANK or magic & 0xFFFF_FFFF == MAGIC_BLANK:
            if size != file.size - at:
                raise LogMismatch(
                    f"the master's log file that {file.path.name} belongs to has another length:"
                    " mappedFileSizeCommitLog must be the same in all members of a broker group"
                )
            if left < size:
                return False
            self.dispatched = file.end
            return True
        if found.stop is Stop.DAMAGED and size > left and at + size <= file.size:
            return False
        raise LogMismatch(
            f"the bytes at {file.start + at} of the master's log are no record:"
            f" {found.reason or found.stop.value}"
        )
