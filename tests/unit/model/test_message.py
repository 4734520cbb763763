import copy
import pickle
from typing import Any

import pytest

from bolide.model.message import (
    CompressionType,
    Host,
    Message,
    StoredMessage,
    SysFlag,
    TransactionType,
    compression_type,
    offset_message_id,
    transaction_type,
    with_transaction_type,
    without_compression,
)
from bolide.model.message_checks import InvalidMessage
from bolide.model.message_queue import MessageQueue


def test_what_is_given_by_name_becomes_properties() -> None:
    message = Message(
        "Orders",
        b"1",
        tags="paid",
        keys=["a", "b"],
        properties={"colour": "red"},
        delay_level=3,
        sharding_key="s",
        wait_stored=False,
        flag=7,
    )
    assert message.properties == {
        "TAGS": "paid",
        "KEYS": "a b",
        "colour": "red",
        "DELAY": "3",
        "__SHARDINGKEY": "s",
        "WAIT": "false",
    }
    assert (message.tags, message.keys, message.flag) == ("paid", ("a", "b"), 7)
    assert (message.delay_level, message.sharding_key, message.wait_stored) == (3, "s", False)


def test_a_bare_message_has_no_properties() -> None:
    message = Message("Orders", b"1")
    assert message.properties == {}
    assert (message.tags, message.keys, message.unique_id) == (None, (), None)
    assert (message.delay_level, message.sharding_key, message.wait_stored) == (0, None, True)


def test_a_priority_may_be_zero() -> None:
    message = Message("Orders", b"1", priority=0)
    assert message.priority == 0
    assert message.properties == {"_SYS_MSG_PRIORITY_": "0"}
    assert Message("Orders", b"1").priority is None
    assert Message("Orders", b"1", priority=2**31 - 1).priority == 2**31 - 1


def test_one_key_may_be_given_alone() -> None:
    assert Message("Orders", b"1", keys="order-1").keys == ("order-1",)


def test_keys_may_be_parted_by_more_than_one_blank() -> None:
    assert Message.unchecked("T", b"", {"KEYS": " a  b "}).keys == ("a", "b")


