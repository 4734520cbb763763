"""The master's side of replication: sends the log to every slave and records what they have.

Each slave has a connection of its own. After its first report the log is sent from there on, in
transfers of at most `haTransferBatchSize`, straight from the mapped file; bytes that are not in
memory any more are read on a thread. A slave that reads slowly is sent no more than the write
buffer of its connection holds. What slaves report is announced by `on_report`.

In the plain dialect slaves do not say who they are, and their first report is no more than the
position from which they want the log. So two rules hold for what sends may count on:

- The first report of a connection counts up to where this log ended when this object was made.
  What is sent then, or a later report, shows that the slave has the bytes of this log.
- A connection does not count from the time when another one of the same host makes its first
  report until it reports again: both may be of one slave, whose older connection died silently.

A slave that has more than this log followed a master that has lost it. Its host is remembered, and
refused until its log ends where it is equal again.

Everything runs on the event loop. `wake` is called after each burst of appends.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, cast

from bolide.events import Listeners
from bolide.logs import ThrottledLog
from bolide.protocol.ha import (
    MAX_TRANSFER,
    EpochStart,
    HaProtocolError,
    MasterHello,
    SlaveHello,
    SlaveMessages,
    encode_epoch_header,
    encode_master_hello,
    encode_plain_header,
)
from bolide.remoting.address import format_address
from bolide.replication.epochs import Epochs
from bolide.replication.peers import PeerPolicy
from bolide.store.commit_log import CommitLog

log = logging.getLogger(__name__)

_WRITE_BUFFER = 4 * 1024 * 1024
"""Bytes sent to a slave and not yet taken by its socket at which sending pauses."""
_WRITE_SIZE = 1024 * 1024
"""Bytes that are handed to the socket at once."""
_COALESCED = 256 * 1024
"""With waiting sends absent, fewer bytes than this wait for `_COALESCE_DELAY`."""
_COALESCE_DELAY = 0.005
_CHECK_INTERVAL = 0.25
_MAX_LINKS = 256
"""Connections at once; beyond it, the oldest one that has not reported is closed."""
_HANDSHAKE_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimarySettings:
    """Settings of replication on the master's side; durations in seconds."""

    transfer_size: int = 32 * 1024
    heartbeat_interval: float = 5.0
    silence_limit: float = 20.0
    """A slave that sends nothing for so long is disconnected."""
    confirm_interval: float = 0.1
    """In controller mode an idle slave is told the confirmed position so often."""


