"""The producers and consumers that share a client instance, and what it asks of them."""

from collections.abc import Collection
from typing import Protocol, runtime_checkable

from bolide.client.errors import GroupTaken
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.consumers import DirectConsumption, RunningConsumer
from bolide.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat, ProducerGroup
from bolide.protocol.headers.transactions import CheckTransactionHeader


class ProducerMember(Protocol):
    """A producer, as its instance sees it. Names are those on the wire."""

    def topics(self) -> Collection[str]:
        """The topics whose routes are kept fresh."""
        ...


@runtime_checkable
class TransactionMember(Protocol):
    """A producer that can be asked about its transactions."""

    def check_transaction(
        self, message: StoredMessage, header: CheckTransactionHeader, address: str
    ) -> None:
        """A broker asks what became of one; the answer goes to the address."""
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


class Members:
    """Who shares an instance, by group; each group has at most one of a kind."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self.producers: dict[str, ProducerMember] = {}
        self.consumers: dict[str, ConsumerMember] = {}

    def __bool__(self) -> bool:
        return bool(self.producers or self.consumers)

    def add_producer(self, group: str, producer: ProducerMember) -> None:
        """Raises GroupTaken if there is one of that group."""
        if group in self.producers:
            raise GroupTaken("producer", group, self._client_id)
        self.producers[group] = producer

    def add_consumer(self, group: str, consumer: ConsumerMember) -> None:
        """Raises GroupTaken if there is one of that group."""
        if group in self.consumers:
            raise GroupTaken("consumer", group, self._client_id)
        self.consumers[group] = consumer

    def topics(self) -> set[str]:
        """All topics whose routes are kept fresh."""
        members = (*self.producers.values(), *self.consumers.values())
        return {topic for member in members for topic in member.topics()}

    def route_changed(self, topic: str) -> None:
        """Tell the consumers of a topic."""
        for consumer in self.consumers.values():
            if topic in consumer.topics():
                consumer.route_changed(topic)

    def heartbeat(self) -> Heartbeat:
        """What brokers are told of them."""
        return Heartbeat(
            client_id=self._client_id,
            producer_data_set=[ProducerGroup(group) for group in self.producers],
            consumer_data_set=[each.heartbeat_entry() for each in self.consumers.values()],
        )
