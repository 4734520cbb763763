import pytest

from bolide.client.errors import WrongState
from bolide.client.instance.lifecycle import Lifecycle


def test_use_before_the_start_and_after_the_end_is_refused() -> None:
    life = Lifecycle("producer", "G")
    with pytest.raises(WrongState, match="producer 'G' is not started"):
        life.require_running()
    life.begin()
    life.require_running()
    assert life.end()
    with pytest.raises(WrongState, match="closed: make a new one"):
        life.require_running()


def test_it_starts_once() -> None:
    life = Lifecycle("producer", "G")
    life.begin()
    with pytest.raises(WrongState, match="started already"):
        life.begin()
    life.end()
    with pytest.raises(WrongState, match="closed"):
        life.begin()


def test_a_failed_start_may_be_tried_again() -> None:
    life = Lifecycle("producer", "G")
    life.begin()
    life.fail()
    life.begin()
    assert life.is_running


def test_ending_twice_ends_once() -> None:
    life = Lifecycle("producer", "G")
    assert not life.end()
    assert not life.end()
