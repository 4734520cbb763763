"""A TCP proxy whose links can be cut and slowed.

A flow is what one member sends to another, whichever of them opened the connection. While a flow is
cut, its bytes are held, in connections that exist and in new ones; after the heal they arrive, as
after a real partition that TCP outlasts. Unlike there, a connection attempt succeeds during a cut:
the proxy accepts it, and then nothing arrives.

Programs cannot be told to connect from an address of their own, so the proxy asks the kernel which
process owns a connection: the inode of its socket in /proc/net/tcp, and the open files of the
members' processes. What belongs to no member belongs to CLIENTS.
"""

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

log = logging.getLogger(__name__)

CLIENTS = "clients"
"""The name of everything that is not a member."""

Flow = tuple[str, str]
"""Sender and receiver."""

_CHUNK = 64 * 1024
_QUEUED_CHUNKS = 64


@dataclass(slots=True)
class FlowState:
    """What happens to the bytes of a flow."""

    is_cut: bool = False
    delay: float = 0.0
    """Seconds by which each byte is late."""
    rate: float = 0.0
    """Bytes per second; 0 is unlimited."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def change(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    async def until_open(self) -> None:
        while self.is_cut:
            await self.changed.wait()


class Flows:
    """The state of all flows of a cluster."""

    def __init__(self) -> None:
        self._states: dict[Flow, FlowState] = {}

    def state(self, source: str, target: str) -> FlowState:
        return self._states.setdefault((source, target), FlowState())

    def cut(self, source: str, target: str) -> None:
        state = self.state(source, target)
        state.is_cut = True
        state.change()

    def slow(self, source: str, target: str, delay: float, rate: float = 0.0) -> None:
        state = self.state(source, target)
        state.delay, state.rate = delay, rate
        state.change()

    def heal(self, source: str, target: str) -> None:
        state = self.state(source, target)
        state.is_cut = False
        state.change()


class Proxy:
    """Listens in front of the ports of one member; belongs to one event loop.

    Args:
        name: the member behind it.
        owner_of: the member that a connection comes from, by its two addresses.
    """

    def __init__(
        self, name: str, flows: Flows, owner_of: Callable[["Address", "Address"], str]
    ) -> None:
        self._name = name
        self._flows = flows
        self._owner_of = owner_of
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int, target: "Address") -> int:
        """Forward connections to `target`; returns the port, also if 0 was given."""

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._connected(reader, writer, target)

        server = await asyncio.start_server(connected, host, port)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: "Address"
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        peer, own = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
        owner = await asyncio.to_thread(self._owner_of, peer, own)
        self._connections.add(task)
        try:
            await self._forward(owner, reader, writer, target)
        except asyncio.CancelledError:
            pass  # the proxy closes
        finally:
            self._connections.discard(task)
            writer.close()

    async def _forward(
        self,
        owner: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        target: "Address",
    ) -> None:
        towards = self._flows.state(owner, self._name)
        back = self._flows.state(self._name, owner)
        await towards.until_open()
        await back.until_open()
        try:
            far_reader, far_writer = await asyncio.open_connection(*target)
        except OSError:
            _reset(writer)  # as if nobody listened
            return
        pumps = [
            asyncio.create_task(_pump(reader, far_writer, towards)),
            asyncio.create_task(_pump(far_reader, writer, back)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            far_writer.close()


Address = tuple[str, int]


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: FlowState
) -> None:
    """Carry bytes until an end; an end of file is late and held like bytes."""
    loop = asyncio.get_running_loop()
    arriving: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUED_CHUNKS)

    async def read() -> None:
        data = b"-"
        while data:
            try:
                data = await reader.read(_CHUNK)
            except ConnectionError:
                data = b""
            await arriving.put((loop.time(), data))

    reading = asyncio.create_task(read())
    try:
        with suppress(ConnectionError):
            while True:
                came, data = await arriving.get()
                await asyncio.sleep(max(0.0, came + state.delay - loop.time()))
                await state.until_open()
                if not data:
                    return
                writer.write(data)
                await writer.drain()
                if state.rate:
                    await asyncio.sleep(len(data) / state.rate)
    finally:
        reading.cancel()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class ConnectionOwners:
    """Finds the member whose process opened a connection, on Linux.

    Args:
        processes: the process ids of each member, including its worker processes.
    """

    def __init__(self, processes: Callable[[], Mapping[str, Iterable[int]]]) -> None:
        self._processes = processes

    def owner_of(self, peer: Address, own: Address) -> str:
        inode = _socket_inode(peer, own)
        if inode is None:
            return CLIENTS
        wanted = f"socket:[{inode}]"
        for member, pids in self._processes().items():
            if any(_has_open(pid, wanted) for pid in pids):
                return member
        return CLIENTS


def _socket_inode(peer: Address, own: Address) -> int | None:
    ends = [_hex_address(peer), _hex_address(own)]
    try:
        lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    except OSError:  # not Linux
        return None
    for line in lines:
        words = line.split()
        if words[1:3] == ends:
            return int(words[9])
    return None


def _hex_address(address: Address) -> str:
    packed = struct.unpack("=I", socket.inet_aton(address[0]))[0]
    return f"{packed:08X}:{address[1]:04X}"


def _has_open(pid: int, wanted: str) -> bool:
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if str(entry.readlink()) == wanted:
                    return True
    return False


def descendants(pid: int) -> list[int]:
    """A process and its child processes, theirs and so on; empty if it has ended."""
    children: dict[int, list[int]] = {}
    with suppress(OSError):
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (parent := _parent(int(entry.name))) is not None:
                children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], deque([pid])
    while waiting:
        each = waiting.popleft()
        found.append(each)
        waiting += children.get(each, [])
    return found


def _parent(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[1])
