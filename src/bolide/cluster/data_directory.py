"""The data directory of a cluster: a lock while it runs, and a state file for the commands.

The process that runs a cluster holds `cluster.lock`, and writes `cluster.json` whenever something
changes, from before its first member starts until its last one has stopped. If it is killed, the
kernel releases the lock, and the state file says what it left.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from bolide.errors import ConfigError
from bolide.private_files import FILE_MODE

_STATE_FILE = "cluster.json"
_LOCK_FILE = "cluster.lock"
_LOCK_VARIABLE = "BOLIDE_CLUSTER_LOCK"


class MemberState(msgspec.Struct, frozen=True, kw_only=True):
    """A member as `status` shows it and the state file has it."""

    name: str
    role: str
    address: str
    state: str
    """The first that applies of dead, paused, cut, slow and alive."""
    pid: int | None
    started_at: float
    """Wall clock time of its last start."""
    directory: str
    group: str = ""
    ports: tuple[int, ...] = ()
    cut_from: dict[str, str] = {}
    """Members, and `clients`, with which it cannot exchange everything, each with the direction: in
    (nothing reaches this member), out or both. A cut from everybody is one from `all`, and is not
    repeated at the others."""
    is_slow: bool = False
    """Whether all its links have been made slow."""


class Bridge(msgspec.Struct, frozen=True):
    """The device that joins the namespaces of a cluster."""

    name: str
    hardware: str
    """Its hardware address, by which it is known: after a restart of the machine another cluster
    may have a bridge of the same name."""


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the state file."""

    pid: int
    """The process that runs the cluster."""
    control: str = ""
    """Its control socket; empty if it takes no commands."""
    is_starting: bool = False
    network: str
    bridge: Bridge | None = None
    name_servers: str
    members: tuple[MemberState, ...]

    @property
    def is_running(self) -> bool:
        return _runs(self.pid)


class DataDirectoryTaken(ConfigError):
    """Another process runs a cluster there."""

    def __init__(self, data: Path) -> None:
        state = read_state(data)
        process = f", process {state.pid}" if state is not None and state.is_running else ""
        super().__init__(f"--data {data}: a cluster runs there already{process}")


class DataDirectory:
    """The hold of one process on a data directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._written = b""

    @property
    def is_held(self) -> bool:
        return self._descriptor >= 0

    def acquire(self) -> None:
        """Take the lock, or take over the one that the parent process passed.

        Raises:
            DataDirectoryTaken: another process holds it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self._descriptor = self._inherited()
        if self.is_held:
            return
        # flock, not lockf: it excludes another cluster of the same process, and is passed on.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._lock_file, flags, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            os.close(descriptor)
            raise DataDirectoryTaken(self.path) from exc
        self._descriptor = descriptor

    def acquire_for_start(self) -> None:
        """As `acquire`, and refuse a directory that a killed cluster has left.

        Raises:
            ConfigError: a cluster runs there, or was killed.
        """
        self.acquire()
        if self._state_file.exists():
            self.release()
            raise ConfigError(
                f"--data {self.path}: a cluster was killed there; `bolide cluster down --data"
                f" {self.path}` ends what it left"
            )

    def release(self) -> None:
        if self.is_held:
            os.close(self._descriptor)
            self._descriptor = -1

    @contextmanager
    def passed_on(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Pass the lock on to a child process that starts in this block.

        Yields:
            The file descriptor that it must inherit, and its environment.
        """
        assert self.is_held
        try:
            yield self._descriptor, {**os.environ, _LOCK_VARIABLE: str(self._descriptor)}
        finally:
            self.release()  # the child has it, too

    def _inherited(self) -> int:
        """The descriptor that the parent process passed; -1 without one."""
        text = os.environ.pop(_LOCK_VARIABLE, "")
        if not text.isdecimal():
            return -1
        descriptor = int(text)
        with suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), self._lock_file.stat()):
                os.set_inheritable(descriptor, False)
                return descriptor
        return -1

    def write(self, state: ClusterState) -> None:
        """Write the state file unless it says the same already."""
        data = msgspec.json.format(msgspec.json.encode(state), indent=1)
        if data != self._written:
            aside = self.path / f"{_STATE_FILE}.tmp"
            aside.write_bytes(data)
            aside.replace(self._state_file)  # a reader finds a whole file
            self._written = data

    def remove_state(self) -> None:
        if self.is_held:
            self._state_file.unlink(missing_ok=True)

    @property
    def _state_file(self) -> Path:
        return self.path / _STATE_FILE

    @property
    def _lock_file(self) -> Path:
        return self.path / _LOCK_FILE


def read_state(data: Path) -> ClusterState | None:
    """The state file of a data directory, also of a cluster that was killed."""
    file = data / _STATE_FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=ClusterState)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as exc:
        raise ConfigError(f"{file}: not the state of a cluster ({exc})") from exc


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""  # empty: a zombie
    except FileNotFoundError:
        return not Path("/proc/self").exists()  # not Linux
    except OSError:
        return True
