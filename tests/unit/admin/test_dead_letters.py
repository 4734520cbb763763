"""What a dead letter says of itself, and what its copy keeps."""

import pytest

from bolide.admin.dead_letters import Selection, copy_of, dead_letter
from bolide.model.message import StoredMessage
from bolide.protocol.bodies.message_queue import MessageQueue

GROUP = "billing"
QUEUE = MessageQueue("%DLQ%billing", "broker-a", 0)
OWN = {"KEYS": "k1 k2", "TAGS": "paid", "mine": "x", "__SHARDINGKEY": "s", "UNIQ_KEY": "U1"}
PAST = {
    "RETRY_TOPIC": "Orders", "ORIGIN_MESSAGE_ID": "O1", "WAIT": "false", "DELAY": "3",
    "RECONSUME_TIME": "16", "1ST_POP_TIME": "7", "POP_CK": "1 2", "TRAN_MSG": "true",
    "DEDUP_KEY": "d", "TIMER_DELIVER_MS": "9", "REPLAYED_FROM": "%DLQ%billing/broker-a/0@1",
    "CLUSTER": "c", "BOLIDE_CRON": "* * * * *",
}  # fmt: skip


def stored(**properties: str) -> StoredMessage:
    return StoredMessage(
        QUEUE.topic, b"body", dict(properties), flag=5, queue_offset=7, reconsume_times=16
    )


def test_a_copy_keeps_what_is_the_senders_and_begins_anew() -> None:
    message = stored(**(OWN | PAST))
    letter = dead_letter(GROUP, QUEUE, message)

    copy = copy_of(message, letter, "Orders")

    assert (copy.topic, copy.body, copy.flag) == ("Orders", b"body", 5)
    assert copy.properties == OWN | {"REPLAYED_FROM": "%DLQ%billing/broker-a/0@7"}
    to_group = copy_of(message, letter, "%RETRY%billing")
    assert to_group.properties == {**copy.properties, "RETRY_TOPIC": "Orders"}


def test_a_message_without_a_unique_id_is_found_again_by_its_offset_id() -> None:
    message = stored()
    letter = dead_letter(GROUP, QUEUE, message)

    copy = copy_of(message, letter, "Orders")

    assert copy.properties["UNIQ_KEY"] == letter.message_id == message.offset_message_id


@pytest.mark.parametrize(
    ("properties", "origin"),
    [
        ({"RETRY_TOPIC": "Orders"}, "Orders"),
        ({"RETRY_TOPIC": "%RETRY%billing+Orders"}, "Orders"),
        ({"RETRY_TOPIC": "%RETRY%billing_Orders"}, "Orders"),
        ({"RETRY_TOPIC": "Orders", "DLQ_ORIGIN_TOPIC": "First"}, "First"),
        ({}, None),
    ],
)
def test_the_topic_of_the_first_send_is_found(
    properties: dict[str, str], origin: str | None
) -> None:
    assert dead_letter(GROUP, QUEUE, stored(**properties)).origin_topic == origin


def test_the_reason_is_what_a_consumer_wrote_else_the_number_of_tries() -> None:
    told = stored(EXCEPTION="e" * 300, ERROR="later")

    assert dead_letter(GROUP, QUEUE, told).reason == "e" * 200
    assert dead_letter(GROUP, QUEUE, stored()).reason == "given up after 16 tries"


def test_a_selection_goes_by_topic_key_and_each_kind_of_id() -> None:
    letter = dead_letter(GROUP, QUEUE, stored(**(OWN | PAST)))

    def matches(**what: str) -> bool:
        return Selection(group=GROUP, **what).matches(letter)  # type: ignore[arg-type]

    assert matches()
    assert matches(topic="Orders", key="k2", message_id="U1")
    assert matches(message_id="O1")
    assert matches(message_id=letter.offset_message_id)
    assert not matches(topic="Other")
    assert not matches(key="k")
    assert not matches(message_id="U2")