@pytest.mark.parametrize(
    ("field", "given", "hint"),
    [
        ("topic", {"topic": ""}, "name of a topic"),
        ("topic", {"topic": ["T"]}, "name of a topic"),
        ("topic", {"topic": "a b"}, "'a b' holds other characters"),
        ("topic", {"topic": "t" * 128}, "over 127"),
        ("topic", {"topic": "%RETRY%" + "t" * 250}, "over 255"),
        ("body", {"body": "text"}, "encode it"),
        ("body", {"body": 3}, "not int"),
        ("tags", {"tags": "A || B"}, "subscriptions"),
        ("tags", {"tags": 1}, "must be text"),
        ("keys", {"keys": ["a b"]}, "no blank"),
        ("keys", {"keys": ["a", ""]}, "not empty"),
        ("delay_level", {"delay_level": -1}, "1 and up"),
        ("delay_level", {"delay_level": True}, "not a level"),
        ("priority", {"priority": -1}, "0 and up"),
        ("priority", {"priority": 2**31}, "0 and up"),
        ("priority", {"priority": True}, "0 and up"),
        ("priority", {"priority": "1"}, "0 and up"),
        ("priority", {"priority": 1, "delay_level": 2}, "with delay_level= has none"),
        ("priority", {"priority": 1, "delay": 2}, "with delay= has none"),
        ("priority", {"priority": 1, "cron": "* * * * *"}, "with cron= has none"),
        ("priority", {"priority": 1, "sharding_key": "k"}, "with sharding_key= has none"),
        ("properties", {"properties": {"_SYS_MSG_PRIORITY_": "1"}}, "use priority="),
        ("flag", {"flag": 2**31}, "32-bit"),
        ("sharding_key", {"sharding_key": "a\x01"}, "separator"),
        ("properties", {"properties": {"TAGS": "A"}}, "use tags="),
        ("properties", {"properties": {"UNIQ_KEY": "A"}}, "reserved"),
        ("properties", {"properties": {" ": "A"}}, "empty"),
        ("properties['a']", {"properties": {"a": ""}}, "lost"),
        ("properties['a']", {"properties": {"a": 1}}, "must be text"),
        ("properties['a']", {"properties": {"a": "b\x02"}}, "separator"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_field(
    field: str, given: dict[str, Any], hint: str
) -> None:
    with pytest.raises(InvalidMessage, match=hint) as refused:
        Message(**{"topic": "T", "body": b"1"} | given)
    assert refused.value.field == field
    assert str(refused.value).startswith(field)


def test_a_retry_topic_may_be_longer() -> None:
    assert Message("%RETRY%" + "t" * 200, b"1").topic.startswith("%RETRY%t")


def test_a_buffer_is_copied_into_the_body() -> None:
    buffer = bytearray(b"abc")
    message = Message("T", memoryview(buffer))
    buffer[0] = 0
    assert message.body == b"abc"


def test_with_properties_leaves_the_first_message_alone() -> None:
    message = Message("T", b"", properties={"a": "1", "b": "2"})
    changed = message.with_properties({"b": "3", "UNIQ_KEY": "id"})
    assert changed.properties == {"a": "1", "b": "3", "UNIQ_KEY": "id"}
    assert changed.unique_id == "id"
    assert message.properties == {"a": "1", "b": "2"}


def test_a_message_cannot_be_changed() -> None:
    given = {"a": "1"}
    message = Message("T", b"", properties=given)
    given["a"] = "2"
    with pytest.raises(AttributeError, match="cannot be changed"):
        message.topic = "U"
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del message.body
    with pytest.raises(TypeError):
        message.properties["a"] = "3"  # type: ignore[index]  # the point of the test
    assert message == Message("T", b"", properties={"a": "1"})


def test_messages_are_equal_by_what_they_say() -> None:
    assert Message("T", b"1", tags="A") == Message("T", b"1", tags="A")
    assert hash(Message("T", b"1", tags="A")) == hash(Message("T", b"1", tags="A"))
    assert Message("T", b"1", tags="A") != Message("T", b"1", tags="B")
    assert Message("T", b"1") != "T"


def test_a_message_is_copied_and_pickled() -> None:
    message = Message("T", b"1", tags="A", flag=3)
    assert pickle.loads(pickle.dumps(message)) == message
    assert copy.deepcopy(message) == message
    assert "T" in repr(message)


def test_properties_of_a_stored_message_are_made_once_and_when_asked_for() -> None:
    made: list[int] = []

    def make() -> dict[str, str]:
        made.append(1)
        return {"UNIQ_KEY": "id", "TAGS": "A"}

    message = StoredMessage("T", b"1", make)
    assert not made
    assert (message.tags, message.message_id, message.properties["TAGS"]) == ("A", "id", "A")
    assert made == [1]
    assert message == StoredMessage("T", b"1", {"UNIQ_KEY": "id", "TAGS": "A"})
    assert message != StoredMessage("T", b"1", {"UNIQ_KEY": "id"})


def test_a_stored_message_knows_its_ids_queue_and_lag() -> None:
    message = StoredMessage(
        "T",
        b"1",
        {},
        queue_id=2,
        queue_offset=7,
        physical_offset=4096,
        store_host=Host("10.0.0.1", 10911),
        broker_name="broker-a",
        max_offset=10,
    )
    assert message.offset_message_id == "0A00000100002A9F0000000000001000"
    assert message.message_id == message.offset_message_id
    assert message.queue == MessageQueue("T", "broker-a", 2)
    assert message.lag == 3
    assert StoredMessage("T", b"1", {}).lag is None
    assert "broker-a/2 at 7" in repr(message)


def test_the_offset_id_of_an_ipv6_broker_is_longer() -> None:
    assert offset_message_id(Host("::1", 1), 2) == "0" * 31 + "1" + "00000001" + "0" * 15 + "2"


def test_an_ipv6_host_is_shown_in_brackets() -> None:
    assert str(Host("10.0.0.1", 10911)) == "10.0.0.1:10911"
    assert str(Host("2001:db8::1", 10911)) == "[2001:db8::1]:10911"


@pytest.mark.parametrize("kind", TransactionType)
def test_the_transaction_type_is_replaced_and_nothing_else(kind: TransactionType) -> None:
    changed = with_transaction_type(0xFFFF, kind)
    assert transaction_type(changed) is kind
    assert changed | SysFlag.ROLLBACK == 0xFFFF


@pytest.mark.parametrize("kind", CompressionType)
def test_compression_flags_read_back(kind: CompressionType) -> None:
    assert compression_type(kind.flags) is kind
    assert compression_type(without_compression(kind.flags)) is None


def test_the_type_of_an_old_client_is_zlib() -> None:
    assert compression_type(SysFlag.COMPRESSED) is CompressionType.ZLIB


def test_an_unknown_compression_type_is_refused() -> None:
    with pytest.raises(ValueError, match="7"):
        compression_type(0x701)
