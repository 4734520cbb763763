"""The acting leader's way into the log: proposals, one entry in flight, and who may act.

A controller acts as leader only while the last `Lead` record in the log is its own, made since it
started. The Raft library's opinion is a hint: it says when to try to lead, and when to stop early.

Proposals that wait while an entry is in flight travel together in the next one. Answers come as
callbacks, so that a test can drive everything with a clock of its own.
"""

import logging
import secrets
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from bolide.controller.commands import Command, Group, Lead, Result, encode, encode_entry
from bolide.controller.state import Outcome, Snapshot, preview, update
from bolide.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

TIME_LIMIT = 2.0
"""Seconds after which the outcome of an entry counts as unknown."""

HEARTBEAT_SPACING = 0.1
"""Least seconds between two entries that confirm heartbeats only."""

_MAX_BATCH = 1000
_MAX_BYTES = 59 * 1024
"""Of the commands in one entry: the library cannot send entries of 64 KiB or more."""

NOT_LEADER = Result(ResponseCode.CONTROLLER_NOT_LEADER, "this controller is not the leader")

Done = Callable[[Result], None]


class Log(Protocol):
    """A replicated log; `RaftNode` in a real controller."""

    @property
    def leads(self) -> bool: ...

    def propose(self, entry: bytes, done: Callable[[Outcome | None], None]) -> None: ...


class Timers(Protocol):
    """Calls a function later; `loop.call_later` in a real controller."""

    def __call__(self, delay: float, callback: Callable[[], None], /) -> object: ...


class View:
    """The state as this controller's event loop knows it: entries applied in log order."""

    def __init__(self) -> None:
        self.leader = ""
        self.generation = 0
        self.quorum = ""
        """Id of the quorum; empty before this controller has heard of a leader."""
        self.groups: dict[str, Group] = {}

    def applied(self, outcome: Outcome) -> None:
        self.leader, self.generation = outcome.leader, outcome.generation
        self.quorum = outcome.quorum
        update(self.groups, outcome.changed)

    def restored(self, found: Snapshot) -> None:
        self.leader, self.generation = found.leader, found.generation
        self.quorum = found.quorum
        self.groups = dict(found.groups)


