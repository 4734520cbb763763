"""Lines that would come with every message come now and then."""

import logging

import pytest

from bolide.logs import ThrottledLog
from tests.support.clock import FakeClock


def test_a_line_comes_once_then_counts_and_comes_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    rare = ThrottledLog(logging.getLogger("rare"), every=60.0, now=clock)
    for number in range(3):
        rare.warning("key", "trouble %d", number)
    clock.advance(60)
    rare.warning("key", "trouble %d", 3)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == ["trouble 0", "trouble 3 (suppressed 2 times since the last line)"]


def test_keys_do_not_hide_each_other_and_trouble_may_be_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rare = ThrottledLog(logging.getLogger("rare"), now=FakeClock())
    rare.warning("a", "of a")
    rare.warning("b", "of b")
    rare.forget("a")
    rare.warning("a", "of a")
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == ["of a", "of b", "of a"]
