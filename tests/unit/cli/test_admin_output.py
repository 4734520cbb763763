"""Output formats of the admin commands."""

import pytest

from bolide.cli.admin.output import time_text


@pytest.mark.parametrize("number", [2**60, 2**63 - 1, -(2**63)])
def test_what_is_no_time_is_shown_as_the_number_it_is(number: int) -> None:
    assert time_text(number) == time_text(number, millis=False) == str(number)


def test_a_time_is_shown_with_or_without_its_milliseconds() -> None:
    assert time_text(1_700_000_000_007).endswith(",007")
    assert time_text(1_700_000_000_007) == time_text(1_700_000_000_000, millis=False) + ",007"
