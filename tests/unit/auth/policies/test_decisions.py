"""Which entry of a user's policies decides."""

from functools import cmp_to_key

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.auth.policies.decisions import DENIED, NO_MATCH, Need, reason_to_deny
from bolide.auth.policies.model import (
    Acl,
    Action,
    Decision,
    Entry,
    Pattern,
    PolicyType,
    Resource,
    ResourceType,
)
from bolide.protocol.bodies import access as wire
from tests.support.access import acl, entry

HERE = "127.0.0.1"


def topic(name: str, action: Action = Action.PUB) -> Need:
    return Need(Resource(ResourceType.TOPIC, name), frozenset({action}))


def decide(*entries: wire.PolicyEntry, need: Need | None = None, source: str = HERE) -> str | None:
    return reason_to_deny(acl("a", *entries), need or topic("orders"), source)


def test_a_user_without_policies_may_do_nothing() -> None:
    assert reason_to_deny(None, topic("orders"), HERE) == NO_MATCH
    assert decide(entry("Topic:other", "All")) == NO_MATCH


@pytest.mark.parametrize("actions", ["Pub", "Sub,Pub", "All"])
def test_an_entry_allows_its_actions(actions: str) -> None:
    assert decide(entry("Topic:orders", actions)) is None


def test_one_of_several_actions_is_enough() -> None:
    need = Need(Resource(ResourceType.TOPIC, "orders"), frozenset({Action.SUB, Action.GET}))
    assert decide(entry("Topic:orders", "Get"), need=need) is None
    assert decide(entry("Topic:orders", "Pub"), need=need) == NO_MATCH


@pytest.mark.parametrize(
    ("close", "far"),
    [
        ("Topic:orders", "Topic:orders*"),
        ("Topic:orders", "Topic:*"),
        ("Topic:orders", "*"),
        ("Topic:order*", "Topic:or*"),
        ("Topic:or*", "Topic:*"),
        ("Topic:*", "*"),
    ],
)
def test_the_closest_entry_decides(close: str, far: str) -> None:
    assert decide(entry(far, "All"), entry(close, "Pub", "Deny")) == DENIED
    assert decide(entry(far, "All", "Deny"), entry(close, "Pub")) is None


def test_a_denial_wins_among_equals() -> None:
    # Two users' worth of entries about one resource cannot exist; two prefixes of one length can.
    entries = (
        Entry(Resource.parse("Topic:*"), frozenset({Action.ALL}), Decision.ALLOW),
        Entry(Resource.parse("Topic:*"), frozenset({Action.PUB}), Decision.DENY),
    )
    assert reason_to_deny(Acl("a", {PolicyType.CUSTOM: entries}), topic("x"), HERE) == DENIED


def test_an_entry_counts_only_for_its_sources() -> None:
    near = entry("Topic:orders", "Pub", sources="10.0.0.0/8,127.0.0.1")
    assert decide(near) is None
    assert decide(near, source="192.168.0.1") == NO_MATCH
    assert decide(near, source="not an address") == NO_MATCH
    assert decide(near, entry("Topic:*", "Pub", "Deny"), source="192.168.0.1") == DENIED


def test_default_policies_count_if_no_custom_one_matches() -> None:
    default = acl("a", entry("*", "All"), kind="Default")
    both = default.updated(acl("a", entry("Topic:orders", "Pub", "Deny")))
    assert reason_to_deny(both, topic("orders"), HERE) == DENIED
    assert reason_to_deny(both, topic("orders", Action.SUB), HERE) is None
    assert reason_to_deny(both, topic("other"), HERE) is None


# ---- the same, as Java writes it


_RANKS = {Pattern.LITERAL: 0, Pattern.PREFIX: 1, Pattern.ANY: 2}


def java_compare(one: Entry, two: Entry) -> int:
    """The comparator of Java's handler."""
    r1, r2 = one.resource, two.resource
    compare = 0
    if r1.type != r2.type:
        if r1.type is ResourceType.ANY:
            compare = 1
        if r2.type is ResourceType.ANY:
            compare = -1
    elif r1.pattern == r2.pattern:
        if r1.pattern is Pattern.PREFIX:
            compare = len(r2.name or "") - len(r1.name or "")
    else:
        compare = _RANKS[r1.pattern] - _RANKS[r2.pattern]
    if compare or one.decision == two.decision:
        return compare
    return -1 if one.decision is Decision.DENY else 1


_keys = st.sampled_from(
    ["*", "Topic:*", "Topic:a*", "Topic:ab*", "Topic:abc*", "Topic:abc", "Topic:ab", "Group:*"]
)
_entries = st.builds(
    Entry,
    resource=_keys.map(Resource.parse),
    actions=st.frozensets(st.sampled_from([Action.PUB, Action.SUB, Action.ALL]), min_size=1),
    decision=st.sampled_from(Decision),
)


@given(st.lists(_entries, max_size=8), st.sampled_from(["a", "ab", "abc", "abcd", "x"]))
def test_the_order_of_entries_does_not_matter(entries: list[Entry], name: str) -> None:
    need = topic(name)
    matching = [
        each
        for each in entries
        if each.resource.matches(need.resource) and each.actions & {Action.ALL, Action.PUB}
    ]
    decided = reason_to_deny(Acl("a", {PolicyType.CUSTOM: tuple(entries)}), need, HERE)
    backwards = Acl("a", {PolicyType.CUSTOM: tuple(reversed(entries))})
    assert reason_to_deny(backwards, need, HERE) == decided
    if not matching:
        assert decided == NO_MATCH
    else:
        first = sorted(matching, key=cmp_to_key(java_compare))[0]
        assert decided == (DENIED if first.decision is Decision.DENY else None)
