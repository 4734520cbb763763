"""A member of a group: id, roles, the sync-state set and the lease."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bolide.broker.replicas import membership as module
from bolide.broker.replicas.controllers import (
    Beat,
    Controllers,
    DifferentQuorums,
    GroupState,
    NoLeader,
)
from bolide.broker.replicas.identity import IdentityFile, PendingIdentity
from bolide.broker.replicas.master import MasterReplication
from bolide.broker.replicas.membership import Membership
from bolide.broker.replicas.role import Role
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.protocol import fastjson
from bolide.protocol.bodies.controller import SyncStateSet
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.protocol.headers.controller import AlterSyncStateSetReply, NextBrokerIdReply
from bolide.protocol.refusals import Refusal, ServerError, refusal_for
from bolide.replication.epochs import Epochs
from bolide.store.message_store import MessageStore
from tests.support.aio import on_loop, until
from tests.support.clock import FakeClock

Code = RequestCode
ALTER = Code.CONTROLLER_ALTER_SYNC_STATE_SET
OWN = 2
NOBODY = module._NOBODY


def state(
    *members: int, master: int | None = OWN, epoch: int = 3, set_epoch: int = 1
) -> GroupState:
    return GroupState(
        master_id=master,
        master_address="10.0.0.9:1" if master is not None else None,
        epoch=epoch,
        set_epoch=set_epoch,
        members=frozenset(members),
    )


class FakeControllers:
    """Answers as a controller would; tests set what it answers."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Any, bytes]] = []
        self.failures: dict[int, Exception] = {}
        self.next_id = OWN
        self.set_epoch = 1
        self.beats: list[Beat] = []
        self.quorum = ""
        self.conflict: Exception | None = None

    async def survey(self, *, is_joining: bool) -> None:
        if self.conflict is not None:
            raise self.conflict

    async def call(
        self,
        code: RequestCode,
        header: Header,
        *,
        body: bytes = b"",
        within: float = 3.0,
        once: bool = False,
    ) -> Frame:
        self.calls.append((code, header, body))
        if code in self.failures:
            raise self.failures[code]
        reply: Header | None = None
        if code == Code.CONTROLLER_GET_NEXT_BROKER_ID:
            reply = NextBrokerIdReply("c", "broker-a", self.next_id)
        if code == Code.CONTROLLER_ALTER_SYNC_STATE_SET:
            self.set_epoch += not header.begins  # type: ignore[attr-defined]
            reply = AlterSyncStateSetReply(new_sync_state_set_epoch=self.set_epoch)
        return Frame(code=0, fields=reply.to_fields() if reply else None)

    def known(self) -> list[str]:
        return [str(number) for number in range(len(self.beats))]

    async def heartbeat(self, address: str, header: Header) -> Beat | None:
        return self.beats[int(address)]

    def sent(self, code: RequestCode) -> list[Any]:
        return [header for each, header, _ in self.calls if each == code]

    def wanted_sets(self) -> list[set[int]]:
        """The sync-state sets that were asked for."""
        return [
            set(fastjson.decode(body, SyncStateSet).sync_state_set)
            for code, header, body in self.calls
            if code == Code.CONTROLLER_ALTER_SYNC_STATE_SET and not header.begins
        ]


class FakeMaster:
    """What slaves reported, and who counts."""

    def __init__(self) -> None:
        self.epoch = 3
        self.acked: dict[int, int] = {}
        self.members: list[set[int]] = []
        self.lacking_metadata: set[int] = set()
        self.disconnected: list[int] = []
        self.primary = SimpleNamespace(
            acks=lambda: self.acked,
            is_joinable=lambda member: member not in self.lacking_metadata,
            disconnect=self.disconnected.append,
        )

    def set_members(self, members: frozenset[int]) -> None:
        self.members.append(set(members))


