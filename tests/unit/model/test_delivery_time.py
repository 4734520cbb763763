"""Messages for a time: how they say it."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from bolide.model.delivery_time import is_timed
from bolide.model.message import Message
from bolide.model.message_checks import InvalidMessage


@pytest.mark.parametrize(
    ("given", "name", "text"),
    [
        ({"deliver_at": 1.5}, "TIMER_DELIVER_MS", "1500"),
        ({"deliver_at": 1_700_000_000.1231}, "TIMER_DELIVER_MS", "1700000000124"),
        ({"deliver_at": 1_700_000_000.123}, "TIMER_DELIVER_MS", "1700000000123"),
        ({"deliver_at": datetime(2030, 1, 1, tzinfo=UTC)}, "TIMER_DELIVER_MS", "1893456000000"),
        (
            {"deliver_at": datetime(2030, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))},
            "TIMER_DELIVER_MS", "1893456000000",
        ),
        ({"delay": 0.0015}, "TIMER_DELAY_MS", "2"),
        ({"delay": 90}, "TIMER_DELAY_MS", "90000"),
        ({"delay": timedelta(days=1)}, "TIMER_DELAY_MS", "86400000"),
        ({"delay": 0}, "TIMER_DELAY_MS", "0"),
    ],
)  # fmt: skip
def test_a_time_is_told_in_milliseconds_rather_later_than_earlier(
    given: dict[str, float], name: str, text: str
) -> None:
    message = Message("T", b"x", **given)  # type: ignore[arg-type]
    assert message.properties == {name: text}
    assert is_timed(message.properties)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"deliver_at": datetime(2030, 1, 1)}, "deliver_at"),  # noqa: DTZ001  that is the mistake
        ({"deliver_at": -1}, "deliver_at"),
        ({"deliver_at": "noon"}, "deliver_at"),
        ({"deliver_at": float("nan")}, "deliver_at"),
        ({"deliver_at": float("inf")}, "deliver_at"),
        ({"delay": -0.1}, "delay"),
        ({"delay": True}, "delay"),
        ({"delay": timedelta(seconds=-1)}, "delay"),
        ({"delay": 1, "deliver_at": 1}, "delay"),
    ],
)
def test_what_is_no_time_is_refused_by_name(given: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidMessage, match=rf"^{field}: "):
        Message("T", b"x", **given)  # type: ignore[arg-type]


def test_a_property_of_a_time_is_given_by_its_argument() -> None:
    assert not is_timed(Message("T", b"x", delay_level=3).properties)
    with pytest.raises(InvalidMessage, match="deliver_at="):
        Message("T", b"x", properties={"TIMER_DELIVER_MS": "5"})
