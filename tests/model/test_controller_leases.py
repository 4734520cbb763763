"""Controllers and brokers in one process with a clock of its own: never two masters with a lease.

The real state machine, proposals, elections and live tables run against a simulated log, a network
that delays, reorders and loses messages, and processes that crash and pause. Clocks of brokers run
up to one per cent fast or slow.

The brokers are models of ours: they register when they start, replicate, keep the sync-state set,
and may lose the end of their log in a power cut. A new master has every acknowledged message, and
each command in the log does no more than it may.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from bolide.broker.replicas.controllers import GroupState
from bolide.controller import state
from bolide.controller.commands import (
    Alter,
    ApplyId,
    Begin,
    Clean,
    Command,
    Elect,
    Entry,
    Group,
    Lead,
    Register,
    Result,
    encode_entry,
)
from bolide.controller.elections import Elections
from bolide.controller.liveness import Leases, LeaseTimes, LiveTable
from bolide.controller.proposals import Proposals, View
from bolide.controller.state import Draft, Machine, Outcome, update
from bolide.protocol.codes import ResponseCode
from bolide.protocol.ha import EpochStart
from bolide.protocol.headers.namesrv import BrokerHeartbeatHeader
from bolide.replication.acknowledgement import confirmed_position
from bolide.replication.epochs import Epochs, are_possible, common_point

TIMES = LeaseTimes(2.0)
GROUP = "g"
BROKERS = (1, 2, 3)
_REPEATED = 0.1
"""Part of the registrations that arrive once more, late."""
CONTROLLERS = ("n0", "n1", "n2")


class World:
    """Virtual time, and everything that happens at a point of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, when: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (max(when, self.now), self._count, event))

    def after(self, delay: float, event: Callable[[], None]) -> None:
        self.at(self.now + delay, event)

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()


@dataclass
class SharedLog:
    """What Raft guarantees: one sequence of committed entries, proposed by the leader of a term."""

    world: World
    entries: list[bytes] = field(default_factory=list)
    leader: str = ""
    term: int = 0
    on_commit: Callable[[], None] = lambda: None

    def append(self, node: "Node", term: int, entry: bytes, done: Callable[[int], None]) -> None:
        def arrive() -> None:
            if term == self.term and self.leader == node.name and not node.is_isolated:
                self.entries.append(entry)
                self.on_commit()
                done(len(self.entries))

        self.world.after(self.world.random.expovariate(200), arrive)


class Node:
    """One controller; `pause` delays everything that happens in it, `crash` empties its memory."""

    def __init__(self, name: str, world: World, log: SharedLog) -> None:
        self.name, self.world, self.log = name, world, log
        self.paused_until = self.isolated_until = 0.0
        self.start()

    def start(self) -> None:
        self.life = object()
        self.machine, self.view = Machine(), View()
        self.applied = 0
        self.waiting: dict[int, Callable[[Outcome | None], None]] = {}
        clock = lambda: self.world.now  # noqa: E731
        self.live = LiveTable(TIMES, clock)
        self.leases = Leases(TIMES, clock)
        self.term = 0
        self.proposals = Proposals(self.name, self, self.view, clock, self.later)
        self.elections = Elections(
            self.view, self.proposals, self.live, self.leases, self.later, lambda: False
        )
        self.tick()

    @property
    def leads(self) -> bool:
        return bool(self.term)

    @property
    def is_isolated(self) -> bool:
        """Whether it reaches no other controller; brokers do reach it."""
        return self.world.now < self.isolated_until

    def inside(self, event: Callable[[], None]) -> None:
        """Run something in this process: now, after its pause, or never if it crashes before."""
        life = self.life

        def run() -> None:
            if life is not self.life:
                return
            if self.world.now < self.paused_until:
                self.world.at(self.paused_until, run)
            else:
                event()

        run()

    def later(self, delay: float, callback: Callable[[], None]) -> object:
        life = self.life
        self.world.after(delay, lambda: self.inside(callback) if life is self.life else None)
        return None

    def register(self, command: Register, done: Callable[[Result], None]) -> None:
        """As `BrokerHandlers.register`."""

        def registered(result: Result) -> None:
            if result.code == ResponseCode.SUCCESS:
                self.elections.elect_if_vacant(command.group)
            done(result)

        self.live.restarted(command.group, command.id)
        self.proposals.submit(command, registered)

    def propose(self, entry: bytes, done: Callable[[Outcome | None], None]) -> None:
        life = self.life

        def committed(index: int) -> None:
            if life is self.life:
                self.waiting[index] = done

        if self.term:
            self.log.append(self, self.term, entry, committed)

    def tick(self) -> None:
        self._apply()
        self.proposals.try_to_lead()
        self.elections.scan()
        self.later(self.world.random.uniform(0.005, 0.05), self.tick)

    def _apply(self) -> None:
        if self.is_isolated:
            return
        for index in range(self.applied, len(self.log.entries)):
            outcome = self.machine.apply(self.log.entries[index])
            self.applied = index + 1
            self.view.applied(outcome)
            done = self.waiting.pop(self.applied, None)
            if done is not None:
                done(outcome)
            if self.world.random.random() < 0.1:
                break  # behind for a moment

    def elected(self, term: int) -> None:
        self.term = term
        self.proposals.library_leads(True)

    def deposed(self) -> None:
        self.term = 0
        self.proposals.library_leads(False)


