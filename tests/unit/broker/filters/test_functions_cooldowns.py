"""Exponential back-off of failing filter functions."""

from bolide.broker.filters.functions import FIRST_COOLDOWN, MAX_COOLDOWN, Cooldowns
from tests.support.clock import FakeClock


def test_each_failure_in_a_row_makes_for_a_longer_pause_up_to_a_limit() -> None:
    clock = FakeClock()
    pauses = Cooldowns(clock)
    lengths = []
    for _ in range(8):
        pauses.record_failure("a", "it hangs")
        pause = pauses.find("a")
        assert pause is not None
        lengths.append(pause.seconds)
        clock.advance(pause.seconds)
        assert pauses.find("a") is None
    assert lengths[:3] == [FIRST_COOLDOWN, 2 * FIRST_COOLDOWN, 4 * FIRST_COOLDOWN]
    assert lengths[-2:] == [MAX_COOLDOWN, MAX_COOLDOWN]
    assert pauses.find("b") is None
    pauses.reset("a")
    pauses.record_failure("a", "it hangs again")
    assert pauses.find("a") == ("it hangs again", FIRST_COOLDOWN, clock.now + FIRST_COOLDOWN)


def test_pauses_that_are_over_do_not_pile_up() -> None:
    clock = FakeClock()
    pauses = Cooldowns(clock)
    for number in range(5000):
        pauses.record_failure(number, "it hangs")
        clock.advance(FIRST_COOLDOWN / 100)
    assert len(pauses) <= 1025
    assert pauses.find(4999) is not None
