"""The sources of a pop consumer: every broker of every subscribed topic, popped round-robin.

An empty source is not polled again and again: a NOTIFICATION request waits at the broker, and the
source counts as empty until it returns. Messages are never popped ahead of a `receive`.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from bolide.client.consumer.group.membership import Membership
from bolide.client.consumer.pop.pop_request import ALL_QUEUES, Pop, Popper, PopResult, PopStatus
from bolide.client.consumer.pop.receipts import Receipts
from bolide.client.consumer.subscription import Filter
from bolide.client.errors import PopNotSupported, RouteNotFound
from bolide.errors import BolideError
from bolide.logs import ThrottledLog
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.refusals import Refusal

log = logging.getLogger(__name__)

_AFTER_FAILURE = 1.0
_NOTIFICATION_WAIT = 20.0
_IMMEDIATE = 0.01
_MAX_BACK_OFF = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveOptions:
    """Options of one `receive`; durations in seconds."""

    max_count: int
    invisible: float
    from_first: bool
    is_ordered: bool


class PopSource:
    """One broker of one topic."""

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.notification: asyncio.Task[None] | None = None
        """Waits at the broker for a message to pop."""
        self.failure: BolideError | None = None
        self.lost_attempts: list[str] = []
        """Ids of ordered pops whose replies were lost; repeating one returns its messages."""

    @property
    def is_empty(self) -> bool:
        return self.notification is not None and not self.notification.done()

    def pop(
        self, options: ReceiveOptions, wanted: Filter, wait: float, attempt_id: str | None = None
    ) -> Pop:
        return Pop(
            queue=self.queue,
            filter=wanted,
            max_count=options.max_count,
            invisible=options.invisible,
            wait=wait,
            from_first=options.from_first,
            is_ordered=options.is_ordered,
            attempt_id=attempt_id,
        )

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[str]:
        attempt_id = self.lost_attempts.pop() if self.lost_attempts else uuid.uuid4().hex
        try:
            yield attempt_id
        except BaseException:
            self.lost_attempts.append(attempt_id)
            raise


class PopSources:
    """Finds messages for one pop consumer."""

    def __init__(self, member: Membership, popper: Popper, receipts: Receipts) -> None:
        self._member = member
        self._popper = popper
        self._receipts = receipts
        self._sources: dict[MessageQueue, PopSource] = {}
        self._turn = 0
        self._throttled = ThrottledLog(log)

    async def receive(self, options: ReceiveOptions, wait: float) -> list[StoredMessage]:
        """The first messages found; empty if none arrive within `wait` seconds.

        Raises:
            PopNotSupported: a broker is too old.
            RouteNotFound: none of the topics exists.
            BolideError: a broker refused, or none answered.
        """
        now = asyncio.get_running_loop().time
        deadline, stalls = now() + wait, 0
        while True:
            began, sources = now(), await self._current()
            # A single broker can suspend the pop itself, which saves a request.
            suspend = max(0.0, deadline - began) if len(sources) == 1 else 0.0
            if messages := await self._pop_first(sources, options, suspend):
                return messages
            left = deadline - now()
            if left <= 0:
                return self._no_messages(sources)
            await self._pause(sources, options, left)
            # Back off from immediate empty replies, to avoid a busy loop.
            stalls = stalls + 1 if now() - began < _IMMEDIATE else 0
            if stalls > 1:
                await asyncio.sleep(min(left, _MAX_BACK_OFF, _IMMEDIATE * stalls))

    async def close(self) -> None:
        notification = [
            source.notification for source in self._sources.values() if source.notification
        ]
        for task in notification:
            task.cancel()
        if notification:
            await asyncio.wait(notification)

    async def _current(self) -> list[PopSource]:
        """One source per topic and broker, rotated by one on each call."""
        queues: list[MessageQueue] = []
        missing: BolideError | None = None
        for topic in self._member.filters:
            try:
                names = await self._member.instance.routes.readable_brokers(topic)
            except RouteNotFound as exc:
                missing = exc
                continue
            queues += [MessageQueue(topic, name, ALL_QUEUES) for name in names]
        if not queues and missing is not None:
            raise missing
        self._turn += 1
        at = self._turn % max(1, len(queues))
        return [self._source(queue) for queue in queues[at:] + queues[:at]]

    def _source(self, queue: MessageQueue) -> PopSource:
        return self._sources.setdefault(queue, PopSource(queue))

    async def _pop_first(
        self, sources: list[PopSource], options: ReceiveOptions, suspend: float
    ) -> list[StoredMessage]:
        for source in sources:
            if source.is_empty and not suspend:
                continue
            result = await self._try_pop(source, options, suspend)
            if result is not None and result.unwanted:
                with suppress(BolideError):  # they are redelivered and filtered again
                    await self._receipts.ack(result.unwanted)
            if result is not None and result.messages:
                return list(result.messages)
        return []

    async def _try_pop(
        self, source: PopSource, options: ReceiveOptions, suspend: float
    ) -> PopResult | None:
        """None if the broker cannot be popped now."""
        wanted = self._member.filters.get(source.queue.topic)
        if wanted is None:
            return None
        try:
            result = await self._pop(source, options, wanted, suspend)
        except PopNotSupported:
            raise
        except BolideError as exc:
            if isinstance(exc, Refusal) and not exc.retriable:
                raise
            self._throttled.warning(source.queue, "popping %s fails: %s", source.queue, exc)
            source.failure = exc
            return None
        source.failure = None
        if result.status is PopStatus.FULL:
            self._throttled.warning(
                ("full", source.queue), "%s suspends too many pops", source.queue
            )
        return result

    async def _pop(
        self, source: PopSource, options: ReceiveOptions, wanted: Filter, suspend: float
    ) -> PopResult:
        if not options.is_ordered:
            return await self._popper.pop(source.pop(options, wanted, suspend))
        async with source.attempt() as attempt_id:
            return await self._popper.pop(source.pop(options, wanted, suspend, attempt_id))

    async def _pause(self, sources: list[PopSource], options: ReceiveOptions, left: float) -> None:
        """Wait until another pop may find messages."""
        if len(sources) > 1:
            await self._wait_for_any(sources, options, left)
        elif any(source.failure for source in sources):
            await asyncio.sleep(min(left, _AFTER_FAILURE))

    async def _wait_for_any(
        self, sources: list[PopSource], options: ReceiveOptions, left: float
    ) -> None:
        waiting = []
        for source in sources:
            wanted = self._member.filters.get(source.queue.topic)
            if wanted is None:
                continue
            if not source.is_empty:
                request = source.pop(options, wanted, _NOTIFICATION_WAIT)
                name = f"bolide-pop-watch-{source.queue}"
                source.notification = asyncio.create_task(self._wait_at_broker(request), name=name)
            assert source.notification is not None
            waiting.append(source.notification)
        if waiting:  # empty if all topics were unsubscribed meanwhile
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    async def _wait_at_broker(self, request: Pop) -> None:
        """Return when there may be messages, or after the broker's wait timed out."""
        try:
            await self._popper.has_messages(request)
        except BolideError as exc:
            log.debug("no notification of %s: %s", request.queue, exc)
            await asyncio.sleep(_AFTER_FAILURE)

    @staticmethod
    def _no_messages(sources: list[PopSource]) -> list[StoredMessage]:
        failures = [source.failure for source in sources if source.failure is not None]
        if failures and len(failures) == len(sources):
            raise failures[0]
        return []
