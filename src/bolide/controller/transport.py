"""Connections between the nodes of the quorum: PySyncObj's transport, hardened.

The Raft thread reads and writes them all, so a peer that keeps it busy stops elections. Connections
are taken from the hosts of the configured controllers only. One that has not identified itself may
send short messages for two seconds, and few of them are open at once.

`Transport` also mends three things of the library, whose private parts it touches; that is why the
version is pinned:

- It sends a small message on every connection each quarter of a second. The library closes a
  connection on the first send after a silence and drops that message, which between followers is
  the vote request.
- It drops entries that a follower already has before the library sees them. The library cuts
  everything behind the first resent entry, and a crash would forget acknowledged entries.
- It gives up connections that are not established within a second. The library waits for the
  operating system, up to a minute after the peer's machine is back.
"""

import errno
import logging
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from pysyncobj.node import TCPNode
from pysyncobj.poller import POLL_EVENT_TYPE
from pysyncobj.tcp_connection import CONNECTION_STATE, TcpConnection
from pysyncobj.transport import TCPTransport

from bolide.logs import ThrottledLog
from bolide.remoting.address import format_address, host_of, is_loopback_host
from bolide.remoting.host_names import as_ip_address, plain_host

log = logging.getLogger(__name__)
_throttled = ThrottledLog(log)  # used by Raft threads only

_PING_PERIOD = 0.25
_LISTEN_AGAIN = 1.0
_CONNECT_TIME = 1.0
_HANDSHAKE_TIME = 2.0
"""Seconds in which a peer must say who it is."""
_MAX_UNKNOWN = 16
"""Open connections that have not identified themselves."""
_SHORT_MESSAGE = 2048
"""Bytes; keys and addresses of nodes are shorter."""
_MAX_MESSAGE = 1024 * 1024
"""Bytes; entries travel in batches of 64 KiB, and snapshots in pieces of that size."""
_READS = 4
"""Reads of one connection before others have their turn."""
_BACKLOG = 128
_ACCEPTS = 32
_RESOLVE_PERIOD = 5.0

_LENGTH = struct.Struct("i")


