"""Controllers and brokers in one process with a clock of its own: never two masters with a lease.

The real state machine, proposals, elections and live tables run against a simulated log, a network
that delays, reorders and loses messages, and processes that crash and pause. Clocks of brokers run
up to one per cent fast or slow.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from bolide.controller.elections import Elections
from bolide.controller.liveness import Leases, LeaseTimes, LiveTable
from bolide.controller.proposals import Proposals, View
from bolide.controller.state import Alter, ApplyId, Clean, Elect, Group, Machine, Outcome, Register
from bolide.protocol.headers.namesrv import BrokerHeartbeatHeader

TIMES = LeaseTimes(2.0)
GROUP = "g"
BROKERS = (1, 2, 3)
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

    def append(self, node: "Node", term: int, entry: bytes, done: Callable[[int], None]) -> None:
        def arrive() -> None:
            if term == self.term and self.leader == node.name:
                self.entries.append(entry)
                done(len(self.entries))

        self.world.after(self.world.random.expovariate(200), arrive)


class Node:
    """One controller; `pause` delays everything that happens in it, `crash` empties its memory."""

    def __init__(self, name: str, world: World, log: SharedLog) -> None:
        self.name, self.world, self.log = name, world, log
        self.paused_until = 0.0
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


class Broker:
    """One broker; believes to be master while its lease lasts by its own clock."""

    def __init__(self, id_: int, world: World, nodes: list[Node], faults: "Faults") -> None:
        self.id, self.world, self.nodes, self.faults = id_, world, nodes, faults
        self.rate = world.random.uniform(0.99, 1.01)
        self.up_after = 0.0
        self.epoch = 0
        self.is_master = False
        self.lease_until = 0.0
        self.offset = 0
        self.beat()

    def clock(self) -> float:
        return self.world.now * self.rate

    @property
    def writes(self) -> bool:
        return self.is_master and self.clock() < self.lease_until

    def beat(self) -> None:
        self.world.after(TIMES.heartbeat * self.world.random.uniform(0.8, 1.2), self.beat)
        if self.world.now < self.up_after:
            return
        sent = self.clock()
        self.offset += self.is_master
        header = BrokerHeartbeatHeader(
            "c", f"b{self.id}", GROUP, self.id, self.epoch, self.offset, None, None, self.id
        )
        for node in self.nodes:
            self.faults.deliver(lambda node=node: self._received(node, header, sent))  # type: ignore[misc]

    def _received(self, node: Node, header: BrokerHeartbeatHeader, sent: float) -> None:
        def inside() -> None:
            node.live.heartbeat(header, self, is_leased=True)

            def answer(leads: bool, has_lease: bool) -> None:
                group = node.view.groups.get(GROUP)
                if leads and group is not None:
                    self.faults.deliver(lambda: self._answered(group, has_lease, sent))

            node.elections.heartbeat(GROUP, self.id, answer)

        node.inside(inside)

    def _answered(self, group: Group, has_lease: bool, sent: float) -> None:
        if self.world.now < self.up_after or group.epoch < self.epoch:
            return
        self.epoch = group.epoch
        self.is_master = group.master == self.id
        if self.is_master and has_lease:
            self.lease_until = max(self.lease_until, sent + TIMES.lease)

    def crash(self, duration: float) -> None:
        self.up_after = self.world.now + duration
        self.is_master = False
        self.lease_until = 0.0


class Faults:
    """Delays, losses, crashes, pauses, elections of Raft leaders, requests of administrators."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.loss = 0.02

    def deliver(self, message: Callable[[], None]) -> None:
        chance = self.world.random.random()
        if chance < self.loss:
            return
        slow = chance > 0.97
        self.world.after(
            self.world.random.uniform(0, 3.0) if slow else self.world.random.expovariate(100),
            message,
        )

    def start(self, nodes: list[Node], brokers: list[Broker], log: SharedLog) -> None:
        self.nodes, self.brokers, self.log = nodes, brokers, log
        self.elect_raft_leader()
        self.strike()

    def elect_raft_leader(self) -> None:
        """A new leader; the old one learns it late, if ever."""
        able = [each for each in self.nodes if each.paused_until <= self.world.now]
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
        self.world.after(self.world.random.expovariate(0.25), self.elect_raft_leader)

    def strike(self) -> None:
        self.world.after(self.world.random.expovariate(1.0), self.strike)
        chance, node = self.world.random.random(), self.world.random.choice(self.nodes)
        if chance < 0.2:
            node.paused_until = self.world.now + self.world.random.uniform(0.1, 6)
        elif chance < 0.3:
            node.start()
        elif chance < 0.6:
            self.world.random.choice(self.brokers).crash(self.world.random.uniform(0.1, 5))
        elif chance < 0.75:
            broker = self.world.random.choice(BROKERS)
            node.inside(
                lambda: node.elections.elect(GROUP, broker, designate=True, done=lambda _: None)
            )
        elif chance < 0.8:
            forced = Clean(group=GROUP, ids=(self.world.random.choice(BROKERS),), forced=True)
            node.inside(lambda: node.elections.clean(forced, lambda _: None))
        else:
            self.register(node)
        self.loss = 0.5 if self.world.random.random() < 0.05 else 0.02

    def register(self, node: Node) -> None:
        """What brokers do all the time: get an id, register, grow the sync-state set."""

        def submit() -> None:
            group = node.view.groups.get(GROUP)
            if group is None or not group.sync_state_set:
                # An administrator designates the master of a group that lost its whole set.
                lost = group is not None and group.epoch > 0
                broker = self.world.random.choice(BROKERS)
                node.elections.elect(GROUP, broker, designate=lost, done=lambda _: None)
            elif group.master is not None:
                alive = tuple(each.id for each in node.live.alive(GROUP))
                new = {group.master, *self.world.random.sample(BROKERS, 2)} & set(alive)
                node.proposals.submit(
                    Alter(
                        group=GROUP,
                        master=group.master,
                        epoch=group.epoch,
                        set_epoch=group.sync_state_set_epoch,
                        new=tuple(new),
                        alive=alive,
                    ),
                    lambda _: None,
                )

        node.inside(lambda: self._join(node, list(BROKERS), submit))

    def _join(self, node: Node, ids: list[int], then: Callable[[], None]) -> None:
        """Each broker waits for the answer to its first request."""
        if not ids:
            then()
            return

        def register(_: object) -> None:
            command = Register(GROUP, ids[0], f"b{ids[0]}")
            node.proposals.submit(command, lambda _: self._join(node, ids[1:], then))

        node.proposals.submit(ApplyId("c", GROUP, ids[0], f"b{ids[0]};1"), register)


