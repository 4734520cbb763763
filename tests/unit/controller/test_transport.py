"""Connections between controllers: strangers, floods, failures, and what followers do not cut."""

import asyncio
import errno
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pysyncobj.poller import POLL_EVENT_TYPE, PollPoller
from pysyncobj.tcp_connection import TcpConnection

from bolide.controller import transport as module
from bolide.controller.raft import RaftAddresses, RaftListener, RaftNode
from bolide.controller.server import Controller
from bolide.controller.transport import Listener, PeerHosts, Transport
from tests.support.aio import on_loop, until
from tests.support.attackers import own_address
from tests.support.controllers import RAFT_OFFSET, controller, free_peers


@asynccontextmanager
async def pair(directory: Path, peers: str = "", **texts: str) -> AsyncIterator[list[Controller]]:
    """Two controllers, one of which leads."""
    peers = peers or free_peers(2)
    async with (
        controller(directory, peers, 0, **texts) as one,
        controller(directory, peers, 1, **texts) as other,
    ):
        await until(lambda: one.is_acting or other.is_acting)
        yield [one, other]


def raft_address(server: Controller) -> tuple[str, int]:
    host, port = server.config.value.own.address.rsplit(":", 1)
    return host.strip("[]"), int(port) + RAFT_OFFSET


def transport_of(server: Controller) -> Any:
    node: Any = server._log.node
    return node._node._SyncObj__transport


@pytest.mark.parametrize("password", ["hush", ""])
@on_loop
async def test_a_stranger_that_announces_a_long_message_is_cut_off(
    tmp_path: Path, password: str
) -> None:
    if password:
        pytest.importorskip("cryptography")
    async with pair(tmp_path, controllerRaftPassword=password) as servers:
        for server in servers:
            with socket.create_connection(raft_address(server)) as stranger:
                stranger.settimeout(5)
                with pytest.raises(ConnectionError):
                    await asyncio.to_thread(_flood, stranger)
        assert any(each.is_acting for each in servers)


def _flood(stranger: socket.socket) -> None:
    stranger.sendall(struct.pack("i", 0x7FFFFFFF))
    for _ in range(50):
        stranger.sendall(bytes(1 << 20))


