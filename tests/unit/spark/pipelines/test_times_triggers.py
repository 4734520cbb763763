import pytest

from bolide.errors import ConfigError
from bolide.spark.pipelines.times import ONCE, Trigger, parse_trigger


@pytest.mark.parametrize("text", ["once", "Once", "available-now", "availableNow"])
def test_a_run_may_end_with_what_is_there(text: str) -> None:
    assert parse_trigger(text) == ONCE


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10 seconds", 10), ("1 second", 1), ("500ms", 0.5), ("2 min", 120), ("1.5h", 5400)],
)
def test_an_interval_is_in_words(text: str, seconds: float) -> None:
    assert parse_trigger(text) == Trigger(seconds)


@pytest.mark.parametrize("text", ["", "10", "seconds", "10 parsecs", "-1s", "continuous"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="use 'once', or an interval"):
        parse_trigger(text)