@dataclass
class Findings:
    elections: int = 0
    writing_steps: int = 0


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
        assert len(writing) <= 1, f"seed {seed}, {world.now:.3f} s: {[w.id for w in writing]}"
        findings.writing_steps += len(writing)
        world.after(0.01, watch)

    watch()
    world.run(seconds)
    findings.elections = _check_log(log.entries)
    return findings


def _check_log(entries: list[bytes]) -> int:
    """Every elected master was in the sync-state set, and epochs only grow."""
    machine, elections = Machine(), 0
    for entry in entries:
        before = machine.groups.get(GROUP)
        machine.apply(entry)
        after = machine.groups.get(GROUP)
        if before is None or after is None or before is after:
            continue
        if not after.epoch and b'"clean"' in entry:
            continue  # removed with its last member, and made again
        assert after.epoch >= before.epoch
        assert after.sync_state_set_epoch >= before.sync_state_set_epoch
        if after.epoch > before.epoch and after.master is not None:
            elections += 1
            if before.sync_state_set and b'"alter"' not in entry and b'"clean"' not in entry:
                assert after.master in before.sync_state_set
    return elections


@pytest.mark.parametrize("seed", range(40))
def test_two_masters_never_hold_a_lease_at_once(seed: int) -> None:
    simulate(seed, 120)


def test_the_simulation_elects_masters_and_lets_them_write() -> None:
    findings = [simulate(seed, 120) for seed in range(6)]
    assert sum(each.elections for each in findings) > 20
    assert sum(each.writing_steps for each in findings) > 6000  # of 72,000 looks


def test_the_simulation_notices_a_leader_that_does_not_wait_for_leases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Leases, "wait", lambda *_args, **_kwargs: 0.0)
    with pytest.raises(AssertionError, match="seed"):
        for seed in range(20):
            simulate(seed, 120)


def test_the_simulation_notices_leases_without_a_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    def confirm(self: Proposals, done: Callable[[object], None], *, may_wait: bool = False) -> None:
        from bolide.controller.state import Result

        done(Result())

    monkeypatch.setattr(Proposals, "confirm", confirm)
    with pytest.raises(AssertionError, match="seed"):
        for seed in range(20):
            simulate(seed, 120)


def test_elect_commands_of_a_stale_leader_are_refused() -> None:
    from bolide.controller.state import Lead, encode_entry

    machine = Machine()
    machine.apply(encode_entry("n0", 0, [Lead()]))
    machine.apply(encode_entry("n1", 1, [Lead()]))
    stale = encode_entry("n0", 1, [Elect(group=GROUP, epoch=0, broker=1)])
    assert not machine.apply(stale).accepted
