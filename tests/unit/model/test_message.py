from dataclasses import FrozenInstanceError

import pytest

from bolide.model.message import (
    CompressionType,
    Host,
    Message,
    SysFlag,
    TransactionType,
    compression_type,
    transaction_type,
    with_transaction_type,
    without_compression,
)


def test_tags_and_keys_become_properties() -> None:
    message = Message.of("Orders", b"1", tags="paid", keys=["a", "b"], colour="red")
    assert message.properties == {"TAGS": "paid", "KEYS": "a b", "colour": "red"}
    assert message.tags == "paid"
    assert message.keys == ("a", "b")


def test_a_bare_message_has_no_properties() -> None:
    message = Message.of("Orders", b"1")
    assert message == Message("Orders", b"1")
    assert (message.tags, message.keys, message.unique_id) == (None, (), None)


def test_keys_may_be_parted_by_more_than_one_blank() -> None:
    assert Message("T", b"", {"KEYS": " a  b "}).keys == ("a", "b")


def test_with_properties_leaves_the_first_message_alone() -> None:
    message = Message("T", b"", {"a": "1", "b": "2"})
    changed = message.with_properties({"b": "3", "UNIQ_KEY": "id"})
    assert changed.properties == {"a": "1", "b": "3", "UNIQ_KEY": "id"}
    assert changed.unique_id == "id"
    assert message.properties == {"a": "1", "b": "2"}


def test_a_message_cannot_be_changed() -> None:
    message = Message("T", b"")
    with pytest.raises(FrozenInstanceError):
        message.topic = "U"  # type: ignore[misc]  # the point of the test


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
