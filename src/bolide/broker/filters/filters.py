"""The filters of a broker: which expressions it takes, and what they want of a queue."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bolide.broker.filters.functions import FilterFunctions
from bolide.broker.filters.sql import BadExpression, compile_sql, is_compiled
from bolide.broker.filters.sql.values import find_property
from bolide.broker.filters.subscriptions import (
    FUNCTION,
    SQL92,
    FilterTable,
    is_by_tags,
    not_filtered_by,
    wanted_by,
    wanted_by_subscription,
)
from bolide.broker.metadata.clients import ClientTable
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.model.properties import PropertyName
from bolide.protocol.bodies.heartbeat import Subscription
from bolide.protocol.record import property_bytes
from bolide.protocol.refusals import FilterNotFound, FilterOutdated, ServerError
from bolide.store.reading import MessageFilter

_RETRY_TOPIC = b"\x02" + PropertyName.RETRY_TOPIC.encode() + b"\x01"


class NotCompiled(Exception):
    """What is wanted cannot be said without a wait: see `Filters.compile`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


@dataclass(frozen=True, slots=True)
class Judged(MessageFilter):
    """All that is wanted by `record`, if the function of this name says so too."""

    function: str = ""


class Filters:
    """Belongs to one event loop.

    Args:
        table: what groups filter by.
        functions: those that administrators registered.
    """

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        table: FilterTable,
        functions: FilterFunctions,
        clients: ClientTable,
    ) -> None:
        self._cell = cell
        self.table = table
        self.functions = functions
        self._clients = clients

    # ---- what is wanted

    def wanted_by(self, expression_type: str | None, expression: str | None) -> MessageFilter:
        """The filter of an expression, for readers that know no functions.

        Raises:
            SubscriptionMalformed: it cannot be read.
            ServerError: this broker does not filter by its type.
        """
        self._refuse_type(expression_type)
        return wanted_by(expression_type, expression)

    def pulled_by(self, expression_type: str | None, expression: str | None) -> MessageFilter:
        """As `wanted_by`, for pulls: a function makes it `Judged`.

        Raises:
            NotCompiled: it is an expression that nobody has filtered by lately.
        """
        if expression_type == FUNCTION:
            return Judged(function=self.functions.require(expression or "").name)
        self._refuse_type(expression_type)
        if expression_type == SQL92 and not is_compiled(expression or ""):
            raise NotCompiled(expression or "")
        return wanted_by(expression_type, expression)

    @staticmethod
    async def compile(texts: Iterable[str]) -> None:
        """Have expressions ready, or what is wrong with them: what follows need not wait."""
        await asyncio.to_thread(_compile_all, list(texts))

    def subscribed(self, group: str, subscription: Subscription, version: int) -> MessageFilter:
        """The filter of a group by what it registered.

        Raises:
            FilterNotFound: its SQL was never registered, or cannot be read; says why.
            FilterOutdated: what is registered is older than `version`.
            NotCompiled: as `pulled_by`.
        """
        if subscription.expression_type != SQL92:
            return self.pulled_by(subscription.expression_type, subscription.sub_string)
        found = self.table.find(subscription.topic, group)
        if found is None:
            raise FilterNotFound(
                "The broker's consumer filter data is not exist!Your expression may be wrong!"
                f" {_fault_of(subscription.sub_string)}"
            )
        if found.client_version < version:
            raise FilterOutdated("the consumer's consumer filter data not latest")
        return self.pulled_by(SQL92, found.expression)

    def of_retries(self, group: str, wanted: MessageFilter) -> MessageFilter:
        """What a group wants of its retry topic: all, unless `filterSupportRetry` is set."""
        if not self._cell.value.filter_support_retry:
            return wanted
        further = wanted.record

        def is_wanted(record: memoryview) -> bool:
            if further is not None and not further(record):
                return False
            properties = b"\x02" + property_bytes(record)
            topic = find_property(properties, _RETRY_TOPIC)
            found = self.table.find(topic, group) if topic else None
            return found is None or _matches(found.expression or "", properties)

        return replace(wanted, record=is_wanted)

    # ---- what heartbeats and checks say

    async def check(self, subscription: Subscription) -> str | None:
        """Whether a group may filter so; what is worth telling if it may.

        Raises:
            Refusal: it may not, and why.
        """
        if is_by_tags(subscription.expression_type):
            return None
        if subscription.expression_type == FUNCTION:
            self.functions.require(subscription.sub_string)
            return None
        self._refuse_type(subscription.expression_type)
        await self.compile([subscription.sub_string])
        wanted_by_subscription(subscription)
        ignored = compile_sql(subscription.sub_string).ignored
        return (
            f"the expression ends before {ignored[:100]!r}, which is ignored" if ignored else None
        )

    async def register(self, group: str, subscriptions: Iterable[Subscription]) -> None:
        """Note what a heartbeat says."""
        given = list(subscriptions)
        by_sql = [each.sub_string for each in given if each.expression_type == SQL92]
        new = [text for text in by_sql if not is_compiled(text)]
        if new:
            await self.compile(new)
        self.table.register(group, given)

    # ---- chores

    def sweep(self) -> None:
        """Forget what nobody has filtered by for long."""
        self.table.sweep(
            lambda group: self._clients.consumer_group(group) is not None,
            self._cell.value.filter_data_clean_time_span,
        )

    def save(self) -> None:
        """Write what changed. Blocks."""
        self.table.table.save()

    def save_due(self, now: float) -> None:
        self.table.table.save_due(now)

    async def stop(self) -> None:
        await self.functions.stop()

    def _refuse_type(self, expression_type: str | None) -> None:
        if is_by_tags(expression_type):
            return
        if expression_type == FUNCTION:
            raise ServerError("filter functions are for consumers that pull: use tags or SQL92")
        if not self._cell.value.enable_property_filter:
            raise not_filtered_by(expression_type)


def _compile_all(texts: list[str]) -> None:
    for text in texts:
        _fault_of(text)


def _matches(expression: str, properties: bytes) -> bool:
    """Whether a retry is wanted; one that nobody can judge is, or it would be lost."""
    try:
        return compile_sql(expression).matches(properties)
    except BadExpression:
        return True


def _fault_of(text: str) -> str:
    try:
        compile_sql(text)
    except BadExpression as exc:
        return str(exc)
    return ""
