import pytest

from bolide.client.instance.validation import check_group, check_sendable
from bolide.errors import ConfigError
from bolide.model.message import Message
from bolide.model.message_checks import InvalidMessage


@pytest.mark.parametrize("group", ["", "a b", "g" * 121, "DEFAULT_PRODUCER"])
def test_a_group_that_rocketmq_would_not_take_is_refused(group: str) -> None:
    with pytest.raises(ConfigError, match="group:"):
        check_group(group)


def test_a_group_may_have_its_full_length() -> None:
    check_group("g" * 120)


def test_a_body_is_not_empty_and_not_too_large() -> None:
    check_sendable(Message("T", b"12345"), 5)
    with pytest.raises(InvalidMessage, match="body: is empty"):
        check_sendable(Message("T", b""), 5)
    check_sendable(Message("T", b"", keys="deleted"), 5)
    with pytest.raises(InvalidMessage, match="body: 6 bytes are over max_message_size=5"):
        check_sendable(Message("T", b"123456"), 5)


def test_nobody_sends_to_the_brokers_own_topics() -> None:
    with pytest.raises(InvalidMessage, match="belongs to the broker"):
        check_sendable(Message("SCHEDULE_TOPIC_XXXX", b"1"), 5)


def test_something_else_than_a_message_is_refused() -> None:
    with pytest.raises(TypeError, match="not str"):
        check_sendable("text", 5)  # type: ignore[arg-type]  # the point of the test
