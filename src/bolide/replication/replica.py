"""The slave's side of replication: follows a master's log and reports what it has.

`Replica.run` connects to the HA address of the master, again and again. Received bytes are
appended to the log, whole records are dispatched to their queues, and the end of the log is
reported: what is in the files, or with SYNC_FLUSH what is on the disk. Bytes that cannot be
dispatched are not reported.

In the plain dialect the master first sends the end of this log again, which must be equal
(`overlap`). On a slow link that takes as long as it takes: a master lacks these bytes only if it
sends heartbeats in their place.

In controller mode a connection begins with a handshake. The master sends the epochs of its log;
what this log has behind the last common point was never confirmed and is cut off, on the disk,
before the first report. A master of an older epoch than the newest known one is refused: it is
deposed and must not count this replica.
"""

import asyncio
import logging
import math
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from bolide.errors import BolideError
from bolide.events import Listeners
from bolide.protocol.ha import (
    MasterHello,
    MasterMessages,
    SlaveHello,
    Transfer,
    encode_report,
    encode_slave_hello,
)
from bolide.protocol.record import MAGIC_V1, MAGIC_V2, RECORD_HEAD
from bolide.remoting.address import split_address
from bolide.remoting.tasks import uninterrupted
from bolide.replication.epochs import Epochs, are_possible, common_point
from bolide.replication.overlap import Overlap, read_overlap
from bolide.store.flusher import Flushed
from bolide.store.message_store import MessageStore
from bolide.store.replica_log import LogMismatch, ReplicatedQueue
from bolide.store.truncation import Truncation, truncate_store

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_CONNECT_TIMEOUT = 3.0
_PATIENCE = 5.0
"""Seconds for which a master may owe its handshake, or go on sending the end of this log."""
_LONGEST_WAIT = 1.0
"""Seconds between two checks whether the master is still the one to follow."""
_UNVERIFIED = 1
"""Reported while the end of this log is compared: nothing that a send can count on. It is not 0,
for which RocketMQ's master sends its newest file."""
_MAX_RECEIVED = 8 * 1024 * 1024
"""Bytes that are received and not appended at which reading pauses."""


class MasterRefused(BolideError):
    """The master of a replication connection must not be followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """Settings of replication on the slave's side; durations in seconds."""

    heartbeat_interval: float = 5.0
    """The end of the log is reported at least this often."""
    silence_limit: float = 20.0
    """A master that sends nothing for so long is left."""
    broker_id: int = 1
    from_last_file: bool = False
    is_learner: bool = False


