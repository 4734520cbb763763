"""What a subscription wants of a queue, as the store's filter."""

from functools import lru_cache

from bolide.protocol.bodies.heartbeat import Subscription
from bolide.protocol.refusals import ServerError, SubscriptionMalformed
from bolide.protocol.tags import BadTagExpression, TagExpression
from bolide.store.reading import EVERYTHING, Wanted

_TAG = "TAG"


def wanted_by(expression_type: str | None, expression: str | None) -> Wanted:
    """The filter of an expression.

    Raises:
        SubscriptionMalformed: it cannot be read.
        ServerError: it is of a kind that this broker does not filter by.
    """
    if (expression_type or _TAG) != _TAG:
        raise ServerError(
            f"The broker does not support consumer to filter message by {expression_type}"
        )
    return _by_tags(expression or "")


def wanted_by_subscription(subscription: Subscription) -> Wanted:
    """As `wanted_by`, of what a heartbeat said."""
    return wanted_by(subscription.expression_type, subscription.sub_string)


@lru_cache(maxsize=4096)
def _by_tags(text: str) -> Wanted:
    try:
        tags = TagExpression.parse(text)
    except BadTagExpression as exc:
        raise SubscriptionMalformed(f"parse the consumer's subscription failed: {exc}") from exc
    return EVERYTHING if tags.wants_all else Wanted(code=tags.codes.__contains__)
