"""The write lease of a table: at most one run writes at a time.

The lease is a file that only one run can create. Its holder writes heartbeats to a file of its own.
Another run may take the lease over when the last heartbeat is older than `STALE_AFTER`, or at once
if the holder's process on this machine is gone. The old holder detects the loss before its next
commit.
"""

import contextlib
import os
import socket
import threading
import time
from types import TracebackType
from typing import Self

import msgspec

from bolide.spark.archive.errors import LeaseLost, TableBusy
from bolide.spark.archive.files import Files

HEARTBEAT_INTERVAL = 10.0
STALE_AFTER = 60.0

_LEASE = "_bolide/writer.json"


class Holder(msgspec.Struct, frozen=True):
    run: str
    host: str
    pid: int
    at: float

    def __str__(self) -> str:
        return f"run {self.run} (process {self.pid} on {self.host})"


class Lease:
    """Held within its `with` block."""

    def __init__(self, files: Files, run: str) -> None:
        self._files = files
        self._run = run
        self._ended = threading.Event()
        self._heartbeat_thread = threading.Thread(
            target=self._send_heartbeats, name=f"lease-{run}", daemon=True
        )

    def __enter__(self) -> Self:
        """Raises TableBusy."""
        self._acquire()
        self._heartbeat_thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._heartbeat_thread.join()
        if (holder := _holder(self._files)) and holder.run == self._run:
            self._files.delete(_LEASE)
        self._files.delete(_heartbeat_path(self._run))

    def confirm(self) -> None:
        """Raises LeaseLost if another run has taken the lease over."""
        holder = _holder(self._files)
        if holder is None or holder.run != self._run:
            raise LeaseLost(self._files.url)

    def _acquire(self) -> None:
        held = Holder(self._run, socket.gethostname(), os.getpid(), time.time())
        for _ in range(3):  # two runs may find it stale at the same time
            with contextlib.suppress(FileExistsError):
                self._files.write_new(_LEASE, msgspec.json.encode(held))
                return
            self._remove_if_stale()
        raise TableBusy(self._files.url, "another run", STALE_AFTER)

    def _remove_if_stale(self) -> None:
        holder = _holder(self._files)
        if holder is None:
            return
        if not _is_stale(self._files, holder):
            raise TableBusy(self._files.url, str(holder), STALE_AFTER)
        self._files.delete(_LEASE)
        self._files.delete(_heartbeat_path(holder.run))

    def _send_heartbeats(self) -> None:
        while not self._ended.wait(HEARTBEAT_INTERVAL):
            with contextlib.suppress(OSError):  # a later heartbeat may succeed
                self._files.overwrite(_heartbeat_path(self._run), str(time.time()).encode())


def _holder(files: Files) -> Holder | None:
    try:
        return msgspec.json.decode(files.read(_LEASE), type=Holder)
    except FileNotFoundError:
        return None


def _is_stale(files: Files, holder: Holder) -> bool:
    if holder.host == socket.gethostname() and not _is_alive(holder.pid):
        return True
    return time.time() - _last_heartbeat(files, holder) > STALE_AFTER


def _last_heartbeat(files: Files, holder: Holder) -> float:
    try:
        return float(files.read(_heartbeat_path(holder.run)))
    except FileNotFoundError:
        return holder.at
    except ValueError:  # a heartbeat is being written
        return time.time()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _heartbeat_path(run: str) -> str:
    return f"_bolide/beats/{run}"
