"""The replicated state machine: elections, epochs, sync-state sets, generations of leaders."""

import pytest

from bolide.controller import state
from bolide.controller.commands import (
    Alter,
    ApplyId,
    Begin,
    Candidate,
    Clean,
    Command,
    Elect,
    Lead,
    Register,
    Result,
    encode_entry,
)
from bolide.controller.liveness import Leases, LeaseTimes
from bolide.controller.state import Machine, preview
from bolide.protocol.codes import ResponseCode as Code

EVERYBODY = (Candidate(1, 1, 100), Candidate(2, 1, 100), Candidate(3, 1, 100))


class Led:
    """A machine with an acting leader."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.machine.apply(encode_entry("n0", 0, [Lead()]))

    def run(self, command: Command) -> Result:
        outcome = self.machine.apply(encode_entry("n0", self.machine.generation, [command]))
        assert outcome.accepted
        return outcome.results[0]

    def elect(self, broker: int = -1, **more: object) -> Result:
        epoch = self.machine.groups["g"].epoch if "g" in self.machine.groups else 0
        settings: dict[str, object] = {"epoch": epoch, "alive": EVERYBODY} | more
        return self.run(Elect(group="g", broker=broker, **settings))  # type: ignore[arg-type]

    def alter(self, *new: int, **more: object) -> Result:
        group = self.machine.groups["g"]
        settings: dict[str, object] = {
            "master": group.master, "epoch": group.epoch,
            "set_epoch": group.sync_state_set_epoch, "alive": (1, 2, 3),
        } | more  # fmt: skip
        return self.run(Alter(group="g", new=new, **settings))  # type: ignore[arg-type]


@pytest.fixture
def group() -> Led:
    """Three brokers of which the first is master and all are in sync."""
    led = Led()
    for id_ in (1, 2, 3):
        assert led.run(ApplyId("c", "g", id_, f"b{id_};7")).code == Code.SUCCESS
    led.elect(1)
    led.alter(1, 2, 3)
    return led


def test_the_first_broker_that_asks_is_master_in_epoch_one() -> None:
    led = Led()
    led.run(ApplyId("c", "g", 1, "b1;7"))
    found = led.elect(1, alive=()).group
    assert found is not None
    assert (found.master, found.epoch, found.sync_state_set) == (1, 1, (1,))
    assert found.sync_state_set_epoch == 1
    assert found.master_address == "b1"


@pytest.mark.parametrize(
    ("id_", "check", "code"),
    [
        (4, "x;1", Code.SUCCESS),
        (2, "b2;7", Code.SUCCESS),
        (2, "x;1", Code.CONTROLLER_BROKER_ID_INVALID),
        (14, "x;1", Code.SUCCESS),
        (15, "x;1", Code.CONTROLLER_BROKER_ID_INVALID),
        (2**63 - 1, "x;1", Code.CONTROLLER_BROKER_ID_INVALID),
        (0, "x;1", Code.CONTROLLER_BROKER_ID_INVALID),
    ],
)
def test_an_id_belongs_to_one_check_code(group: Led, id_: int, check: str, code: int) -> None:
    assert group.run(ApplyId("c", "g", id_, check)).code == code


def test_the_first_id_of_a_group_is_one() -> None:
    assert Led().run(ApplyId("c", "g", 2, "x;1")).code == Code.CONTROLLER_BROKER_ID_INVALID


def test_registration_stores_the_address_of_a_known_id(group: Led) -> None:
    found = group.run(Register("g", 2, "elsewhere")).group
    assert found is not None and found.address_of(2) == "elsewhere"
    unknown = Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    assert group.run(Register("g", 9, "x")).code == unknown
    assert group.run(Register("h", 1, "x")).code == unknown


@pytest.mark.parametrize(
    ("alive", "winner"),
    [
        ([Candidate(2, 1, 100, 1), Candidate(3, 2, 50, 9)], 3),
        ([Candidate(2, 1, 100, 1), Candidate(3, 1, 200, 9)], 3),
        ([Candidate(2, 1, 100, 2), Candidate(3, 1, 100, 1)], 3),
        ([Candidate(2, 1, 100), Candidate(3, 1, 100)], 2),
    ],
    ids=["epoch", "offset", "priority", "id"],
)
def test_the_best_of_the_sync_state_set_wins(
    group: Led, alive: list[Candidate], winner: int
) -> None:
    found = group.elect(alive=tuple(alive)).group
    assert found is not None
    assert (found.master, found.epoch, found.sync_state_set) == (winner, 2, (winner,))


def test_a_living_master_stays(group: Led) -> None:
    result = group.elect(2)
    assert result.code == Code.CONTROLLER_MASTER_STILL_EXIST
    assert result.group is not None and result.group.master == 1


def test_a_designated_broker_replaces_a_living_master(group: Led) -> None:
    assert group.elect(3, designate=True).code == Code.SUCCESS
    assert group.machine.groups["g"].master == 3


def test_a_designated_broker_outside_of_the_set_is_not_elected(group: Led) -> None:
    group.alter(1, 2)
    assert group.elect(3, designate=True).code == Code.CONTROLLER_ELECT_MASTER_FAILED


def test_only_an_unclean_election_takes_a_broker_outside_of_the_set(group: Led) -> None:
    group.alter(1)
    alive = (Candidate(2, 1, 100),)
    refused = group.elect(2, alive=alive)
    assert refused.code == Code.CONTROLLER_ELECT_MASTER_FAILED
    found = group.elect(2, alive=alive, unclean=True).group
    assert found is not None and found.master == 2


def test_a_group_whose_set_is_dead_loses_its_master_and_keeps_the_set(group: Led) -> None:
    group.alter(1)
    result = group.elect(alive=(Candidate(2),))
    assert result.code == Code.CONTROLLER_MASTER_NOT_AVAILABLE
    found = group.machine.groups["g"]
    assert (found.master, found.epoch, found.sync_state_set) == (None, 2, (1,))
    again = group.elect(alive=(Candidate(1),)).group
    assert again is not None and (again.master, again.epoch) == (1, 3)


# ---- masters that confirm their terms


@pytest.fixture
def confirming(group: Led) -> Led:
    """The same, and each of them confirms its terms."""
    for id_ in (1, 2, 3):
        group.run(Register("g", id_, f"b{id_}", confirms=True))
    return group


def electable(led: Led) -> tuple[int, ...]:
    return led.machine.groups["g"].electable


def test_the_earlier_set_can_be_elected_until_a_master_confirms_its_term(confirming: Led) -> None:
    for epoch, (winner, alive) in enumerate([(2, (2, 3)), (3, (3,)), (1, (1,))], start=2):
        found = confirming.elect(alive=tuple(map(Candidate, alive))).group
        assert found is not None
        assert (found.master, found.epoch, found.sync_state_set) == (winner, epoch, (winner,))
        assert found.electable == (1, 2, 3)  # nobody has taken a message yet
    begin = Begin(group="g", master=1, epoch=4)
    for _ in range(2):  # it may be repeated
        assert confirming.run(begin).code == Code.SUCCESS
        assert electable(confirming) == (1,)
    refused = confirming.elect(alive=(Candidate(2), Candidate(3)))
    assert refused.code == Code.CONTROLLER_MASTER_NOT_AVAILABLE


def test_a_repeated_confirmation_changes_nothing_and_is_not_logged(confirming: Led) -> None:
    confirming.elect(alive=(Candidate(2),))
    begin = Begin(group="g", master=2, epoch=2)
    assert preview(confirming.machine.groups, begin) is None
    confirming.run(begin)
    result = preview(confirming.machine.groups, begin)
    assert result is not None and result.code == Code.SUCCESS


@pytest.mark.parametrize(
    ("begin", "code"),
    [
        (Begin(group="h", master=2, epoch=2), Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED),
        (Begin(group="g", master=1, epoch=2), Code.CONTROLLER_INVALID_MASTER),
        (Begin(group="g", master=2, epoch=1), Code.CONTROLLER_FENCED_MASTER_EPOCH),
    ],
)
def test_only_the_present_master_confirms_its_term(
    confirming: Led, begin: Begin, code: int
) -> None:
    confirming.elect(alive=(Candidate(2),))
    assert confirming.run(begin).code == code
    assert electable(confirming) == (1, 2, 3)


def test_a_change_of_the_set_confirms_the_term_too(confirming: Led) -> None:
    confirming.elect(alive=(Candidate(2), Candidate(3)))
    confirming.alter(2, 3)
    assert electable(confirming) == (2, 3)


def test_a_master_of_rocketmq_takes_messages_at_once(confirming: Led) -> None:
    confirming.run(Register("g", 2, "b2"))  # a broker that does not say that it confirms
    confirming.elect(alive=(Candidate(2),))
    assert electable(confirming) == (2,)


def test_an_unclean_master_leaves_nobody_else_to_elect(confirming: Led) -> None:
    confirming.alter(1)
    confirming.elect(2, alive=(Candidate(2),), unclean=True)
    assert electable(confirming) == (2,)


@pytest.mark.parametrize("is_restarted", [True, False])
def test_the_earlier_set_is_the_set_again_without_a_master(
    confirming: Led, is_restarted: bool
) -> None:
    confirming.elect(alive=(Candidate(2),))
    if is_restarted:
        confirming.run(Register("g", 2, "b2", restarted=True, confirms=True))
    else:
        confirming.elect(alive=(Candidate(9),))
    found = confirming.machine.groups["g"]
    assert (found.master, found.epoch, found.earlier_set) == (None, 3, ())
    assert (found.sync_state_set, found.sync_state_set_epoch) == ((1, 2, 3), 4)


def test_who_lost_its_tail_or_was_removed_is_not_in_the_earlier_set(confirming: Led) -> None:
    confirming.elect(alive=(Candidate(2),))
    confirming.run(Register("g", 3, "b3", restarted=True, lost_tail=True, confirms=True))
    assert electable(confirming) == (1, 2)
    confirming.run(Register("g", 2, "b2", restarted=True, lost_tail=True, confirms=True))
    assert electable(confirming) == (1,)
    confirming.elect(alive=(Candidate(1),))
    confirming.run(Clean(group="g", ids=(1,)))
    found = confirming.machine.groups["g"]
    assert (found.master, found.electable) == (None, ())


def test_the_last_one_of_the_earlier_set_stays_whatever_it_lost(confirming: Led) -> None:
    confirming.alter(1)
    confirming.elect(alive=(Candidate(9),))
    confirming.elect(alive=(Candidate(1),))
    confirming.run(Register("g", 1, "b1", restarted=True, lost_tail=True, confirms=True))
    assert electable(confirming) == (1,)


# ---- elections that are refused


def test_an_election_of_an_older_epoch_changes_nothing(group: Led) -> None:
    before = group.machine.groups["g"]
    result = group.elect(3, designate=True, epoch=0)
    assert result.code == Code.CONTROLLER_FENCED_MASTER_EPOCH
    assert group.machine.groups["g"] is before


def test_strangers_are_not_elected(group: Led) -> None:
    assert group.elect(9).code == Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    stranger = group.run(Elect(group="h", epoch=0, broker=1))
    assert stranger.code == Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED


@pytest.mark.parametrize(
    ("new", "more", "code"),
    [
        ((1, 2), {}, Code.SUCCESS),
        ((3, 2, 1), {}, Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
        ((1, 2), {"master": 2}, Code.CONTROLLER_INVALID_MASTER),
        ((1, 2), {"epoch": 0}, Code.CONTROLLER_FENCED_MASTER_EPOCH),
        ((1, 2), {"set_epoch": 1}, Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH),
        ((1, 9), {}, Code.CONTROLLER_INVALID_REPLICAS),
        ((1, 2), {"alive": (1,)}, Code.CONTROLLER_BROKER_NOT_ALIVE),
        ((2, 3), {}, Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
    ],
)
def test_the_set_changes_only_for_the_master_of_this_epoch(
    group: Led, new: tuple[int, ...], more: dict[str, object], code: int
) -> None:
    before = group.machine.groups["g"]
    result = group.alter(*new, **more)
    assert result.code == code
    if code == Code.SUCCESS:
        assert result.group is not None
        assert result.group.sync_state_set == (1, 2)
        assert result.group.sync_state_set_epoch == before.sync_state_set_epoch + 1
    else:
        assert group.machine.groups["g"] is before


def test_brokers_that_live_are_cleaned_only_by_force(group: Led) -> None:
    alive = Clean(group="g", ids=(2,), alive=(2,))
    refused = Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert group.run(alive).code == refused
    assert group.run(Clean(group="g", alive=(1,))).code == refused
    assert group.run(Clean(group="h")).code == refused
    assert group.run(Clean(group="g", ids=(2,), alive=(2,), forced=True)).code == Code.SUCCESS
    found = group.machine.groups["g"]
    assert sorted(found.members) == [1, 3] and found.sync_state_set == (1, 3)
    assert found.next_id == 4


def test_cleaning_the_master_starts_a_new_epoch_without_one(group: Led) -> None:
    group.run(Clean(group="g", ids=(1,)))
    found = group.machine.groups["g"]
    assert (found.master, found.epoch, found.sync_state_set) == (None, 2, (2, 3))


def emptied(group: Led) -> Led:
    """The members of the sync-state set are cleaned; 2 and 3 are left."""
    group.alter(1)
    group.run(Clean(group="g", ids=(1,)))
    return group


def test_a_group_that_lost_its_set_is_not_given_to_the_broker_that_asks_first(group: Led) -> None:
    result = emptied(group).elect(2)
    assert result.code == Code.CONTROLLER_ELECT_MASTER_FAILED
    assert "an administrator must designate" in result.remark
    assert emptied(group).elect().code == Code.CONTROLLER_MASTER_NOT_AVAILABLE
    assert group.machine.groups["g"].master is None


def test_a_group_that_lost_its_set_gets_the_designated_master_if_it_is_alive(group: Led) -> None:
    assert emptied(group).elect(2, designate=True, alive=(Candidate(3),)).group is None
    found = group.elect(2, designate=True).group
    assert found is not None
    assert (found.master, found.epoch, found.sync_state_set) == (2, 3, (2,))


@pytest.mark.parametrize("broker", [-1, 2])
def test_a_group_that_lost_its_set_gets_the_best_master_by_an_unclean_election(
    group: Led, broker: int
) -> None:
    alive = (Candidate(2, 1, 5), Candidate(3, 1, 9))
    found = emptied(group).elect(broker, alive=alive, unclean=True).group
    assert found is not None and found.master == 3


def test_groups_and_members_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_GROUPS", 2)
    monkeypatch.setattr(state, "MAX_MEMBERS", 2)
    led = Led()
    codes = [led.run(ApplyId("c", name, 1, "x")).code for name in ("g", "h", "i")]
    assert codes == [Code.SUCCESS, Code.SUCCESS, Code.CONTROLLER_BROKER_ID_INVALID]
    assert led.run(ApplyId("c", "g", 2, "y")).code == Code.SUCCESS
    assert led.run(ApplyId("c", "g", 3, "z")).code == Code.CONTROLLER_BROKER_ID_INVALID
    assert led.run(ApplyId("c", "g", 2, "y")).code == Code.SUCCESS
    led.run(Clean(group="h"))
    assert led.run(ApplyId("c", "i", 1, "x")).code == Code.SUCCESS


def test_members_of_all_groups_are_limited_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_ALL_MEMBERS", 3)
    led = Led()
    adding = [ApplyId("c", "g", 1, "x"), ApplyId("c", "g", 2, "y"), ApplyId("c", "h", 1, "x")]
    outcome = led.machine.apply(
        encode_entry("n0", led.machine.generation, [*adding, ApplyId("c", "h", 2, "y")])
    )
    assert [each.code for each in outcome.results] == [
        Code.SUCCESS, Code.SUCCESS, Code.SUCCESS, Code.CONTROLLER_BROKER_ID_INVALID,
    ]  # fmt: skip
    refused = led.run(ApplyId("c", "i", 1, "x"))
    assert refused.code == Code.CONTROLLER_BROKER_ID_INVALID and "3 brokers" in refused.remark
    assert led.run(adding[0]).code == Code.SUCCESS  # it is one of them
    led.run(Clean(group="g", ids=(2,)))
    assert led.run(ApplyId("c", "i", 1, "x")).code == Code.SUCCESS


def test_an_entry_reports_what_it_changed_and_nothing_else(group: Led) -> None:
    entry = encode_entry("n0", group.machine.generation, [
        ApplyId("c", "h", 1, "x"), Clean(group="h"), Clean(group="h"),
        ApplyId("c", "i", 1, "x"), Register("g", 9, "x"),
    ])  # fmt: skip
    outcome = group.machine.apply(entry)
    assert [each.code == Code.SUCCESS for each in outcome.results] == [
        True,
        True,
        False,
        True,
        False,
    ]
    assert outcome.changed == {"i": group.machine.groups["i"]}
    gone = group.machine.apply(encode_entry("n0", group.machine.generation, [Clean(group="i")]))
    assert gone.changed == {"i": None} and sorted(group.machine.groups) == ["g"]


def test_a_preview_is_the_result_of_a_command_that_changes_nothing(group: Led) -> None:
    groups = dict(group.machine.groups)
    unknown = preview(groups, Register("h", 1, "x"))
    assert unknown is not None
    assert unknown.code == Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    again = preview(groups, ApplyId("c", "g", 1, "b1;7"))
    assert again is not None and again.group is groups["g"]
    assert preview(groups, Register("g", 1, "elsewhere")) is None
    assert preview(groups, Clean(group="g")) is None
    assert groups == group.machine.groups


def test_a_group_without_brokers_is_gone_and_a_new_one_goes_on_behind_it(group: Led) -> None:
    before = group.machine.groups["g"]
    assert group.run(Clean(group="g")).code == Code.SUCCESS
    removed = group.machine.groups["g"]
    assert removed.is_removed and removed.master is None and removed.epoch > before.epoch

    unknown = Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    assert group.elect(1).code == group.run(Register("g", 1, "b1")).code == unknown
    altered = group.alter(1, master=1)
    assert altered.code == Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    assert group.run(Clean(group="g")).code == Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    for taken in (1, 2, 3, 5):
        assert group.run(ApplyId("d", "g", taken, "x;1")).code == Code.CONTROLLER_BROKER_ID_INVALID

    assert group.run(ApplyId("d", "g", 4, "x;1")).code == Code.SUCCESS
    assert group.elect().code == Code.CONTROLLER_MASTER_NOT_AVAILABLE
    found = group.elect(4, alive=()).group
    assert found is not None
    assert (found.master, found.cluster, found.sync_state_set) == (4, "d", (4,))
    assert found.epoch > removed.epoch
    assert found.sync_state_set_epoch > before.sync_state_set_epoch


def test_groups_that_never_had_a_master_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led()
    led.run(ApplyId("c", "g", 1, "b1;7"))
    led.run(Clean(group="g"))
    assert not led.machine.groups

    monkeypatch.setattr(state, "MAX_GROUPS", 1)
    for name in ("g", "h"):  # nor do more than may be kept
        led.run(ApplyId("c", name, 1, "b1;7"))
        led.run(Elect(group=name, epoch=0, broker=1))
        led.run(Clean(group=name))
    assert list(led.machine.groups) == ["g"]


def test_entries_of_an_earlier_leader_are_refused(group: Led) -> None:
    stale = encode_entry("n0", group.machine.generation, [Clean(group="g")])
    group.machine.apply(encode_entry("n1", group.machine.generation, [Lead()]))
    outcome = group.machine.apply(stale)
    assert not outcome.accepted and not outcome.results
    assert outcome.leader == "n1" and "g" in group.machine.groups


def test_of_two_that_want_to_lead_the_first_one_does() -> None:
    machine = Machine()
    assert machine.apply(encode_entry("n0", 0, [Lead()])).accepted
    assert not machine.apply(encode_entry("n1", 0, [Lead()])).accepted
    assert (machine.leader, machine.generation) == ("n0", 1)


def test_an_empty_entry_confirms_the_leader_only() -> None:
    led = Led()
    assert led.machine.apply(encode_entry("n0", 1, [])).accepted
    assert not led.machine.apply(encode_entry("n1", 1, [])).accepted


@pytest.mark.parametrize(
    "entry",
    [b"", b"\xff", b"[]", b"{}", b'{"node":1}'],
)
def test_an_unreadable_entry_changes_nothing_and_does_not_raise(entry: bytes) -> None:
    led = Led()
    assert not led.machine.apply(entry).accepted


def test_nothing_is_applied_behind_an_entry_of_a_newer_release(group: Led) -> None:
    before = group.machine.encode()
    newer = b'{"version":99,"node":"n0","generation":1,"commands":[{"type":"new"}]}'
    assert not group.machine.apply(newer).accepted
    assert group.machine.stopped_by == 99
    assert not group.machine.apply(encode_entry("n0", 1, [Clean(group="g")])).accepted
    assert group.machine.encode() == before


def test_an_unknown_command_spoils_no_other_one(group: Led) -> None:
    entry = b'{"version":1,"node":"n0","generation":1,"commands":[{"type":"new"},%b]}' % (
        b'{"type":"clean","group":"g"}'
    )
    first, second = group.machine.apply(entry).results
    assert first.code == Code.CONTROLLER_INVALID_REQUEST
    assert second.code == Code.SUCCESS


def test_a_snapshot_holds_the_whole_state(group: Led) -> None:
    other = Machine()
    other.restore(group.machine.encode())
    assert other.groups == group.machine.groups
    assert (other.leader, other.generation) == ("n0", group.machine.generation)


def test_the_first_leader_names_the_quorum_and_later_ones_repeat_it() -> None:
    machine = Machine()
    for number, (node, told) in enumerate([("n0", "one"), ("n1", "one"), ("n0", "")]):
        outcome = machine.apply(encode_entry(node, number, [Lead(told)]))
        assert (outcome.quorum, machine.quorum) == ("one", "one")
    other = Machine()
    other.restore(machine.encode())
    assert other.quorum == "one"


def test_a_snapshot_of_an_early_release_can_be_read() -> None:
    machine = Machine()
    machine.restore(
        b'{"version":1,"leader":"n0","generation":3,"groups":{"g":{"cluster":"c","name":"g",'
        b'"members":{"1":{"address":"a:1","check_code":"a:1;7"}},"next_id":2,"master":1,"epoch":2,'
        b'"sync_state_set":[1],"sync_state_set_epoch":4}}}'
    )
    group = machine.groups["g"]
    assert (group.electable, group.members[1].confirms, machine.quorum) == ((1,), False, "")


@pytest.mark.parametrize("data", [b"", b"{", b'{"version":2}', b'{"groups":[]}'])
def test_a_bad_snapshot_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="snapshot"):
        Machine().restore(data)


def test_a_repeat_of_a_registration_deposes_nobody(group: Led) -> None:
    first = Register("g", 1, "b1", restarted=True, process="p")
    group.run(first)
    group.elect(1)
    assert group.machine.groups["g"].master == 1

    group.run(first)  # late, by another way
    assert group.machine.groups["g"].master == 1
    group.run(Register("g", 1, "b1", restarted=True, process="q"))
    assert group.machine.groups["g"].master is None


def test_a_cleaning_that_was_decided_in_another_epoch_is_refused(group: Led) -> None:
    before = group.machine.groups["g"]
    late = Clean(group="g", ids=(1,), forced=True, epoch=before.epoch - 1)
    assert group.run(late).code == Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert group.machine.groups["g"] is before
    now = Clean(group="g", ids=(1,), forced=True, epoch=before.epoch)
    assert group.run(now).code == Code.SUCCESS


def test_a_lease_that_two_revoked_is_given_when_both_are_done(group: Led) -> None:
    leases, held = Leases(LeaseTimes(2.0), lambda: 100.0), group.machine.groups["g"]
    leases.begin()
    assert leases.try_grant(held, 1)
    leases.revoke("g")
    leases.revoke("g")
    leases.restore("g")
    assert not leases.try_grant(held, 1)
    leases.restore("g")
    assert leases.try_grant(held, 1)
