"""The producer: single, batched, one-way and request-reply sends."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypedDict, Unpack, overload

from bolide.client.errors import BatchPartlySent, RouteNotFound
from bolide.client.instance.instance import ClientInstance
from bolide.client.instance.lifecycle import Lifecycle
from bolide.client.instance.lookups import LookupMethods
from bolide.client.instance.routes import TopicTemplate
from bolide.client.instance.settings import ClientSettings
from bolide.client.instance.validation import check_group
from bolide.client.producer.back_pressure import BackPressure, InFlightCalls
from bolide.client.producer.fast_path import SendFastPath
from bolide.client.producer.hooks import ForbiddenHook, SendHook
from bolide.client.producer.queue_choice import BrokerFaults, KeyedQueues
from bolide.client.producer.request_reply import Requester, as_request, reply_to
from bolide.client.producer.results import SendResult
from bolide.client.producer.retrying_sender import RetryingSender
from bolide.client.producer.selectors import QueueSelector, by_hash, dedup_queue
from bolide.client.producer.send_request import Batches, RequestBuilder, SendRequest
from bolide.client.producer.settings import (
    SETTING_NAMES,
    ProducerArguments,
    ProducerSettings,
)
from bolide.client.tracing.sender import TraceSender
from bolide.client.tracing.settings import NoTelemetry, Trace
from bolide.client.tracing.trace_hooks import SendTrace, traced_recall
from bolide.errors import BolideError
from bolide.model.message import Message, StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.recall_handle import BadRecallHandle

_PLAIN_ARGUMENTS = frozenset({"timeout"})


class SendArguments(TypedDict, total=False):
    """Options of a send.

    `timeout` is in seconds and includes retries and waiting. `queue` sets the queue, `selector`
    chooses it by the message and `key`, and a `key` alone is hashed. With any of these there is a
    single try; otherwise queues are chosen round robin and retries go to other brokers. A message
    with a `dedup_key` goes to the queue of that key, unless one of these options is given; only
    that queue is tried, until the timeout.
    """

    timeout: float | None
    queue: MessageQueue | None
    selector: QueueSelector | None
    key: Any


class Producer(LookupMethods):
    """Sends messages while its `async with` block runs.

    It starts even if the cluster is unreachable; sends fail until it is reachable.
    """

    def __init__(self, group: str, **arguments: Unpack[ProducerArguments]) -> None:
        """See `ClientSettings` and `ProducerSettings` for the arguments.

        Raises:
            ConfigError: a setting is invalid.
        """
        check_group(group)
        given: dict[str, Any] = dict(arguments)
        own = {name: given.pop(name) for name in SETTING_NAMES & given.keys()}
        self.group = group
        self.settings = ProducerSettings(**own)
        self._client = ClientSettings.of(**given).with_own_name()
        self._life = Lifecycle("producer", group)
        self._builder = RequestBuilder(group, self._client, self.settings)
        self._pressure = BackPressure(
            self.settings.max_sends_under_way, self.settings.max_bytes_under_way
        )
        self._template = TopicTemplate(
            self.settings.create_topic_key, self.settings.default_topic_queue_nums
        )
        self._keyed_queues = KeyedQueues()
        self._in_flight = InFlightCalls()
        self._topics: set[str] = set()
        self._telemetry = self.settings.telemetry or NoTelemetry()
        self._send_hooks: list[SendHook] = []
        self.tracing: TraceSender | None = None
        """Sends the trace if `trace` is set; its `dropped` counts lost records."""
        self._forbidden_hooks: list[ForbiddenHook] = []

    # Start and end

    async def start(self) -> None:
        """Start, as `async with` does.

        Raises:
            WrongState: the producer was started before.
            GroupTaken: another producer of the group shares the instance.
            ConfigError: a client of the same `instance_name` has other settings.
        """
        self._life.begin()
        try:
            self._instance = await self._join()
        except BaseException:
            self._life.fail()
            raise
        self._loop = asyncio.get_running_loop()
        faults = BrokerFaults(self.settings.fault_table, self._loop.time)
        self._sender = RetryingSender(
            self._instance,
            self.settings,
            faults if self.settings.latency_faults else None,
            group=self.group,
            send_hooks=self._send_hooks,
            forbidden_hooks=self._forbidden_hooks,
        )
        self._fast_path = self._make_fast_path()
        group = self._client.wrap(self.group)
        self._requester = Requester(self._instance, group, self._topics)
        if trace := Trace.of(self.settings.trace):
            self.tracing = TraceSender(trace, self._instance, group, "PRODUCE")
            self.tracing.start()
            self._send_hooks.append(SendTrace(self.tracing))

    async def close(self) -> None:
        """Wait for sends in flight, at most `send_timeout`, and stop. Idempotent."""
        if not self._life.end():
            return
        async with AsyncExitStack() as leaving:
            leaving.push_async_callback(self._instance.release)
            leaving.push_async_callback(
                self._instance.remove_producer, self._client.wrap(self.group)
            )
            if self.tracing is not None:
                leaving.push_async_callback(self.tracing.close)
            leaving.callback(self._requester.close)
            await self._in_flight.finish(self.settings.send_timeout)

    async def _join(self) -> ClientInstance:
        instance = await ClientInstance.acquire(self._client)
        try:
            instance.add_producer(self._client.wrap(self.group), self)
        except BaseException:
            await instance.release()
            raise
        return instance

    def _make_fast_path(self) -> SendFastPath | None:
        """None if settings require every send to take the ordinary path."""
        settings = self.settings
        if settings.telemetry is not None or settings.latency_faults:
            return None
        return SendFastPath(
            self._instance, settings, self._builder, self._sender, self._pressure, self._topics
        )

    # Sending

    @overload
    async def send(self, message: Message, **how: Unpack[SendArguments]) -> SendResult: ...

    @overload
    async def send(
        self, message: Iterable[Message], **how: Unpack[SendArguments]
    ) -> list[SendResult]: ...

    async def send(
        self, message: Message | Iterable[Message], **how: Unpack[SendArguments]
    ) -> SendResult | list[SendResult]:
        """Send a message, or several like `send_batch`, and wait until it is stored.

        Raises:
            InvalidMessage: brokers would refuse the message.
            SendFailed: no try succeeded; the last failure is the cause.
            RouteNotFound: the topic does not exist.
            NoNameServer: no NameServer can be reached for the route.
            Refusal: the broker refused with a code that is not retried.
        """
        if not isinstance(message, Message):
            return await self.send_batch(message, **how)
        self._life.require_running()
        if self._fast_path is not None and how.keys() <= _PLAIN_ARGUMENTS:
            sent = self._fast_path.try_send(message, how.get("timeout"))
            if sent is not None:
                with self._in_flight:
                    return await sent
        with self._in_flight, self._telemetry.sending(self.client_id, (message,)) as span:
            deadline = self._deadline(how)
            request = await self._builder.build(span.messages[0])
            result = await self._send(request, deadline, how)
            span.sent((result,))
            return result

    async def send_batch(
        self, messages: Iterable[Message], *, split: bool = True, **how: Unpack[SendArguments]
    ) -> list[SendResult]:
        """Send messages of one topic in as few requests as size and count allow.

        Messages with a `dedup_key` are sent queue by queue, in order within each queue.

        Args:
            messages: the messages; all of one topic and one wait flag, none delayed, all with a
                `dedup_key` or none.
            split: False rejects a list that does not fit into one request.
            how: like in `send`, for each request.

        Returns:
            One result per request, in order.

        Raises:
            InvalidMessage: the messages cannot be sent as a batch.
            BatchPartlySent: some requests succeeded before one failed with the cause.
            BolideError: like `send`, if the first request failed.
        """
        self._life.require_running()
        given = list(messages)
        with self._in_flight, self._telemetry.sending(self.client_id, given) as span:
            given = list(span.messages)
            whole = Batches(self._builder, given, split=split)
            await whole.check()
            groups = [(whole, how)]
            if given[0].dedup_key is not None and not _names_queue(how):
                groups = await self._keyed_groups(whole, given[0].topic, how)
            results = await self._send_groups(groups, keyed=given[0].dedup_key is not None)
            span.sent(results)
            return results

    async def _keyed_groups(
        self, whole: Batches, topic: str, how: SendArguments
    ) -> list[tuple[Batches, SendArguments]]:
        queues = await self._queues(self._client.wrap(topic), self._deadline(how), topic)
        groups = await whole.by_queue(self._keyed_queues.of(queues))
        return [
            (batches, {**how, "queue": self._unwrapped(queue)}) for queue, batches in groups.items()
        ]

    async def _send_groups(
        self, groups: list[tuple[Batches, SendArguments]], *, keyed: bool
    ) -> list[SendResult]:
        results: list[SendResult] = []
        sent, left = 0, sum(batches.size for batches, _ in groups)
        try:
            for batches, how in groups:
                while request := await batches.next():
                    results.append(await self._send(request, self._deadline(how), how))
                    sent += len(request.messages)
        except BolideError as exc:
            if not results:
                raise
            raise BatchPartlySent(results, sent, left - sent, keyed=keyed) from exc
        return results

    async def send_encoded(
        self, topic: str, body: bytes, **how: Unpack[SendArguments]
    ) -> SendResult:
        """Send a batch that the caller encoded with `protocol.batch`, without checks.

        For bulk writers: a fifth of the work of `send_batch`. Every message must have its own
        `UNIQ_KEY` (see `send_request.make_ids`); the result has no message ids. Raises like `send`.
        """
        self._life.require_running()
        with self._in_flight:
            request = self._builder.build_encoded(topic, body)
            return await self._send(request, self._deadline(how), how)

    async def send_oneway(self, message: Message, **how: Unpack[SendArguments]) -> None:
        """Send without a reply: the sender does not learn whether the message was stored.

        Raises like `send` if the message cannot be written to a connection.
        """
        self._life.require_running()
        if self._fast_path is not None and not how and self._fast_path.try_send_oneway(message):
            return
        with self._in_flight, self._telemetry.sending(self.client_id, (message,)) as span:
            deadline = self._deadline(how)
            request = await self._builder.build(span.messages[0])
            chosen = await self._chosen(request, deadline, how)
            self._topics.add(request.topic)
            await self._sender.send_oneway(request, chosen, deadline)

    async def request(self, message: Message, **how: Unpack[SendArguments]) -> StoredMessage:
        """Send a message and wait for the reply to it; `timeout` includes both.

        The consumer of the message replies with `reply`. Late replies are dropped.

        Raises:
            RequestTimedOut: the message was sent, and no reply arrived in time.
            BolideError: like `send`.
        """
        self._life.require_running()
        with self._in_flight, self._telemetry.sending(self.client_id, (message,)) as span:
            deadline = self._deadline(how)
            addressed = as_request(span.messages[0], self.client_id, deadline - self._loop.time())
            request = await self._builder.build(addressed)
            await self._queues(request.topic, deadline, message.topic)
            await self._requester.announce_client(request.topic, deadline)
            sent = self._send(request, deadline, how)
            return await self._requester.request(
                addressed, sent, deadline, lambda one: span.sent((one,))
            )

    async def reply(
        self,
        request: StoredMessage,
        body: bytes | bytearray | memoryview,
        *,
        tags: str = "",
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        **how: Unpack[SendArguments],
    ) -> SendResult:
        """Reply to a message sent by `request`, and wait until its sender has the reply.

        Raises:
            CannotReply: the message is not a request.
            SendFailed: the requester cannot be reached.
            BolideError: like `send`.
        """
        reply = reply_to(request, body, tags=tags, keys=keys, properties=properties)
        return await self.send(reply, **how)

    async def recall(self, topic: str, handle: str | None) -> str:
        """Recall a timed message before its delivery, by the `recall_handle` of its send.

        Returns:
            The id of the message.

        Raises:
            BadRecallHandle: the handle is malformed, or None because the message is not timed.
            IllegalOperation: the message is delivered already, or of another topic.
            NoPermission: the broker does not allow recalls.
        """
        lookups = self._running().lookups
        if handle is None:
            raise BadRecallHandle(handle)
        with traced_recall(self.tracing, self.group, topic, handle):
            return await lookups.recall(
                self._client.wrap(topic), handle, self._client.wrap(self.group)
            )

    async def _send(self, request: SendRequest, deadline: float, how: SendArguments) -> SendResult:
        size = len(request.body)
        if not self._pressure.try_enter(size):
            async with self._sender.within_deadline(deadline, request.messages[0].topic):
                await self._pressure.enter(size)
        try:
            queues = self._instance.routes.find_publish_queues(request.topic)
            free = queues and not how and not request.is_keyed
            chosen = queues if queues and free else await self._chosen(request, deadline, how)
            self._topics.add(request.topic)
            return await self._sender.send(request, chosen, deadline)
        finally:
            self._pressure.leave(size)

    async def _chosen(
        self, request: SendRequest, deadline: float, how: SendArguments
    ) -> MessageQueue | Sequence[MessageQueue]:
        """The one queue the request must go to, or all that it may go to."""
        message = request.messages[0]
        queues = await self._queues(request.topic, deadline, message.topic)
        if not _names_queue(how):
            key = message.dedup_key
            return queues if key is None else dedup_queue(key, self._keyed_queues.of(queues))
        queue = how.get("queue")
        if queue is None:
            shown = [self._unwrapped(each) for each in queues]
            queue = (how.get("selector") or by_hash)(shown, message, how.get("key"))
        return self._wrapped(queue)

    async def _queues(self, topic: str, deadline: float, shown: str) -> Sequence[MessageQueue]:
        """All writable queues of a topic; `shown` is its name without namespace."""
        routes = self._instance.routes
        queues = routes.find_publish_queues(topic)
        if queues:
            return queues
        async with self._sender.within_deadline(deadline, shown):
            while True:
                while routes.lacks_masters(topic):  # one may be elected now
                    await self._instance.renewals.renew(topic)
                try:
                    return await routes.publish_queues(topic, self._template)
                except RouteNotFound:
                    if not routes.lacks_masters(topic):
                        raise

    def _deadline(self, how: SendArguments) -> float:
        seconds = how.get("timeout") if how else None
        return self._loop.time() + (self.settings.send_timeout if seconds is None else seconds)

    # Hooks and queues

    def add_send_hook(self, hook: SendHook) -> None:
        """Call `hook` before and after every try of a send."""
        self._send_hooks.append(hook)

    def add_forbidden_hook(self, hook: ForbiddenHook) -> None:
        """Call `hook` before every try; it raises to forbid the try."""
        self._forbidden_hooks.append(hook)

    async def fetch_publish_queues(self, topic: str) -> list[MessageQueue]:
        """The writable queues of a topic.

        Raises:
            RouteNotFound: the topic does not exist, or none of its queues is writable.
            NoNameServer: no NameServer can be reached.
        """
        routes, name = self._running().routes, self._client.wrap(topic)
        await routes.refresh(name)
        return [self._unwrapped(queue) for queue in await routes.publish_queues(name)]

    def topics(self) -> Collection[str]:
        """For the client instance: the topics whose routes are refreshed periodically."""
        return self._topics


def _names_queue(how: SendArguments) -> bool:
    return any(how.get(name) is not None for name in ("queue", "selector", "key"))
