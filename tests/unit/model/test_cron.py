"""Times that come again and again, where clocks are put forward and back, too."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide import Message
from bolide.model.cron import next_time
from bolide.model.message_checks import InvalidMessage
from bolide.model.properties import PropertyName

BERLIN = ZoneInfo("Europe/Berlin")


def times(expression: str, zone: str, begin: datetime, count: int) -> list[str]:
    """The next ones, by the clock of the zone."""
    found, after = [], int(begin.timestamp() * 1000)
    for _ in range(count):
        due = next_time(expression, zone, after)
        assert due is not None
        assert due > after
        after = due
        found.append(datetime.fromtimestamp(due / 1000, ZoneInfo(zone or "UTC")).isoformat())
    return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/5 * * * *", ["2026-01-31T12:05:00", "2026-01-31T12:10:00"]),
        ("30 9 * * MON-FRI", ["2026-02-02T09:30:00", "2026-02-03T09:30:00"]),
        ("0 0 L * *", ["2026-02-28T00:00:00", "2026-03-31T00:00:00"]),
        ("0 12 29 2 *", ["2028-02-29T12:00:00", "2032-02-29T12:00:00"]),
        ("*/20 59 23 31 12 *", ["2026-12-31T23:59:00", "2026-12-31T23:59:20"]),
    ],
)
def test_times_are_those_of_cron(expression: str, expected: list[str]) -> None:
    begin = datetime(2026, 1, 31, 12, 4, 59, 999_000, tzinfo=UTC)

    assert times(expression, "", begin, 2) == [f"{each}+00:00" for each in expected]


def test_a_time_in_the_hour_that_clocks_leave_out_comes_right_behind_it() -> None:
    begin = datetime(2026, 3, 28, 12, tzinfo=BERLIN)

    assert times("30 2 * * *", "Europe/Berlin", begin, 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_time_in_the_hour_that_clocks_repeat_comes_once() -> None:
    begin = datetime(2026, 10, 24, 12, tzinfo=BERLIN)

    assert times("30 2 * * *", "Europe/Berlin", begin, 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_what_comes_each_hour_comes_in_repeated_hours_each_time() -> None:
    begin = datetime(2026, 10, 25, 1, 30, tzinfo=BERLIN)

    assert times("0 * * * *", "Europe/Berlin", begin, 3) == [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T03:00:00+01:00",
    ]


def test_the_same_time_follows_its_zone_over_the_year() -> None:
    winter, summer = (datetime(2026, month, 1, tzinfo=UTC) for month in (1, 7))

    assert times("0 9 * * *", "Europe/Berlin", winter, 1) == ["2026-01-01T09:00:00+01:00"]
    assert times("0 9 * * *", "Europe/Berlin", summer, 1) == ["2026-07-01T09:00:00+02:00"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"cron": "* * *"}, "cron"),
        ({"cron": "61 * * * *"}, "cron"),
        ({"cron": "0 0 31 2 *"}, "cron"),
        ({"cron": "0 0 31 2 1#5" + " " * 300}, "cron"),
        ({"cron": 5}, "cron"),
        ({"cron_zone": "Europe/Berlin"}, "cron_zone"),
        ({"cron": "* * * * *", "cron_zone": "Europe/Nowhere"}, "cron_zone"),
        ({"cron": "* * * * *", "cron_zone": "../../etc/passwd"}, "cron_zone"),
        ({"expires_at": "tomorrow"}, "expires_at"),
        ({"expires_at": datetime(2026, 1, 1)}, "expires_at"),  # noqa: DTZ001  that is the point
        ({"expire_after": 0}, "expire_after"),
        ({"expire_after": float("nan")}, "expire_after"),
        ({"expires_at": 5.0, "expire_after": 5.0}, "expire_after"),
    ],
)
def test_a_message_with_what_is_no_time_names_the_field(
    given: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidMessage) as refused:
        Message("T", b"body", **given)  # type: ignore[arg-type]

    assert refused.value.field == field


def test_messages_say_when_they_expire_and_recur() -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    message = Message("T", b"body", expires_at=moment, cron="0 9 * * *", cron_zone="Asia/Tokyo")

    assert message.expires_at == moment.timestamp()
    assert message.properties[PropertyName.EXPIRES_AT] == "1893456000000"
    assert message.properties[PropertyName.CRON] == "0 9 * * *"
    assert message.properties[PropertyName.CRON_ZONE] == "Asia/Tokyo"
    before = datetime.now(UTC).timestamp()
    later = Message("T", b"body", expire_after=timedelta(minutes=5)).expires_at
    assert later is not None
    assert before + 299.9 <= later <= datetime.now(UTC).timestamp() + 300


@given(st.text(alphabet="0123456789*/,-#LWSUNMONJAN ", max_size=25))
def test_whatever_is_written_is_a_time_or_refused(expression: str) -> None:
    try:
        found = next_time(expression, "Europe/Berlin", 1_700_000_000_000)
    except InvalidMessage as refused:
        assert refused.field == "cron"
    else:
        assert found is None or found > 1_700_000_000_000
