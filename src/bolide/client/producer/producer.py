"""The producer: sends messages, each to one queue of its topic, and says where it was stored."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypedDict, Unpack, overload

from bolide.client.errors import BatchPartlySent
from bolide.client.instance.instance import ClientInstance
from bolide.client.instance.lifecycle import Lifecycle
from bolide.client.instance.lookups import LookupMethods
from bolide.client.instance.routes import Fallback
from bolide.client.instance.settings import ClientSettings
from bolide.client.instance.validation import check_group
from bolide.client.producer.back_pressure import BackPressure, InFlightCalls
from bolide.client.producer.express import Express
from bolide.client.producer.hooks import ForbiddenHook, SendHook
from bolide.client.producer.outgoing import Batches, Outgoing, Packer
from bolide.client.producer.queue_choice import Faults, KeyedQueues
from bolide.client.producer.request_reply import Requests, as_request, reply_to
from bolide.client.producer.results import SendResult
from bolide.client.producer.selectors import QueueSelector, by_hash, dedup_queue
from bolide.client.producer.sending import Sending
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
    """How a message is sent.

    `timeout` is the seconds for all of it, tries and waiting included. `queue` says where it goes,
    `selector` chooses the queue by the message and `key`; a `key` alone goes by its hash. With any
    of these there is one try; else the queues take turns, and other brokers are tried. A message
    with a `dedup_key` goes to the queue of that, unless one of these says another; that queue is
    tried until the time is over, and no other one.
    """

    timeout: float | None
    queue: MessageQueue | None
    selector: QueueSelector | None
    key: Any


class Producer(LookupMethods):
    """Sends messages while its `async with` block runs.

    It starts whether or not the cluster can be reached; sends fail until it can.
    """

    def __init__(self, group: str, **arguments: Unpack[ProducerArguments]) -> None:
        """Say who sends, and how; `ClientSettings` and `ProducerSettings` tell the arguments.

        Raises:
            ConfigError: one cannot be used; names it.
        """
        check_group(group)
        given: dict[str, Any] = dict(arguments)
        own = {name: given.pop(name) for name in SETTING_NAMES & given.keys()}
        self.group = group
        self.settings = ProducerSettings(**own)
        self._client = ClientSettings.of(**given).with_own_name()
        self._life = Lifecycle("producer", group)
        self._packer = Packer(group, self._client, self.settings)
        self._pressure = BackPressure(
            self.settings.max_sends_under_way, self.settings.max_bytes_under_way
        )
        self._fallback = Fallback(
            self.settings.create_topic_key, self.settings.default_topic_queue_nums
        )
        self._keyed_queues = KeyedQueues()
        self._under_way = InFlightCalls()
        self._topics: set[str] = set()
        self._telemetry = self.settings.telemetry or NoTelemetry()
        self._send_hooks: list[SendHook] = []
        self.tracing: TraceSender | None = None
        """What sends the trace, if `trace` was asked for; its `dropped` counts what was lost."""
        self._forbidden_hooks: list[ForbiddenHook] = []

    # Start and end

    async def start(self) -> None:
        """Begin; `async with` does so.

        Raises:
            WrongState: it was started before.
            GroupTaken: another producer of the group shares the instance.
            ConfigError: a client of the same `instance_name` has other settings.
        """
        self._life.begin()
        try:
            self._instance = await self._joined()
        except BaseException:
            self._life.fail()
            raise
        self._loop = asyncio.get_running_loop()
        faults = Faults(self.settings.fault_table, self._loop.time)
        self._sending = Sending(
            self._instance,
            self.settings,
            faults if self.settings.latency_faults else None,
            group=self.group,
            send_hooks=self._send_hooks,
            forbidden_hooks=self._forbidden_hooks,
        )
        self._express = self._make_express()
        group = self._client.wrap(self.group)
        self._requests = Requests(self._instance, group, self._topics)
        if trace := Trace.of(self.settings.trace):
            self.tracing = TraceSender(trace, self._instance, group, "PRODUCE")
            self.tracing.start()
            self._send_hooks.append(SendTrace(self.tracing))

    async def close(self) -> None:
        """Wait for the sends under way, `send_timeout` at most, and end; `async with` does so.

        A second time does nothing.
        """
        if not self._life.end():
            return
        async with AsyncExitStack() as leaving:
            leaving.push_async_callback(self._instance.release)
            leaving.push_async_callback(
                self._instance.remove_producer, self._client.wrap(self.group)
            )
            if self.tracing is not None:
                leaving.push_async_callback(self.tracing.close)
            leaving.callback(self._requests.close)
            await self._under_way.finish(self.settings.send_timeout)

    async def _joined(self) -> ClientInstance:
        instance = await ClientInstance.acquire(self._client)
        try:
            instance.add_producer(self._client.wrap(self.group), self)
        except BaseException:
            await instance.release()
            raise
        return instance

    def _make_express(self) -> Express | None:
        """None if all sends take the ordinary way: somebody wants to see them."""
        settings = self.settings
        if settings.telemetry is not None or settings.latency_faults or self._client.access_key:
            return None
        return Express(
            self._instance, settings, self._packer, self._sending, self._pressure, self._topics
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
        """Send one message, or several as `send_batch` does, and wait until it is stored.

        Raises:
            InvalidMessage: no broker would take it; names the field.
            SendFailed: no try succeeded; names the brokers, and the last failure is the cause.
            RouteNotFound: no broker has the topic.
            NoNameServer: there is nobody to ask for the route.
            Refusal: the broker refused, and no other one would do better.
        """
        if not isinstance(message, Message):
            return await self.send_batch(message, **how)
        self._life.require_running()
        if self._express is not None and how.keys() <= _PLAIN_ARGUMENTS:
            sent = self._express.post(message, how.get("timeout"))
            if sent is not None:
                with self._under_way:
                    return await sent
        with self._under_way, self._telemetry.sending(self.client_id, (message,)) as span:
            deadline = self._deadline(how)
            outgoing = await self._packer.pack(span.messages[0])
            result = await self._send(outgoing, deadline, how)
            span.sent((result,))
            return result

    async def send_batch(
        self, messages: Iterable[Message], *, split: bool = True, **how: Unpack[SendArguments]
    ) -> list[SendResult]:
        """Send messages of one topic together, in as few requests as size and number allow.

        Those with a `dedup_key` are sent queue by queue, in their order within each.

        Args:
            messages: what to send; all of one topic and one wait flag, none delayed, all with a
                `dedup_key` or none.
            split: False refuses a list that one request cannot hold.
            how: as in `send`, for each request.

        Returns:
            One result for each request, in order.

        Raises:
            InvalidMessage: they cannot be sent together; names the field.
            BatchPartlySent: some requests succeeded, one did not; the cause tells why.
            BolideError: as `send`, if the first request failed.
        """
        self._life.require_running()
        given = list(messages)
        with self._under_way, self._telemetry.sending(self.client_id, given) as span:
            given = list(span.messages)
            whole = Batches(self._packer, given, split=split)
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
                while outgoing := await batches.next():
                    results.append(await self._send(outgoing, self._deadline(how), how))
                    sent += len(outgoing.messages)
        except BolideError as exc:
            if not results:
                raise
            raise BatchPartlySent(results, sent, left - sent, keyed=keyed) from exc
        return results

    async def send_encoded(
        self, topic: str, body: bytes, **how: Unpack[SendArguments]
    ) -> SendResult:
        """Send a batch that the caller encoded as `protocol.batch` says; nothing is checked.

        For bulk writers: a fifth of the work of `send_batch`. Every message must have its own
        `UNIQ_KEY` (`outgoing.make_ids`); the result tells no message ids. Raises as `send` does.
        """
        self._life.require_running()
        with self._under_way:
            outgoing = self._packer.pack_encoded(topic, body)
            return await self._send(outgoing, self._deadline(how), how)

    async def send_oneway(self, message: Message, **how: Unpack[SendArguments]) -> None:
        """Send without waiting for the broker: nobody says whether it was stored.

        Raises as `send` does if it could not even be handed to a connection.
        """
        self._life.require_running()
        if self._express is not None and not how and self._express.throw(message):
            return
        with self._under_way, self._telemetry.sending(self.client_id, (message,)) as span:
            deadline = self._deadline(how)
            outgoing = await self._packer.pack(span.messages[0])
            chosen = await self._chosen(outgoing, deadline, how)
            self._topics.add(outgoing.topic)
            await self._sending.throw(outgoing, chosen, deadline)

    async def request(self, message: Message, **how: Unpack[SendArguments]) -> StoredMessage:
        """Send a message and wait for the reply to it; `timeout` is for both.

        Whoever consumes the message answers with `reply`. A reply that comes later is dropped.

        Raises:
            RequestTimedOut: it was sent, and no reply came in time.
            BolideError: as `send` does.
        """
        self._life.require_running()
        with self._under_way, self._telemetry.sending(self.client_id, (message,)) as span:
            deadline = self._deadline(how)
            asked = as_request(span.messages[0], self.client_id, deadline - self._loop.time())
            outgoing = await self._packer.pack(asked)
            await self._queues(outgoing.topic, deadline, message.topic)
            await self._requests.make_known(outgoing.topic, deadline)
            sent = self._send(outgoing, deadline, how)
            return await self._requests.ask(asked, sent, deadline, lambda one: span.sent((one,)))

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
        """Answer a message that was sent by `request`, and wait until its sender has the answer.

        Raises:
            CannotReply: it is no request; names what is missing.
            SendFailed: the one who asked is gone, or cannot be reached.
            BolideError: as `send` does.
        """
        answer = reply_to(request, body, tags=tags, keys=keys, properties=properties)
        return await self.send(answer, **how)

    async def recall(self, topic: str, handle: str | None) -> str:
        """Take back a message that waits for its time, by `recall_handle` of its send.

        Returns:
            The id of the message.

        Raises:
            BadRecallHandle: it is no such handle, or None: the message did not wait.
            IllegalOperation: the time is over, or the handle is of another topic.
            NoPermission: the broker allows no recalls.
        """
        lookups = self._running().lookups
        if handle is None:
            raise BadRecallHandle(handle)
        with traced_recall(self.tracing, self.group, topic, handle):
            return await lookups.recall(
                self._client.wrap(topic), handle, self._client.wrap(self.group)
            )

    async def _send(self, outgoing: Outgoing, deadline: float, how: SendArguments) -> SendResult:
        size = len(outgoing.body)
        if not self._pressure.try_enter(size):
            async with self._sending.until(deadline, outgoing.messages[0].topic):
                await self._pressure.enter(size)
        try:
            queues = self._instance.routes.find_publish_queues(outgoing.topic)
            free = queues and not how and not outgoing.is_keyed
            chosen = queues if queues and free else await self._chosen(outgoing, deadline, how)
            self._topics.add(outgoing.topic)
            return await self._sending.send(outgoing, chosen, deadline)
        finally:
            self._pressure.leave(size)

    async def _chosen(
        self, outgoing: Outgoing, deadline: float, how: SendArguments
    ) -> MessageQueue | Sequence[MessageQueue]:
        """The one queue it must go to, or all that it may go to."""
        message = outgoing.messages[0]
        queues = await self._queues(outgoing.topic, deadline, message.topic)
        if not _names_queue(how):
            key = message.dedup_key
            return queues if key is None else dedup_queue(key, self._keyed_queues.of(queues))
        queue = how.get("queue")
        if queue is None:
            shown = [self._unwrapped(each) for each in queues]
            queue = (how.get("selector") or by_hash)(shown, message, how.get("key"))
        return self._wrapped(queue)

    async def _queues(self, topic: str, deadline: float, shown: str) -> Sequence[MessageQueue]:
        """All queues that messages of a topic may go to; `shown` is what the user calls it."""
        queues = self._instance.routes.find_publish_queues(topic)
        if queues:
            return queues
        async with self._sending.until(deadline, shown):
            return await self._instance.routes.publish_queues(topic, self._fallback)

    def _deadline(self, how: SendArguments) -> float:
        seconds = how.get("timeout") if how else None
        return self._loop.time() + (self.settings.send_timeout if seconds is None else seconds)

    # Hooks and queues

    def add_send_hook(self, hook: SendHook) -> None:
        """Have `hook` see every try of a send from now on."""
        self._send_hooks.append(hook)

    def add_forbidden_hook(self, hook: ForbiddenHook) -> None:
        """Have `hook` asked before every try whether it is allowed; it raises if not."""
        self._forbidden_hooks.append(hook)

    async def fetch_publish_queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages of a topic may be sent to.

        Raises:
            RouteNotFound: the topic does not exist, or none of its queues is writable.
            NoNameServer: there is nobody to ask.
        """
        routes, name = self._running().routes, self._client.wrap(topic)
        await routes.refresh(name)
        return [self._unwrapped(queue) for queue in await routes.publish_queues(name)]

    def topics(self) -> Collection[str]:
        """For the instance: the topics whose routes are kept fresh."""
        return self._topics


def _names_queue(how: SendArguments) -> bool:
    return any(how.get(name) is not None for name in ("queue", "selector", "key"))
