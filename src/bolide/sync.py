"""The same clients without `await`, for any thread: `with Producer("group") as p: p.send(…)`.

Every class here is a front of its namesake in `bolide` and does what that does.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from bolide import admin
from bolide.client.blocking import Caller, Front, Subject, blocking, on_the_loop
from bolide.client.consuming import (
    assignment,
    consumer,
    lite_pull_consumer,
    pull_consumer,
    pull_schedule,
    push_consumer,
)
from bolide.client.consuming.consume import Retry
from bolide.client.consuming.consumer_settings import (
    ConsumerArguments,
    LitePullArguments,
    PushArguments,
)
from bolide.client.consuming.process_queue import FlowLimits
from bolide.client.consuming.pulling import PullResult, PullStatus
from bolide.client.consuming.subscription import Sql
from bolide.client.producing import producer, selectors
from bolide.client.producing.faults import FaultTable
from bolide.client.producing.hooks import ForbiddenHook, SendHook
from bolide.client.producing.producer import SendArguments
from bolide.client.producing.producer_settings import ProducerArguments
from bolide.client.producing.results import SendResult, SendStatus
from bolide.client.questions import Questions
from bolide.errors import BolideError
from bolide.model.message import CompressionType, Message, StoredMessage
from bolide.model.message_checks import InvalidMessage
from bolide.model.message_queue import MessageQueue
from bolide.remoting.tls import ClientTls

__all__ = [
    "AdminClient",
    "BolideError",
    "ClientTls",
    "CompressionType",
    "FaultTable",
    "FlowLimits",
    "InvalidMessage",
    "LitePullConsumer",
    "Message",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullSchedule",
    "PullStatus",
    "PullTurn",
    "PushConsumer",
    "Retry",
    "SendResult",
    "SendStatus",
    "Sql",
    "StoredMessage",
    "assignment",
    "selectors",
]

PULL_THREADS = 20
"""How many tasks of a `PullSchedule` run at a time."""

Q = TypeVar("Q", bound="producer.Producer | consumer.Consumer[Any]")
C = TypeVar("C", bound="consumer.Consumer[Any]")


class _Client(Front[Q]):
    """What can be asked of producers and consumers alike."""

    create_topic = blocking(Questions.create_topic)
    max_offset = blocking(Questions.max_offset)
    min_offset = blocking(Questions.min_offset)
    search_offset = blocking(Questions.search_offset)
    earliest_time = blocking(Questions.earliest_time)
    view_message = blocking(Questions.view_message)
    query_messages = blocking(Questions.query_messages)
    set_name_servers = on_the_loop(Questions.set_name_servers)

    @property
    def group(self) -> str:
        return self.client.group

    @property
    def client_id(self) -> str:
        return self.client.client_id


class Producer(_Client[producer.Producer]):
    """Sends messages while its `with` block runs; see `bolide.Producer`."""

    def __init__(self, group: str, **arguments: Unpack[ProducerArguments]) -> None:
        super().__init__(producer.Producer(group, **arguments))

    @overload
    def send(self, message: Message, **how: Unpack[SendArguments]) -> SendResult: ...

    @overload
    def send(
        self, message: Iterable[Message], **how: Unpack[SendArguments]
    ) -> list[SendResult]: ...

    def send(
        self, message: Message | Iterable[Message], **how: Unpack[SendArguments]
    ) -> SendResult | list[SendResult]:
        """Send one message, or several, and wait until it is stored."""
        if isinstance(message, Message):
            return self.wait(self.client.send(message, **how))
        return self.wait(self.client.send(message, **how))

    def send_async(
        self,
        message: Message,
        callback: Callable[["Future[SendResult]"], object] | None = None,
        **how: Unpack[SendArguments],
    ) -> "Future[SendResult]":
        """Send without waiting.

        Args:
            message: what to send.
            callback: called with the future when the send has ended, on the loop's thread: it must
                be quick and may not make blocking calls of a client.
            how: as in `send`.

        Returns:
            A future of the result, or of what `send` would have raised.
        """
        outcome = self.submit(self.client.send(message, **how))
        if callback is not None:
            outcome.add_done_callback(callback)
        return outcome

    send_batch = blocking(producer.Producer.send_batch)
    send_encoded = blocking(producer.Producer.send_encoded)
    send_oneway = blocking(producer.Producer.send_oneway)
    fetch_publish_queues = blocking(producer.Producer.fetch_publish_queues)

    def add_send_hook(self, hook: SendHook) -> None:
        """Have `hook` see every try of a send from now on; it runs on the loop's thread."""
        self.client.add_send_hook(hook)

    def add_forbidden_hook(self, hook: ForbiddenHook) -> None:
        """Have `hook` asked before every try whether it is allowed; it raises if not."""
        self.client.add_forbidden_hook(hook)


class _Consumer(_Client[C]):
    """What consumers of every kind can do."""

    fetch_subscribe_queues = blocking(consumer.Consumer.fetch_subscribe_queues)
    send_back = blocking(consumer.Consumer.send_back)


class PushConsumer(_Consumer[push_consumer.PushConsumer]):
    """Has messages brought to handlers while its `with` block runs; see `bolide.PushConsumer`.

    Plain handlers run in a thread pool and may use blocking clients; coroutines run on the loop's
    thread and may not.
    """

    def __init__(self, group: str, **arguments: Unpack[PushArguments]) -> None:
        super().__init__(push_consumer.PushConsumer(group, **arguments))

    subscribe = blocking(push_consumer.PushConsumer.subscribe)
    unsubscribe = blocking(push_consumer.PushConsumer.unsubscribe)
    commit = blocking(push_consumer.PushConsumer.commit)
    pause = on_the_loop(push_consumer.PushConsumer.pause)
    resume = on_the_loop(push_consumer.PushConsumer.resume)

    @property
    def is_paused(self) -> bool:
        return self.client.is_paused

    @property
    def concurrency(self) -> int:
        """How many handlers run at a time; may be set while they do."""
        return self.client.concurrency

    @concurrency.setter
    def concurrency(self, limit: int) -> None:
        async def change() -> None:
            self.client.concurrency = limit

        self.wait(change())

    @property
    def assigned_queues(self) -> frozenset[MessageQueue]:
        """The queues that are this consumer's now, without those of retries."""

        async def look() -> frozenset[MessageQueue]:
            return self.client.assigned_queues

        return self.wait(look())


