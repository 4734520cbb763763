from datetime import UTC, datetime

import pytest

from bolide.errors import ConfigError
from bolide.spark.pipelines.times import format_duration, parse_duration, parse_moment


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5m", 300), ("1.5 h", 5400), ("7d", 604800), ("200ms", 0.2)]
)
def test_spans_have_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text, option="window") == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "0s", "-5m", "5 weeks"])
def test_what_is_no_span_is_refused_by_the_name_of_its_option(text: str) -> None:
    with pytest.raises(ConfigError, match="window="):
        parse_duration(text, option="window")


def test_moments_are_utc_unless_they_say_otherwise() -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert parse_moment("2026-01-31T12:00:00", option="since") == noon
    assert parse_moment("2026-01-31T13:00:00+01:00", option="since") == noon
    assert parse_moment("-10m", option="since", now=noon.timestamp() + 600) == noon


@pytest.mark.parametrize("text", ["earliest", "group:x", "yesterday"])
def test_what_is_no_moment_is_refused_by_the_name_of_its_option(text: str) -> None:
    with pytest.raises(ConfigError, match="since="):
        parse_moment(text, option="since")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.6, "1 m"),
        (250, "4 m 10 s"),
        (3600, "1 h"),
        (7265, "2 h 1 m"),
        (90000, "1 d 1 h"),
    ],
)
def test_spans_are_told_by_their_two_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
