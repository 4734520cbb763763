"""What a subscription wants of a queue."""

import pytest

from bolide.broker.subscriptions import wanted_by, wanted_by_subscription
from bolide.protocol.bodies.heartbeat import Subscription
from bolide.protocol.refusals import ServerError, SubscriptionMalformed
from bolide.protocol.tags import tags_code
from bolide.store.reading import EVERYTHING


@pytest.mark.parametrize("kind", [None, "", "TAG"])
@pytest.mark.parametrize("expression", [None, "", "*"])
def test_no_tags_want_everything(kind: str | None, expression: str | None) -> None:
    assert wanted_by(kind, expression) is EVERYTHING


def test_tags_want_their_own_messages_only() -> None:
    wanted = wanted_by("TAG", " A || B ").code
    assert wanted is not None
    assert [wanted(tags_code(tag)) for tag in ("A", "B", "C", "")] == [True, True, False, False]


def test_an_expression_without_a_tag_is_refused() -> None:
    with pytest.raises(SubscriptionMalformed, match="subscription failed"):
        wanted_by("TAG", "||")


def test_a_kind_that_is_not_there_is_refused_in_rocketmqs_words() -> None:
    text = "The broker does not support consumer to filter message by SQL92"
    with pytest.raises(ServerError, match=text):
        wanted_by("SQL92", "a > 5")


def test_a_heartbeat_says_it_too() -> None:
    subscription = Subscription(topic="T", sub_string="A", expression_type="TAG")
    wanted = wanted_by_subscription(subscription).code
    assert wanted is not None
    assert wanted(tags_code("A"))