class PeerHosts:
    """The IP addresses of the other controllers, looked up again every few seconds.

    A thread of its own does it, because a lookup may block for seconds. The addresses of a name
    that cannot be resolved any more stay valid.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self._found: dict[str, tuple[str, ...]] = {}
        self._names: list[str] = []
        self._closed = threading.Event()
        for host in hosts:
            address = as_ip_address(host)
            if address is None:
                self._names.append(host)
            else:
                self._found[host] = (address,)
        if self._names:
            threading.Thread(target=self._run, name="controller-names", daemon=True).start()

    def addresses(self, host: str) -> tuple[str, ...]:
        """All addresses of a host; none until its name is resolved."""
        return self._found.get(host, ())

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            for name in self._names:
                try:
                    told = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
                except (OSError, UnicodeError) as exc:
                    _throttled.warning(name, "cannot resolve controller %s: %s", name, exc)
                else:
                    self._found[name] = tuple({plain_host(str(each[4][0])) for each in told})
            self._closed.wait(_RESOLVE_PERIOD)


class RaftPeer(TCPNode):  # type: ignore[misc]  # the library has no types
    """Another controller as the library sees it."""

    def __init__(self, address: str, hosts: PeerHosts) -> None:
        super().__init__(address)
        self._hosts = hosts

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._hosts.addresses(self.host)

    @property
    def ip(self) -> str | None:
        """One of its addresses, IPv4 before IPv6; None if its name is not resolved."""
        found = self.addresses
        chosen = [each for each in found if ":" not in each] or found
        return random.choice(chosen) if chosen else None  # noqa: S311  no secret


class Transport(TCPTransport):  # type: ignore[misc]
    """Connections between nodes; see the module's description."""

    _last_ping = 0.0
    _listen_after = 0.0

    def send(self, node: Any, message: Any) -> bool:
        if isinstance(message, dict) and message.get("type") == "apply_command":
            return False
        return bool(super().send(node, message))

    def setOnMessageReceivedCallback(self, callback: Any) -> None:  # noqa: N802
        if callback is None:
            super().setOnMessageReceivedCallback(None)
            return

        def received(node: Any, message: Any) -> None:
            if message.get("type") != "apply_command":
                callback(node, self._without_known(message))

        super().setOnMessageReceivedCallback(received)

    def addNode(self, node: Any) -> None:  # noqa: N802
        super().addNode(node)
        made = self._connections.get(node)
        if made is not None:  # not connected yet: replaced by one that reads within limits
            conn = self._connection(_MAX_MESSAGE)
            conn.encryptor = made.encryptor
            conn.peer = node.id
            conn.setOnConnectedCallback(lambda: self._onOutgoingConnected(conn))
            conn.setOnMessageReceivedCallback(
                lambda message: self._onMessageReceived(node, message)
            )
            conn.setOnDisconnectedCallback(lambda: self._onDisconnected(conn))
            self._connections[node] = conn

    def _onTick(self) -> None:  # noqa: N802
        super()._onTick()
        now = time.monotonic()
        self._ping(now)
        self._close_slow(now)
        self._listen_again(now)

    def _ping(self, now: float) -> None:
        if now - self._last_ping > _PING_PERIOD:
            self._last_ping = now
            for node in list(self._nodes):
                if self._syncObj.isNodeConnected(node):
                    self.send(node, {"type": "ping"})

    def _close_slow(self, now: float) -> None:
        """Close connections that take too long to be established or to identify themselves."""
        for conn in [
            each for each in self._unknownConnections if now - each.since > _HANDSHAKE_TIME
        ]:
            conn.disconnect()
        for node in self._nodes:
            conn = self._connections.get(node)
            if conn is None or self._syncObj.isNodeConnected(node):
                continue
            waited = now - self._lastConnectAttempt.get(node, now)
            is_connecting = conn.state == CONNECTION_STATE.CONNECTING
            if waited > (_CONNECT_TIME if is_connecting else _HANDSHAKE_TIME):
                conn.disconnect()

    def _connectIfNecessarySingle(self, node: Any) -> bool:  # noqa: N802
        try:
            return bool(super()._connectIfNecessarySingle(node))
        except OSError as exc:  # no descriptor is left; the tick must go on
            _throttled.warning("connect", "cannot connect to controller %s: %s", node, exc)
            return False

    # The listener

    def _createServer(self) -> None:  # noqa: N802
        host, _, port = self._syncObj.conf.bindAddress.rpartition(":")
        self._server = Listener(self._syncObj._poller, (host, int(port)), self._accepted)  # noqa: SLF001

    def _listen_again(self, now: float) -> None:
        if not self._ready or self._server.is_bound or now < self._listen_after:
            return
        self._listen_after = now + _LISTEN_AGAIN
        try:
            self._server.bind()
        except OSError as exc:
            _throttled.warning("bind", "the Raft port cannot be opened again: %s", exc)
        else:
            log.warning("the Raft port is open again")

    def _accepted(self, sock: socket.socket, peer: str) -> None:
        if not self._admits(host_of(peer)):
            sock.close()
            _throttled.warning(
                "host", "refused %s at the Raft port: controllerDLegerPeers names no controller at"
                " its address", peer,
            )  # fmt: skip
            return
        if len(self._unknownConnections) >= _MAX_UNKNOWN:
            min(self._unknownConnections, key=lambda each: each.since).disconnect()
            _throttled.warning(
                "many", "too many connections to the Raft port, the last of %s", peer
            )
        conn = self._connection(_SHORT_MESSAGE, sock)
        conn.peer = peer
        self._onNewIncomingConnection(conn)

    def _admits(self, host: str) -> bool:
        """Whether one of the other controllers is at an address."""
        host = plain_host(host)
        known = {each for node in self._nodes for each in node.addresses}
        return host in known or (is_loopback_host(host) and any(map(is_loopback_host, known)))

    def _connection(
        self, max_message: int, sock: socket.socket | None = None
    ) -> "BoundedConnection":
        conf = self._syncObj.conf
        conn = BoundedConnection(
            poller=self._syncObj._poller,  # noqa: SLF001
            socket=sock,
            timeout=conf.connectionTimeout,
            sendBufferSize=conf.sendBufferSize,
            recvBufferSize=conf.recvBufferSize,
            keepalive=conf.tcp_keepalive,
        )
        conn.max_message = max_message
        return conn

    def _onIncomingMessageReceived(self, conn: Any, message: Any) -> None:  # noqa: N802
        is_key = self._syncObj.encryptor and not conn.sendRandKey
        node = self._nodeAddrToNode.get(message) if isinstance(message, str) else None
        if not is_key and (node is None or self._shouldConnect(node)):
            _throttled.warning("name", "refused a connection to the Raft port that no peer opened")
            conn.disconnect()
            return
        earlier = None if is_key else self._connections.get(node)
        super()._onIncomingMessageReceived(conn, message)
        if not is_key:
            conn.max_message = _MAX_MESSAGE
            if earlier is not None:  # the peer has given it up, perhaps without a word
                earlier.disconnect()

    def _without_known(self, message: Any) -> Any:
        """An append request without the entries that this node already has."""
        before = message.get("prevLogIdx")
        if message.get("type") != "append_entries" or before is None or "transmission" in message:
            return message
        journal = self._syncObj._SyncObj__raftLog  # noqa: SLF001
        first, last = journal[0][1], journal[-1][1]
        if (
            not first <= before < last
            or message["term"] < self._syncObj.raftCurrentTerm
            or journal[before - first][2] != message["prevLogTerm"]
        ):
            return message
        entries, known = message["entries"], 0
        while (
            known < len(entries)
            and before < last
            and journal[before + 1 - first][2] == entries[known][2]
        ):
            before += 1
            known += 1
        is_older = known == len(entries) and before < last
        if is_older and journal[before + 1 - first][2] == message["term"]:
            before = last  # the rest came from this leader too
        return {
            **message,
            "prevLogIdx": before,
            "prevLogTerm": journal[before - first][2],
            "entries": entries[known:],
        }


