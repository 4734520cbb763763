"""Blocking clients, usable from any thread: `with Producer("group") as p: p.send(…)`.

Every class wraps the asyncio class of the same name in `bolide`.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from bolide import admin
from bolide.client.blocking import (
    BlockingClient,
    BlockingProxy,
    LoopCaller,
    blocking,
    on_loop_thread,
)
from bolide.client.consumer import consumer
from bolide.client.consumer.group import assignment
from bolide.client.consumer.group.held_queue import FlowLimits
from bolide.client.consumer.handlers.handler import Retry
from bolide.client.consumer.pop import pop_consumer
from bolide.client.consumer.pull import lite_pull_consumer, pull_consumer
from bolide.client.consumer.pull.pull_request import PullResult, PullStatus
from bolide.client.consumer.push import push_consumer
from bolide.client.consumer.settings import (
    ConsumerArguments,
    LitePullArguments,
    PopArguments,
    PushArguments,
)
from bolide.client.consumer.subscription import FilterFunction, Sql
from bolide.client.instance.lookups import LookupMethods
from bolide.client.producer import producer, selectors, transactions
from bolide.client.producer.hooks import EndTransactionHook, ForbiddenHook, SendHook
from bolide.client.producer.producer import SendArguments
from bolide.client.producer.queue_choice import FaultTable
from bolide.client.producer.results import (
    SendResult,
    SendStatus,
    TransactionResult,
    TransactionState,
)
from bolide.client.producer.settings import ProducerArguments
from bolide.client.producer.transactions import Check
from bolide.client.tracing.settings import Trace
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
    "FilterFunction",
    "FlowLimits",
    "InvalidMessage",
    "LitePullConsumer",
    "Message",
    "MessageQueue",
    "PopConsumer",
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
    "Trace",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "assignment",
    "selectors",
]

PULL_THREADS = 20
"""How many tasks of a `PullSchedule` run at a time."""

Q = TypeVar("Q", bound="producer.Producer | consumer.Consumer[Any]")
C = TypeVar("C", bound="consumer.Consumer[Any]")


class _Client(BlockingClient[Q]):
    """Methods common to producers and consumers."""

    create_topic = blocking(LookupMethods.create_topic)
    max_offset = blocking(LookupMethods.max_offset)
    min_offset = blocking(LookupMethods.min_offset)
    search_offset = blocking(LookupMethods.search_offset)
    earliest_time = blocking(LookupMethods.earliest_time)
    view_message = blocking(LookupMethods.view_message)
    query_messages = blocking(LookupMethods.query_messages)
    set_name_servers = on_loop_thread(LookupMethods.set_name_servers)

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
        """Send a message, or several, and wait until it is stored."""
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
            message: the message.
            callback: called with the future when the send has ended, on the loop thread; it must
                be fast and must not make blocking calls of a client.
            how: like in `send`.

        Returns:
            A future with the result or exception of `send`.
        """
        outcome = self.submit(self.client.send(message, **how))
        if callback is not None:
            outcome.add_done_callback(callback)
        return outcome

    send_batch = blocking(producer.Producer.send_batch)
    send_encoded = blocking(producer.Producer.send_encoded)
    send_oneway = blocking(producer.Producer.send_oneway)
    fetch_publish_queues = blocking(producer.Producer.fetch_publish_queues)
    request = blocking(producer.Producer.request)
    reply = blocking(producer.Producer.reply)
    recall = blocking(producer.Producer.recall)

    def add_send_hook(self, hook: SendHook) -> None:
        """Call `hook` before and after every try of a send, on the loop thread."""
        self.client.add_send_hook(hook)

    def add_forbidden_hook(self, hook: ForbiddenHook) -> None:
        """Call `hook` before every try, on the loop thread; it raises to forbid the try."""
        self.client.add_forbidden_hook(hook)


class Transaction:
    """An open transaction; end it exactly once."""

    def __init__(self, caller: LoopCaller, inner: transactions.Transaction) -> None:
        self._caller = caller
        self.inner = inner
        self.message = inner.message
        self.half = inner.half
        self.id = inner.id

    @property
    def is_over(self) -> bool:
        return self.inner.is_over

    def commit(self) -> TransactionResult:
        """Deliver the message."""
        return self._caller.wait(self.inner.commit())

    def rollback(self) -> TransactionResult:
        """Discard the message."""
        return self._caller.wait(self.inner.rollback())

    def leave_open(self) -> TransactionResult:
        """End with UNKNOWN: the broker checks back later."""
        return self._caller.wait(self.inner.leave_open())


