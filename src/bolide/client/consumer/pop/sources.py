"""Where a pop consumer gets messages: every broker of every topic it wants, asked in turn.

One that has nothing is not asked again and again: a notification waits there, and as long as it
does, the source is known to be dry. So nothing is popped ahead that nobody may ever ask for.
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
_WATCH = 20.0
_QUICK = 0.01
_LONGEST_STALL = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveOptions:
    """What a call of `receive` asks for; seconds."""

    max_count: int
    invisible: float
    from_first: bool
    is_ordered: bool


class PopSource:
    """One broker of one topic."""

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.watching: asyncio.Task[None] | None = None
        """Waits at the broker for something to pop."""
        self.failure: BolideError | None = None
        self.lost: list[str] = []
        """Ids of ordered pops whose answers were lost on the way: asked again, they come again."""

    @property
    def is_dry(self) -> bool:
        return self.watching is not None and not self.watching.done()

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
        attempt_id = self.lost.pop() if self.lost else uuid.uuid4().hex
        try:
            yield attempt_id
        except BaseException:
            self.lost.append(attempt_id)
            raise


class PopSources:
    """Finds messages for one consumer."""

    def __init__(self, member: Membership, popper: Popper, receipts: Receipts) -> None:
        self._member = member
        self._popper = popper
        self._receipts = receipts
        self._sources: dict[MessageQueue, PopSource] = {}
        self._turn = 0
        self._throttled = ThrottledLog(log)

    async def receive(self, options: ReceiveOptions, wait: float) -> list[StoredMessage]:
        """The first messages found; none if there are none within so many seconds.

        Raises:
            PopNotSupported: a broker is too old.
            RouteNotFound: nobody has any of the topics.
            BolideError: a broker refused, or none of them answers.
        """
        now = asyncio.get_running_loop().time
        deadline, stalls = now() + wait, 0
        while True:
            begun, sources = now(), await self._current()
            # A single broker can hold the pop itself: that saves a request.
            held = max(0.0, deadline - begun) if len(sources) == 1 else 0.0
            if found := await self._look(sources, options, held):
                return found
            left = deadline - now()
            if left <= 0:
                return self._nothing(sources)
            await self._pause(sources, options, left)
            # Answers at once without messages must not become a busy loop.
            stalls = stalls + 1 if now() - begun < _QUICK else 0
            if stalls > 1:
                await asyncio.sleep(min(left, _LONGEST_STALL, _QUICK * stalls))

    async def close(self) -> None:
        watching = [source.watching for source in self._sources.values() if source.watching]
        for task in watching:
            task.cancel()
        if watching:
            await asyncio.wait(watching)

    async def _current(self) -> list[PopSource]:
        """One for each broker that has one of the topics, the next in turn first."""
        queues: list[MessageQueue] = []
        missing: BolideError | None = None
        for topic in self._member.filters:
            try:
                found = await self._member.instance.routes.subscribe_queues(topic)
            except RouteNotFound as exc:
                missing = exc
                continue
            names = sorted({queue.broker_name for queue in found})
            queues += [MessageQueue(topic, name, ALL_QUEUES) for name in names]
        if not queues and missing is not None:
            raise missing
        self._turn += 1
        at = self._turn % max(1, len(queues))
        return [self._source(queue) for queue in queues[at:] + queues[:at]]

    def _source(self, queue: MessageQueue) -> PopSource:
        return self._sources.setdefault(queue, PopSource(queue))

    async def _look(
        self, sources: list[PopSource], options: ReceiveOptions, held: float
    ) -> list[StoredMessage]:
        for source in sources:
            if source.is_dry and not held:
                continue
            result = await self._try(source, options, held)
            if result is not None and result.unwanted:
                with suppress(BolideError):  # they come again, and are sorted out again
                    await self._receipts.ack(result.unwanted)
            if result is not None and result.messages:
                return list(result.messages)
        return []

    async def _try(
        self, source: PopSource, options: ReceiveOptions, held: float
    ) -> PopResult | None:
        """None if the broker cannot be asked now."""
        wanted = self._member.filters.get(source.queue.topic)
        if wanted is None:
            return None
        try:
            result = await self._pop(source, options, wanted, held)
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
                ("full", source.queue), "too many pops wait at %s", source.queue
            )
        return result

    async def _pop(
        self, source: PopSource, options: ReceiveOptions, wanted: Filter, held: float
    ) -> PopResult:
        if not options.is_ordered:
            return await self._popper.pop(source.pop(options, wanted, held))
        async with source.attempt() as attempt_id:
            return await self._popper.pop(source.pop(options, wanted, held, attempt_id))

    async def _pause(self, sources: list[PopSource], options: ReceiveOptions, left: float) -> None:
        """Wait until it makes sense to look again."""
        if len(sources) > 1:
            await self._watch(sources, options, left)
        elif any(source.failure for source in sources):
            await asyncio.sleep(min(left, _AFTER_FAILURE))

    async def _watch(self, sources: list[PopSource], options: ReceiveOptions, left: float) -> None:
        waiting = []
        for source in sources:
            wanted = self._member.filters.get(source.queue.topic)
            if wanted is None:
                continue
            if not source.is_dry:
                question = source.pop(options, wanted, _WATCH)
                name = f"bolide-pop-watch-{source.queue}"
                source.watching = asyncio.create_task(self._ask(question), name=name)
            assert source.watching is not None
            waiting.append(source.watching)
        if waiting:  # or all was unsubscribed from just now
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    async def _ask(self, question: Pop) -> None:
        """End when there may be messages, or the broker has waited long enough."""
        try:
            await self._popper.has_messages(question)
        except BolideError as exc:
            log.debug("no notification of %s: %s", question.queue, exc)
            await asyncio.sleep(_AFTER_FAILURE)

    @staticmethod
    def _nothing(sources: list[PopSource]) -> list[StoredMessage]:
        failures = [source.failure for source in sources if source.failure is not None]
        if failures and len(failures) == len(sources):
            raise failures[0]
        return []
