"""How commands find and steer a running cluster, and clean up after one that was killed.

The process of `bolide cluster up` serves a Unix socket in a directory that only its user may enter;
the state file of the data directory names it. A request is a JSON document on one line, and so is
its answer.
"""

import asyncio
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bolide.admin import AdminClient
from bolide.cluster.data_directory import (
    ClusterState,
    DataDirectory,
    DataDirectoryTaken,
    MemberState,
    read_state,
)
from bolide.cluster.local_cluster import LocalCluster
from bolide.cluster.member_process import MEMBER_VARIABLE
from bolide.cluster.network import remove_namespaces
from bolide.errors import BolideError, ConfigError

_CONTROL_PREFIX = "bolide-cluster-"
_REQUEST_LIMIT = 64 * 1024
_ANSWER_WITHIN = 120.0
_ASK_WITHIN = 3.0
_END_WITHIN = 240.0
"""NameServers, controllers and brokers end one after the other, each within a minute."""
_KILL_WITHIN = 10.0
_WATCH_PERIOD = 0.5


class NotRunning(BolideError):
    """There is no running cluster in a data directory."""

    def __init__(self, data: Path) -> None:
        super().__init__(
            f"the cluster in {data} was killed; `bolide cluster down` ends what it left"
            if read_state(data) is not None
            else f"no cluster runs in {data}; start one with `bolide cluster up`"
        )


def require_state(data: Path) -> ClusterState:
    """Raises NotRunning."""
    state = read_state(data)
    if state is None or not state.is_running:
        raise NotRunning(data)
    return state


class ControlServer:
    """Serves the commands of other processes while its `async with` block runs.

    Its block surrounds that of the cluster, so that a cluster that starts can be taken down.
    """

    def __init__(self, cluster: LocalCluster, on_down: Callable[[], None]) -> None:
        self._cluster = cluster
        self._on_down = on_down
        self._directory = ""
        self._server: asyncio.Server | None = None
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._directory = tempfile.mkdtemp(prefix=_CONTROL_PREFIX)
        self._cluster.control = os.path.join(self._directory, "control")  # noqa: PTH118
        self._server = await asyncio.start_unix_server(
            self._connected, self._cluster.control, limit=_REQUEST_LIMIT
        )
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

    async def _watch(self) -> None:
        """Members also end by themselves."""
        while True:
            await asyncio.sleep(_WATCH_PERIOD)
            self._cluster.write_state()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await reader.readline())
            await self._apply(request)
            answer: dict[str, Any] = {}
        except (BolideError, ValueError, LookupError, TypeError, OSError) as exc:
            answer = {"error": str(exc) or type(exc).__name__}
        self._cluster.write_state()
        with suppress(ConnectionError):
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _apply(self, request: dict[str, Any]) -> None:
        verb = request.pop("do")
        if verb == "down":
            self._on_down()
            return
        if not self._cluster.is_open:
            raise ConfigError("the cluster is starting or stopping")
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
    if not state.control:
        raise ConfigError(
            f"the cluster in {data} takes no commands: it belongs to process {state.pid}"
        )
    try:
        reader, writer = await asyncio.open_unix_connection(state.control)
    except OSError as exc:
        raise NotRunning(data) from exc
    try:
        writer.write(json.dumps({"do": verb, **arguments}).encode() + b"\n")
        async with asyncio.timeout(_ANSWER_WITHIN):
            line = await reader.readline()
    except TimeoutError as exc:
        raise ConfigError(f"{verb}: no answer within {_ANSWER_WITHIN:g} s") from exc
    except OSError:
        line = b""
    finally:
        writer.close()
    if not line:
        raise ConfigError(f"{verb}: no answer; process {state.pid} of the cluster has ended")
    answer = json.loads(line)
    if "error" in answer:
        raise ConfigError(answer["error"])


async def take_down(data: Path) -> list[str]:
    """End a cluster; after a crash of its process, end what it left. Returns what was left.

    Raises:
        NotRunning: there is neither.
        ConfigError: it takes no commands, or does not end.
    """
    state = read_state(data)
    if state is None:
        raise NotRunning(data)
    directory = DataDirectory(data)
    try:
        directory.acquire()
    except DataDirectoryTaken:
        await _end_running(data, state)
        return []
    try:
        left = await _end_left(state)
        directory.remove_state()
    finally:
        directory.release()
    return left


async def _end_running(data: Path, state: ClusterState) -> None:
    await control(data, "down")
    try:
        async with asyncio.timeout(_END_WITHIN):
            while state.is_running:  # noqa: ASYNC110  another process ends: no event tells
                await asyncio.sleep(0.05)
    except TimeoutError as exc:
        raise ConfigError(
            f"the cluster in {data} does not end, process {state.pid}; kill it, and then"
            " `bolide cluster down` ends what it left"
        ) from exc


async def _end_left(state: ClusterState) -> list[str]:
    """Kill the members, and remove the network and the control socket."""
    names: set[str] = set()
    deadline = time.monotonic() + _KILL_WITHIN
    while found := _processes_of(state.members):  # again: it may have started a worker meanwhile
        names.update(found.values())
        if time.monotonic() > deadline:
            raise ConfigError(f"processes that cannot be killed: {', '.join(map(str, found))}")
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.02)
    if state.bridge:
        await remove_namespaces(state.bridge)
    control_directory = Path(state.control).parent
    if control_directory.name.startswith(_CONTROL_PREFIX):
        shutil.rmtree(control_directory, ignore_errors=True)
    return [member.name for member in state.members if member.name in names]


def _processes_of(members: Sequence[MemberState]) -> dict[int, str]:
    """All processes of members, worker processes too, with the name of the member; on Linux.

    Process ids in the state file may be old, and by now those of others; the workers of a broker
    that was killed have another parent. The environment of a process says which member it is.
    """
    wanted = {os.fsencode(f"{MEMBER_VARIABLE}={each.directory}"): each.name for each in members}
    found = {}
    with suppress(FileNotFoundError):
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError):  # it has ended, or is another user's
                variables = (entry / "environ").read_bytes().split(b"\0")
                for mark in wanted.keys() & variables:
                    found[int(entry.name)] = wanted[mark]
    return found


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