class PullConsumer(_Consumer[pull_consumer.PullConsumer]):
    """Pulls from queues as it is told while its `with` block runs; see `bolide.PullConsumer`."""

    def __init__(self, group: str, **arguments: Unpack[ConsumerArguments]) -> None:
        super().__init__(pull_consumer.PullConsumer(group, **arguments))

    @classmethod
    def of(cls, client: pull_consumer.PullConsumer) -> "PullConsumer":
        """The front of a consumer that is there already."""
        front = cls.__new__(cls)
        Front.__init__(front, client)
        return front

    pull = blocking(pull_consumer.PullConsumer.pull)
    pull_block_if_not_found = blocking(pull_consumer.PullConsumer.pull_block_if_not_found)
    fetch_consume_offset = blocking(pull_consumer.PullConsumer.fetch_consume_offset)
    update_consume_offset = blocking(pull_consumer.PullConsumer.update_consume_offset)
    register_topics = blocking(pull_consumer.PullConsumer.register_topics)
    fetch_balanced_queues = blocking(pull_consumer.PullConsumer.fetch_balanced_queues)
    commit = blocking(pull_consumer.PullConsumer.commit)


class PullTurn:
    """What a pull task is called with beside its queue; see `bolide.PullTurn`."""

    def __init__(self, consumer: PullConsumer) -> None:
        self.consumer = consumer
        self.next_delay = pull_schedule.NEXT_DELAY


class PullSchedule(Front[pull_schedule.PullSchedule]):
    """A task for each queue, called while its `with` block runs; see `bolide.PullSchedule`.

    Tasks are plain functions here, and run in threads.
    """

    def __init__(self, group: str, **arguments: Unpack[ConsumerArguments]) -> None:
        super().__init__(pull_schedule.PullSchedule(group, **arguments))
        self.consumer = PullConsumer.of(self.client.consumer)
        self._pool = ThreadPoolExecutor(PULL_THREADS, thread_name_prefix=f"pull-{group}")

    def register(self, topic: str, task: Callable[[MessageQueue, PullTurn], object]) -> None:
        """Have `task` called for each queue of a topic that is ours."""

        async def call(queue: MessageQueue, turn: pull_schedule.PullTurn) -> None:
            here = PullTurn(self.consumer)
            try:
                await asyncio.get_running_loop().run_in_executor(self._pool, task, queue, here)
            finally:
                turn.next_delay = here.next_delay

        self.wait(self.client.register(topic, call))

    def close(self) -> None:
        """End; a task that is in its thread still goes on to its end."""
        super().close()
        self._pool.shutdown(wait=False)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, exc, traceback)
        self._pool.shutdown(wait=False)


class LitePullConsumer(_Consumer[lite_pull_consumer.LitePullConsumer]):
    """Polls what was pulled ahead while its `with` block runs; see `bolide.LitePullConsumer`."""

    def __init__(self, group: str, **arguments: Unpack[LitePullArguments]) -> None:
        super().__init__(lite_pull_consumer.LitePullConsumer(group, **arguments))

    subscribe = blocking(lite_pull_consumer.LitePullConsumer.subscribe)
    unsubscribe = blocking(lite_pull_consumer.LitePullConsumer.unsubscribe)
    assign = blocking(lite_pull_consumer.LitePullConsumer.assign)
    poll = blocking(lite_pull_consumer.LitePullConsumer.poll)
    seek = blocking(lite_pull_consumer.LitePullConsumer.seek)
    seek_to_begin = blocking(lite_pull_consumer.LitePullConsumer.seek_to_begin)
    seek_to_end = blocking(lite_pull_consumer.LitePullConsumer.seek_to_end)
    offset_for_timestamp = blocking(lite_pull_consumer.LitePullConsumer.offset_for_timestamp)
    commit = blocking(lite_pull_consumer.LitePullConsumer.commit)
    committed = blocking(lite_pull_consumer.LitePullConsumer.committed)
    pause = on_the_loop(lite_pull_consumer.LitePullConsumer.pause)
    resume = on_the_loop(lite_pull_consumer.LitePullConsumer.resume)
    listen_for_queues = on_the_loop(lite_pull_consumer.LitePullConsumer.listen_for_queues)

    @property
    def assigned_queues(self) -> frozenset[MessageQueue]:
        """The queues that are this consumer's now."""

        async def look() -> frozenset[MessageQueue]:
            return self.client.assigned_queues

        return self.wait(look())


class AdminClient(Caller):
    """Looks after a cluster while its `with` block runs; see `bolide.AdminClient`.

    What it can do stands by the same subjects: `admin.topics`, `admin.groups` and so on.
    """

    def __init__(self, name_server: str | Iterable[str] | None = None, **settings: Any) -> None:
        super().__init__()
        self.client = admin.AdminClient(name_server, **settings)

    def __enter__(self) -> Self:
        self.wait(self.client.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.wait(self.client.__aexit__(kind, exc, traceback))

    def __getattr__(self, name: str) -> Any:
        return Subject(self, getattr(self.client, name))
