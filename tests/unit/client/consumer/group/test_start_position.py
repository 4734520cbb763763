"""Where a group without offsets begins."""

from datetime import UTC, datetime

import pytest

from bolide.client.consumer.group.start_position import ConsumeFrom, StartPosition, timestamp_ms
from bolide.errors import ConfigError


def test_without_a_timestamp_it_is_half_an_hour_ago() -> None:
    assert StartPosition.of("timestamp", None, 10_000.0).timestamp_ms == (10_000 - 1800) * 1000


def test_a_text_is_local_time() -> None:
    expected = datetime(2013, 12, 23, 17, 12, 1).astimezone().timestamp()
    assert timestamp_ms("20131223171201") == int(expected) * 1000


def test_a_datetime_and_seconds_are_taken_too() -> None:
    assert timestamp_ms(datetime(1970, 1, 2, tzinfo=UTC)) == 86_400_000
    assert timestamp_ms(1.5) == 1500


@pytest.mark.parametrize("text", ["", "2013", "20131323171201", "2013122317120", "abc"])
def test_a_text_of_another_form_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(ConfigError, match="consume_timestamp="):
        StartPosition.of("timestamp", text, 0.0)


def test_an_unknown_word_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="must be one of last, first, timestamp"):
        StartPosition.of("middle", None, 0.0)


def test_brokers_are_told_in_their_words() -> None:
    assert [each.on_wire.value for each in ConsumeFrom] == [
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ]
