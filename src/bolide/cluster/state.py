"""How commands find and steer a running cluster: its state file and its control socket.

The process of `bolide cluster up` writes the file `cluster.json` into its data directory whenever a
member changes, and serves a Unix socket in a directory that only its user may enter. A request is a
JSON document on one line, and so is its answer.
"""

import asyncio
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from bolide.admin import AdminClient
from bolide.cluster.local_cluster import LocalCluster, MemberState
from bolide.cluster.network import remove_namespaces
from bolide.errors import BolideError, ConfigError

_FILE = "cluster.json"
_CONTROL_PREFIX = "bolide-cluster-"
_REQUEST_LIMIT = 64 * 1024
_ANSWER_WITHIN = 120.0
_ASK_WITHIN = 3.0
_END_WITHIN = 60.0


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the state file."""

    pid: int
    """The process that runs the cluster."""
    control: str
    """Its control socket."""
    network: str
    bridge: str = ""
    """With namespaces: the device that joins them."""
    name_servers: str
    members: tuple[MemberState, ...]

    @property
    def is_running(self) -> bool:
        return _runs(self.pid)


class NotRunning(BolideError):
    """There is no running cluster in a data directory."""

    def __init__(self, data: Path) -> None:
        is_left = (data / _FILE).exists()
        super().__init__(
            f"the cluster in {data} was killed; `bolide cluster down` ends what it left"
            if is_left
            else f"no cluster runs in {data}; start one with `bolide cluster up`"
        )


def read_state(data: Path) -> ClusterState | None:
    """The state file of a data directory, also of a cluster that was killed."""
    try:
        return msgspec.json.decode((data / _FILE).read_bytes(), type=ClusterState)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as exc:
        raise ConfigError(f"{data / _FILE}: not the state of a cluster ({exc})") from exc


def require_state(data: Path) -> ClusterState:
    """Raises NotRunning."""
    state = read_state(data)
    if state is None or not state.is_running:
        raise NotRunning(data)
    return state


class ControlServer:
    """Serves the commands of other processes while its `async with` block runs."""

    def __init__(self, cluster: LocalCluster, on_down: Callable[[], None]) -> None:
        self._cluster = cluster
        self._on_down = on_down
        self._directory = tempfile.mkdtemp(prefix=_CONTROL_PREFIX)
        self._socket = os.path.join(self._directory, "control")  # noqa: PTH118
        self._server: asyncio.Server | None = None
        self._watching: asyncio.Task[None] | None = None
        self._written = b""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(
            self._connected, self._socket, limit=_REQUEST_LIMIT
        )
        self.write_state()
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._watching:
            self._watching.cancel()
        if self._server:
            self._server.close()
        shutil.rmtree(self._directory, ignore_errors=True)
        with suppress(FileNotFoundError):
            (self._cluster.data / _FILE).unlink()

    def write_state(self) -> None:
        network = self._cluster.network
        state = ClusterState(
            pid=os.getpid(),
            control=self._socket,
            network=network.kind,
            bridge=getattr(network, "bridge", ""),
            name_servers=self._cluster.name_servers,
            members=tuple(self._cluster.states()),
        )
        data = msgspec.json.format(msgspec.json.encode(state), indent=1)
        if data != self._written:
            aside = self._cluster.data / f"{_FILE}.tmp"
            aside.write_bytes(data)
            aside.replace(self._cluster.data / _FILE)  # a reader finds a whole file
            self._written = data

    async def _watch(self) -> None:
        """Members also end by themselves."""
        while True:
            await asyncio.sleep(0.5)
            self.write_state()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await reader.readline())
            await self._apply(request)
            answer: dict[str, Any] = {}
        except (BolideError, ValueError, LookupError, TypeError) as exc:
            answer = {"error": str(exc)}
        self.write_state()
        with suppress(ConnectionError):
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _apply(self, request: dict[str, Any]) -> None:
        verb = request.pop("do")
        if verb == "down":
            self._on_down()
            return
        actions: dict[str, Callable[..., Awaitable[None] | None]] = {
            "kill": self._cluster.kill, "stop": self._cluster.stop, "start": self._cluster.start,
            "pause": self._cluster.pause, "resume": self._cluster.resume,
            "cut": self._cluster.cut, "slow": self._cluster.slow, "heal": self._cluster.heal,
        }  # fmt: skip
        if verb in {"kill", "stop", "pause", "resume"}:
            self._require_process(request["name"])
        result = actions[verb](**request)
        if result is not None:
            await result

    def _require_process(self, name: str) -> None:
        if self._cluster.process(name).pid is None:
            raise ConfigError(f"{name} does not run; `bolide cluster start {name}` starts it")


async def control(data: Path, verb: str, **arguments: Any) -> None:
    """Have a running cluster do something.

    Raises:
        NotRunning: there is no cluster.
        ConfigError: the cluster refuses; the text says why.
    """
    state = require_state(data)
    try:
        reader, writer = await asyncio.open_unix_connection(state.control)
    except OSError as exc:
        raise NotRunning(data) from exc
    writer.write(json.dumps({"do": verb, **arguments}).encode() + b"\n")
    async with asyncio.timeout(_ANSWER_WITHIN):
        answer = json.loads(await reader.readline() or b'{"error": "the cluster went down"}')
    writer.close()
    if "error" in answer:
        raise ConfigError(answer["error"])


async def take_down(data: Path) -> list[str]:
    """End a cluster; after a crash of its process, end what it left. Returns what was left.

    Raises:
        NotRunning: there is neither.
    """
    state = read_state(data)
    if state is None:
        raise NotRunning(data)
    if state.is_running:
        await control(data, "down")
        async with asyncio.timeout(_END_WITHIN):
            while state.is_running:  # noqa: ASYNC110  another process ends: no event tells
                await asyncio.sleep(0.05)
        return []
    left = [member for member in state.members if member.pid and _is_ours(member)]
    for member in left:
        assert member.pid is not None
        os.kill(member.pid, signal.SIGKILL)
    if state.bridge:
        await remove_namespaces(state.bridge)
    control_directory = Path(state.control).parent
    if control_directory.name.startswith(_CONTROL_PREFIX):
        shutil.rmtree(control_directory, ignore_errors=True)
    (data / _FILE).unlink()
    return [member.name for member in left]


async def masters(name_servers: str) -> dict[str, dict[int, str]] | None:
    """Addresses of the registered brokers by group and id; None if no NameServer answers."""
    try:
        async with asyncio.timeout(_ASK_WITHIN), AdminClient(name_servers) as admin:
            info = await admin.clusters.info()
    except (TimeoutError, BolideError, OSError):
        return None
    return {name: dict(each.broker_addrs) for name, each in info.broker_addr_table.items()}


def uptime(member: MemberState, now: Callable[[], float] = time.time) -> float | None:
    """Seconds since the last start; None if it does not run."""
    return None if member.pid is None else max(now() - member.started_at, 0.0)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _command_line(pid) != ""  # empty: a zombie


def _is_ours(member: MemberState) -> bool:
    """Whether the process is still the member: its id may belong to another one by now."""
    return member.pid is not None and member.directory in _command_line(member.pid)


def _command_line(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return "" if Path("/proc/self").exists() else "unknown"
    except OSError:
        return "unknown"
    return text.replace("\0", " ")