@dataclass
class Acknowledged:
    """The messages that were confirmed to their senders, in the order of the log.

    They may be lost if an administrator designates a master without all of them, and if all members
    of the sync-state set go down in a power cut.
    """

    messages: list[int] = field(default_factory=list)
    chosen_epoch: int = -1
    """Of the last master whose log counts as it is."""

    def confirmed(self, broker: "Broker") -> None:
        if broker.role_epoch < self.chosen_epoch:
            return  # nobody can keep this promise, since others were chosen without its log
        known, count = len(self.messages), broker.confirmed
        common = min(known, count)
        is_same = not common or broker.log[common - 1] == self.messages[common - 1]
        assert is_same, f"broker {broker.id} confirms other messages"
        self.messages += broker.log[known:count]

    def follow(self, master: "Broker", checks: "LogChecks") -> None:
        """Check what a broker has that becomes master."""
        epoch = master.role_epoch
        if any(self.chosen_epoch < each <= epoch for each in checks.without_set):
            self.messages, self.chosen_epoch = list(master.log), epoch
        elif epoch >= self.chosen_epoch:
            count = len(self.messages)
            assert master.log[:count] == self.messages, (
                f"master {master.id} of epoch {epoch} has {len(master.log)} messages and lacks some"
                f" of {count} acknowledged ones"
            )

    def cut(self, members: list["Broker"]) -> None:
        """A member may have lost the end of its log; the others must have all, if any is left.

        If none is, the controller takes the log of the one that registers last.
        """
        if members and all(each.lost_tail for each in members):
            self.messages = self.messages[: min(map(self._held, members))]

    def _held(self, broker: "Broker") -> int:
        pairs = enumerate(zip(broker.log, self.messages, strict=False))
        shorter = min(len(broker.log), len(self.messages))
        return next((at for at, (own, other) in pairs if own != other), shorter)


class Link:
    """A connection of a slave to a master: each direction delivers in order until it breaks."""

    def __init__(self, world: World, slave: "Broker", master: "Broker") -> None:
        self.world, self.slave, self.master = world, slave, master
        self.lives = slave.life, master.life
        self.is_open = True
        self.position = self.acked = -1
        self._last = {"slave": 0.0, "master": 0.0}

    def to_master(self, message: Callable[[], None]) -> None:
        self._deliver("master", message)

    def to_slave(self, message: Callable[[], None]) -> None:
        self._deliver("slave", message)

    def _deliver(self, side: str, message: Callable[[], None]) -> None:
        def arrive() -> None:
            if self.is_open and self.lives == (self.slave.life, self.master.life):
                message()

        chance, at = self.world.random.random(), self.world.now
        if chance < 0.001:
            self.is_open = False
            return
        slow = chance > 0.999
        at += self.world.random.uniform(0, 2) if slow else self.world.random.expovariate(200)
        self._last[side] = max(at, self._last[side])
        self.world.at(self._last[side], arrive)


