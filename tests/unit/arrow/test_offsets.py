"""Text forms of positions and offsets."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.arrow.errors import BadPosition
from bolide.arrow.offsets import (
    At,
    Earliest,
    Exact,
    Group,
    Latest,
    from_json,
    parse_position,
    position_of,
    to_json,
    to_ms,
)
from bolide.model.message_queue import MessageQueue

NOW = 1_700_000_000.0


def queue(number: int, broker: str = "broker-a", topic: str = "orders") -> MessageQueue:
    return MessageQueue(topic, broker, number)


def test_offsets_are_sorted_by_topic_broker_and_the_number_of_the_queue() -> None:
    offsets = {queue(10): 1, queue(9, "broker-b"): 2, queue(2): 3, queue(0, topic="a"): 4}
    assert to_json(offsets) == (
        '{"a":{"broker-a":{"0":4}},"orders":{"broker-a":{"2":3,"10":1},"broker-b":{"9":2}}}'
    )


queues = st.builds(MessageQueue, st.text(min_size=1), st.text(min_size=1), st.integers(0, 10**5))


@given(st.dictionaries(queues, st.integers(0, 2**63 - 1)))
def test_the_same_offsets_are_the_same_text_and_come_back(
    offsets: dict[MessageQueue, int],
) -> None:
    text = to_json(offsets)
    assert from_json(text) == offsets
    assert to_json(dict(reversed(offsets.items()))) == text


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Earliest()),
        (" Latest ", Latest()),
        ("group:billing", Group("billing")),
        ("-10m", At(1_699_999_400_000)),
        ("-250ms", At(1_699_999_999_750)),
        ("-2d", At(1_699_827_200_000)),
        ("2023-11-14T22:13:20", At(1_700_000_000_000)),
        ("2023-11-14T22:13:20.5Z", At(1_700_000_000_500)),
        ("2023-11-15 00:13:20+02:00", At(1_700_000_000_000)),
        ("2023-11-14", At(1_699_920_000_000)),
        ('{"orders":{"broker-a":{"0":23,"1":-1,"2":-2}}}',
         Exact({queue(0): 23, queue(1): -1, queue(2): -2})),
    ],
)  # fmt: skip
def test_a_position_is_read_as_its_user_means_it(text: str, position: object) -> None:
    assert parse_position(text, option="startingOffsets", now=NOW) == position


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("soon", "must be earliest, latest, group:NAME, a time"),
        ("-10x", "must be earliest"),
        ("-m", "must be earliest"),
        ("group:", "the name of a consumer group must follow 'group:'"),
        ("{nonsense", "is not JSON"),
        ('{"orders":7}', "orders: must be an object of topics, of their brokers, of their queues"),
        ('{"orders":{"broker-a":{"one":7}}}', "orders: broker-a: 'one' must be a queue id"),
        ('{"orders":{"broker-a":{"1":-3}}}', "orders: broker-a: 1: -3 must be an offset"),
        ('{"orders":{"broker-a":{"1":true}}}', "orders: broker-a: 1: True must be an offset"),
        ('{"orders":{"broker-a":{"1":1.5}}}', "orders: broker-a: 1: 1.5 must be an offset"),
    ],
)
def test_what_is_no_position_is_refused_by_the_name_of_its_option(text: str, says: str) -> None:
    with pytest.raises(BadPosition, match=r"^startingOffsets") as refused:
        parse_position(text, option="startingOffsets")
    assert says in str(refused.value)


@given(st.integers(-(10**13), 10**14))
def test_times_are_exact_to_the_millisecond(ms: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    assert to_ms(moment) == ms
    assert to_ms(moment - timedelta(microseconds=1)) == ms  # store times are whole milliseconds


def test_programs_may_give_times_and_offsets() -> None:
    moment = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    plain = {"orders": {"broker-a": {"3": 4}}}

    def of(where: object) -> object:
        return position_of(where, option="start", now=NOW)

    assert (
        of(moment) == of(moment.astimezone(timezone(timedelta(hours=5)))) == At(1_700_000_000_000)
    )
    assert of(moment.replace(tzinfo=None)) == At(1_700_000_000_000)
    assert of(timedelta(minutes=10)) == of("-10m")
    assert of(plain) == of({queue(3): 4}) == of(json.dumps(plain)) == Exact({queue(3): 4})
    assert of(Latest()) == Latest()
    with pytest.raises(BadPosition, match=r"^start: must be an object"):
        of(17)
