"""One node of the Raft quorum: PySyncObj with a synced journal and hardened connections.

The library runs in a thread of its own. Everything that it reports, applied entries and changes of
its leader state, is passed to the event loop in the order of the log.

`Transport` and `SyncedJournal` replace what the library has in their place. They touch private or
undocumented parts of it, which is why its version is pinned.

Followers forward no commands: only the node that leads proposes. Membership cannot be changed over
the wire, and read-only nodes are refused.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pysyncobj import (
    FAIL_REASON,
    SyncObj,
    SyncObjConf,
    SyncObjConsumer,
    SyncObjException,
    replicated,
)
from pysyncobj import syncobj as library

from bolide.controller.errors import ControllerStoreUnreadable, NewerRelease
from bolide.controller.journal import (
    SyncedJournal,
    read_snapshot,
    snapshot_path,
    sync_file,
    write_snapshot,
)
from bolide.controller.state import Machine, Outcome, Snapshot
from bolide.controller.transport import PeerHosts, RaftPeer, Transport
from bolide.errors import ConfigError
from bolide.remoting.address import split_address

log = logging.getLogger(__name__)

_COMPACT_ENTRIES = 50_000
_COMPACT_BYTES = 16 * 1024 * 1024
_COMPACT_AGE = 86_400.0
_COMPACT_SPACING = 10.0
"""Least seconds between two snapshots, also if they fail: each holds up the Raft thread."""
_NEVER = 2**62

_LEADER = 2  # of pysyncobj's _RAFT_STATE


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftAddresses:
    """Where the nodes of the quorum are, `host:port` of their Raft listeners."""

    own: str
    others: tuple[str, ...]
    bind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftListener:
    """What a node reports; called on the event loop, in the order of the log."""

    applied: Callable[[Outcome], None]
    """An entry changed something."""
    restored: Callable[[Snapshot], None]
    """The whole state came from a snapshot."""
    leads: Callable[[bool], None]
    """The library's opinion of whether this node leads; a hint, which may be stale."""
    failed: Callable[[BaseException], None]
    """The node cannot go on."""


