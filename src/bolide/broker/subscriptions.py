"""What a subscription wants of a queue, as the store's filter."""

from functools import lru_cache

from bolide.broker.filters.sql import BadExpression, compile_sql
from bolide.protocol.bodies.heartbeat import Subscription
from bolide.protocol.refusals import ServerError, SubscriptionMalformed
from bolide.protocol.tags import BadTagExpression, TagExpression
from bolide.store.reading import EVERYTHING, Wanted

TAG, SQL92, FUNCTION = "TAG", "SQL92", "FILTER"
"""Types of expressions; the last one is ours."""

_USUAL_TERMS = 16


def is_by_tags(expression_type: str | None) -> bool:
    return (expression_type or TAG) == TAG


def wanted_by(expression_type: str | None, expression: str | None) -> Wanted:
    """The filter of an expression.

    Raises:
        SubscriptionMalformed: it cannot be read.
        ServerError: it is of a kind that this broker does not filter by.
    """
    if is_by_tags(expression_type):
        return _by_tags(expression or "")
    if expression_type == SQL92:
        return _by_sql(expression or "")
    raise not_filtered_by(expression_type)


def not_filtered_by(expression_type: str | None) -> ServerError:
    """The refusal of a type of expressions."""
    return ServerError(
        f"The broker does not support consumer to filter message by {expression_type}"
    )


def wanted_by_subscription(subscription: Subscription) -> Wanted:
    """As `wanted_by`, of what a heartbeat said."""
    return wanted_by(subscription.expression_type, subscription.sub_string)


@lru_cache(maxsize=4096)
def _by_tags(text: str) -> Wanted:
    try:
        tags = TagExpression.parse(text)
    except BadTagExpression as exc:
        raise SubscriptionMalformed(f"parse the consumer's subscription failed: {exc}") from exc
    if tags.wants_all:
        return EVERYTHING
    return Wanted(code=tags.codes.__contains__, codes=tags.codes)


def _by_sql(text: str) -> Wanted:
    try:
        compiled = compile_sql(text)
    except BadExpression as exc:
        raise SubscriptionMalformed(f"parse the consumer's subscription failed: {exc}") from exc
    return Wanted(record=compiled.sieve, weight=1 + compiled.terms // _USUAL_TERMS)