@pytest.mark.parametrize(
    ("passwords", "told"),
    [
        (("hush", "other"), "another controllerRaftPassword than this one"),
        (("hush", ""), "controllerRaftPassword"),
    ],
)
@on_loop
async def test_a_peer_with_another_password_is_named(
    tmp_path: Path, passwords: tuple[str, str], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("cryptography")
    peers = free_peers(2)
    module._throttled.forget(("password", "127.0.0.1"))
    module._throttled.forget(("unread", "127.0.0.1"))
    async with (
        controller(tmp_path, peers, 0, controllerRaftPassword=passwords[0]) as one,
        controller(tmp_path, peers, 1, controllerRaftPassword=passwords[1]) as other,
    ):
        await until(lambda: "closed the Raft connection with 127.0.0.1:" in caplog.text)
        assert told in caplog.text
        assert not one.is_acting and not other.is_acting


@on_loop
async def test_few_connections_that_say_nothing_are_open_and_not_for_long(tmp_path: Path) -> None:
    async with pair(tmp_path) as servers:
        opened = [socket.create_connection(raft_address(servers[0])) for _ in range(60)]
        unknown = transport_of(servers[0])._unknownConnections
        await until(lambda: len(unknown) == module._MAX_UNKNOWN)
        await until(lambda: not unknown)
        for each in opened:
            each.setblocking(False)
            assert each.recv(1) == b""
            each.close()
        assert any(each.is_acting for each in servers)


@on_loop
async def test_hosts_without_a_controller_do_not_reach_the_raft_port(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    host = own_address()
    peers = free_peers(2).replace("127.0.0.1", host)
    async with pair(tmp_path, peers, controllerRaftPassword="hush") as servers:
        where = raft_address(servers[0])
        with socket.create_connection(where, source_address=("127.0.0.1", 0)) as stranger:
            stranger.settimeout(1.5)  # shorter than the time for an introduction
            assert await asyncio.to_thread(stranger.recv, 1) == b""
        with (
            socket.create_connection(where, source_address=(host, 0)) as peer,
            pytest.raises(TimeoutError),
        ):
            peer.settimeout(0.5)
            await asyncio.to_thread(peer.recv, 1)


@pytest.mark.parametrize(
    ("peers", "host", "is_admitted"),
    [
        (["192.0.2.1"], "192.0.2.1", True),
        (["192.0.2.1"], "::ffff:192.0.2.1", True),
        (["192.0.2.1"], "192.0.2.2", False),
        (["192.0.2.1"], "127.0.0.1", False),
        (["127.0.1.1"], "127.0.0.1", True),
        (["::1"], "192.0.2.2", False),
        ([], "127.0.0.1", False),
    ],
)
def test_connections_are_taken_from_the_hosts_of_controllers(
    peers: list[str], host: str, is_admitted: bool
) -> None:
    transport = Transport.__new__(Transport)
    transport._nodes = {FakePeer(each) for each in peers}
    assert transport._admits(host) == is_admitted


class FakePeer:
    def __init__(self, address: str) -> None:
        self.addresses = (address,)


@on_loop
async def test_a_raft_port_that_was_closed_is_opened_again(tmp_path: Path) -> None:
    async with pair(tmp_path) as servers:
        for server in servers:
            transport_of(server)._server.unbind()
        await until(lambda: all(transport_of(each)._server.is_bound for each in servers))
        for server in servers:
            socket.create_connection(raft_address(server)).close()


def test_a_listener_without_descriptors_closes_itself_and_can_be_bound_again() -> None:
    accepted: list[str] = []

    def accept(sock: socket.socket, peer: str) -> None:
        accepted.append(peer)
        sock.close()

    poller = PollPoller()
    listener = Listener(poller, ("127.0.0.1", 0), accept)
    listener.bind()
    working, listener._socket = listener._socket, Exhausted(listener._socket)  # type: ignore[assignment]
    assert working is not None
    address = working.getsockname()
    listener._ready(0, POLL_EVENT_TYPE.READ)
    assert not listener.is_bound
    listener.bind()
    with socket.create_connection(address) as peer:
        poller.poll(5)
        assert accepted == ["{}:{}".format(*peer.getsockname())]
    listener.unbind()


class Exhausted:
    """A listening socket in a process without free descriptors."""

    def __init__(self, real: Any) -> None:
        self.fileno, self.close = real.fileno, real.close

    def accept(self) -> None:
        raise OSError(errno.EMFILE, "Too many open files")


@on_loop
async def test_a_connection_that_nobody_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []
    connect = TcpConnection.connect

    def counting(self: TcpConnection, host: str, port: int) -> bool:
        attempts.append(port)
        return bool(connect(self, host, port))

    monkeypatch.setattr(TcpConnection, "connect", counting)
    with hole() as port:
        own = f"127.0.0.9:{port}"  # of two nodes the one with the greater address connects
        addresses = RaftAddresses(own=own, others=(f"127.0.0.1:{port}",), bind=own)
        node = RaftNode(addresses, tmp_path / "j", SILENT, loop=asyncio.get_running_loop())
        try:
            # The library alone waits until the kernel gives up an attempt, for two minutes.
            await until(lambda: len(attempts) > 2, within=60)
        finally:
            node.close()


SILENT = RaftListener(
    applied=lambda _: None, restored=lambda _: None, leads=lambda _: None, failed=lambda _: None
)


@contextmanager
def hole() -> Iterator[int]:
    """A port that drops every SYN, because its queue of connections is full."""
    with ExitStack() as opened:
        listening = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


@on_loop
async def test_a_lookup_that_hangs_does_not_stop_the_raft_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = free_peers(2).replace("127.0.0.1", "localhost")
    released = threading.Event()
    real = socket.getaddrinfo

    def hanging(host: Any, *more: Any, **named: Any) -> Any:
        if host == "localhost" and threading.current_thread() is not threading.main_thread():
            released.wait(30)
        return real(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    async with controller(tmp_path, peers, 0) as one, controller(tmp_path, peers, 1) as other:
        ticks = {one: 0, other: 0}
        for each in ticks:
            transport_of(each)._syncObj.addOnTickCallback(lambda each=each: count(ticks, each))
        await until(lambda: all(each > 50 for each in ticks.values()))
        assert not one.view.leader
        released.set()
        await until(lambda: bool(one.view.leader and other.view.leader))


def count(ticks: dict[Controller, int], server: Controller) -> None:
    ticks[server] += 1


def test_addresses_of_a_name_are_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["192.0.2.1", "::ffff:192.0.2.2"])
    asked = threading.Event()

    def lookup(*_: object, **__: object) -> list[Any]:
        try:
            return [(0, 0, 0, "", (next(answers), 0))]
        except StopIteration:
            asked.set()
            raise OSError("unknown") from None

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(module, "_RESOLVE_PERIOD", 0.01)
    hosts = PeerHosts(["name", "192.0.2.9"])
    assert asked.wait(5)
    hosts.close()
    assert hosts.addresses("name") == ("192.0.2.2",)
    assert hosts.addresses("192.0.2.9") == ("192.0.2.9",)
    assert hosts.addresses("other") == ()


class FakeNode:
    """What the transport sees of the library's object."""

    raftCurrentTerm = 2  # noqa: N815
    _SyncObj__raftLog = tuple((b"", index, 1 if index < 5 else 2) for index in range(3, 9))


def shortened(before: int, term_before: int, entries: list[tuple[bytes, int, int]]) -> Any:
    transport = Transport.__new__(Transport)
    transport._syncObj = FakeNode()
    message = {
        "type": "append_entries", "term": 2, "commit_index": 1, "entries": entries,
        "prevLogIdx": before, "prevLogTerm": term_before,
    }  # fmt: skip
    found = transport._without_known(message)
    return found["prevLogIdx"], found["prevLogTerm"], found["entries"]


def entry(index: int, term: int) -> tuple[bytes, int, int]:
    return b"", index, term


@pytest.mark.parametrize(
    ("before", "term", "entries", "expected"),
    [
        (8, 2, [entry(9, 2)], (8, 2, [entry(9, 2)])),
        (5, 2, [entry(6, 2), entry(7, 2)], (8, 2, [])),
        (5, 2, [], (8, 2, [])),
        (6, 2, [entry(7, 2), entry(8, 2), entry(9, 2)], (8, 2, [entry(9, 2)])),
        (3, 1, [entry(4, 1), entry(5, 3)], (4, 1, [entry(5, 3)])),
        (4, 9, [entry(5, 2)], (4, 9, [entry(5, 2)])),
        (1, 1, [entry(2, 1)], (1, 1, [entry(2, 1)])),
    ],
    ids=["new", "resent", "heartbeat", "overlap", "conflict", "other term", "before the log"],
)
def test_entries_that_are_known_are_not_cut(
    before: int,
    term: int,
    entries: list[tuple[bytes, int, int]],
    expected: tuple[int, int, list[tuple[bytes, int, int]]],
) -> None:
    assert shortened(before, term, entries) == expected