class Replica:
    """Follows one master at a time; belongs to one event loop. `run` is its task.

    Args:
        master: returns the HA address of the master, `host:port`; None while it is unknown.
        epochs: of this log, in controller mode; None for the plain dialect.
        fence: returns the newest known epoch; masters of older epochs are refused.
    """

    def __init__(
        self,
        store: MessageStore,
        settings: Callable[[], ReplicaSettings],
        *,
        master: Callable[[], str | None],
        epochs: Epochs | None = None,
        fence: Callable[[], int] = lambda: -1,
        tls: Callable[[str], ssl.SSLContext | None] = lambda _: None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._master = master
        self._epochs = epochs
        self._fence = fence
        self._tls = tls
        self._link: _MasterLink | None = None
        self._connections = 0
        self._is_settled = False
        """Whether this log continues the connected master's, and is not being cut."""
        self._checked = 0
        """End of the log when it was last dispatched: only that is reported."""
        self.on_arrived: Listeners[list[ReplicatedQueue]] = Listeners()
        """Emitted with the queues that received messages."""
        self.on_confirmed: Listeners[int] = Listeners()
        """Emitted with the position up to which consumers may read, in controller mode."""
        self.truncations: list[Truncation] = []
        """What was cut off since the start."""
        self.last_read = self.last_write = 0.0
        self.received = 0
        """Bytes of the log received since the start."""
        self._failing = ""

    def last_read_time(self) -> float:
        """Unix time of the last bytes from the master; 0 before the first."""
        return _wall_time(self.last_read)

    def last_write_time(self) -> float:
        """Unix time of the last report to the master; 0 before the first."""
        return _wall_time(self.last_write)

    @property
    def master(self) -> str | None:
        """HA address of the connected master."""
        return self._link.address if self._link else None

    @property
    def following(self) -> int:
        """Number of the connection whose master's log this one continues; 0 if there is none.

        What a master tells counts for a slave only then: a master that lost its log knows less.
        """
        link = self._link
        follows = link is not None and self._is_settled and link.overlap is None
        return self._connections if follows else 0

    async def run(self) -> None:
        """Follow the master until cancelled."""
        self._loop = asyncio.get_running_loop()
        self._store.on_flushed(self._flushed_on_thread)
        try:
            await self._follow_masters()
        finally:
            self._store.off_flushed(self._flushed_on_thread)

    async def _follow_masters(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            address = self._master()
            if address is not None:
                try:
                    await self._follow(address)
                    pause = _FIRST_PAUSE
                except Exception as exc:  # noqa: BLE001  logged; the next attempt follows
                    self._report_failure(address, exc)
                    pause = min(pause * 2, _LONGEST_PAUSE)
                    if isinstance(exc, LogMismatch):
                        pause = _LONGEST_PAUSE
            await asyncio.sleep(pause)

    def _report_failure(self, address: str, exc: Exception) -> None:
        """Log the first failure of a series only."""
        text = f"{address}: {exc or type(exc).__name__}"
        if text != self._failing:
            level = logging.ERROR if isinstance(exc, LogMismatch) else logging.WARNING
            log.log(level, "cannot replicate from %s", text)
            self._failing = text

    # ---- one connection

    async def _follow(self, address: str) -> None:
        """Connect and follow until the connection ends or the address changes."""
        host, port = split_address(address)
        async with asyncio.timeout(_CONNECT_TIMEOUT):
            _, link = await self._loop.create_connection(
                lambda: _MasterLink(address, with_epochs=self._epochs is not None),
                host, port, ssl=(context := self._tls(host)),
                server_hostname=host if context else None,
            )  # fmt: skip
        self._link = link
        self._connections += 1
        self.last_read = self.last_write = self._loop.time()
        try:
            await self._settle()
            if self._epochs is None:
                await self._ask_for_overlap(link)
            else:
                await self._shake_hands(link)
            self._is_settled = True
            await self._transfer(link)
        except LogMismatch:
            # What follows the last whole record did not come from the log of this group.
            self._is_settled = False
            await uninterrupted(asyncio.to_thread(self._store.cut_incomplete))
            raise
        finally:
            self._is_settled = False
            self._link = None
            link.abort()

    def _note_progress(self, link: "_MasterLink") -> None:
        """Log once that the master sends, and that its log is this one's."""
        if not link.is_followed and link.overlap is None:
            link.is_followed = True
            log.info("replicating from %s at %s", link.address, self._store.replica.end)
            self._failing = ""

    async def _settle(self) -> None:
        """Flush and dispatch what the last connection left: the first report has to be the end."""
        if self._store.reportable_end < self._store.log.end:
            await uninterrupted(asyncio.to_thread(self._store.flush))
        self._announce(self._dispatch())

    async def _ask_for_overlap(self, link: "_MasterLink") -> None:
        """Have the master send from before the end of this log on."""
        overlap = await asyncio.to_thread(read_overlap, self._store.log)
        link.overlap = overlap if overlap.data else None
        link.compared_at = self.last_write = self._loop.time()
        link.send_report(overlap.position)

    async def _transfer(self, link: "_MasterLink") -> None:
        """Append what the master sends, until the connection ends."""
        while True:
            settings, now = self._settings(), self._loop.time()
            report_at = self.last_write + _report_interval(link, settings)
            data = await link.receive(min(report_at, now + _LONGEST_WAIT))
            now = self._loop.time()
            if link.failure is not None:
                raise link.failure
            if data:
                self.last_read, link.has_answered = now, True
                confirmed = await self._append_all(link, data)
                self._note_progress(link)
                arrived = self._dispatch()
                self._report(link)  # at once, because sends on the master may wait for it
                self._announce(arrived, confirmed)
            elif link.is_closed:
                raise link.is_lost()
            if self._master() != link.address:
                return
            if now - self.last_read > settings.silence_limit:
                raise TimeoutError(f"silent for {now - self.last_read:.0f} s")
            if now - self.last_write >= _report_interval(link, settings):
                self._send_report(link)

    async def _append_all(self, link: "_MasterLink", data: bytes) -> int:
        """Append the transfers that have arrived whole; returns the last confirmed position."""
        confirmed = -1
        for message in link.messages.feed(data):
            if isinstance(message, MasterHello):
                raise MasterRefused("it sent its epochs in the middle of a transfer")
            transfer = self._compare(link, message)
            if transfer.data:
                await self._make_room(link, transfer)
            if self._epochs is not None:
                await self._follow_epoch(self._epochs, transfer)
                confirmed = max(confirmed, transfer.confirmed)
            if transfer.data:
                self._store.replica.append(transfer.offset, memoryview(transfer.data))
                self.received += len(transfer.data)
            if message.data:
                link.has_transferred = True
        return confirmed

    def _compare(self, link: "_MasterLink", transfer: Transfer) -> Transfer:
        """Compare what the master sends again; returns what is new.

        Raises:
            LogMismatch: the logs differ, or the master has nothing of this to send.
        """
        if link.overlap is None:
            return transfer
        if not transfer.data:
            if self._loop.time() - link.compared_at >= _PATIENCE:
                raise link.overlap.is_missing()
            return transfer
        new = link.overlap.compare(transfer)
        link.compared_at = self._loop.time()
        if not link.overlap.data:
            link.overlap = None
        return new

    def _dispatch(self) -> list[ReplicatedQueue]:
        """Add what has become whole to the queues."""
        end = self._store.reportable_end  # first: the flusher's thread may go on meanwhile
        arrived = self._store.replica.dispatch()
        self._checked = end
        return arrived

    def _announce(self, arrived: list[ReplicatedQueue], confirmed: int = -1) -> None:
        """Tell what was dispatched; it is readable up to a confirmed position."""
        if confirmed >= 0:
            self._store.log.confirmed = min(confirmed, self._store.log.written)
            self.on_confirmed(self._store.log.confirmed)
        if arrived:
            self.on_arrived(arrived)
        self._store.end_burst()

    async def _make_room(self, link: "_MasterLink", transfer: Transfer) -> None:
        """Check that a transfer continues this log, or begins it anew behind a gap.

        There is a gap when retention of the master has removed what would come next. Then the
        first transfer of the connection begins where a file of the log does, with a whole head of
        a record. Nothing else is a reason to discard a log.

        Raises:
            LogMismatch: the transfer does neither.
        """
        end = self._store.replica.end
        if transfer.offset == end:
            return
        if link.has_transferred or transfer.offset < end or not _begins_file(
            transfer, self._store.config.value.commit_log_file_size
        ):  # fmt: skip
            raise LogMismatch(
                f"the master sent bytes from {transfer.offset}, this log ends at {end}"
            )
        if end:
            log.warning(
                "the master's log begins at %s, this one ends at %s: copying it anew",
                transfer.offset, end,
            )  # fmt: skip
            await self._discard_log(transfer.offset)

    async def _discard_log(self, position: int) -> None:
        self._is_settled = False
        await uninterrupted(asyncio.to_thread(self._store.restart_at, position))
        self._is_settled = True
        if self._epochs is not None:
            await uninterrupted(asyncio.to_thread(self._epochs.clear))

    # ---- epochs

    async def _shake_hands(self, link: "_MasterLink") -> None:
        """Agree with the master on where the logs are equal, and cut off the rest."""
        assert self._epochs is not None
        settings = self._settings()
        hello = SlaveHello(
            settings.broker_id, settings.from_last_file, settings.is_learner, copies_metadata=True
        )
        link.send(encode_slave_hello(hello))
        answer = await self._receive_hello(link)
        known = max(self._fence(), self._epochs.last.epoch if self._epochs.last else -1)
        if answer.epoch < known:
            raise MasterRefused(
                f"its epoch is {answer.epoch}, but epoch {known} has begun: it is deposed"
            )
        if not are_possible(answer.epochs, answer.max_offset):
            raise MasterRefused("its epochs contradict each other, or there are none")
        await self._truncate(answer)
        self._send_report(link)

    async def _receive_hello(self, link: "_MasterLink") -> MasterHello:
        deadline = self._loop.time() + max(self._settings().heartbeat_interval, _PATIENCE)
        while self._loop.time() < deadline and not link.is_closed:
            for message in link.messages.feed(await link.receive(deadline)):
                if isinstance(message, MasterHello):
                    return message
        if link.is_closed:
            raise link.is_lost()
        raise TimeoutError("no handshake; is it in controller mode?")

    async def _truncate(self, master: MasterHello) -> None:
        epochs, end = self._epochs, self._store.replica.end
        assert epochs is not None
        if end and not len(epochs):
            raise LogMismatch(
                "this store was written outside of controller mode, so it cannot be compared with"
                " the master's: move the store away, and it is copied from the master"
            )
        # An empty log may have epochs, in which it was a master and wrote nothing.
        point = common_point(list(epochs), end, master.epochs, master.max_offset) if end else 0
        position = 0 if point is None else point
        if position < end:
            cut = await uninterrupted(asyncio.to_thread(truncate_store, self._store, position))
            self.truncations.append(cut)
            position = cut.position
        await uninterrupted(asyncio.to_thread(epochs.truncate, position))

    async def _follow_epoch(self, epochs: Epochs, transfer: Transfer) -> None:
        """Note that an epoch begins with a transfer.

        Raises:
            LogMismatch: the master says that the end of this log belongs to another epoch than
                it does.
        """
        last = epochs.last
        if last is None or last.epoch < transfer.epoch:
            begins_here = transfer.epoch_start == transfer.offset == self._store.replica.end
            if begins_here or (last is None and 0 <= transfer.epoch_start <= transfer.offset):
                if transfer.epoch >= 0:
                    start = transfer.epoch, transfer.epoch_start
                    await uninterrupted(asyncio.to_thread(epochs.begin, *start))
                return
        elif last.epoch == transfer.epoch:
            return
        if transfer.data:
            raise LogMismatch(
                f"the master says that epoch {transfer.epoch} of {transfer.epoch_start} goes on at"
                f" {transfer.offset}; the last one here is {last}"
            )

    # ---- reports

    def _reportable(self) -> int:
        """What this replica can promise to have."""
        return min(self._checked, self._store.reportable_end)

    def _report(self, link: "_MasterLink") -> None:
        if link.overlap is None and not link.is_closed and self._reportable() > link.reported:
            self._send_report(link)

    def _send_report(self, link: "_MasterLink") -> None:
        self.last_write = self._loop.time()
        link.send_report(self._reportable() if link.overlap is None else _UNVERIFIED)

    def _flushed_on_thread(self, _: Flushed) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._flushed)

    def _flushed(self) -> None:
        """With SYNC_FLUSH records become readable, and are reported, after the flush."""
        if self._link is None or not self._is_settled:
            return  # while the log is cut, dispatching would wait for the store's lock
        try:
            arrived = self._dispatch()
        except LogMismatch as exc:
            self._link.fail(exc)
            return
        self._report(self._link)
        if arrived:
            self.on_arrived(arrived)


def _report_interval(link: "_MasterLink", settings: ReplicaSettings) -> float:
    """Seconds after a report until the next one is due, also without news.

    While the end of the log is compared, reports only keep the master from taking this slave for
    dead; the first one must have been read, for RocketMQ's master takes the last one of several.
    """
    if link.overlap is None:
        return settings.heartbeat_interval
    if not link.has_answered:
        return math.inf
    return max(settings.heartbeat_interval, settings.silence_limit / 4)


def _begins_file(transfer: Transfer, file_size: int) -> bool:
    """Whether a transfer begins with the head of a record that is the first one of a log file."""
    if transfer.offset % file_size or len(transfer.data) < RECORD_HEAD.size:
        return False
    size, magic, offset = RECORD_HEAD.unpack_from(transfer.data)
    return size > RECORD_HEAD.size and magic in (MAGIC_V1, MAGIC_V2) and offset == transfer.offset


def _wall_time(monotonic: float) -> float:
    return time.time() - (time.monotonic() - monotonic) if monotonic else 0.0


class _MasterLink(asyncio.Protocol):
    """The connection to a master: received bytes queue up until the replica takes them."""

    def __init__(self, address: str, *, with_epochs: bool) -> None:
        self.address = address
        self.messages = MasterMessages(with_epochs=with_epochs)
        self.reported = -1
        self.is_closed = False
        self.is_followed = False
        """Whether the master has sent anything that continues this log."""
        self.overlap: Overlap | None = None
        """End of this log that the master has yet to send again before it gets a report."""
        self.compared_at = 0.0
        """When a part of it was last sent, or asked for."""
        self.has_answered = False
        """Whether the master has sent anything, so it has read the first report."""
        self.has_transferred = False
        """Whether the master has sent a part of its log."""
        self.failure: Exception | None = None
        self._with_epochs = with_epochs
        self._parts: list[bytes] = []
        self._size = 0
        self._waiting: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size >= _MAX_RECEIVED:
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def receive(self, deadline: float) -> bytes:
        """Return what has arrived; empty if nothing did before the deadline or the end."""
        if not self._parts and not self.is_closed:
            self._waiting = self._loop.create_future()
            timer = self._loop.call_at(deadline, self._wake)
            try:
                await self._waiting
            finally:
                timer.cancel()
        parts, size = self._parts, self._size
        self._parts, self._size = [], 0
        if size >= _MAX_RECEIVED and not self.is_closed:
            self._transport.resume_reading()
        return b"".join(parts)

    def fail(self, exc: Exception) -> None:
        """Have the replica leave this master."""
        self.failure = exc
        self._wake()

    def is_lost(self) -> ConnectionResetError:
        """The error of a connection that the master has closed."""
        text = "the master closed the connection"
        if not self.is_followed:
            text += " before it sent anything; is this host in its haAllowedReplicas?"
        return ConnectionResetError(text)

    def send(self, data: bytes) -> None:
        if self.is_closed:
            raise self.is_lost()
        self._transport.write(data)

    def send_report(self, offset: int) -> None:
        self.reported = offset
        self.send(encode_report(offset, with_epochs=self._with_epochs))

    def abort(self) -> None:
        self._transport.abort()