class Broker:
    """One broker, as `Membership`, `Primary` and `Replica` are: joins, follows, keeps the set.

    It believes to be master while its lease lasts by its own clock. Its log and the epochs of it
    survive a crash; a power cut may take the end of the log.
    """

    def __init__(self, id_: int, world: World, nodes: list[Node], faults: "Faults") -> None:
        self.id, self.world, self.nodes, self.faults = id_, world, nodes, faults
        self.rate = world.random.uniform(0.99, 1.01)
        self.log: list[int] = []
        self.epochs = Epochs()
        self.lost_tail = False
        self.restarts = 0
        self.start()

    # ---- the process

    def start(self) -> None:
        self.life: object | None = object()
        self.state: GroupState | None = None
        self.lease_until = 0.0
        self.is_master, self.role_epoch, self.taken = False, -1, (-1, -1)
        self.is_open = False
        self.leader: Node | None = None
        self.channels = {node.name: Channel() for node in self.nodes}
        self.confirmed = 0
        self.members: frozenset[int] = frozenset()
        self.unresolved: frozenset[int] = frozenset()
        self.is_altering = False
        self.gone_since: dict[int, float] = {}
        self.links: dict[int, Link] = {}
        self.upstream: Link | None = None
        self.epochs.drop_behind(len(self.log))
        self.join()

    def crash(self, duration: float, *, power_cut: bool) -> None:
        if self.life is None:
            return
        for link in [*self.links.values(), self.upstream]:
            if link is not None:
                link.is_open = False
        self.life, self.is_master = None, False
        if power_cut:
            self.lost_tail = True
            del self.log[max(0, len(self.log) - self.world.random.randrange(20)) :]
            self.faults.members_may_be_cut()
        self.world.after(duration, self.restart)

    def restart(self) -> None:
        self.restarts += 1
        self.start()

    def later(self, delay: float, callback: Callable[[], None]) -> None:
        life = self.life
        self.world.after(delay, lambda: callback() if self.life is life else None)

    def clock(self) -> float:
        return self.world.now * self.rate

    @property
    def writes(self) -> bool:
        return self.is_master and self.clock() < self.lease_until

    # ---- calls to controllers

    def call(
        self,
        request: Callable[[Node, Callable[[Result], None]], None],
        done: Callable[[Result | None], None],
        *,
        within: float = 3.0,
        once: bool = False,
    ) -> None:
        """As `Controllers.call`; the result is None if the outcome is unknown.

        A try that took too long is repeated, and may still arrive.
        """
        deadline, life, tries = self.world.now + within, self.life, [0]

        def attempt() -> None:
            if self.world.now >= deadline:
                done(None)
                return
            tries[0] += 1
            number, leader = tries[0], self.leader or self.world.random.choice(self.nodes)
            arrive = lambda: leader.inside(  # noqa: E731
                lambda: request(leader, lambda result: self.faults.deliver(
                    lambda: finish(number, leader, result), self, leader
                ))
            )  # fmt: skip
            self.faults.deliver(arrive, self, leader, self.channels[leader.name])
            self.later(min(1.0, deadline - self.world.now), lambda: finish(number, leader, None))

        def finish(number: int, leader: Node, result: Result | None) -> None:
            if number != tries[0] or self.life is not life:
                return
            tries[0] += 1
            if result is not None and result.code != ResponseCode.CONTROLLER_NOT_LEADER:
                self.leader = leader
                done(result)
            elif once:
                self.leader = None
                done(None)
            else:
                self.leader = None
                self.later(0.1, attempt)

        attempt()

    def join(self) -> None:
        """Get the id and register until a controller takes it; heartbeats begin then."""

        def registered(result: Result | None) -> None:
            if result is None or result.code != ResponseCode.SUCCESS or result.group is None:
                self.later(0.5, self.join)
                return
            self.lost_tail = False
            self.observe(_state_of(result.group))
            for job in (self.beat, self.replicate, self.append, self.keep_set, self.ping):
                job()

        def applied(result: Result | None) -> None:
            if result is None or result.code != ResponseCode.SUCCESS:
                self.later(0.5, self.join)
                return
            command = Register(
                GROUP, self.id, f"b{self.id}", restarted=True, lost_tail=self.lost_tail,
                confirms=True, process=f"{self.world.random.random()}",
            )  # fmt: skip
            self.call(lambda node, done: node.register(command, done), registered)
            if self.world.random.random() < _REPEATED:
                self.later(self.world.random.uniform(0.5, 6), lambda: self._repeat(command))

        command = ApplyId("c", GROUP, self.id, f"b{self.id};1")
        self.call(lambda node, done: node.proposals.submit(command, done), applied)

    def _repeat(self, command: Register) -> None:
        """A request that was given up and sent again arrives after all, somewhere."""
        node = self.world.random.choice(self.nodes)
        ignored = lambda _: None  # noqa: E731
        self.faults.deliver(
            lambda: node.inside(lambda: node.register(command, ignored)), self, node
        )

    # ---- heartbeats

    def beat(self) -> None:
        self.later(TIMES.heartbeat * self.world.random.uniform(0.8, 1.2), self.beat)
        sent, last, life = self.clock(), self.epochs.last, self.life
        header = BrokerHeartbeatHeader(
            "c", f"b{self.id}", GROUP, self.id, last.epoch if last else -1, len(self.log), None,
            None, self.id,
        )  # fmt: skip

        def answered(state: GroupState, is_leader: bool, has_lease: bool) -> None:
            if self.life is not life:
                return
            if is_leader and has_lease:
                self.lease_until = max(self.lease_until, sent + TIMES.lease)
            self.observe(state)
            if is_leader and state.master_id is None:
                ask = lambda node, done: node.elections.elect(  # noqa: E731
                    GROUP, self.id, designate=False, done=done
                )
                self.call(ask, lambda _: None, within=1.0)

        for node in self.nodes:
            arrive = lambda node=node: self._received(node, header, answered)  # noqa: E731
            self.faults.deliver(arrive, self, node)

    def _received(
        self,
        node: Node,
        header: BrokerHeartbeatHeader,
        answered: Callable[[GroupState, bool, bool], None],
    ) -> None:
        def inside() -> None:
            group = node.view.groups.get(GROUP)
            if group is not None and self.id in group.members:
                node.live.heartbeat(header, self, is_leased=True)

            def answer(leads: bool, has_lease: bool) -> None:
                group = node.view.groups.get(GROUP)
                if group is not None:
                    state = _state_of(group)
                    self.faults.deliver(lambda: answered(state, leads, has_lease), self, node)

            if node.proposals.is_acting:
                node.elections.heartbeat(GROUP, self.id, answer)
            else:
                answer(False, False)

        node.inside(inside)

    # ---- the role

    def observe(self, state: GroupState) -> None:
        known = self.state
        is_newer = known is None or state.version > known.version
        is_fuller = (
            known is not None
            and state.version == known.version
            and known.master_id is None is not state.master_id
        )
        if known is not None and is_newer:
            for id_ in known.members - state.members:
                self.disconnect(id_)
        if is_newer:
            self.unresolved = frozenset()
        if is_newer or is_fuller:
            self.state = state
            self.later(self.world.random.uniform(0, 0.05), self.follow)

    def disconnect(self, id_: int) -> None:
        link = self.links.pop(id_, None)
        if link is not None:
            link.is_open = False

    def follow(self) -> None:
        state = self.state
        assert state is not None
        wanted = -1 if state.master_id is None else state.master_id, state.epoch
        if wanted != self.taken:
            for id_ in list(self.links):
                self.disconnect(id_)
            if self.upstream is not None:
                self.upstream.is_open = False
                self.upstream = None
            self.taken, self.role_epoch, self.is_open = wanted, state.epoch, False
            self.is_master = state.master_id == self.id
            if self.is_master:
                self._begin_epoch()
                if self.faults.kills_before_term(self):
                    return
                self.confirm_term()
        self._count_members()

    def confirm_term(self) -> None:
        """A master takes messages only when the controllers have noted that its term begins."""
        taken, command = self.taken, Begin(group=GROUP, master=self.id, epoch=self.role_epoch)

        def confirmed(result: Result | None) -> None:
            if self.taken != taken:
                return
            if result is None or result.code != ResponseCode.SUCCESS:
                self.later(0.05, self.confirm_term)
                return
            self.open_term()

        self.call(lambda node, done: node.proposals.submit(command, done), confirmed, within=1.0)

    def open_term(self) -> None:
        self.is_open = True
        self.faults.became_master(self)
        self._count_members()

    def _count_members(self) -> None:
        state = self.state
        if self.is_open and state is not None and state.epoch == self.role_epoch:
            self.members = state.members | self.unresolved | {self.id}
            self.confirm()

    def _begin_epoch(self) -> None:
        last = self.epochs.last
        if last is None:
            self.epochs.begin(self.role_epoch, 0)
        elif last.epoch != self.role_epoch:
            self.epochs.begin(self.role_epoch, len(self.log))

    # ---- a master's log

    def append(self) -> None:
        self.later(self.world.random.expovariate(20), self.append)
        if self.is_open:
            self.log.append(self.faults.next_message())
            self.confirm()
            for link in self.links.values():
                self._send(link)

    def acks(self) -> dict[int, int]:
        return {id_: link.acked for id_, link in self.links.items() if link.is_open}

    def confirm(self) -> None:
        if not self.is_open:
            return
        position = confirmed_position(len(self.log), self.acks(), self.members, self.id)
        if position > self.confirmed:
            self.confirmed = position
            self.faults.acknowledged.confirmed(self)

    def greet(self, link: Link) -> None:
        """The handshake of a slave."""
        if not self.is_master:
            link.is_open = False
            return
        self.disconnect(link.slave.id)
        end, epochs = len(self.log), list(self.epochs)
        link.to_slave(lambda: link.slave.agree(link, end, epochs))

    def reported(self, link: Link, offset: int) -> None:
        if not self.is_master or offset > len(self.log):
            link.is_open = False
            return
        if link.position < 0:
            link.position = offset
            self.disconnect(link.slave.id)
            self.links[link.slave.id] = link
        link.acked = offset
        self.confirm()
        self._send(link)

    def _send(self, link: Link) -> None:
        while link.is_open and link.position < len(self.log):
            self._transfer(link, len(self.log))

    def _transfer(self, link: Link, end: int) -> None:
        position, found = link.position, self.epochs.at(link.position)
        assert found is not None
        epoch, epoch_end = found
        data = self.log[position : end if epoch_end < 0 else min(end, epoch_end)]
        link.position += len(data)
        link.to_slave(lambda: link.slave.take(link, position, data, epoch))

    def ping(self) -> None:
        """Empty transfers, which tell of a new epoch."""
        self.later(0.1, self.ping)
        for link in self.links.values():
            if self.is_master and link.position == len(self.log):
                self._transfer(link, link.position)

    # ---- a slave's log

    def replicate(self) -> None:
        """Connect to the master if there is no connection."""
        self.later(self.world.random.uniform(0.02, 0.1), self.replicate)
        master = next((each for each in self.faults.brokers if each.id == self.taken[0]), None)
        is_slave = not self.is_master and master is not None and master.life is not None
        if is_slave and (self.upstream is None or not self.upstream.is_open):
            assert master is not None
            link = self.upstream = Link(self.world, self, master)
            link.to_master(lambda: link.master.greet(link))

    def agree(self, link: Link, end: int, epochs: list[EpochStart]) -> None:
        own = self.epochs.last.epoch if self.epochs.last else -1
        if link is not self.upstream:
            return
        if epochs[-1].epoch < max(own, self.role_epoch) or not are_possible(epochs, end):
            link.is_open = False  # a deposed master
            return
        point = common_point(list(self.epochs), len(self.log), epochs, end) if self.log else 0
        del self.log[point or 0 :]
        self.epochs.truncate(len(self.log))
        self.confirmed = min(self.confirmed, len(self.log))
        self._report(link)

    def take(self, link: Link, position: int, data: list[int], epoch: EpochStart) -> None:
        last = self.epochs.last
        if link is not self.upstream or position != len(self.log):
            link.is_open = False
        elif last is None or last.epoch < epoch.epoch:
            if epoch.start == position or last is None:
                self.epochs.begin(*epoch)
            elif data:
                link.is_open = False
        elif last.epoch != epoch.epoch:
            link.is_open = False
        if link.is_open and data:
            self.log += data
            self._report(link)

    def _report(self, link: Link) -> None:
        offset = len(self.log)
        link.to_master(lambda: link.master.reported(link, offset))

    # ---- the sync-state set

    def keep_set(self) -> None:
        self.later(0.25, self.keep_set)
        state = self.state
        if (
            not self.is_open
            or self.is_altering
            or state is None
            or (state.master_id, state.epoch) != (self.id, self.role_epoch)
        ):
            self.gone_since.clear()
            return
        wanted = self._wanted_set(state)
        if wanted != state.members or self.unresolved - state.members:
            self._alter_set(state, wanted)

    def _wanted_set(self, state: GroupState) -> frozenset[int]:
        now, acks, last = self.clock(), self.acks(), self.epochs.last
        start = last.start if last else 0
        self.gone_since = {
            m: at for m, at in self.gone_since.items() if m in state.members - {*acks}
        }
        wanted = {self.id}
        for member in state.members - {self.id}:
            if member in acks or now - self.gone_since.setdefault(member, now) < 1.0:
                wanted.add(member)
        return frozenset(
            wanted | {m for m, acked in acks.items() if acked >= self.confirmed and acked >= start}
        )

    def _alter_set(self, state: GroupState, wanted: frozenset[int]) -> None:
        before, self.unresolved = self.unresolved, self.unresolved | wanted
        self.members = state.members | self.unresolved
        self.is_altering = True

        def request(node: Node, done: Callable[[Result], None]) -> None:
            command = Alter(
                group=GROUP,
                master=self.id,
                epoch=state.epoch,
                set_epoch=state.set_epoch,
                new=tuple(sorted(wanted)),
                alive=tuple(each.id for each in node.live.alive(GROUP)),
                renew=wanted == state.members,
            )
            node.proposals.submit(command, done)

        def answered(result: Result | None) -> None:
            self.is_altering = False
            if result is None:
                return  # who may have been added counts until a newer state is seen
            if result.code == ResponseCode.SUCCESS and result.group is not None:
                self.observe(_altered(state, result.group.sync_state_set_epoch, wanted))
            elif self.state is not None and self.state.version == state.version:
                self.unresolved = before
                self.members = state.members | before | {self.id}

        self.call(request, answered, within=1.0, once=True)