class TransactionProducer(Producer):
    """Sends messages in transactions; see `bolide.TransactionProducer`.

    Local transactions are plain functions and run in the calling thread.
    """

    def __init__(
        self,
        group: str,
        *,
        check: Check,
        topics: Iterable[str] = (),
        check_threads: int = 4,
        **arguments: Unpack[ProducerArguments],
    ) -> None:
        self._inner = transactions.TransactionProducer(
            group, check=check, topics=topics, check_threads=check_threads, **arguments
        )
        BlockingClient.__init__(self, self._inner)

    def begin(self, message: Message, **how: Unpack[SendArguments]) -> Transaction:
        """Store a half message, which is not delivered until the transaction is committed."""
        return Transaction(self, self.wait(self._inner.begin(message, **how)))

    def send_in_transaction(
        self,
        message: Message,
        local: Callable[..., TransactionState | None],
        *args: Any,
        **how: Unpack[SendArguments],
    ) -> TransactionResult:
        """Store a half message, run the local transaction, and report its end to the broker.

        If `local` raises, the transaction stays open for the check.
        """
        half = self.begin(message, **how)
        if half.half.status is not SendStatus.SEND_OK:
            return half.rollback()
        try:
            state = local(half.message, *args)
        except Exception:
            half.leave_open()
            raise
        return self.wait(half.inner.end(TransactionState(state or TransactionState.UNKNOWN)))

    @contextmanager
    def transaction(self, message: Message, **how: Unpack[SendArguments]) -> Iterator[Transaction]:
        """Run the block as the local transaction: commit at its end, roll back if it raises."""
        half = self.begin(message, **how)
        try:
            yield half
        except Exception:
            if not half.is_over:
                half.rollback()
            raise
        if not half.is_over:
            half.commit()

    def add_end_transaction_hook(self, hook: EndTransactionHook) -> None:
        """Call `hook` after the end of every transaction was reported, on the loop thread."""
        self._inner.add_end_transaction_hook(hook)


class _Consumer(_Client[C]):
    """Methods common to all consumers."""

    fetch_subscribe_queues = blocking(consumer.Consumer.fetch_subscribe_queues)
    send_back = blocking(consumer.Consumer.send_back)


class PushConsumer(_Consumer[push_consumer.PushConsumer]):
    """Calls handlers with messages while its `with` block runs; see `bolide.PushConsumer`.

    Plain handlers run in a thread pool and may use blocking clients; coroutines run on the loop
    thread and must not.
    """

    def __init__(self, group: str, **arguments: Unpack[PushArguments]) -> None:
        super().__init__(push_consumer.PushConsumer(group, **arguments))

    subscribe = blocking(push_consumer.PushConsumer.subscribe)
    unsubscribe = blocking(push_consumer.PushConsumer.unsubscribe)
    commit = blocking(push_consumer.PushConsumer.commit)
    pause = on_loop_thread(push_consumer.PushConsumer.pause)
    resume = on_loop_thread(push_consumer.PushConsumer.resume)

    @property
    def is_paused(self) -> bool:
        return self.client.is_paused

    @property
    def concurrency(self) -> int:
        """How many handlers run at a time; may be changed while running."""
        return self.client.concurrency

    @concurrency.setter
    def concurrency(self, limit: int) -> None:
        async def change() -> None:
            self.client.concurrency = limit

        self.wait(change())

    @property
    def assigned_queues(self) -> frozenset[MessageQueue]:
        """The queues assigned to this consumer, without those of the retry topic."""

        async def read() -> frozenset[MessageQueue]:
            return self.client.assigned_queues

        return self.wait(read())