class Bench:
    def __init__(self, directory: Path, **settings: Any) -> None:
        config = BrokerConfig(
            broker_name="broker-a",
            enable_controller_mode=True,
            controller_addr=("c:1",),
            **settings,
        )
        self.controllers = FakeControllers()
        self.clock = FakeClock(100.0)
        self.epochs = Epochs()
        self.epochs.begin(3, 50)
        self.log = SimpleNamespace(written=100, readable=80)
        self.store = SimpleNamespace(
            log=self.log,
            sound_end=100,
            may_have_lost_tail=True,
            began_empty=False,
            lost_tail_is_known=lambda: None,
            note_lost_tail=lambda _: self.lost_tails.append(True),
        )
        self.lost_tails: list[bool] = []
        """How often it was noted that the log lacks something."""
        self.master = FakeMaster()
        self.roles: list[Role] = []
        self.opened: list[int] = []
        """Epochs in which it serves as master."""
        self.term_begins = asyncio.Event()
        self.term_begins.set()
        self.leases: list[bool] = []
        self.identity = IdentityFile(
            directory / "brokerIdentity", config.broker_cluster_name, "broker-a"
        )
        self.membership = Membership(
            ConfigCell(config),
            cast("MessageStore", self.store),
            cast("Controllers", self.controllers),
            self.identity,
            epochs=self.epochs,
            address=lambda: "10.0.0.1:10911",
            take_role=self._take_role,
            open_term=self._open_term,
            replication=self._replication,
            clock=self.clock,
        )
        self.membership.on_lease.add(self.leases.append)

    async def _take_role(self, role: Role) -> None:
        await self.term_begins.wait()
        self.roles.append(role)
        self.master.epoch = role.epoch

    def _open_term(self, members: Collection[int]) -> None:
        self.opened.append(self.roles[-1].epoch)
        self.master.members.append(set(members))

    def _replication(self) -> MasterReplication | None:
        is_master = self.roles[-1].epoch in self.opened if self.roles else False
        return cast("MasterReplication", self.master) if is_master else None


@asynccontextmanager
async def joined(directory: Path, **settings: Any) -> AsyncIterator[Bench]:
    """A member that has its id; time of the bench stands still."""
    bench = Bench(directory, **settings)
    bench.identity.confirm(OWN)
    task = asyncio.create_task(bench.membership.run())
    try:
        await until(lambda: bench.controllers.sent(Code.CONTROLLER_REGISTER_BROKER))
        yield bench
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SET_CHECK_INTERVAL", 0.01)
    monkeypatch.setattr(module, "_RETRY_DELAY", 0.01)
    monkeypatch.setattr(module, "_SURVEY_INTERVAL", 0.01)
    monkeypatch.setattr(module, "_CONFIRM_RETRY", 0.01)
    monkeypatch.setattr(module, "_FIRST_INTERVAL", 0.01)


# ---- joining


@on_loop
async def test_a_new_member_applies_for_an_id_and_keeps_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    task = asyncio.create_task(bench.membership.run())
    await until(lambda: bench.controllers.sent(Code.CONTROLLER_REGISTER_BROKER))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    (applied,) = bench.controllers.sent(Code.CONTROLLER_APPLY_BROKER_ID)
    assert applied.applied_broker_id == OWN
    assert bench.membership.member_id == bench.identity.load() == OWN
    (registered,) = bench.controllers.sent(Code.CONTROLLER_REGISTER_BROKER)
    assert registered.broker_id == OWN
    assert registered.restarted
    assert registered.lost_tail
    assert not bench.lost_tails


@pytest.mark.parametrize("has_id", [True, False])
@pytest.mark.parametrize("began_empty", [True, False])
@on_loop
async def test_a_member_that_has_nothing_but_its_id_lost_its_log(
    tmp_path: Path, has_id: bool, began_empty: bool
) -> None:
    bench = Bench(tmp_path)
    bench.store.began_empty = began_empty
    if has_id:
        bench.identity.confirm(OWN)
    task = asyncio.create_task(bench.membership.run())
    await until(lambda: bench.controllers.sent(Code.CONTROLLER_REGISTER_BROKER))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert bool(bench.lost_tails) is (has_id and began_empty)


