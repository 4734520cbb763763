"""The filters of a broker: turns filter expressions into message filters for reads."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bolide.broker.background import COMPUTE, on_thread
from bolide.broker.filters.functions import FilterFunctions
from bolide.broker.filters.sql import BadExpression, compile_sql, is_compiled
from bolide.broker.filters.sql.values import find_property
from bolide.broker.filters.subscriptions import (
    FUNCTION,
    SQL92,
    FilterTable,
    filter_for,
    filter_for_subscription,
    is_by_tags,
    unsupported_type,
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
    """The expression must be compiled first, in a worker thread: see `Filters.compile`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


@dataclass(frozen=True, slots=True)
class FunctionFilter(MessageFilter):
    """Messages that pass `record` and that the named filter function accepts."""

    function: str = ""


class Filters:
    """Filter expressions of consumers; belongs to one event loop.

    Args:
        table: SQL filters registered by groups.
        functions: filter functions registered by administrators.
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

    # ---- message filters

    def filter_for(self, expression_type: str | None, expression: str | None) -> MessageFilter:
        """Return the filter of an expression, for readers that do not support functions.

        Raises:
            SubscriptionMalformed: the expression is invalid.
            ServerError: this broker does not support the expression type.
        """
        self._check_type(expression_type)
        return filter_for(expression_type, expression)

    def pull_filter(self, expression_type: str | None, expression: str | None) -> MessageFilter:
        """As `filter_for`, for pulls: a function yields a `FunctionFilter`.

        Raises:
            NotCompiled: the SQL expression is not in the cache.
        """
        if expression_type == FUNCTION:
            return FunctionFilter(function=self.functions.require(expression or "").name)
        self._check_type(expression_type)
        if expression_type == SQL92 and not is_compiled(expression or ""):
            raise NotCompiled(expression or "")
        return filter_for(expression_type, expression)

    @staticmethod
    async def compile(texts: Iterable[str]) -> None:
        """Compile expressions in a worker thread and cache the results, errors included."""
        await on_thread(COMPUTE, _compile_all, list(texts))

    def subscription_filter(
        self, group: str, subscription: Subscription, version: int
    ) -> MessageFilter:
        """Return the filter that a group registered.

        Raises:
            FilterNotFound: its SQL was never registered, or is invalid.
            FilterOutdated: the registered filter is older than `version`.
            NotCompiled: as `pull_filter`.
        """
        if subscription.expression_type != SQL92:
            return self.pull_filter(subscription.expression_type, subscription.sub_string)
        found = self.table.find(subscription.topic, group)
        if found is None:
            raise FilterNotFound(
                "The broker's consumer filter data is not exist!Your expression may be wrong!"
                f" {_error_of(subscription.sub_string)}"
            )
        if found.client_version < version:
            raise FilterOutdated("the consumer's consumer filter data not latest")
        return self.pull_filter(SQL92, found.expression)

    def retry_filter(self, group: str, wanted: MessageFilter) -> MessageFilter:
        """Return the filter for the retry topic of a group: unchanged, unless
        `filterSupportRetry` is set."""
        if not self._cell.value.filter_support_retry:
            return wanted
        record_filter = wanted.record

        def matches_record(record: memoryview) -> bool:
            if record_filter is not None and not record_filter(record):
                return False
            properties = b"\x02" + property_bytes(record)
            topic = find_property(properties, _RETRY_TOPIC)
            found = self.table.find(topic, group) if topic else None
            return found is None or _matches(found.expression or "", properties)

        return replace(wanted, record=matches_record)

    # ---- registration

    async def check(self, subscription: Subscription) -> str | None:
        """Check a subscription; return a warning for the client, if any.

        Raises:
            Refusal: the subscription is refused.
        """
        if is_by_tags(subscription.expression_type):
            return None
        if subscription.expression_type == FUNCTION:
            self.functions.require(subscription.sub_string)
            return None
        self._check_type(subscription.expression_type)
        await self.compile([subscription.sub_string])
        filter_for_subscription(subscription)
        ignored = compile_sql(subscription.sub_string).ignored
        return (
            f"the expression ends before {ignored[:100]!r}, which is ignored" if ignored else None
        )

    async def register(self, group: str, subscriptions: Iterable[Subscription]) -> None:
        """Register the subscriptions of a heartbeat."""
        given = list(subscriptions)
        by_sql = [each.sub_string for each in given if each.expression_type == SQL92]
        new = [text for text in by_sql if not is_compiled(text)]
        if new:
            await self.compile(new)
        self.table.register(group, given)

    # ---- maintenance

    def sweep(self) -> None:
        """Drop filters of groups that have been offline for long."""
        self.table.sweep(
            lambda group: self._clients.consumer_group(group) is not None,
            self._cell.value.filter_data_clean_time_span,
        )

    def save(self) -> None:
        """Save the table if it changed. Blocks."""
        self.table.table.save()

    def save_due(self, now: float) -> None:
        self.table.table.save_due(now)

    async def stop(self) -> None:
        await self.functions.stop()

    def _check_type(self, expression_type: str | None) -> None:
        if is_by_tags(expression_type):
            return
        if expression_type == FUNCTION:
            raise ServerError("filter functions are for consumers that pull: use tags or SQL92")
        if not self._cell.value.enable_property_filter:
            raise unsupported_type(expression_type)


def _compile_all(texts: list[str]) -> None:
    for text in texts:
        _error_of(text)


def _matches(expression: str, properties: bytes) -> bool:
    """Whether a retried message matches; an invalid expression matches, or the message would be
    lost."""
    try:
        return compile_sql(expression).matches(properties)
    except BadExpression:
        return True


def _error_of(text: str) -> str:
    try:
        compile_sql(text)
    except BadExpression as exc:
        return str(exc)
    return ""
