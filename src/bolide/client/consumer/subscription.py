"""Subscriptions: filter expressions and their check by a broker."""

import logging
from dataclasses import dataclass
from typing import Final

from bolide.client.instance.instance import ClientInstance
from bolide.protocol import fastjson
from bolide.protocol.bodies.heartbeat import ClientCheck, Subscription
from bolide.protocol.codes import RequestCode
from bolide.protocol.tags import TagExpression

log = logging.getLogger(__name__)

TAG: Final = "TAG"
SQL92: Final = "SQL92"
FUNCTION: Final = "FILTER"
"""A Bolide extension: RocketMQ's brokers do not know this type."""


@dataclass(frozen=True, slots=True)
class Sql:
    """A SQL92 expression over message properties, such as `Sql("price > 10 AND region = 'eu'")`."""

    text: str


@dataclass(frozen=True, slots=True)
class FilterFunction:
    """The name of a filter function that an administrator registered with the brokers."""

    name: str


Expression = str | Sql | FilterFunction
"""Tags, such as `"A || B"` or `"*"`, or SQL, or the name of a filter function."""


def chosen(
    expression: Expression | None, *, sql: str | None = None, filter_name: str | None = None
) -> Expression:
    """The one expression that is given; `"*"` if there is none.

    Raises:
        TypeError: several are given.
    """
    others = (Sql(sql) if sql is not None else None, _function(filter_name))
    given = [each for each in (expression, *others) if each is not None]
    if len(given) > 1:
        raise TypeError("only one of these may be given: tags, sql= or filter=")
    return given[0] if given else "*"


def _function(name: str | None) -> FilterFunction | None:
    return FilterFunction(name) if name is not None else None


@dataclass(frozen=True, slots=True)
class Filter:
    """A subscription to one topic; `version` is its creation time in milliseconds."""

    topic: str
    expression: str
    expression_type: str
    version: int
    tags: frozenset[str]
    codes: frozenset[int]

    @classmethod
    def of(cls, topic: str, expression: Expression, version: int) -> "Filter":
        """Raises BadTagExpression if a string names no tag."""
        if isinstance(expression, Sql):
            return cls(topic, expression.text, SQL92, version, frozenset(), frozenset())
        if isinstance(expression, FilterFunction):
            return cls(topic, expression.name, FUNCTION, version, frozenset(), frozenset())
        parsed = TagExpression.parse(expression)
        return cls(topic, parsed.text, TAG, version, parsed.tags, parsed.codes)

    @property
    def is_by_tags(self) -> bool:
        return self.expression_type == TAG

    def matches(self, tags: str | None) -> bool:
        """Compare the text of the tags: brokers compare only their hashes."""
        return not self.tags or tags in self.tags

    def subscription(self) -> Subscription:
        """The form used in heartbeats."""
        return Subscription(
            topic=self.topic,
            sub_string=self.expression,
            expression_type=self.expression_type,
            sub_version=self.version,
            tags_set=sorted(self.tags),
            code_set=sorted(self.codes),
        )


async def check_filter(instance: ClientInstance, group: str, wanted: Filter) -> None:
    """Have a broker check a SQL expression or filter function; tags need no check.

    Raises:
        Refusal: the broker does not filter by SQL, cannot parse the expression, or has no function
            of that name.
        BolideError: no broker can be reached.
    """
    if wanted.is_by_tags:
        return
    route = await instance.routes.require(wanted.topic)
    check = ClientCheck(
        client_id=instance.client_id,
        group=group,
        subscription_data=wanted.subscription(),
        namespace=instance.settings.namespace,
    )
    for broker in route.broker_datas:
        master = broker.broker_addrs.get(0)
        if master is not None:
            body = fastjson.encode(check)
            reply = await instance.call(master, RequestCode.CHECK_CLIENT_CONFIG, body=body)
            if reply.remark:
                log.warning("%s: %s", wanted.topic, reply.remark)
            return