class PullConsumer(_Consumer[pull_consumer.PullConsumer]):
    """Pulls on demand while its `with` block runs; see `bolide.PullConsumer`."""

    def __init__(self, group: str, **arguments: Unpack[ConsumerArguments]) -> None:
        super().__init__(pull_consumer.PullConsumer(group, **arguments))

    @classmethod
    def of(cls, client: pull_consumer.PullConsumer) -> "PullConsumer":
        """Wrap an existing asyncio consumer."""
        blocking_client = cls.__new__(cls)
        BlockingClient.__init__(blocking_client, client)
        return blocking_client

    pull = blocking(pull_consumer.PullConsumer.pull)
    pull_block_if_not_found = blocking(pull_consumer.PullConsumer.pull_block_if_not_found)
    fetch_consume_offset = blocking(pull_consumer.PullConsumer.fetch_consume_offset)
    update_consume_offset = blocking(pull_consumer.PullConsumer.update_consume_offset)
    register_topics = blocking(pull_consumer.PullConsumer.register_topics)
    fetch_balanced_queues = blocking(pull_consumer.PullConsumer.fetch_balanced_queues)
    commit = blocking(pull_consumer.PullConsumer.commit)


class PullTurn:
    """Passed to each call of a pull task; see `bolide.PullTurn`."""

    def __init__(self, consumer: PullConsumer) -> None:
        self.consumer = consumer
        self.next_delay = pull_consumer.NEXT_DELAY


class PullSchedule(BlockingClient[pull_consumer.PullSchedule]):
    """Runs a task for each assigned queue; see `bolide.PullSchedule`.

    Tasks are plain functions and run in threads.
    """

    def __init__(self, group: str, **arguments: Unpack[ConsumerArguments]) -> None:
        super().__init__(pull_consumer.PullSchedule(group, **arguments))
        self.consumer = PullConsumer.of(self.client.consumer)
        self._pool = ThreadPoolExecutor(PULL_THREADS, thread_name_prefix=f"pull-{group}")

    def register(self, topic: str, task: Callable[[MessageQueue, PullTurn], object]) -> None:
        """Call `task` repeatedly for each assigned queue of a topic."""

        async def call(queue: MessageQueue, turn: pull_consumer.PullTurn) -> None:
            here = PullTurn(self.consumer)
            try:
                await asyncio.get_running_loop().run_in_executor(self._pool, task, queue, here)
            finally:
                turn.next_delay = here.next_delay

        self.wait(self.client.register(topic, call))

    def close(self) -> None:
        """Close; a task that runs in its thread continues to its end."""
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
    """Polls prefetched messages while its `with` block runs; see `bolide.LitePullConsumer`."""

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
    pause = on_loop_thread(lite_pull_consumer.LitePullConsumer.pause)
    resume = on_loop_thread(lite_pull_consumer.LitePullConsumer.resume)
    listen_for_queues = on_loop_thread(lite_pull_consumer.LitePullConsumer.listen_for_queues)

    @property
    def assigned_queues(self) -> frozenset[MessageQueue]:
        """The queues this consumer holds."""

        async def read() -> frozenset[MessageQueue]:
            return self.client.assigned_queues

        return self.wait(read())


class PopConsumer(_Consumer[pop_consumer.PopConsumer]):
    """Receives and acknowledges messages on demand; see `bolide.PopConsumer`."""

    def __init__(self, group: str, **arguments: Unpack[PopArguments]) -> None:
        super().__init__(pop_consumer.PopConsumer(group, **arguments))

    subscribe = blocking(pop_consumer.PopConsumer.subscribe)
    unsubscribe = blocking(pop_consumer.PopConsumer.unsubscribe)
    receive = blocking(pop_consumer.PopConsumer.receive)
    ack = blocking(pop_consumer.PopConsumer.ack)
    change_invisible = blocking(pop_consumer.PopConsumer.change_invisible)
    send_back = blocking(pop_consumer.PopConsumer.send_back)

    def messages(
        self, *, max_messages: int = 16, invisible: float | None = None
    ) -> Iterator[StoredMessage]:
        """Iterate over messages without end; acknowledge each of them."""
        seconds = self.client.settings.invisible if invisible is None else invisible
        while True:
            received = self.wait(self.client.receive(max_messages, invisible=seconds))
            until = time.monotonic() + seconds
            for message in received:
                if time.monotonic() < until:
                    yield message

    def __iter__(self) -> Iterator[StoredMessage]:
        return self.messages()


class AdminClient(LoopCaller):
    """Administers a cluster while its `with` block runs; see `bolide.AdminClient`.

    Methods are grouped by the same attributes: `admin.topics`, `admin.groups` and so on.
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
        return BlockingProxy(self, getattr(self.client, name))
