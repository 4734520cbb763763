"""What a client instance asks of the producers and consumers that share it."""

from collections.abc import Collection
from typing import Protocol

from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.consumers import DirectConsumption, RunningConsumer
from bolide.protocol.bodies.heartbeat import ConsumerGroup


class ProducerMember(Protocol):
    """A producer, as its instance sees it. Names are those on the wire."""

    def topics(self) -> Collection[str]:
        """The topics whose routes are kept fresh."""
        ...


class ConsumerMember(Protocol):
    """A consumer, as its instance sees it. Names are those on the wire."""

    def topics(self) -> Collection[str]:
        """The topics whose routes are kept fresh, that of the group's retries among them."""
        ...

    def heartbeat_entry(self) -> ConsumerGroup: ...

    def route_changed(self, topic: str) -> None: ...

    def rebalance_soon(self) -> None:
        """The members of the group changed."""
        ...

    def running(self) -> RunningConsumer: ...

    def consumed_offsets(self, topic: str) -> dict[MessageQueue, int]: ...

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None: ...

    async def consume_directly(self, message: StoredMessage) -> DirectConsumption: ...
