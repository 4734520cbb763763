"""A consumer's place in its group, as its client instance and the brokers see it."""

import asyncio
from collections.abc import Collection

from bolide.client.consumer.group.start_position import From
from bolide.client.consumer.subscription import Filter
from bolide.client.instance.instance import ClientInstance
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.consumers import DirectConsumption, RunningConsumer
from bolide.protocol.bodies.heartbeat import ConsumerGroup, ConsumeType, MessageModel
from bolide.protocol.refusals import ServerError


class Membership:
    """What consumers of every kind answer in the same way; names carry their namespace."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        *,
        consume_type: ConsumeType,
        model: MessageModel,
        begin: From = From.LAST,
    ) -> None:
        self.instance = instance
        self.group = group
        self.consume_type = consume_type
        self.model = model
        self.filters: dict[str, Filter] = {}
        self.other_topics: set[str] = set()
        """In use without being subscribed to."""
        self.wanted = asyncio.Event()
        """Set when queues should be shared out anew."""
        self._begin = begin

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
            consume_from_where=self._begin.announced,
            subscription_data_set=[wanted.announced() for wanted in self.filters.values()],
            unit_mode=self.instance.settings.unit_mode,
        )

    def route_changed(self, topic: str) -> None:
        self.wanted.set()

    def rebalance_soon(self) -> None:
        self.wanted.set()

    def progress(self) -> dict[MessageQueue, int]:
        """How far each queue was consumed."""
        raise NotImplementedError

    def running(self) -> RunningConsumer:
        raise NotImplementedError

    def consumed_offsets(self, topic: str) -> dict[MessageQueue, int]:
        progress = self.progress().items()
        return {queue: offset for queue, offset in progress if topic in {"", queue.topic}}

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        raise ServerError(f"{self.group} pulls: it decides itself where to go on")

    async def consume_directly(self, message: StoredMessage) -> DirectConsumption:
        raise ServerError(f"{self.group} pulls: it has no handler to give a message to")
