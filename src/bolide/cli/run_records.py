"""Run records: which Bolide servers run on this machine, one private file per process.

A server writes its record when it starts, replaces it when it is ready, and removes it when it has
stopped. A killed server leaves its record, so a record counts only if its process exists: the
process must have the process id and the start time of the record, in the same PID namespace and
since the same boot of the system. A process id alone is not enough, because it is soon reused.

Records are read from BOLIDE_RUN_DIR, otherwise from ~/.bolide/run and /run/bolide, where the units
of systemd have them, and are written to the first of these. $XDG_RUNTIME_DIR is not used: it is
deleted when the user logs out, while servers may continue. /proc alone is not used either: it knows
neither the state of a server nor its data directory, and a command line may look like a server.
"""

import logging
import os
import pwd
import signal
import socket
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from bolide.private_files import SECRET_MODE, create_new_file, make_directory
from bolide.version import __version__

log = logging.getLogger(__name__)

DIRECTORY_VARIABLE = "BOLIDE_RUN_DIR"
SERVICES = Path("/run/bolide")
"""Records of servers that systemd started."""
_DIRECTORY_MODE = 0o700
_SUFFIX = ".json"
_MAX_SIZE = 64 * 1024
_LAST_TIME = 2**37
"""Far in the future, and still a date."""
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
"""Somebody may have put something else there: opening a pipe would wait for its writer."""

STARTING, READY, STOPPING = "starting", "ready", "stopping"
PAUSED = "paused"
"""Stopped by SIGSTOP."""
ELSEWHERE = "elsewhere"
"""In another container or on another machine that shares the directory: it may have ended."""

WORKERS, CLUSTER, STANDALONE = "workers", "cluster", "standalone"


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A server process, as it describes itself."""

    kind: str
    """namesrv, controller, broker, standalone, cluster or console."""
    name: str
    """The name of the broker, the id of the controller; empty for a NameServer."""
    pid: Annotated[int, msgspec.Meta(gt=0, lt=2**31)]
    started_at: Annotated[float, msgspec.Meta(ge=0, le=_LAST_TIME)]
    """Wall clock time."""
    start_ticks: Annotated[int, msgspec.Meta(ge=0)]
    """Clock ticks from the boot of the system to the start, as in /proc; 0 if unknown."""
    boot: str
    namespace: str
    host: str
    state: str = STARTING
    addresses: tuple[str, ...] = ()
    """What it listens on, host:port, the address for clients first."""
    data: str = ""
    version: str = __version__
    member_of: str = ""
    """WORKERS, CLUSTER or STANDALONE, if one of these started it and would miss it."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server whose record was found, and what the system says of its process now."""

    record: RunRecord
    state: str
    user: str
    is_own: bool
    """Whether record and process belong to the user of this process."""

    @property
    def label(self) -> str:
        """Its kind, name and process, for messages."""
        return f"{self.record.kind} {self.record.name}".strip() + f" (process {self.record.pid})"


class _Process(NamedTuple):
    """A process in /proc."""

    state: str
    start_ticks: int
    uid: int


