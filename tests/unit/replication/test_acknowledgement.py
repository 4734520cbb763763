"""How many replicas must have a message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.replication.acknowledgement import (
    AckPolicy,
    Rule,
    confirmed_position,
    replicated_position,
)

POSITIONS = st.lists(st.integers(0, 100), max_size=6)


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        (AckPolicy(Rule.NONE), False),
        (AckPolicy(Rule.ONE_SLAVE), True),
        (AckPolicy(Rule.COUNT, 1), False),
        (AckPolicy(Rule.COUNT, 2), True),
        (AckPolicy(Rule.SYNC_STATE_SET), True),
    ],
)
def test_which_rules_wait(policy: AckPolicy, *, waits: bool) -> None:
    assert policy.waits is waits


@pytest.mark.parametrize(
    ("acks", "policy", "position"),
    [
        ([], AckPolicy(Rule.ONE_SLAVE), -1),
        ([10, 30, 20], AckPolicy(Rule.ONE_SLAVE), 30),
        ([10, 30, 20], AckPolicy(Rule.COUNT, 2), 30),
        ([10, 30, 20], AckPolicy(Rule.COUNT, 3), 20),
        ([10, 30, 20], AckPolicy(Rule.COUNT, 4), 10),
        ([10, 30, 20], AckPolicy(Rule.COUNT, 5), -1),
    ],
)
def test_the_position_that_enough_slaves_have(
    acks: list[int], policy: AckPolicy, position: int
) -> None:
    assert replicated_position(acks, policy) == position


@given(POSITIONS, st.integers(2, 7), st.integers(0, 100))
def test_a_position_is_replicated_if_and_only_if_enough_members_have_it(
    acks: list[int], copies: int, wanted: int
) -> None:
    found = replicated_position(acks, AckPolicy(Rule.COUNT, copies))
    have = 1 + sum(ack >= wanted for ack in acks)
    assert (found >= wanted) == (have >= copies)


@pytest.mark.parametrize(
    ("acks", "members", "position"),
    [
        ({}, {0}, 100),
        ({1: 70, 2: 80}, {0, 1, 2}, 70),
        ({1: 70, 2: 80}, {0, 2}, 80),
        ({1: 120}, {0, 1}, 100),
        ({1: 70}, {0, 1, 2}, -1),
        ({}, set(), 100),
    ],
)
def test_the_position_that_the_whole_set_has(
    acks: dict[int, int], members: set[int], position: int
) -> None:
    assert confirmed_position(100, acks, members, own_id=0) == position
