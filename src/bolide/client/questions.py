"""What producers and consumers alike may be asked: positions, single messages, new topics."""

from collections.abc import Iterable, Mapping

from bolide.client.instance import ClientInstance
from bolide.client.lifecycle import Lifecycle, Startable
from bolide.client.settings import ClientSettings
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.headers.offsets import Boundary


class Questions(Startable):
    """Part of every client: names go in and come out without the namespace."""

    _client: ClientSettings
    _instance: ClientInstance
    _life: Lifecycle

    @property
    def client_id(self) -> str:
        return self._client.client_id

    def set_name_servers(self, addresses: str | Iterable[str]) -> None:
        """Change the list of NameServers, for all that share this client's instance."""
        self._running().name_servers.set(addresses)

    async def create_topic(
        self,
        topic: str,
        queues: int = 4,
        *,
        key: str = "TBW102",
        order: bool = False,
        sys_flag: int = 0,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Make a topic on all brokers that have the topic `key`, or change it there.

        Raises:
            RouteNotFound: no broker has `key`.
            Refusal: a broker did not want to.
        """
        await self._running().lookups.create_topic(
            self._client.wrap(topic),
            queues,
            key=key,
            order=order,
            sys_flag=sys_flag,
            attributes=attributes,
        )

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of the queue will have."""
        return await self._running().lookups.max_offset(self._wrapped(queue))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        return await self._running().lookups.min_offset(self._wrapped(queue))

    async def search_offset(
        self, queue: MessageQueue, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """The first offset stored at or after `timestamp` (ms); by UPPER the last at or before."""
        asked = self._wrapped(queue)
        return await self._running().lookups.search_offset(asked, timestamp, boundary)

    async def earliest_time(self, queue: MessageQueue) -> int:
        """When the oldest message of the queue was stored, in ms; -1 if it is empty."""
        return await self._running().lookups.earliest_time(self._wrapped(queue))

    async def view_message(self, message_id: str, topic: str | None = None) -> StoredMessage:
        """Find a message by its offset id, or with its topic by its unique id.

        Raises:
            MessageNotFound: there is none.
            BadMessageId: that is no id.
        """
        wrapped = None if topic is None else self._client.wrap(topic)
        return await self._running().lookups.view_message(message_id, wrapped)

    async def query_messages(
        self, topic: str, key: str, *, max_num: int = 32, begin: int = 0, end: int | None = None
    ) -> list[StoredMessage]:
        """The messages of a topic that have this key, oldest first; times are in ms.

        Brokers index keys a moment after the messages are stored.
        """
        return await self._running().lookups.query_messages(
            self._client.wrap(topic), key, max_num=max_num, begin=begin, end=end
        )

    def _running(self) -> ClientInstance:
        self._life.require_running()
        return self._instance

    def _wrapped(self, queue: MessageQueue) -> MessageQueue:
        if not self._client.namespace:
            return queue
        return MessageQueue(self._client.wrap(queue.topic), queue.broker_name, queue.queue_id)

    def _unwrapped(self, queue: MessageQueue) -> MessageQueue:
        if not self._client.namespace:
            return queue
        return MessageQueue(self._client.unwrap(queue.topic), queue.broker_name, queue.queue_id)
