"""Documents, and the steps to them, for any brokers: what is declared is what is there after."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.admin.declared.changes import Action, Plan, PlanRefused
from bolide.admin.declared.document import BadAclFile, BrokerState, declare, read_document, to_yaml
from bolide.admin.declared.fields import Fields, Kind, canonical_policy, default_fields
from bolide.admin.declared.planning import divergences, plan
from bolide.auth.policies.model import Entry, PolicyType
from bolide.protocol.bodies.access import PolicyEntry

NAMES = ("Orders", "bills-2", "a_b|c%d", "123")
BROKERS = ("broker-a", "broker-b", "broker-c")


class Everything(dict[str, str]):
    """An environment that has all variables."""

    def get(self, name: str, default: Any = None) -> Any:
        return f"secret of {name}"


def _entries(given: list[tuple[str, list[str], str, list[str], bool]]) -> dict[str, Any]:
    found = {}
    for resource, actions, decision, sources, is_default in given:
        wire = PolicyEntry(
            resource=resource, actions=actions, decision=decision, source_ips=sources or None
        )
        kind = PolicyType.DEFAULT if is_default else PolicyType.CUSTOM
        key, value = canonical_policy(kind, Entry.of(wire))
        found[key] = value
    return dict(sorted(found.items()))


_attributes = st.fixed_dictionaries(
    {},
    optional={
        "message.type": st.sampled_from(["NORMAL", "FIFO", "DELAY"]),
        "reserve.time": st.sampled_from(["-1", "1000"]),
        "dedup.window": st.sampled_from(["10m", "500"]),
    },
)
_topic = st.fixed_dictionaries({
    "readQueueNums": st.integers(1, 20),
    "writeQueueNums": st.integers(1, 20),
    "perm": st.integers(0, 7),
    "order": st.booleans(),
    "topicFilterType": st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
    "topicSysFlag": st.integers(0, 3),
    "attributes": _attributes,
})  # fmt: skip
_policy = st.sampled_from([
    {"type": "CUSTOMIZED"},
    {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 2000]}},
    {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1, "max": 9, "multiplier": 2}},
])  # fmt: skip
_group = st.builds(
    lambda times, policy, factor: {
        **default_fields(Kind.GROUPS, {}, 5),
        "retryMaxTimes": times,
        "groupRetryPolicy": policy,
        "attributes": {} if factor is None else {"priority.factor": str(factor)},
    },
    st.integers(-1, 20), _policy, st.none() | st.integers(0, 100),
)  # fmt: skip
_user = st.builds(
    lambda kind, status, entries: {"type": kind, "status": status, "policies": _entries(entries)},
    st.sampled_from(["Normal", "Super"]),
    st.sampled_from(["enable", "disable"]),
    st.lists(
        st.tuples(
            st.sampled_from(["Topic:Orders", "Topic:a*", "Group:*", "*"]),
            st.lists(st.sampled_from(["Pub", "Sub", "All", "get"]), min_size=1),
            st.sampled_from(["Allow", "deny"]),
            st.lists(st.sampled_from(["10.0.0.1", "10.1.2.3/8", "::1"])),
            st.booleans(),
        ),
        max_size=3,
    ),
)
_grants = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from(["DENY", "PUB", "SUB", "PUB|SUB"])
)
_account = st.fixed_dictionaries({
    "admin": st.booleans(),
    "whiteRemoteAddress": st.sampled_from(["", "10.0.0.*"]),
    "defaultTopicPerm": st.sampled_from(["DENY", "PUB|SUB"]),
    "defaultGroupPerm": st.sampled_from(["DENY", "SUB"]),
    "topicPerms": _grants,
    "groupPerms": _grants,
})  # fmt: skip


def _some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.sampled_from(NAMES), values, max_size=3)


@st.composite
def clusters(draw: st.DrawFn) -> list[BrokerState]:
    """Brokers with the same users and accounts, and topics and groups of their own."""
    users, accounts = draw(_some(_user)), draw(_some(_account))
    return [
        state(
            name,
            topics=draw(_some(_topic)),
            groups=draw(_some(_group)),
            users=users,
            accounts=accounts,
        )
        for name in BROKERS[: draw(st.integers(1, 3))]
    ]


def state(name: str = "broker-a", **objects: Mapping[str, Fields]) -> BrokerState:
    return BrokerState(
        name=name,
        address=f"{name}:10911",
        label=name,
        objects={Kind(kind): dict(each) for kind, each in objects.items()},
    )


def applied(states: list[BrokerState], found: Plan) -> list[BrokerState]:
    objects = {
        each.label: {kind: dict(names) for kind, names in each.objects.items()} for each in states
    }
    for change in found.changes:
        names = objects[change.broker][change.kind]
        if change.action is Action.DELETE:
            del names[change.name]
        else:
            names[change.name] = change.after
    return [
        state(each.name, **{str(k): v for k, v in objects[each.label].items()}) for each in states
    ]


def documented(states: list[BrokerState]) -> str:
    return to_yaml(declare(states, "DefaultCluster"))


def planned(text: str, states: list[BrokerState], **options: Any) -> Plan:
    document = read_document(text.encode(), "c.yml")
    return plan(document, states, environment=Everything(), **options)


@given(clusters())
@settings(max_examples=60, deadline=None)
def test_an_export_changes_nothing_where_it_came_from(states: list[BrokerState]) -> None:
    for prune in (False, True):
        assert planned(documented(states), states, prune=prune).changes == ()


@given(clusters(), clusters())
@settings(max_examples=60, deadline=None)
def test_after_a_plan_there_is_nothing_left_to_do(
    wanted: list[BrokerState], states: list[BrokerState]
) -> None:
    states = states[: len(wanted)]
    text = documented(wanted[: len(states)])
    pruning = planned(text, states, prune=True, allow_lock_out=True)
    kept = applied(states, planned(text, states, allow_lock_out=True))
    pruned = applied(states, pruning)

    assert planned(text, kept).changes == ()
    assert planned(text, pruned, prune=True).changes == ()
    for before, after, want in zip(states, pruned, wanted, strict=False):
        for kind, names in after.objects.items():
            survivors = {name for name in names if name not in want.objects[kind]}
            assert all(f"{kind.noun} {name} is not deleted" in " ".join(pruning.warnings)
                       for name in survivors)  # fmt: skip
            assert {n: f for n, f in names.items() if n not in survivors} == want.objects[kind]
            assert survivors <= before.objects[kind].keys()


TOPIC: Fields = default_fields(Kind.TOPICS, {}, 5)
OLD_TOPIC: Fields = default_fields(Kind.TOPICS, {}, 4)


def test_a_plan_names_fields_and_items_with_both_values() -> None:
    before = {**TOPIC, "perm": 4, "attributes": {"message.type": "FIFO", "reserve.time": "1"}}
    text = "{version: 1, topics: {T: {perm: 6, attributes: {message.type: DELAY}}, New: }}"
    found = planned(text, [state(topics={"T": before, "Other": TOPIC})])
    change, creation = found.changes
    assert [(each.field, each.old, each.new) for each in change.differences] == [
        ("perm", "4", "6"),
        ("attributes[message.type]", "FIFO", "DELAY"),
        ("attributes[reserve.time]", "1", None),
    ]
    assert (creation.action, creation.after) == (Action.CREATE, TOPIC)


def test_one_count_of_queues_is_that_of_both_kinds() -> None:
    found = planned("{version: 1, topics: {T: {writeQueueNums: 3}}}", [state(topics={})])
    assert found.changes[0].after["readQueueNums"] == 3


def test_fewer_queues_and_brokers_that_differ_are_warned_of() -> None:
    states = [state(topics={"T": TOPIC}), state("broker-b", topics={"T": {**TOPIC, "perm": 2}})]
    text = "version: 1\ntopics:\n  T: {readQueueNums: 2}"
    warnings = " ".join(planned(text, states).warnings)
    assert "c.yml:3: topic T: readQueueNums shrinks from 8 to 2 at broker-a" in warnings
    assert "nobody gets what is sent to queues 2 to 7" in warnings
    assert "topic T differs among brokers: perm is 6 at broker-a and 2 at broker-b" in warnings
    assert divergences([states[0], state("broker-b", topics={})]) == [
        "topic T differs among brokers: not at broker-b"
    ]


def test_pruning_keeps_who_could_not_be_replaced() -> None:
    user = default_fields(Kind.USERS, {}, 5)
    users = {"root": {**user, "type": "Super"}, "me": user, "old": user}
    found = planned("{version: 1, users: {}}", [state(users=users)], prune=True, own_name="me")
    assert [change.name for change in found.changes] == ["old"]
    assert "user root is not deleted: it is a super user" in found.warnings[0]
    assert planned("{version: 1}", [state(users=users)], prune=True).changes == ()


def test_a_topic_that_nobody_can_use_is_warned_of() -> None:
    states = [state(topics={"T": TOPIC, "Shut": {**TOPIC, "perm": 0}})]
    for perm, is_warned in ((0, True), (1, True), (2, False), (4, False)):
        warnings = planned(f"{{version: 1, topics: {{T: {{perm: {perm}}}}}}}", states).warnings
        assert any("nobody can send or consume" in each for each in warnings) == is_warned
    shut = planned("{version: 1, topics: {Shut: {perm: 0, readQueueNums: 9}}}", states)
    assert shut.warnings == ()  # it is known to be so


def test_a_file_of_other_objects_is_warned_of_and_an_empty_section_refused() -> None:
    states = [state(topics={"A": TOPIC, "B": TOPIC}), state("broker-b", topics={})]
    emptied = "c.yml: the file declares none of the topics that exist: --prune deletes all"
    for text in ("{}", "{C: {}}"):
        found = planned(f"{{version: 1, topics: {text}}}", states, prune=True)
        assert emptied in " ".join(found.warnings)
    assert emptied not in " ".join(
        planned("{version: 1, topics: {A: }}", states, prune=True).warnings
    )
    assert emptied not in " ".join(planned("{version: 1, topics: {}}", states).warnings)
    for empty in ("", "null", "''"):
        with pytest.raises(BadAclFile, match=r"c.yml:2: topics is empty: write topics: \{}"):
            planned(f"version: 1\ntopics: {empty}", states)


@pytest.mark.parametrize("change", ["{type: Normal}", "{status: disable}"])
def test_who_manages_the_cluster_is_locked_out_only_if_asked_and_last(change: str) -> None:
    user = default_fields(Kind.USERS, {}, 5)
    root = {**user, "type": "Super"}
    states = [state(users={"root": root, "other": root, "me": user}, topics={"Old": TOPIC})]
    text = f"version: 1\ntopics: {{}}\nusers:\n  root: {change}\n  me: {{policies: []}}\n"

    with pytest.raises(PlanRefused, match=r"c.yml:4: user root signs this command, and is to be"):
        planned(text, states, own_name="root")
    assert not planned(text, states, own_name="other").is_locked_out
    found = planned(text + "  new: ", states, prune=True, own_name="root", allow_lock_out=True)
    assert found.is_locked_out
    assert [each.name for each in found.changes] == ["new", "Old", "root"]
    assert "c.yml:4: user root signs this command" in " ".join(found.warnings)

    text += f"  other: {change}\n"
    with pytest.raises(PlanRefused) as refused:
        planned(text, states)
    assert len(refused.value.problems) == 2
    assert "user root is the last super user that is enabled" in refused.value.problems[0]
    assert planned(f"{text}  heir: {{type: Super}}", states).warnings == ()


def test_the_last_administrator_stays_one_and_own_policies_are_warned_of() -> None:
    account = default_fields(Kind.ACCOUNTS, {}, 5)
    states = [state(accounts={"chief": {**account, "admin": True}, "app": account})]
    text = "{version: 1, accounts: {chief: {admin: false}}}"
    with pytest.raises(PlanRefused, match="chief is the last administrator"):
        planned(text, states, own_name="app")
    with pytest.raises(PlanRefused, match="chief signs this command, and is to be no admin"):
        planned(text, states, own_name="chief")
    user = default_fields(Kind.USERS, {"policies": {"*": {}}}, 5)
    found = planned(
        "{version: 1, users: {me: {policies: []}}}", [state(users={"me": user})], own_name="me"
    )
    assert "user me signs this command and gets other policies" in found.warnings[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("topics:\n  T: {attributes: {message.type: FIFO}}", "c.yml:3: topic T has attributes"),
        ("topics:\n  T: {onlyOn: [broker-z]}", "names the broker broker-z, the cluster has"),
        ("users: {}", "broker-b has no users: no ACL"),
        ("topics:\n  Fixed: {perm: 4}", "Fixed at broker-b: it is a static topic"),
        ("topics:\n  B: {attributes: {queue.type: BatchCQ}}", "cannot be changed once"),
        ("accounts:\n  new-app: {}", "c.yml:3: the new account new-app needs a secretKey"),
        ("accounts:\n  new-app: {secretKey: '${NO}'}", "set NO in the environment"),
    ],
)
def test_what_cannot_be_done_refuses_the_whole_plan(text: str, reason: str) -> None:
    old = BrokerState(
        name="broker-b", address="b:1", label="broker-b", major=4,
        objects={Kind.TOPICS: {"T": OLD_TOPIC}, Kind.ACCOUNTS: {}},
        missing={Kind.USERS: "no ACL"},
        kept={Kind.TOPICS: {"Fixed": "it is a static topic"}},
    )  # fmt: skip
    states = [state(topics={"B": TOPIC}, users={}), old]
    with pytest.raises(PlanRefused) as refused:
        plan(read_document(f"version: 1\n{text}".encode(), "c.yml"), states, environment={})
    assert any(reason in problem for problem in refused.value.problems)
    assert "nothing is changed" in str(refused.value)
