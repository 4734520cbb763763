"""Message filters of subscriptions."""

import pytest

from bolide.broker.filters.subscriptions import filter_for, filter_for_subscription
from bolide.protocol.bodies.heartbeat import Subscription
from bolide.protocol.record import encode_record
from bolide.protocol.refusals import ServerError, SubscriptionMalformed
from bolide.protocol.tags import tags_code
from bolide.store.reading import EVERYTHING
from tests.support.store import V4, V6, draft


@pytest.mark.parametrize("kind", [None, "", "TAG"])
@pytest.mark.parametrize("expression", [None, "", "*"])
def test_no_tags_want_everything(kind: str | None, expression: str | None) -> None:
    assert filter_for(kind, expression) is EVERYTHING


def test_tags_want_their_own_messages_only() -> None:
    wanted = filter_for("TAG", " A || B ").code
    assert wanted is not None
    assert [wanted(tags_code(tag)) for tag in ("A", "B", "C", "")] == [True, True, False, False]


def test_an_expression_without_a_tag_is_refused() -> None:
    with pytest.raises(SubscriptionMalformed, match="subscription failed"):
        filter_for("TAG", "||")


def test_a_kind_that_is_not_there_is_refused_in_rocketmqs_words() -> None:
    text = "The broker does not support consumer to filter message by XPATH"
    with pytest.raises(ServerError, match=text):
        filter_for("XPATH", "a > 5")


@pytest.mark.parametrize("host", [V4, V6])
@pytest.mark.parametrize("topic", ["T", "T" * 200])
def test_sql_looks_at_the_properties_of_the_record(host: bytes, topic: str) -> None:
    wanted = filter_for("SQL92", "a > 5")
    assert (wanted.code, wanted.weight) == (None, 1)
    assert wanted.record is not None
    for value in ("6", "5"):
        stored = encode_record(draft(topic, properties={"a": value}, born_host=host))
        assert wanted.record(memoryview(stored)) is (value == "6")
    assert not wanted.record(memoryview(stored)[:20])
    assert filter_for("SQL92", " OR ".join(["a = 5"] * 80)).weight == 11


def test_sql_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(SubscriptionMalformed, match="ends too early"):
        filter_for("SQL92", "a >")


def test_a_heartbeat_says_it_too() -> None:
    subscription = Subscription(topic="T", sub_string="A", expression_type="TAG")
    wanted = filter_for_subscription(subscription).code
    assert wanted is not None
    assert wanted(tags_code("A"))