class BoundedConnection(TcpConnection):  # type: ignore[misc]
    """A connection that reads no message over `max_message`, and only so much at a time.

    The library takes any length from a peer, and reads until nothing is left.
    """

    max_message = _SHORT_MESSAGE
    peer = "?"
    """Address of the other side, for messages."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.since = time.monotonic()

    def _TcpConnection__processParseMessage(self) -> Any:  # noqa: N802
        """Say why a message cannot be read: the library closes the connection without a word."""
        received = self._TcpConnection__readBuffer
        message = super()._TcpConnection__processParseMessage()
        if message is None and self.state == CONNECTION_STATE.DISCONNECTED:
            self._explain(received)
        return message

    def _explain(self, received: bytes) -> None:
        host = host_of(self.peer)
        if self.encryptor is None:
            _throttled.warning(
                ("unread", host), "closed the Raft connection with %s: its message cannot be read."
                " Perhaps it has a controllerRaftPassword, and this controller has none", self.peer,
            )  # fmt: skip
            return
        (size,) = _LENGTH.unpack_from(received)
        try:
            self.encryptor.decrypt(received[_LENGTH.size : _LENGTH.size + size])
        except Exception:  # noqa: BLE001  of a package that may not be installed
            _throttled.warning(
                ("password", host), "closed the Raft connection with %s: its message cannot be"
                " decrypted. The controller there has another controllerRaftPassword than this"
                " one, or none", self.peer,
            )  # fmt: skip
        else:
            _throttled.warning(
                ("replay", host), "closed the Raft connection with %s: its message is older than"
                " the one before, or a copy; was its clock set back?", self.peer,
            )  # fmt: skip

    def _TcpConnection__tryReadBuffer(self) -> None:  # noqa: N802
        for _ in range(_READS):
            if not self._TcpConnection__processRead():
                break
            start = self._TcpConnection__readBuffer[: _LENGTH.size]
            if len(start) == _LENGTH.size:
                (size,) = _LENGTH.unpack(start)
                if not 0 < size <= self.max_message:
                    _throttled.warning(
                        "size", "closed a Raft connection: message of %s bytes", size
                    )
                    self.disconnect()
                    return
        self._TcpConnection__lastReadTime = time.monotonic()


class Listener:
    """The listening socket; closes itself if it fails, and can be bound again.

    Raises:
        OSError: by `bind`, if the port is taken.
    """

    def __init__(
        self,
        poller: Any,
        address: tuple[str, int],
        accepted: Callable[[socket.socket, str], None],
    ) -> None:
        self._poller = poller
        self._address = address
        self._accepted = accepted
        self._socket: socket.socket | None = None

    @property
    def is_bound(self) -> bool:
        return self._socket is not None

    def bind(self) -> None:
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setblocking(False)
            listening.bind(self._address)
            listening.listen(_BACKLOG)
        except OSError:
            listening.close()
            raise
        self._socket = listening
        self._address = listening.getsockname()[:2]  # a name is resolved once only
        self._poller.subscribe(
            listening.fileno(), self._ready, POLL_EVENT_TYPE.READ | POLL_EVENT_TYPE.ERROR
        )

    def unbind(self) -> None:
        if self._socket is not None:
            self._poller.unsubscribe(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _ready(self, _descriptor: int, event: int) -> None:
        if event & POLL_EVENT_TYPE.ERROR:
            log.warning("the Raft port failed and is opened again")
            self.unbind()
            return
        for _ in range(_ACCEPTS):
            if self._socket is None:
                return
            try:
                found, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as exc:
                if exc.errno == errno.ECONNABORTED:
                    continue
                # Without a free descriptor the poll would report the listener all the time.
                log.warning("the Raft port takes no connection, and is opened again: %s", exc)
                self.unbind()
                return
            try:
                found.setblocking(False)
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._accepted(found, format_address(address))
            except OSError as exc:  # the peer has gone
                log.debug("lost a new connection to the Raft port: %s", exc)
                found.close()