class RaftNode:
    """A running node. Create it on the event loop; `close` blocks shortly.

    Raises:
        ConfigError: the port cannot be bound, or the password needs a missing package.
        ControllerStoreUnusable: the files are damaged, or cannot be read or created.
        ControllerStoreInUse: another process has the files.
    """

    def __init__(
        self,
        addresses: RaftAddresses,
        journal: Path,
        listener: RaftListener,
        *,
        password: str | None = None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._snapshot = snapshot_path(journal)
        self._replica = _Replica(self._applied)
        self._is_closing = False
        self._compacted_at = time.monotonic()
        self._next_compaction = 0.0
        try:
            if self._snapshot.exists():
                read_snapshot(self._snapshot)  # the library would go on without its state
        except OSError as exc:
            raise ControllerStoreUnreadable(self._snapshot, exc) from exc
        _probe(addresses.bind)
        conf = self._conf(addresses, journal, password)
        self._hosts = PeerHosts({split_address(each)[0] for each in addresses.others})
        try:
            self._start(addresses, conf)
        except BaseException:
            self._hosts.close()
            raise

    @property
    def leads(self) -> bool:
        """The library's opinion; a hint, which may be stale."""
        return bool(self._node._isLeader())  # noqa: SLF001  public in the library's documentation

    @property
    def knows_leader(self) -> bool:
        """Whether some node leads, as far as the library knows; a hint, too."""
        return self._node._getLeader() is not None  # noqa: SLF001  public like the other one

    def unconnected(self) -> list[str]:
        """Raft addresses of the other nodes without a connection."""
        return [
            address
            for address, node in self._others.items()
            if not self._node.isNodeConnected(node)
        ]

    def propose(self, entry: bytes, done: Callable[[Outcome | None], None]) -> None:
        """Append an entry to the log if this node leads.

        `done` is called on the event loop with the outcome, after `applied` was called for it, or
        with None if the outcome is unknown. It may never be called.
        """

        def finish(outcome: Outcome | None, reason: int) -> None:
            self._report(done, outcome if reason == FAIL_REASON.SUCCESS else None)

        self._replica.run(entry, callback=finish)

    def compact(self) -> None:
        """Write a snapshot soon, and drop the entries that it contains."""
        self._node.forceLogCompaction()

    def close(self) -> None:
        """Stop the thread and close files and connections."""
        self._is_closing = True
        self._hosts.close()
        if self._node.tick_thread_alive():
            self._node.destroy_synchronous()
        else:
            self._node._doDestroy()  # noqa: SLF001

    def _start(self, addresses: RaftAddresses, conf: Any) -> None:
        create_journal, library.createJournal = library.createJournal, self._create_journal
        self._others = {
            each: RaftPeer(_unbracketed(each), self._hosts) for each in addresses.others
        }
        try:
            self._node: Any = SyncObj(
                _unbracketed(addresses.own),
                list(self._others.values()),
                conf=conf,
                consumers=[self._replica],
                transportClass=Transport,
            )
        except ImportError as exc:
            raise ConfigError(
                "controllerRaftPassword needs the package cryptography: install bolide[controller]"
            ) from exc
        finally:
            library.createJournal = create_journal
        self._node.addOnTickCallback(self._compact_if_large)
        try:
            self._node.waitBinded()
        except SyncObjException as exc:
            self._journal.close()
            raise _cannot_bind(addresses.bind, "another program has it") from exc

    def _conf(self, addresses: RaftAddresses, journal: Path, password: str | None) -> Any:
        return SyncObjConf(
            raftMinTimeout=0.5,
            raftMaxTimeout=1.0,
            appendEntriesPeriod=0.1,
            autoTickPeriod=0.01,
            appendEntriesUseBatch=False,
            leaderFallbackTimeout=1.0,
            connectionTimeout=1.5,
            connectionRetryTime=0.25,
            commandsWaitLeader=False,
            useFork=False,
            # `_compact_if_large` decides; the library would try again in each tick after a failure.
            logCompactionMinEntries=_NEVER,
            logCompactionMinTime=_NEVER,
            # No turns: the state is small, and up to a day of entries would stay in memory.
            logCompactionSplit=False,
            journalFile=str(journal),
            fullDumpFile=str(self._snapshot),
            serializer=self._write_snapshot,
            deserializer=self._load_snapshot,
            bindAddress=_unbracketed(addresses.bind),
            maxBindRetries=1,
            onStateChanged=self._state_changed,
            password=password or None,
        )

    # In the Raft thread

    def _create_journal(self, path: str | None) -> SyncedJournal:
        if path is None:
            raise RuntimeError("a controller needs a journal")
        try:
            self._journal = SyncedJournal(
                Path(path), lambda exc: self._report(self._listener.failed, exc)
            )
        except OSError as exc:
            raise ControllerStoreUnreadable(Path(path), exc) from exc
        return self._journal

    def _applied(self, outcome: Outcome) -> None:
        version = self._replica.machine.stopped_by
        if version:
            self._report(self._listener.failed, NewerRelease(version))
        if outcome.changed or outcome.is_new_leader:
            self._report(self._listener.applied, outcome)

    def _state_changed(self, _old: int, new: int) -> None:
        self._report(self._listener.leads, new == _LEADER)

    def _compact_if_large(self) -> None:
        now = time.monotonic()
        is_due = (
            len(self._journal) > _COMPACT_ENTRIES
            or self._journal.size > _COMPACT_BYTES
            or now - self._compacted_at > _COMPACT_AGE
        )
        if is_due and now >= self._next_compaction:
            self._next_compaction = now + _COMPACT_SPACING
            self.compact()

    def _write_snapshot(self, path: str, data: tuple[Any, Any, Any]) -> None:
        second, first, _ = data
        if self._replica.machine.stopped_by:
            raise NewerRelease(self._replica.machine.stopped_by)
        try:
            write_snapshot(Path(path), self._replica.machine.encode(), [first, second])
        except OSError as exc:  # the library does not say why
            log.warning("the snapshot %s cannot be written: %s", self._snapshot, exc)
            raise
        self._compacted_at = time.monotonic()

    def _load_snapshot(self, path: str) -> tuple[Any, Any, Any]:
        """Restore the state; the library reports nothing if this fails, so this does."""
        try:
            sync_file(Path(path))  # one that was received is not synced
            state, (first, second) = read_snapshot(Path(path))
            self._replica.machine.restore(state)
            self._journal.cut_to(first, second)
        except BaseException as exc:
            self._report(self._listener.failed, exc)
            raise
        self._report(self._listener.restored, self._replica.machine.snapshot())
        return second, first, set()

    def _report(self, callback: Callable[..., None], *args: object) -> None:
        if self._is_closing:
            return
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop has just been closed
            log.debug("an event came after the end of the loop")


class _Replica(SyncObjConsumer):  # type: ignore[misc]  # the library has no types
    """The state machine as the library sees it: one replicated method with bytes as argument."""

    def __init__(self, applied: Callable[[Outcome], None]) -> None:
        super().__init__()
        self.machine = Machine()
        self._on_applied = applied

    @replicated  # type: ignore[untyped-decorator]
    def run(self, entry: bytes) -> Outcome:
        outcome = self.machine.apply(entry)
        self._on_applied(outcome)
        return outcome


def _unbracketed(address: str) -> str:
    """An address as the library writes it, IPv6 too."""
    host, port = split_address(address)
    return f"{host}:{port}"


def _probe(address: str) -> None:
    """Raises ConfigError if the port is taken; the library would only say that it failed."""
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as exc:
        raise _cannot_bind(address, str(exc)) from exc


def _cannot_bind(address: str, reason: str) -> ConfigError:
    return ConfigError(
        f"the Raft listener of the controller cannot bind {address}: {reason}. The port is that of"
        " the peer in controllerDLegerPeers plus controllerRaftPortOffset"
    )
