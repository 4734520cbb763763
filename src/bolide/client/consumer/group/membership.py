"""Membership of a consumer in its group: what heartbeats and broker requests refer to."""

import asyncio
from collections.abc import Collection

from bolide.client.consumer.group.start_position import ConsumeFrom
from bolide.client.consumer.subscription import Filter
from bolide.client.instance.instance import ClientInstance
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.consumers import DirectConsumption, RunningConsumer
from bolide.protocol.bodies.heartbeat import ConsumerGroup, ConsumeType, MessageModel
from bolide.protocol.refusals import ServerError


class Membership:
    """Base of all kinds of members; topic and group names include the namespace."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        *,
        consume_type: ConsumeType,
        model: MessageModel,
        consume_from: ConsumeFrom = ConsumeFrom.LAST,
    ) -> None:
        self.instance = instance
        self.group = group
        self.consume_type = consume_type
        self.model = model
        self.filters: dict[str, Filter] = {}
        self.other_topics: set[str] = set()
        """Topics in use without a subscription."""
        self.rebalance_needed = asyncio.Event()
        """Set to request a rebalance round."""
        self._consume_from = consume_from

    @property
    def is_broadcasting(self) -> bool:
        return self.model is MessageModel.BROADCASTING

    def topics(self) -> Collection[str]:
        return self.filters.keys() | self.other_topics

    def heartbeat_entry(self) -> ConsumerGroup:
        return ConsumerGroup(
            group_name=self.group,
            consume_type=self.consume_type,
            message_model=self.model,
            consume_from_where=self._consume_from.on_wire,
            subscription_data_set=[wanted.subscription() for wanted in self.filters.values()],
            unit_mode=self.instance.settings.unit_mode,
        )

    def route_changed(self, topic: str) -> None:
        self.rebalance_needed.set()

    def rebalance_soon(self) -> None:
        self.rebalance_needed.set()

    def progress(self) -> dict[MessageQueue, int]:
        """The consumed offset of each queue."""
        raise NotImplementedError

    def running(self) -> RunningConsumer:
        raise NotImplementedError

    def consumed_offsets(self, topic: str) -> dict[MessageQueue, int]:
        progress = self.progress().items()
        return {queue: offset for queue, offset in progress if topic in {"", queue.topic}}

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        raise ServerError(f"{self.group} is a pull group: it manages its offsets itself")

    async def consume_directly(self, message: StoredMessage) -> DirectConsumption:
        raise ServerError(f"{self.group} is a pull group: it has no message handler")
