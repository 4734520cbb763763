"""The consumer that pulls when its user says so, from where its user says."""

from collections.abc import Awaitable, Callable, Collection
from typing import Unpack

from bolide.client.consuming.consumer import Consumer
from bolide.client.consuming.consumer_settings import ConsumerArguments, ConsumerSettings
from bolide.client.consuming.keepers import Keepers
from bolide.client.consuming.membership import Membership
from bolide.client.consuming.noted_offsets import NotedOffsets
from bolide.client.consuming.offsets import offset_store
from bolide.client.consuming.pull_member import PullMember
from bolide.client.consuming.pulling import Pull, Puller, PullResult
from bolide.client.consuming.rebalance import Rebalancer
from bolide.client.consuming.subscription import Expression
from bolide.client.instance import ClientInstance
from bolide.model.message_queue import MessageQueue

PULL_TIMEOUT = 10.0
_CALL_GRACE = 10.0


class PullConsumer(Consumer[ConsumerSettings]):
    """Pulls for a group while its `async with` block runs; positions are the user's business.

    ```python
    async with PullConsumer("orders", name_server="127.0.0.1:9876") as c:
        for queue in await c.fetch_subscribe_queues("Orders"):
            found = await c.pull(queue, "*", await c.fetch_consume_offset(queue) or 0)
            ...
            await c.update_consume_offset(queue, found.next_offset)
    ```
    """

    def __init__(self, group: str, **arguments: Unpack[ConsumerArguments]) -> None:
        """Take the settings; `ClientSettings` and `ConsumerSettings` tell them.

        Raises:
            ConfigError: one cannot be used; names it.
        """
        super().__init__(ConsumerSettings, group, arguments)

    async def pull(
        self,
        queue: MessageQueue,
        expression: Expression,
        queue_offset: int,
        max_count: int = 32,
        *,
        timeout: float = PULL_TIMEOUT,  # noqa: ASYNC109  as users of RocketMQ know it
    ) -> PullResult:
        """Ask once; the result's `next_offset` says where to go on, whatever was found.

        Raises:
            ValueError: the offset or the count is out of its bounds.
            RemotingError: no answer came.
            Refusal: the broker refused.
        """
        return await self._pull(queue, expression, queue_offset, max_count, within=timeout)

    async def pull_block_if_not_found(
        self, queue: MessageQueue, expression: Expression, queue_offset: int, max_count: int = 32
    ) -> PullResult:
        """As `pull`, but the broker waits for a message, at most `suspend` seconds."""
        suspend = self.settings.suspend
        return await self._pull(
            queue, expression, queue_offset, max_count, within=suspend + _CALL_GRACE, wait=suspend
        )

    async def fetch_consume_offset(
        self, queue: MessageQueue, *, from_store: bool = False
    ) -> int | None:
        """The group's offset in a queue; None if it has none.

        With `from_store` what this consumer has updated and not committed yet does not count.
        """
        self._running()
        wrapped = self._wrapped(queue)
        noted = None if from_store else self._noted.find(wrapped)
        return await self._offsets.read(wrapped) if noted is None else noted

    async def update_consume_offset(self, queue: MessageQueue, queue_offset: int) -> None:
        """Note how far a queue was consumed; it is committed within `commit_interval`.

        Of a queue that was shared out and belongs to another member by now nothing is noted.
        """
        self._running()
        wrapped = self._wrapped(queue)
        shared = wrapped.topic in self._member.filters
        if not shared or wrapped in self._shares.of_topic(wrapped.topic):
            self._noted.note(wrapped, queue_offset)

    async def commit(self) -> None:
        """Commit what was updated now.

        Raises:
            BolideError: a broker refused, or did not answer.
        """
        self._running()
        await self._noted.write()

    async def register_topics(self, *topics: str) -> None:
        """Take part in sharing out the queues of these topics; see `fetch_balanced_queues`."""
        self._running()
        await self._rebalancer.join(*(self._filter(topic, "*") for topic in topics))

    async def fetch_balanced_queues(self, topic: str) -> frozenset[MessageQueue]:
        """The queues of a topic that are this member's share of it now."""
        self._running()
        if self._client.wrap(topic) not in self._member.filters:
            await self.register_topics(topic)
        return frozenset(map(self._unwrapped, self._shares.of_topic(self._client.wrap(topic))))

    async def _pull(
        self,
        queue: MessageQueue,
        expression: Expression,
        queue_offset: int,
        max_count: int,
        *,
        within: float,
        wait: float = 0.0,
    ) -> PullResult:
        self._running()
        if queue_offset < 0 or max_count < 1:
            raise ValueError(f"offset {queue_offset}, count {max_count}: at least 0 and 1")
        wrapped = self._wrapped(queue)
        self._member.other_topics.add(wrapped.topic)
        pull = Pull(
            queue=wrapped,
            filter=self._filter(queue.topic, expression),
            offset=queue_offset,
            max_count=max_count,
            suspend=wait,
            within=within,
            with_subscription=True,
        )
        return await self._puller.pull(pull)

    def _open(self, instance: ClientInstance, group: str) -> Membership:
        settings = self.settings
        self._keepers = Keepers()
        self._offsets = offset_store(instance, group, settings)
        self._noted = NotedOffsets(self._offsets)
        self._shares = Shares(self._noted.let_go)
        self._puller = Puller(instance, group, settings.filter_hooks)
        member = PullMember(instance, group, settings, progress=self._noted.all)
        self._rebalancer = Rebalancer(
            member, settings.allocate, self._shares, self._assignment_listener()
        )
        return member

    async def _begin(self) -> None:
        self._keepers.run(self._rebalancer.run())
        self._keepers.every(self.settings.commit_interval, self._noted.try_write)

    async def _end(self) -> None:
        await self._keepers.close()
        await self._noted.try_write()


class Shares:
    """The queues that are ours, of which nothing is held; `lose` hears of those that go."""

    def __init__(self, lose: Callable[[Collection[MessageQueue]], Awaitable[None]]) -> None:
        self._lose = lose
        self._queues: dict[str, frozenset[MessageQueue]] = {}

    def of_topic(self, topic: str) -> frozenset[MessageQueue]:
        return self._queues.get(topic, frozenset())

    def topics(self) -> Collection[str]:
        return [topic for topic, queues in self._queues.items() if queues]

    async def change(self, topic: str, wanted: Collection[MessageQueue]) -> bool:
        lost = self.of_topic(topic).difference(wanted)
        self._queues[topic] = frozenset(wanted)
        await self._lose(lost)
        return True
