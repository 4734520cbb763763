"""The ways to consume in order, and which of them a handler wants."""

from collections.abc import Coroutine
from functools import partial
from typing import Any

from bolide.client.consuming.consume import OnPoison, OrderBy
from bolide.client.consuming.consumer_settings import PushSettings
from bolide.client.consuming.consumption import Consumption
from bolide.client.consuming.held_queue import HeldQueue
from bolide.client.consuming.key_steps import RetryRules
from bolide.client.consuming.keyed import KeyedConsumption
from bolide.client.consuming.ordered import LockKeeper, OrderedConsumption
from bolide.client.consuming.parking.park_log import ParkLog
from bolide.client.instance import ClientInstance


class InOrder:
    """Consumes by queue or by keys."""

    def __init__(
        self,
        instance: ClientInstance,
        consumption: Consumption,
        locks: LockKeeper | None,
        settings: PushSettings,
    ) -> None:
        self._common = consumption
        self._by_queue = OrderedConsumption(
            consumption,
            locks=locks,
            max_reconsume_times=settings.max_reconsume_times,
            suspend=settings.ordered_suspend,
        )
        self._by_keys = KeyedConsumption(
            consumption,
            locks=locks,
            rules=RetryRules(settings.max_reconsume_times, settings.ordered_suspend),
            parking=RetryRules(settings.sent_back_times, settings.ordered_suspend),
            park_log=partial(ParkLog, instance, consumption.group),
        )

    def run(
        self, held: HeldQueue, topic: str, before: HeldQueue | None
    ) -> Coroutine[Any, Any, None]:
        """Consume a queue of a topic, as users call it, until it is dropped; `before` is a former
        tenure that must end first."""
        handler = self._common.handlers.get(topic)
        held.is_keyed = handler is not None and handler.order_by is OrderBy.KEYS
        if handler is None or not held.is_keyed:
            return self._by_queue.run(held, topic, before)
        parks = handler.on_poison is OnPoison.PARK
        return self._by_keys.run(held, topic, before, parks=parks)
