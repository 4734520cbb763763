"""Subscriptions: the filter a broker applies, and its check on the client."""

import logging
from dataclasses import dataclass
from typing import Final

from bolide.client.instance.instance import ClientInstance
from bolide.protocol import fastjson
from bolide.protocol.bodies.heartbeat import ClientCheck, Subscription
from bolide.protocol.codes import RequestCode
from bolide.protocol.tags import TagExpression

TAG: Final = "TAG"
SQL92: Final = "SQL92"
FUNCTION: Final = "FILTER"
"""Ours: brokers of RocketMQ have no such type."""


@dataclass(frozen=True, slots=True)
class Sql:
    """A SQL92 expression over message properties, such as `Sql("price > 10 AND region = 'eu'")`."""

    text: str


@dataclass(frozen=True, slots=True)
class FilterFunction:
    """The name of a filter function that an administrator registered with the brokers."""

    name: str


Expression = str | Sql | FilterFunction
"""Tags, such as `"A || B"` or `"*"`, or SQL, or the name of a function."""


def chosen(
    expression: Expression | None, *, sql: str | None = None, filter_name: str | None = None
) -> Expression:
    """The one expression of those that may be given; all messages if there is none.

    Raises:
        TypeError: there are several.
    """
    others = (Sql(sql) if sql is not None else None, _function(filter_name))
    given = [each for each in (expression, *others) if each is not None]
    if len(given) > 1:
        raise TypeError("give one of them: tags, sql= or filter=")
    return given[0] if given else "*"


def _function(name: str | None) -> FilterFunction | None:
    return FilterFunction(name) if name is not None else None


@dataclass(frozen=True, slots=True)
class Filter:
    """A subscription to one topic; the version is the time it was made, in milliseconds."""

    topic: str
    expression: str
    expression_type: str
    version: int
    tags: frozenset[str]
    codes: frozenset[int]

    @classmethod
    def of(cls, topic: str, expression: Expression, version: int) -> "Filter":
        """Raises BadTagExpression for text that names no tag."""
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
        """Judge by the text of the tags: a broker compares only their hashes."""
        return not self.tags or tags in self.tags

    def subscription(self) -> Subscription:
        """The form that heartbeats carry."""
        return Subscription(
            topic=self.topic,
            sub_string=self.expression,
            expression_type=self.expression_type,
            sub_version=self.version,
            tags_set=sorted(self.tags),
            code_set=sorted(self.codes),
        )


log = logging.getLogger(__name__)


async def check_sql(instance: ClientInstance, group: str, wanted: Filter) -> None:
    """Tags are not asked about: every broker knows them.

    Raises:
        Refusal: the broker does not filter by SQL, cannot read the expression, or has no function
            of that name.
        BolideError: there is no broker to ask.
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
            answer = await instance.call(master, RequestCode.CHECK_CLIENT_CONFIG, body=body)
            if answer.remark:
                log.warning("%s: %s", wanted.topic, answer.remark)
            return