@pytest.mark.parametrize(
    ("next_id", "told", "not_told"),
    [
        (4, "an administrator has removed it", "know no group"),
        (1, "These controllers know no group broker-a", "administrator"),
    ],
)
@on_loop
async def test_a_member_that_is_not_known_says_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, next_id: int, told: str, not_told: str
) -> None:
    bench = Bench(tmp_path)
    bench.identity.confirm(OWN)
    bench.controllers.next_id = next_id
    gone = refusal_for(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "not registered")
    bench.controllers.failures[Code.CONTROLLER_REGISTER_BROKER] = gone
    task = asyncio.create_task(bench.membership.run())
    await until(lambda: "cannot join the group yet" in caplog.text)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert told in caplog.text and not_told not in caplog.text
    is_removed = f"remove {tmp_path / 'brokerIdentity'} and start it again" in caplog.text
    assert is_removed == (next_id > 1)
    assert ("ends at 100, its last epoch is 3" in caplog.text) == (next_id == 1)


@on_loop
async def test_an_application_is_repeated_with_the_same_code_after_a_crash(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.identity.apply_for(PendingIdentity(7, "the same code"))
    await bench.membership._enrolment._get_id()
    (applied,) = bench.controllers.sent(Code.CONTROLLER_APPLY_BROKER_ID)
    assert (applied.applied_broker_id, applied.register_check_code) == (7, "the same code")
    assert not bench.controllers.sent(Code.CONTROLLER_GET_NEXT_BROKER_ID)


@on_loop
async def test_an_id_that_another_got_is_given_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.controllers.failures[Code.CONTROLLER_APPLY_BROKER_ID] = ServerError("taken")
    with pytest.raises(Refusal):
        await bench.membership._enrolment._get_id()
    assert bench.identity.load_pending() is None
    del bench.controllers.failures[Code.CONTROLLER_APPLY_BROKER_ID]
    bench.controllers.next_id = 5
    await bench.membership._enrolment._get_id()
    assert bench.identity.load() == 5


# ---- roles


@on_loop
async def test_a_broker_takes_the_role_of_the_newest_state(tmp_path: Path) -> None:
    async with joined(tmp_path) as bench:
        bench.membership.observe(state(1, master=1, epoch=3))
        await until(lambda: len(bench.roles) == 1)
        bench.membership.observe(state(2, epoch=4))
        await until(lambda: len(bench.roles) == 2)
        bench.membership.observe(state(1, master=1, epoch=3, set_epoch=9))  # late
        bench.membership.observe(state(2, 1, epoch=4, set_epoch=2))
        await until(lambda: bench.master.members and bench.master.members[-1] == {1, 2})

        first, second = bench.roles
        assert (first.is_master, first.epoch, first.master_address) == (False, 3, "10.0.0.9:1")
        assert first.broker_id == OWN
        assert (second.is_master, second.epoch, second.broker_id) == (True, 4, 0)


@on_loop
async def test_a_master_that_a_controller_has_not_heard_of_yet_is_learned_later(
    tmp_path: Path,
) -> None:
    async with joined(tmp_path) as bench:
        bench.membership.observe(state(1, master=None))
        await until(lambda: len(bench.roles) == 1)
        bench.membership.observe(state(1, master=1))
        await until(lambda: len(bench.roles) == 2)
        bench.membership.observe(state(1, master=None))  # of another controller
        await asyncio.sleep(0.05)
        assert [role.master_address for role in bench.roles] == [None, "10.0.0.9:1"]


@on_loop
async def test_a_broker_that_cannot_become_master_is_silent_until_it_can(tmp_path: Path) -> None:
    async with joined(tmp_path) as bench:
        is_failing = True

        async def take_role(role: Role) -> None:
            if is_failing:
                raise OSError("no space")
            bench.roles.append(role)

        heard: list[float] = []

        async def heartbeat(address: str, header: Header) -> None:
            heard.append(asyncio.get_running_loop().time())

        bench.membership._take_role = take_role
        bench.controllers.heartbeat = heartbeat  # type: ignore[method-assign]
        bench.controllers.known = lambda: ["0"]  # type: ignore[method-assign]
        await until(lambda: heard)
        bench.membership.observe(state(OWN))
        await until(lambda: bench.membership._cannot_lead)
        await asyncio.sleep(0.02)
        count = len(heard)
        await asyncio.sleep(0.1)
        assert len(heard) == count

        is_failing = False
        await until(lambda: len(heard) > count)
        assert [role.is_master for role in bench.roles] == [True]


@on_loop
async def test_a_member_asks_for_an_election_where_there_is_no_master(tmp_path: Path) -> None:
    async with joined(tmp_path) as bench:
        beat = Beat(state(master=None, epoch=0), 0.0, 0.01, is_leader=True, is_member=True)
        bench.controllers.beats = [beat]
        await until(lambda: bench.controllers.sent(Code.CONTROLLER_ELECT_MASTER))
        asked = bench.controllers.sent(Code.CONTROLLER_ELECT_MASTER)[0]
        assert asked.broker_id == OWN
        assert not asked.designate_elect


@on_loop
async def test_a_learner_never_asks_for_an_election(tmp_path: Path) -> None:
    async with joined(tmp_path, async_learner=True) as bench:
        await bench.membership._ask_for_election()
        assert not bench.controllers.sent(Code.CONTROLLER_ELECT_MASTER)


@on_loop
async def test_a_master_that_the_leader_does_not_know_stops_until_it_is_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with joined(tmp_path) as bench:
        bench.membership.observe(state(OWN))
        await until(lambda: bench.opened == [3])
        beat = Beat(state(OWN), 0.0, 0.01, is_leader=True, is_member=False)
        bench.controllers.beats = [replace(beat, is_leader=False)]  # it does not know
        await asyncio.sleep(0.1)
        assert len(bench.roles) == 1
        bench.controllers.beats = [beat]
        await until(lambda: len(bench.roles) == 2)
        assert not bench.roles[-1].is_master and bench.roles[-1].master_address is None
        assert "do not know it as member 2 of broker-a" in caplog.text
        bench.membership.observe(state(1, master=1, epoch=4))  # nor does it follow another one
        await until(lambda: len(bench.roles) == 3)
        assert bench.roles[-1].master_address is None
        assert not bench.controllers.sent(Code.CONTROLLER_ELECT_MASTER)
        bench.controllers.beats = [replace(beat, state=state(OWN, epoch=5), is_member=True)]
        await until(lambda: len(bench.opened) == 2)


@on_loop
async def test_what_was_told_before_a_broker_has_its_id_counts_then(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.controllers.failures[Code.CONTROLLER_GET_NEXT_BROKER_ID] = NoLeader("not yet")
    task = asyncio.create_task(bench.membership.run())
    try:
        await until(lambda: bench.controllers.sent(Code.CONTROLLER_GET_NEXT_BROKER_ID))
        bench.membership.observe(state(OWN))
        await asyncio.sleep(0.05)
        assert not bench.roles
        bench.controllers.failures.clear()
        await until(lambda: bench.roles)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# ---- the beginning of a term


@on_loop
async def test_a_master_serves_when_the_controllers_have_noted_its_term(tmp_path: Path) -> None:
    async with joined(tmp_path) as bench:
        bench.controllers.failures[Code.CONTROLLER_ALTER_SYNC_STATE_SET] = NoLeader("gone")
        bench.membership.observe(state(OWN))
        await until(lambda: len(begins(bench)) > 1)
        assert bench.roles[-1].is_master
        assert bench.roles[-1].members == {OWN, NOBODY}  # nothing is confirmed yet
        assert not bench.opened
        del bench.controllers.failures[Code.CONTROLLER_ALTER_SYNC_STATE_SET]
        await until(lambda: bench.opened == [3])
        assert {(each.master_broker_id, each.master_epoch) for each in begins(bench)} == {(OWN, 3)}


@on_loop
async def test_another_election_ends_a_term_that_was_not_noted(tmp_path: Path) -> None:
    async with joined(tmp_path) as bench:
        bench.controllers.failures[Code.CONTROLLER_ALTER_SYNC_STATE_SET] = NoLeader("gone")
        bench.membership.observe(state(OWN))
        await until(lambda: begins(bench))
        bench.membership.observe(state(1, master=1, epoch=4))
        await until(lambda: len(bench.roles) == 2)
        del bench.controllers.failures[Code.CONTROLLER_ALTER_SYNC_STATE_SET]
        count = len(begins(bench))
        await asyncio.sleep(0.1)
        assert not bench.roles[-1].is_master
        assert not bench.opened
        assert len(begins(bench)) == count


@on_loop
async def test_controllers_of_rocketmq_keep_no_earlier_set(tmp_path: Path) -> None:
    async with joined(tmp_path) as bench:
        code = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
        refused = refusal_for(code, "The newSyncStateSet is equal with oldSyncStateSet")
        bench.controllers.failures[Code.CONTROLLER_ALTER_SYNC_STATE_SET] = refused
        bench.membership.observe(state(OWN))
        await until(lambda: bench.opened == [3])
        assert fastjson.decode(bench.controllers.calls[-1][2], SyncStateSet).sync_state_set == [OWN]


@on_loop
async def test_why_a_term_cannot_begin_is_logged_once_in_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with joined(tmp_path) as bench:

        async def take_role(role: Role) -> None:
            raise OSError("haListenPort=10912: taken")

        bench.membership._take_role = take_role
        bench.membership.observe(state(OWN))
        await until(lambda: bench.membership._failed_roles > 3)
        assert caplog.text.count("Traceback") == 1
        assert caplog.text.count("cannot become master in epoch 3") == 1


def begins(bench: Bench) -> list[Any]:
    return [each for each in bench.controllers.sent(ALTER) if each.begins]


# ---- controllers of different quorums


@on_loop
async def test_a_broker_does_not_join_controllers_of_different_quorums(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path)
    bench.controllers.conflict = DifferentQuorums("a and b")
    task = asyncio.create_task(bench.membership.run())
    try:
        await until(lambda: "cannot join the group yet: a and b" in caplog.text)
        await asyncio.sleep(0.05)
        assert bench.controllers.calls == []
        bench.controllers.conflict = None
        await until(lambda: bench.controllers.sent(Code.CONTROLLER_REGISTER_BROKER))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@on_loop
async def test_a_master_whose_controllers_are_of_different_quorums_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with leading(tmp_path, OWN, 1) as bench:
        heard = 0

        async def heartbeat(address: str, header: Header) -> None:
            nonlocal heard
            heard += 1

        bench.controllers.heartbeat = heartbeat  # type: ignore[method-assign]
        bench.controllers.known = lambda: ["0"]  # type: ignore[method-assign]
        await until(lambda: heard)
        bench.controllers.conflict = DifferentQuorums("a and b")
        await until(lambda: not bench.roles[-1].is_master)
        assert bench.roles[-1].master_address is None
        assert "acts as no master: a and b" in caplog.text
        before = heard
        await asyncio.sleep(0.1)
        assert heard == before

        bench.controllers.conflict = None
        await until(lambda: bench.roles[-1].is_master)
        await until(lambda: heard > before)


@on_loop
async def test_what_another_quorum_says_is_void(tmp_path: Path) -> None:
    async with joined(tmp_path) as bench:
        bench.controllers.quorum = "one"
        mine = told_by(state(OWN), "one")
        bench.membership.observe(mine)
        bench.membership.observe(told_by(state(1, master=1, epoch=9), "other"))
        assert bench.membership.state == mine


def told_by(found: GroupState, quorum: str) -> GroupState:
    return replace(found, quorum=quorum)


# ---- the sync-state set


@asynccontextmanager
async def leading(directory: Path, *members: int, **settings: Any) -> AsyncIterator[Bench]:
    """A master whose sync-state set is given; every member has everything."""
    async with joined(directory, **settings) as bench:
        bench.master.acked = {each: 100 for each in members if each != OWN}
        bench.membership.observe(state(*members))
        await until(lambda: bench.master.members)
        yield bench


def members_of(bench: Bench) -> frozenset[int]:
    assert bench.membership.state is not None
    return bench.membership.state.members


@on_loop
async def test_a_slave_that_has_caught_up_is_added(tmp_path: Path) -> None:
    async with leading(tmp_path, OWN) as bench:
        bench.master.acked = {1: 79}  # less than what is confirmed
        await asyncio.sleep(0.05)
        assert not bench.controllers.wanted_sets()
        bench.master.acked = {1: 80}
        await until(lambda: members_of(bench) == {OWN, 1})
        assert bench.controllers.wanted_sets() == [{OWN, 1}]
        assert bench.master.members[-1] == {OWN, 1}


@on_loop
async def test_a_slave_without_the_tables_of_its_master_is_not_added(tmp_path: Path) -> None:
    async with leading(tmp_path, OWN) as bench:
        bench.master.lacking_metadata = {1}
        bench.master.acked = {1: 80}
        await asyncio.sleep(0.05)
        assert not bench.controllers.wanted_sets()
        bench.master.lacking_metadata = set()
        await until(lambda: members_of(bench) == {OWN, 1})


@on_loop
async def test_slaves_of_the_last_epoch_are_not_added_while_a_master_is_elected_again(
    tmp_path: Path,
) -> None:
    async with joined(tmp_path) as bench:
        bench.membership.observe(state(OWN, 1))
        await until(lambda: bench.master.members)
        bench.master.acked = {1: 100}
        counted = len(bench.master.members)
        bench.term_begins.clear()

        bench.membership.observe(state(OWN, epoch=5))
        await asyncio.sleep(0.1)  # ten looks at the set
        assert bench.controllers.wanted_sets() == []
        assert len(bench.master.members) == counted

        bench.term_begins.set()
        await until(bench.controllers.wanted_sets)
        assert bench.controllers.wanted_sets()[0] == {OWN, 1}
        assert bench.roles[-1].members == {OWN, NOBODY}


@on_loop
async def test_a_slave_without_the_present_epoch_is_not_added(tmp_path: Path) -> None:
    async with leading(tmp_path, OWN) as bench:
        bench.log.readable = 10
        bench.master.acked = {1: 49}  # epoch 3 begins at 50
        await asyncio.sleep(0.05)
        assert not bench.controllers.wanted_sets()


@on_loop
async def test_a_member_that_is_gone_leaves_the_set_after_a_while(tmp_path: Path) -> None:
    async with leading(tmp_path, OWN, 1) as bench:
        bench.master.acked = {}
        await asyncio.sleep(0.05)
        assert not bench.controllers.wanted_sets()
        bench.clock.advance(1.1)
        await until(lambda: members_of(bench) == {OWN})


@on_loop
async def test_a_member_that_was_removed_must_report_anew(tmp_path: Path) -> None:
    async with leading(tmp_path, OWN, 1) as bench:
        bench.membership.observe(state(OWN, set_epoch=7))  # it said that it lost its tail
        assert bench.master.disconnected == [1]


@on_loop
async def test_a_member_that_came_back_in_time_stays(tmp_path: Path) -> None:
    async with leading(tmp_path, OWN, 1) as bench:
        bench.master.acked = {}
        await asyncio.sleep(0.05)
        bench.master.acked = {1: 100}
        await asyncio.sleep(0.05)
        bench.clock.advance(1.1)
        bench.master.acked = {}
        await asyncio.sleep(0.05)
        assert not bench.controllers.wanted_sets()


@on_loop
async def test_a_member_that_does_not_catch_up_leaves_the_set(tmp_path: Path) -> None:
    async with leading(tmp_path, OWN, 1) as bench:
        bench.master.acked = {1: 90}
        await asyncio.sleep(0.05)
        bench.clock.advance(2.9)
        await asyncio.sleep(0.05)
        assert not bench.controllers.wanted_sets()
        bench.clock.advance(0.2)
        await until(lambda: members_of(bench) == {OWN})


@on_loop
async def test_a_member_that_is_always_a_little_behind_stays(tmp_path: Path) -> None:
    async with leading(tmp_path, OWN, 1) as bench:
        for _ in range(5):
            bench.log.written += 10
            await asyncio.sleep(0.03)
            bench.clock.advance(2)
            bench.master.acked = {1: bench.log.written - 5}
            await asyncio.sleep(0.03)
            bench.master.acked = {1: bench.log.written}
            await asyncio.sleep(0.03)
        assert not bench.controllers.wanted_sets()


@on_loop
async def test_until_the_controller_answers_both_sets_count(tmp_path: Path) -> None:
    async with leading(tmp_path, OWN) as bench:
        bench.controllers.failures[Code.CONTROLLER_ALTER_SYNC_STATE_SET] = NoLeader("gone")
        bench.master.acked = {1: 100}
        await until(bench.controllers.wanted_sets)
        await until(lambda: bench.master.members[-1] == {OWN, 1})
        assert members_of(bench) == {OWN}
        bench.master.acked = {}  # it may be in the set by now, so it still counts
        await asyncio.sleep(0.05)
        assert bench.master.members[-1] == {OWN, 1}

        bench.membership.observe(state(OWN, set_epoch=5))
        await until(lambda: bench.master.members[-1] == {OWN})


@on_loop
async def test_the_set_is_left_alone_until_the_term_has_begun(tmp_path: Path) -> None:
    async with joined(tmp_path) as bench:
        bench.controllers.failures[Code.CONTROLLER_ALTER_SYNC_STATE_SET] = NoLeader("gone")
        bench.master.acked = {1: 100}
        bench.membership.observe(state(OWN))
        await until(lambda: bench.roles)
        await asyncio.sleep(0.1)  # ten looks at the set
        assert bench.controllers.wanted_sets() == []
        assert bench.master.members == []
        del bench.controllers.failures[Code.CONTROLLER_ALTER_SYNC_STATE_SET]
        await until(lambda: members_of(bench) == {OWN, 1})
        assert bench.master.members[0] == {OWN}


@on_loop
async def test_a_change_that_the_controller_refuses_is_undone(tmp_path: Path) -> None:
    async with leading(tmp_path, OWN) as bench:
        bench.controllers.failures[Code.CONTROLLER_ALTER_SYNC_STATE_SET] = ServerError("no")
        bench.master.acked = {1: 100}
        await until(lambda: {OWN, 1} in bench.master.members)
        bench.master.acked = {}
        await until(lambda: bench.master.members[-1] == {OWN})


@on_loop
async def test_a_slave_does_not_touch_the_set(tmp_path: Path) -> None:
    async with joined(tmp_path) as bench:
        bench.membership.observe(state(1, OWN, master=1))
        await until(lambda: bench.roles)
        bench.clock.advance(60)
        await asyncio.sleep(0.05)
        assert not bench.controllers.wanted_sets()


# ---- the lease


@on_loop
async def test_a_lease_lasts_from_the_moment_when_the_heartbeat_was_sent(tmp_path: Path) -> None:
    async with joined(tmp_path) as bench:
        assert not bench.membership.has_lease
        bench.controllers.beats = [Beat(state(OWN), 1.5, 0.01, is_leader=True, is_member=True)]
        await until(lambda: bench.leases == [True])
        bench.controllers.beats = []
        await asyncio.sleep(0.05)
        bench.clock.advance(1.4)
        assert bench.membership.has_lease
        bench.clock.advance(0.2)
        await until(lambda: bench.leases == [True, False])


@on_loop
async def test_only_the_leader_gives_a_lease(tmp_path: Path) -> None:
    async with joined(tmp_path) as bench:
        bench.controllers.beats = [Beat(state(OWN), 1.5, 0.01, is_leader=False, is_member=True)]
        await until(lambda: bench.roles)
        assert not bench.membership.has_lease
