"""How long what failed is left alone."""

from bolide.broker.filters.functions import FIRST, LONGEST, Cooldowns
from tests.support.clock import FakeClock


def test_each_failure_in_a_row_makes_for_a_longer_pause_up_to_a_limit() -> None:
    clock = FakeClock()
    pauses = Cooldowns(clock)
    lengths = []
    for _ in range(8):
        pauses.failed("a", "it hangs")
        pause = pauses.find("a")
        assert pause is not None
        lengths.append(pause.seconds)
        clock.advance(pause.seconds)
        assert pauses.find("a") is None
    assert lengths[:3] == [FIRST, 2 * FIRST, 4 * FIRST]
    assert lengths[-2:] == [LONGEST, LONGEST]
    assert pauses.find("b") is None
    pauses.worked("a")
    pauses.failed("a", "it hangs again")
    assert pauses.find("a") == ("it hangs again", FIRST, clock.now + FIRST)


def test_pauses_that_are_over_do_not_pile_up() -> None:
    clock = FakeClock()
    pauses = Cooldowns(clock)
    for number in range(5000):
        pauses.failed(number, "it hangs")
        clock.advance(FIRST / 100)
    assert len(pauses) <= 1025
    assert pauses.find(4999) is not None