class Proposals:
    """Proposals of one controller.

    Args:
        node: the id of this controller.
        clock: seconds; goes on while the machine sleeps.
    """

    def __init__(
        self, node: str, log: Log, view: View, clock: Callable[[], float], timers: Timers
    ) -> None:
        self._node = node
        self._log = log
        self._view = view
        self._clock = clock
        self._timers = timers
        self._generation: int | None = None
        self.lead_since = 0.0
        """When this controller learned that its own `Lead` was applied."""
        self.confirmed_at = float("-inf")
        """When an entry of this leadership was last applied."""
        self._is_leading = False
        """Whether a `Lead` of this controller is in flight."""
        self._waiting: deque[_Proposal] = deque()
        self._in_flight: list[_Proposal] = []
        self._number = 0
        self._lead_number = 0
        self._next_heartbeat_entry = float("-inf")
        self._is_timer_set = False

    @property
    def is_acting(self) -> bool:
        """Whether the last leader in the log, as far as is known here, is this controller."""
        return self._generation is not None and (
            (self._view.leader, self._view.generation) == (self._node, self._generation)
        )

    def submit(self, command: Command, done: Done) -> None:
        """Propose a command; `done` gets its result, or `NOT_LEADER`.

        After `NOT_LEADER` the outcome may be unknown: the command can still be applied later.
        A command that changes nothing is not logged. Its result comes from the state, when an entry
        has proved that this controller leads: otherwise requests that are refused would fill the
        disk.
        """
        if preview(self._view.groups, command) is not None:
            self._enqueue(None, lambda result: self._answer(command, result, done))
        elif len(encoded := encode(command)) > _MAX_BYTES:
            done(Result(ResponseCode.CONTROLLER_INVALID_REQUEST, "the request is too long"))
        else:
            self._enqueue(encoded, done)
        self._send()

    def _answer(self, command: Command, confirmed: Result, done: Done) -> None:
        """Answer a command that changes nothing, unless the state is another one meanwhile."""
        if confirmed.code != ResponseCode.SUCCESS:
            done(confirmed)
            return
        result = preview(self._view.groups, command)
        if result is None:
            self.submit(command, done)
        else:
            done(result)

    def confirm(self, done: Done, *, may_wait: bool = False) -> None:
        """Call `done` with success after an entry proves that this controller leads.

        Args:
            may_wait: for heartbeats, many of which share an entry.
        """
        self._enqueue(None, done)
        wait = self._next_heartbeat_entry - self._clock()
        if not may_wait or wait <= 0:
            self._send()
        elif not self._is_timer_set and self._waiting:
            self._is_timer_set = True
            self._timers(wait, self._send_delayed)

    def library_leads(self, leads: bool) -> None:
        """The Raft library's opinion changed."""
        if leads:
            self.try_to_lead()
        else:
            self._generation = None
            self._is_leading = False
            self._fail_all()

    def try_to_lead(self) -> None:
        """Propose to lead, if the library says that this node can and it does not act yet."""
        if self._is_leading or self.is_acting or not self._log.leads:
            return
        self._is_leading = True
        self._lead_number += 1
        number, expected = self._lead_number, self._view.generation
        lead = Lead(self._view.quorum or secrets.token_hex(8))
        entry = encode_entry(self._node, expected, [lead])
        self._log.propose(entry, lambda outcome: self._led(number, expected, outcome))
        self._timers(TIME_LIMIT, lambda: self._led(number, expected, None))

    def _led(self, number: int, expected: int, outcome: Outcome | None) -> None:
        if number != self._lead_number or not self._is_leading:
            return
        self._is_leading = False
        if outcome is None:
            return
        if not outcome.accepted:  # the log had entries that were not known here
            self.try_to_lead()
        elif outcome.generation == expected + 1:
            self._generation = outcome.generation
            self.lead_since = self.confirmed_at = self._clock()
            log.info("controller %s leads, generation %s", self._node, self._generation)

    def _enqueue(self, command: bytes | None, done: Done) -> None:
        if self.is_acting:
            self._waiting.append(_Proposal(command, done))
        else:
            done(NOT_LEADER)

    def _send_delayed(self) -> None:
        self._is_timer_set = False
        self._send()

    def _send(self) -> None:
        if self._in_flight or not self._waiting:
            return
        if not self.is_acting or self._generation is None:
            self._fail_all()
            return
        batch = self._take_batch()
        commands = [each.command for each in batch if each.command is not None]
        entry = encode_entry(self._node, self._generation, commands)
        self._in_flight = batch
        self._number += 1
        number = self._number
        self._next_heartbeat_entry = self._clock() + HEARTBEAT_SPACING
        self._log.propose(entry, lambda outcome: self._finish(number, outcome))
        self._timers(TIME_LIMIT, lambda: self._finish(number, None))

    def _take_batch(self) -> list["_Proposal"]:
        """The next proposals that fit into one entry, at least one."""
        batch: list[_Proposal] = []
        left = _MAX_BYTES
        while self._waiting and len(batch) < _MAX_BATCH:
            left -= self._waiting[0].size
            if batch and left < 0:
                break
            batch.append(self._waiting.popleft())
        return batch

    def _finish(self, number: int, outcome: Outcome | None) -> None:
        if number != self._number or not self._in_flight:
            return  # it came too late, or the time limit of an entry that was answered
        batch, self._in_flight = self._in_flight, []
        if outcome is None or not outcome.accepted:
            for _, done in batch:
                done(NOT_LEADER)
        else:
            self.confirmed_at = self._clock()
            results = iter(outcome.results)
            for command, done in batch:
                done(Result() if command is None else next(results))
        self._send()

    def _fail_all(self) -> None:
        failed = [*self._in_flight, *self._waiting]
        self._in_flight = []
        self._waiting.clear()
        for _, done in failed:
            done(NOT_LEADER)


class _Proposal(NamedTuple):
    """A command with its callback, or without one to confirm that this controller leads."""

    command: bytes | None
    done: Done

    @property
    def size(self) -> int:
        return 0 if self.command is None else len(self.command) + 1  # with a comma