def _state_of(group: Group) -> GroupState:
    return GroupState(
        master_id=group.master,
        master_address=group.master_address,
        epoch=group.epoch,
        set_epoch=group.sync_state_set_epoch,
        members=frozenset(group.sync_state_set),
    )


def _altered(state: GroupState, set_epoch: int, members: frozenset[int]) -> GroupState:
    return replace(state, set_epoch=set_epoch, members=members)


@dataclass
class Channel:
    """A connection to a controller: requests arrive in order."""

    last: float = 0.0


class Faults:
    """Delays, losses, crashes, pauses, elections of Raft leaders, requests of administrators."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.loss = 0.02
        self.cut_until: dict[tuple[int, str], float] = {}
        self.brokers: list[Broker] = []
        self.acknowledged = Acknowledged()
        self._messages = 0
        self.died_before_term = 0

    def deliver(
        self,
        message: Callable[[], None],
        broker: Broker,
        node: Node,
        channel: Channel | None = None,
    ) -> None:
        """Deliver a message between a broker and a controller, in either direction."""
        chance = self.world.random.random()
        if chance < self.loss or self.world.now < self.cut_until.get((broker.id, node.name), 0.0):
            return
        slow, at = chance > 0.97, self.world.now
        at += self.world.random.uniform(0, 3.0) if slow else self.world.random.expovariate(100)
        if channel is not None:
            at = channel.last = max(at, channel.last)
        self.world.at(at, message)

    def start(self, nodes: list[Node], brokers: list[Broker], log: SharedLog) -> None:
        self.nodes, self.brokers, self.log = nodes, brokers, log
        self.checks = LogChecks(log, self.members_may_be_cut)
        log.on_commit = self.checks.run
        self.elect_raft_leader()
        self.strike()

    def next_message(self) -> int:
        self._messages += 1
        return self._messages

    def kills_before_term(self, broker: Broker) -> bool:
        """Whether a master that has just been elected goes down before it confirms its term."""
        if self.world.random.random() >= 0.25:
            return False
        self.died_before_term += 1
        broker.crash(self.world.random.uniform(0.1, 5), power_cut=self.world.random.random() < 0.3)
        return True

    def became_master(self, broker: Broker) -> None:
        self.acknowledged.follow(broker, self.checks)

    def members_may_be_cut(self) -> None:
        group = self.checks.groups.get(GROUP)
        members = () if group is None else group.electable
        self.acknowledged.cut([each for each in self.brokers if each.id in members])

    def elect_raft_leader(self) -> None:
        self.replace_raft_leader()
        self.world.after(self.world.random.expovariate(0.25), self.elect_raft_leader)

    def replace_raft_leader(self) -> None:
        """A new leader; the old one learns it late, if ever."""
        now = self.world.now
        able = [each for each in self.nodes if each.paused_until <= now and not each.is_isolated]
        if able:
            self.log.term += 1
            old, new = self.log.leader, self.world.random.choice(able)
            self.log.leader = new.name
            for node in self.nodes:
                if node.name == old and node is not new:
                    delay = self.world.random.uniform(0, 2)
                    self.world.after(delay, lambda n=node: n.inside(n.deposed))  # type: ignore[misc]
            term = self.log.term
            new.inside(lambda: new.elected(term))

    def strike(self) -> None:
        self.world.after(self.world.random.expovariate(1.0), self.strike)
        chance, node = self.world.random.random(), self.world.random.choice(self.nodes)
        if chance < 0.2:
            node.paused_until = self.world.now + self.world.random.uniform(0.1, 6)
        elif chance < 0.25:
            self.isolate(node)
        elif chance < 0.3:
            node.start()
        elif chance < 0.6:
            broker, short = self.world.random.choice(self.brokers), self.world.random.random() < 0.5
            broker.crash(
                self.world.random.uniform(0.1, 1 if short else 5),
                power_cut=self.world.random.random() < 0.3,
            )
        elif chance < 0.75:
            chosen = self.world.random.choice(BROKERS)
            node.inside(
                lambda: node.elections.elect(GROUP, chosen, designate=True, done=lambda _: None)
            )
        elif chance < 0.8:
            forced = Clean(group=GROUP, ids=(self.world.random.choice(BROKERS),), forced=True)
            node.inside(lambda: self.clean(node, forced))
        else:
            cut = self.world.random.choice(BROKERS), node.name
            self.cut_until[cut] = self.world.now + self.world.random.uniform(1, 8)
        self.loss = 0.5 if self.world.random.random() < 0.05 else 0.02

    def isolate(self, node: Node) -> None:
        """Part a controller from the others, with a broker on its side."""
        until = self.world.now + self.world.random.uniform(0.1, 6)
        node.isolated_until = until
        broker = self.world.random.choice(BROKERS)
        for other in self.nodes:
            if other is not node:
                self.cut_until[broker, other.name] = until
        if self.log.leader == node.name:
            self.world.after(self.world.random.uniform(0.5, 1.5), self.replace_raft_leader)

    def clean(self, node: Node, command: Clean) -> None:
        group = node.view.groups.get(GROUP)
        if group is not None and len(group.members) == len(BROKERS):  # the group itself stays
            node.elections.clean(command, lambda _: None)


class LogChecks:
    """Applies the committed log once more, and checks each command by itself.

    Args:
        narrowed: called when a set was made smaller, by an administrator or by a master that may
            have gone down since it asked for it.
    """

    def __init__(self, log: SharedLog, narrowed: Callable[[], None]) -> None:
        self.log = log
        self.narrowed = narrowed
        self.machine = Machine()
        self.groups: dict[str, Group] = {}
        self.elections = 0
        self.deposed = 0
        """Masters that lost their office because their process was new."""
        self.left = 0
        """Members that left the sync-state set because they may have lost messages."""
        self.restored = 0
        """Elections from the set before that of a master which never began."""
        self.without_set: list[int] = []
        """Epochs whose master an administrator designated because the sync-state set was empty."""
        self._applied = 0

    def run(self) -> None:
        for data in self.log.entries[self._applied :]:
            self._applied += 1
            if self.machine.apply(data).accepted:
                for raw in _entries.decode(data).commands:
                    command = _commands.decode(raw)
                    if not isinstance(command, Lead):
                        self._check(command)
            assert self.groups == self.machine.groups

    def _check(self, command: Command) -> None:
        before, draft = self.groups.get(GROUP), Draft(self.groups)
        code = draft.run(command).code
        update(self.groups, draft.changed)
        after = self.groups.get(GROUP)
        if before is None or after is None:
            assert isinstance(command, ApplyId), "no command removes the group here"
            return
        assert after.epoch >= before.epoch
        assert after.sync_state_set_epoch >= before.sync_state_set_epoch
        if after.master != before.master:
            assert after.epoch == before.epoch + 1
        if set(after.sync_state_set) != set(before.sync_state_set):
            assert after.sync_state_set_epoch > before.sync_state_set_epoch
        # A master that goes before it began its term leaves the set from which it was elected.
        kept = set(before.sync_state_set if after.master == before.master else before.electable)
        match command:
            case Elect() if code == ResponseCode.SUCCESS:
                self._check_election(before, after, command)
            case Elect():
                assert after.master in {before.master, None}
                assert set(after.sync_state_set) == kept
            case Register():
                self._check_registration(before, after, command, kept)
            case Alter():
                assert after.master == before.master
                assert after.epoch == before.epoch
                assert after is before or after.electable == after.sync_state_set
                assert after is before or after.master in after.sync_state_set
            case Clean() if after is not before:
                assert command.epoch == before.epoch
                assert after.master in {before.master, None}
                assert set(after.sync_state_set) == kept - set(command.ids)
            case _:
                assert after.epoch == before.epoch
                assert after.sync_state_set == before.sync_state_set
        if isinstance(command, Begin | Alter | Clean):
            self.narrowed()

    def _check_election(self, before: Group, after: Group, command: Elect) -> None:
        assert not command.unclean
        self.elections += 1
        assert after.sync_state_set == (after.master,)
        if before.electable:
            assert after.master in before.electable, f"{after.master} is not of {before}"
            assert set(after.electable) <= set(before.electable)
            self.restored += after.master not in before.sync_state_set
        elif before.epoch:
            assert command.designate
            self.without_set.append(after.epoch)

    def _check_registration(
        self, before: Group, after: Group, command: Register, kept: set[int]
    ) -> None:
        member = before.members.get(command.id)  # it may have been removed meanwhile
        is_new = member is not None and member.process != command.process
        is_deposed = command.restarted and is_new and before.master == command.id
        assert after.master == (None if is_deposed else before.master)
        self.deposed += is_deposed
        now = set(after.sync_state_set)
        assert now <= kept
        assert kept - now <= ({command.id} if command.lost_tail else set())
        assert bool(now) == bool(kept)
        self.left += len(kept - now)


_entries = msgspec.json.Decoder(Entry)
_commands: "msgspec.json.Decoder[Command]" = msgspec.json.Decoder(Command)


@dataclass
class Findings:
    elections: int = 0
    writing_steps: int = 0
    deposed: int = 0
    left: int = 0
    acknowledged: int = 0
    died_before_term: int = 0
    restored: int = 0


def simulate(seed: int, seconds: float) -> Findings:
    world = World(seed)
    log = SharedLog(world)
    nodes = [Node(name, world, log) for name in CONTROLLERS]
    faults = Faults(world)
    brokers = [Broker(id_, world, nodes, faults) for id_ in BROKERS]
    faults.start(nodes, brokers, log)
    findings = Findings()

    def watch() -> None:
        writing = [each for each in brokers if each.writes]
        assert len(writing) <= 1, f"two masters: {[each.id for each in writing]}"
        findings.writing_steps += len(writing)
        world.after(0.01, watch)

    watch()
    try:
        world.run(seconds)
        faults.checks.run()
    except AssertionError as exc:
        raise AssertionError(f"seed {seed}, {world.now:.3f} s: {exc}") from exc
    findings.elections = faults.checks.elections
    findings.deposed, findings.left = faults.checks.deposed, faults.checks.left
    findings.acknowledged = len(faults.acknowledged.messages)
    findings.died_before_term = faults.died_before_term
    findings.restored = faults.checks.restored
    return findings


@pytest.mark.parametrize("seed", range(40))
def test_two_masters_never_hold_a_lease_and_the_next_one_has_all_messages(seed: int) -> None:
    simulate(seed, 120)


def test_the_simulation_elects_masters_and_lets_them_write() -> None:
    findings = [simulate(seed, 120) for seed in range(6)]
    assert sum(each.elections for each in findings) > 20
    assert sum(each.writing_steps for each in findings) > 6000  # of 72,000 looks
    assert sum(each.acknowledged for each in findings) > 2000
    assert sum(each.deposed for each in findings) > 10
    assert sum(each.left for each in findings) > 5
    assert sum(each.died_before_term for each in findings) > 10
    assert sum(each.restored for each in findings) > 3


def test_the_simulation_notices_a_leader_that_does_not_wait_for_leases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Leases, "wait", lambda *_args, **_kwargs: 0.0)
    with pytest.raises(AssertionError, match="seed"):
        for seed in range(20):
            simulate(seed, 120)


def test_the_simulation_notices_leases_without_a_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    def confirm(self: Proposals, done: Callable[[object], None], *, may_wait: bool = False) -> None:
        done(Result())

    monkeypatch.setattr(Proposals, "confirm", confirm)
    with pytest.raises(AssertionError, match="seed"):
        for seed in range(200):  # it takes an isolated leader and a broker on its side
            simulate(seed, 120)


def test_the_simulation_notices_members_that_lost_messages_and_stay_in_the_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register = Draft._register

    def forgiving(self: Draft, command: Register) -> Result:
        return register(self, msgspec.structs.replace(command, lost_tail=False))

    monkeypatch.setattr(Draft, "_register", forgiving)
    with pytest.raises(AssertionError, match=r"seed .* lacks"):
        for seed in range(20):
            simulate(seed, 120)


def test_the_simulation_notices_masters_from_outside_of_the_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def first_alive(group: Group, command: Elect) -> int | None:
        return next((each.id for each in command.alive if each.id in group.members), None)

    monkeypatch.setattr(state, "winner", first_alive)
    with pytest.raises(AssertionError, match=r"seed .* is not of"):
        for seed in range(20):
            simulate(seed, 120)


def test_the_simulation_notices_an_earlier_set_that_outlives_the_confirmation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Draft, "_begin", lambda *_: Result())
    with pytest.raises(AssertionError, match=r"seed .* lacks"):
        for seed in range(40):
            simulate(seed, 120)


def test_the_simulation_notices_masters_that_serve_before_they_confirm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    confirm_term = Broker.confirm_term

    def serve_at_once(self: Broker) -> None:
        self.open_term()
        self.later(2.0, lambda: confirm_term(self))

    monkeypatch.setattr(Broker, "confirm_term", serve_at_once)
    with pytest.raises(AssertionError, match=r"seed .* lacks"):
        for seed in range(40):
            simulate(seed, 120)


def test_elect_commands_of_a_stale_leader_are_refused() -> None:
    machine = Machine()
    machine.apply(encode_entry("n0", 0, [Lead()]))
    machine.apply(encode_entry("n1", 1, [Lead()]))
    stale = encode_entry("n0", 1, [Elect(group=GROUP, epoch=0, broker=1)])
    assert not machine.apply(stale).accepted