class Primary:
    """Serves slaves while its `async with` block runs; belongs to one event loop.

    Args:
        epochs: of this log, in controller mode; None for the plain dialect.
        confirmed: the position that all replicas have, sent along in controller mode.
        policy: who may connect.
    """

    def __init__(  # noqa: PLR0913  what one server needs
        self,
        commit_log: CommitLog,
        settings: Callable[[], PrimarySettings],
        *,
        address: tuple[str, int],
        policy: PeerPolicy,
        epochs: Epochs | None = None,
        confirmed: Callable[[], int] = lambda: -1,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.log = commit_log
        self.settings = settings
        self.epochs = epochs
        self.confirmed = confirmed
        self._address = address
        self._policy = policy
        self._tls = tls
        self.slaves: set[SlaveLink] = set()
        """Connected slaves that have reported where their log ends."""
        self._links: dict[SlaveLink, None] = {}  # oldest first
        self.begun_at = commit_log.written
        """End of the log that slaves can have from before."""
        self._ahead: dict[str, int] = {}
        """By host, the end of a slave's log that was longer than this one (plain dialect)."""
        self.on_report: Listeners[[]] = Listeners()
        """Emitted when a slave reported, connected or left."""
        self.failures = ThrottledLog(log)
        """By host, of slaves, which connect again and again."""
        self.is_urgent = False
        """Whether sends wait for slaves, so that small transfers are not delayed."""
        self._delayed: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        host, port = self._address
        self._server = await loop.create_server(
            lambda: SlaveLink(self, self._policy), host, port, ssl=self._tls, reuse_address=True,
            ssl_handshake_timeout=_HANDSHAKE_TIMEOUT if self._tls else None,
        )  # fmt: skip
        self._checks = asyncio.create_task(self._check(), name="replication-primary")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._checks.cancel()
        await asyncio.gather(self._checks, return_exceptions=True)
        if self._delayed is not None:
            self._delayed.cancel()
        self._server.close()
        for link in list(self._links):
            link.abort()
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    def wake(self) -> None:
        """Send what was appended since the last call; soon if no send waits for it."""
        if self.is_urgent or self._is_much():
            self._send_all()
        elif self._delayed is None and self.slaves:
            self._delayed = asyncio.get_running_loop().call_later(_COALESCE_DELAY, self._send_all)

    def acks(self) -> dict[int, int]:
        """What the connected slaves reported, by broker id, which controller mode tells."""
        found: dict[int, int] = {}
        for slave in self.slaves:
            if slave.broker_id >= 0 and not slave.is_learner:
                found[slave.broker_id] = max(slave.acked, found.get(slave.broker_id, -1))
        return found

    def metadata_copied(self, broker_id: int) -> None:
        """A slave has adopted the tables of this master."""
        for slave in self._links:
            if slave.broker_id == broker_id:
                slave.lacks_metadata = False

    def is_joinable(self, broker_id: int) -> bool:
        """Whether a slave has all that it needs to become master, besides the log."""
        return any(
            slave.broker_id == broker_id and not slave.lacks_metadata for slave in self.slaves
        )

    def positions(self) -> list[int]:
        """What each connected slave has, as far as sends may count on it."""
        return [slave.counted for slave in self.slaves if not slave.is_doubtful]

    def link_opened(self, link: "SlaveLink") -> None:
        self._links[link] = None
        if len(self._links) > _MAX_LINKS:
            oldest = next((each for each in self._links if each not in self.slaves), link)
            log.warning("closing replication to %s: too many connections", oldest.peer)
            oldest.abort()

    def link_reported(self, link: "SlaveLink", *, is_first: bool) -> None:
        if is_first:
            for other in self.slaves:
                other.is_doubtful |= other.host == link.host
        link.is_doubtful = False
        self.slaves.add(link)
        self.on_report()

    def link_closed(self, link: "SlaveLink") -> None:
        self._links.pop(link, None)
        if link in self.slaves:
            self.slaves.discard(link)
            self.on_report()

    def disconnect(self, broker_id: int) -> None:
        """Close the connections of a slave; what it reported on them does not count any more."""
        for link in [each for each in self._links if each.broker_id == broker_id]:
            self.link_closed(link)
            link.abort()

    def close_others(self, link: "SlaveLink") -> None:
        """Close older connections of a slave that has connected again."""
        for other in [each for each in self._links if each.broker_id == link.broker_id]:
            if other is not link:
                other.abort()

    def check_lineage(self, link: "SlaveLink", offset: int) -> None:
        """Check that a slave's log may be the first part of this one.

        Raises:
            HaProtocolError: it is longer, or was when another slave of its host connected.
        """
        if offset > self.log.written:
            if self.epochs is None:
                self._remember_ahead(link, offset)
            raise HaProtocolError(
                f"the slave is ahead: it has {offset}, this log ends at {self.log.written}"
            )
        if offset <= self.begun_at:
            self._ahead.pop(link.host, None)  # what it has is equal
        elif offset <= self._ahead.get(link.host, -1):
            raise HaProtocolError(
                f"it has {offset}, and a slave there has bytes that this log lacks: copy it anew"
            )

    def _remember_ahead(self, link: "SlaveLink", offset: int) -> None:
        if link.host not in self._ahead:
            log.error(
                "slave %s has %s, but this log ends at %s: this master has lost the end of its log,"
                " or the slave followed another one. Stop the slave, move its store away and start"
                " it, and it copies this log; `bolide store dump` shows what only the slave has",
                link.peer, offset, self.log.written,
            )  # fmt: skip
        self._ahead[link.host] = max(offset, self._ahead.get(link.host, 0))

    def _is_much(self) -> bool:
        end = self.log.written
        return any(end - slave.position >= _COALESCED for slave in self.slaves)

    def _send_all(self) -> None:
        if self._delayed is not None:
            self._delayed.cancel()
            self._delayed = None
        for slave in self.slaves:
            slave.send_more()

    async def _check(self) -> None:
        """Send heartbeats and disconnect silent slaves."""
        while True:
            await asyncio.sleep(_CHECK_INTERVAL)
            for link in list(self._links):
                try:
                    link.check()
                except Exception:
                    log.exception("closing replication to %s", link.peer)
                    link.abort()


class SlaveLink(asyncio.Protocol):
    """The connection of one slave."""

    def __init__(self, primary: Primary, policy: PeerPolicy) -> None:
        self._primary = primary
        self._policy = policy
        self._messages = SlaveMessages(with_epochs=primary.epochs is not None)
        self._transport: asyncio.Transport
        self.peer = self.host = "?"
        self.broker_id = -1
        self.is_learner = False
        self.lacks_metadata = False
        """Whether the slave is of ours and has not copied the master's tables yet."""
        self.position = -1
        """Log position to be sent next; -1 until the slave has reported."""
        self.acked = -1
        """End of the slave's log, as it reported."""
        self.counted = -1
        """What of it sends may count on."""
        self.is_doubtful = False
        """Whether this may be the dead connection of a slave that has connected again."""
        self._hello: SlaveHello | None = None
        self._from_last_file = False
        self._is_paused = False
        self._reading: asyncio.Task[None] | None = None
        self.sent = 0
        """Bytes of the log sent on this connection."""
        self.rate = 0
        """Bytes of the log sent in the last whole second."""
        self._counted, self._counted_at = 0, 0.0
        self._last_read = self._last_write = 0.0
        self._told = -1  # confirmed position in the last header

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()
        self._last_read = self._last_write = self._counted_at = self._loop.time()
        name = transport.get_extra_info("peername")
        self.peer, self.host = (format_address(name), str(name[0])) if name else ("?", "?")
        if not self._policy.admits(name[0] if name else ""):
            log.warning(
                "refusing replication to %s: it is no known replica; %s",
                self.peer, self._policy.advice,
            )  # fmt: skip
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER)
        self._primary.link_opened(self)

    def data_received(self, data: bytes) -> None:
        self._last_read = self._loop.time()
        try:
            for message in self._messages.feed(data):
                if isinstance(message, SlaveHello):
                    self._greet(message)
                else:
                    self._reported(message)
        except HaProtocolError as exc:
            log.warning("closing replication to %s: %s", self.peer, exc)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reading is not None:
            self._reading.cancel()
        if self.position >= 0:
            log.info("slave %s left at %s%s", self.peer, self.acked, f": {exc}" if exc else "")
        self._primary.link_closed(self)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.send_more()

    # ---- the slave's messages

    def _greet(self, hello: SlaveHello) -> None:
        epochs = self._primary.epochs
        assert epochs is not None
        if self._hello is not None:
            # RocketMQ's slave repeats it until it has the whole answer. One answer is enough.
            if hello != self._hello or self.position >= 0:
                raise HaProtocolError("a second handshake")
            return
        self._hello = hello
        self.broker_id, self.is_learner = hello.broker_id, hello.is_learner
        self.lacks_metadata = hello.copies_metadata
        self._from_last_file = hello.from_last_file
        self._primary.close_others(self)
        last = epochs.last
        answer = MasterHello(self._primary.log.written, last.epoch if last else -1, tuple(epochs))
        self._write(encode_master_hello(answer))

    def _reported(self, offset: int) -> None:
        if self._primary.epochs is not None and self.broker_id < 0:
            raise HaProtocolError("a report before the handshake")
        commit_log = self._primary.log
        is_first = self.position < 0
        if is_first:
            self._primary.check_lineage(self, offset)
        if offset > self.position >= 0:
            raise HaProtocolError(f"the slave claims {offset}, but {self.position} was sent")
        if is_first:
            self.position = self._start(offset)
            log.info(
                "slave %s follows from %s, %s bytes behind",
                self.peer, self.position, commit_log.written - self.position,
            )  # fmt: skip
        self.acked = self.counted = offset
        if is_first and self._primary.epochs is None:
            self.counted = min(offset, self._primary.begun_at)
        self._primary.link_reported(self, is_first=is_first)
        if is_first:  # later, `wake` and `resume_writing` decide when to send
            self.send_more()

    def _start(self, offset: int) -> int:
        """Where to begin: what retention has removed cannot be sent."""
        commit_log = self._primary.log
        if offset == 0 and self._from_last_file and commit_log.files:
            return commit_log.files[-1].start
        return max(offset, commit_log.min_offset)

    # ---- sending

    def send_more(self) -> None:
        """Send the log from `position` on until it is all sent or the slave falls behind."""
        commit_log = self._primary.log
        if self.position < 0 or self._reading is not None:
            return
        while not self._is_paused and self.position < commit_log.written:
            if not commit_log.is_hot(self.position):
                self._reading = self._loop.create_task(self._send_cold())
                return
            data = commit_log.read_block(self.position, 1, _WRITE_SIZE, may_block=True)
            if data is None:
                self._lost_position()
                return
            self._write_in_transfers(data)

    async def _send_cold(self) -> None:
        """Send bytes that have to be read from the disk, up to the hot part of the log."""
        commit_log = self._primary.log
        try:
            while not self._is_paused and not commit_log.is_hot(self.position):
                data = await asyncio.to_thread(_read_cold, commit_log, self.position)
                if data is None:
                    self._lost_position()
                    return
                self._write_in_transfers(data)
        except Exception as exc:  # noqa: BLE001  nobody awaits this task
            self._primary.failures.warning(
                self.host, "closing replication to %s: cannot send the log from %s: %s",
                self.peer, self.position, exc, exc_info=None if isinstance(exc, OSError) else exc,
            )  # fmt: skip
            self.abort()
            return
        finally:
            self._reading = None
        self.send_more()

    def _write_in_transfers(self, data: memoryview) -> None:
        """Send a part of the log. Copies it, because its file may be unmapped before it is sent."""
        most = min(self._primary.settings().transfer_size, MAX_TRANSFER)
        parts: list[bytes | memoryview] = []
        at = 0
        while at < len(data):
            part = data[at : at + self._transfer_size(most)]
            parts += (self._header(len(part)), part)
            at += len(part)
            self._advance(len(part))
        self._write(b"".join(parts))

    def _lost_position(self) -> None:
        log.warning("closing replication to %s: retention has removed %s", self.peer, self.position)
        self.abort()

    def _advance(self, size: int) -> None:
        self.position += size
        self.sent += size

    def _transfer_size(self, most: int) -> int:
        """Bytes of the next transfer, which lies within one epoch."""
        if self._primary.epochs is not None:
            found = self._primary.epochs.at(self.position)
            if found is not None and found[1] >= 0:
                most = min(most, found[1] - self.position)
        return max(most, 1)

    def _header(self, size: int) -> bytes:
        if self._primary.epochs is None:
            return encode_plain_header(self.position, size)
        # An empty transfer stands at the end of the log, in the epoch that goes on there.
        found = self._primary.epochs.at(self.position)
        self._told = self._primary.confirmed()
        epoch = found[0] if found else EpochStart(-1, 0)
        return encode_epoch_header(self.position, size, epoch, self._told)

    def _write(self, data: bytes) -> None:
        self._last_write = self._loop.time()
        self._transport.write(data)

    def check(self) -> None:
        """Send what is left to send, and a heartbeat if it is due; disconnect a silent slave."""
        now, settings = self._loop.time(), self._primary.settings()
        if now - self._counted_at >= 1.0:
            self.rate = int((self.sent - self._counted) / (now - self._counted_at))
            self._counted, self._counted_at = self.sent, now
        if now - self._last_read > settings.silence_limit:
            log.warning(
                "closing replication to %s: silent for %.0f s", self.peer, now - self._last_read
            )
            self.abort()
            return
        self.send_more()  # appends that no burst announced
        if self.position >= 0 and self._is_heartbeat_due(now, settings):
            self._write(self._header(0))

    def _is_heartbeat_due(self, now: float, settings: PrimarySettings) -> bool:
        idle = now - self._last_write
        if idle >= settings.heartbeat_interval:
            return True
        is_news = self._primary.epochs is not None and self._primary.confirmed() != self._told
        return is_news and idle >= settings.confirm_interval

    def abort(self) -> None:
        self._transport.abort()


def _read_cold(commit_log: CommitLog, position: int) -> memoryview | None:
    """Bytes of a log from its disk; None if it does not have them any more. Blocks.

    Raises:
        OSError: they cannot be read.
    """
    data = commit_log.read_block(position, 1, _WRITE_SIZE, may_block=True)
    if data is not None and not data:
        raise OSError("a file of the log is shorter than it was")
    return data