class RecordFile:
    """The record of this process. A directory that cannot be written, or that others can write, is
    logged, and then ignored: a server must serve nevertheless."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self._directory: Path | None = next(iter(directories()), None)
        self._is_new = True

    def write(self, **changes: object) -> None:
        """Write the record, or replace it with changes."""
        if self._directory is None:
            return
        self.record = msgspec.structs.replace(self.record, **changes)
        aside = self._path.with_suffix(".tmp")
        try:
            if self._is_new:
                make_directory(self._directory.parent)
                self._directory.mkdir(_DIRECTORY_MODE, exist_ok=True)
                _check_private(self._directory)
                running_servers()  # removes what killed servers have left
                self._is_new = False
            aside.unlink(missing_ok=True)
            with create_new_file(aside, SECRET_MODE) as file:
                file.write(msgspec.json.encode(self.record))
            aside.replace(self._path)  # a reader finds a whole file
        except (OSError, ValueError) as exc:  # a path that is no UTF-8 is a ValueError
            log.warning("`bolide status` and `mqshutdown` do not know this process: %s", exc)
            self._directory = None

    def remove(self) -> None:
        if self._directory is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    @property
    def _path(self) -> Path:
        assert self._directory is not None
        return self._directory / f"{self.record.pid}-{self.record.start_ticks}{_SUFFIX}"


def record_of_this_process(
    kind: str, name: str, data: Path, addresses: Iterable[str], member_of: str = ""
) -> RunRecord:
    process = _process(os.getpid())
    return RunRecord(
        kind=kind,
        name=name,
        pid=os.getpid(),
        started_at=time.time(),
        start_ticks=process.start_ticks if process else 0,
        boot=_boot(),
        namespace=_namespace(),
        host=socket.gethostname(),
        addresses=tuple(addresses),
        data=str(data.absolute()),
        member_of=member_of,
    )


def running_servers() -> list[RunningServer]:
    """The servers that run, oldest first; removes the records of own servers that do not."""
    found: list[RunningServer] = []
    for directory in directories():
        with suppress(OSError):
            found += filter(None, map(_read, directory.glob(f"*{_SUFFIX}")))
    return sorted(found, key=lambda each: (each.record.started_at, each.record.pid))


def directories() -> list[Path]:
    """Where records are read, the first of which is written."""
    if chosen := os.environ.get(DIRECTORY_VARIABLE):
        return [Path(chosen)]
    try:
        return [Path.home() / ".bolide" / "run", SERVICES]
    except RuntimeError:  # a user without a home
        return [SERVICES]


def is_running(record: RunRecord) -> bool:
    """Whether the process of a record on this machine exists."""
    process = _process(record.pid)
    if process is None:
        return not _has_proc() and _exists(record.pid)
    return process.state not in "ZX" and process.start_ticks == record.start_ticks


def terminate(server: RunningServer) -> bool:
    """Send SIGTERM to an own server; False if it has ended already.

    A process may end, and its id be reused, at any time. Where the system has process descriptors,
    the process is checked once more after its descriptor was opened, which then stands for it.
    """
    assert server.is_own
    try:
        descriptor = os.pidfd_open(server.record.pid)
    except ProcessLookupError:
        return False
    except (AttributeError, OSError):  # not Linux, or an old one
        if is_running(server.record):
            os.kill(server.record.pid, signal.SIGTERM)
            return True
        return False
    try:
        if not is_running(server.record):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def _read(path: Path) -> RunningServer | None:
    """The server of a record; None if it does not run, or the file is not a record."""
    try:
        with os.fdopen(os.open(path, _READ), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                return None
            owner = found.st_uid
            record = msgspec.json.decode(file.read(_MAX_SIZE), type=RunRecord)
    except (OSError, msgspec.MsgspecError):
        return None
    user = _user_name(owner)
    if record.boot != _boot():
        if record.host != socket.gethostname():
            return RunningServer(record, ELSEWHERE, user, is_own=False)
    elif record.namespace != _namespace():
        return RunningServer(record, ELSEWHERE, user, is_own=False)
    elif is_running(record):
        process = _process(record.pid)
        state = PAUSED if process and process.state in "Tt" else record.state
        # Another user could write a record that names a process of this one.
        own = owner == os.geteuid() == (process.uid if process else owner)
        return RunningServer(record, state, user, is_own=own)
    if owner == os.geteuid():
        with suppress(OSError):
            path.unlink()
    return None


def _check_private(directory: Path) -> None:
    """Raises PermissionError if other users can put files there."""
    found = directory.stat()
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(
            f"other users can write to {directory}: chmod go-w {directory}, or set"
            f" {DIRECTORY_VARIABLE} to a directory of your own"
        )


def _process(pid: int) -> _Process | None:
    try:
        path = Path(f"/proc/{pid}/stat")
        fields = path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        return _Process(fields[0], int(fields[19]), path.stat().st_uid)
    except (OSError, IndexError, ValueError):
        return None


def _has_proc() -> bool:
    return Path("/proc/self/stat").exists()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115  not a path
    except OSError:
        return ""


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
