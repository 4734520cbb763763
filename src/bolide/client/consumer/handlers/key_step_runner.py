"""Runs the steps of a `KeyScheduler`: calls handlers, writes park records, sends dead letters."""

import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from msgspec import structs

from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.handlers.handler import Outcome
from bolide.client.consumer.handlers.invocation import ConsumerRuntime
from bolide.client.consumer.handlers.key_scheduler import (
    CallHandler,
    DeadLetterParked,
    KeyScheduler,
    ParkKeyAgain,
    ParkMessage,
    ReplayParked,
    RewriteParked,
    SkipParked,
    Step,
)
from bolide.client.consumer.handlers.ordered import OrderedCall, dead_letter, pause_after
from bolide.client.consumer.parking.park import AFTER_FAILURE, Park, Superseded
from bolide.client.consumer.parking.parked_keys import ParkedMessage
from bolide.client.consumer.parking.records import error_text
from bolide.errors import BolideError
from bolide.model.message import StoredMessage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How often a message is retried, and how long its key waits between two tries."""

    max_times: int | None
    """None retries without end."""
    suspend: float

    def is_exhausted(self, message: StoredMessage, outcome: Outcome) -> bool:
        if outcome.delay_level < 0:
            return True
        return self.max_times is not None and message.reconsume_times >= self.max_times


class KeyStepRunner:
    """Runs steps for one held queue; the caller runs the steps of each key in sequence.

    Args:
        park: None if failing keys are not parked: then a failing message blocks its key, or
            becomes a dead letter after `max_times`.
    """

    def __init__(
        self,
        held: HeldQueue,
        topic: str,
        runtime: ConsumerRuntime,
        scheduler: KeyScheduler,
        park: Park | None,
        rules: RetryRules,
    ) -> None:
        self._held = held
        self._topic = topic
        self._runtime = runtime
        self._scheduler = scheduler
        self._park = park
        self._rules = rules
        self._replays: dict[str, int] = {}  # failures of the first parked message of each key

    @property
    def park(self) -> Park:
        assert self._park is not None
        return self._park

    async def run(self, key: str, step: Step) -> float:
        """Run one step; return how many seconds the key waits before its next one.

        Raises:
            Superseded: the queue belongs to another member now.
        """
        try:
            with self._in_flight():
                return await self._run(key, step)
        except Superseded:
            raise
        except BolideError as exc:
            text = "%s: key %r of %s waits: %s"
            group, queue = self._runtime.group, self._held.queue
            self._runtime.throttled.warning("park", text, group, key, queue, exc)
            return AFTER_FAILURE

    async def _run(self, key: str, step: Step) -> float:
        match step:
            case CallHandler(messages):
                return await self._handle(key, messages)
            case SkipParked(message):
                self._done(key, [message])
            case ParkMessage():
                await self._park_message(key, step)
            case ReplayParked(entry):
                return await self._replay(key, entry)
            case DeadLetterParked(entry):
                return await self._dead_letter(key, entry)
            case ParkKeyAgain(error):
                await self.park.block(key, error)
                self._scheduler.clear_poison(key)
            case RewriteParked():
                await self._rewrite(key, step)
        return 0.0

    # Pulled messages

    async def _handle(self, key: str, messages: Sequence[StoredMessage]) -> float:
        outcome = await self._call(messages)
        if outcome is None:
            return 0.0
        self._done(key, messages[: outcome.done])
        return await self._retry(key, list(messages[outcome.done :]), outcome)

    async def _retry(self, key: str, failed: list[StoredMessage], outcome: Outcome) -> float:
        """Count the failure of the first messages; return the seconds until the next try."""
        while failed and self._rules.is_exhausted(failed[0], outcome):
            if self._park is not None:
                self._scheduler.set_poison(key, error_text(outcome.error))
                return 0.0
            if not await dead_letter(self._runtime, failed[0]):
                break
            self._done(key, [failed.pop(0)])
        if not failed:
            return 0.0
        again = [structs.replace(m, reconsume_times=m.reconsume_times + 1) for m in failed]
        for message in again:
            self._held.process.replace(message)
        self._scheduler.replace_first(key, again)
        return pause_after(outcome, self._rules.suspend)

    async def _park_message(self, key: str, step: ParkMessage) -> None:
        if step.since_ms is None:
            text = "%s: key %r of %s is parked: %s"
            log.warning(text, self._runtime.group, key, self._held.queue, step.error)
        since_ms = int(time.time() * 1000) if step.since_ms is None else step.since_ms
        await self.park.put(key, step.message, step.error, since_ms)
        self._scheduler.clear_poison(key)
        self._done(key, [step.message])

    def _done(self, key: str, messages: Sequence[StoredMessage]) -> None:
        self._scheduler.done(key, len(messages))
        self._held.done(messages)

    # Parked messages

    async def _replay(self, key: str, entry: ParkedMessage) -> float:
        message = await self._find(key, entry)
        if message is None:
            return 0.0
        times = self._replays.get(key, 0)
        outcome = await self._call([structs.replace(message, reconsume_times=times)])
        if outcome is None:
            return 0.0
        if outcome.done:
            self._replays.pop(key, None)
            await self._retry_until_written(lambda: self.park.done(key, entry.queue_offset))
            return 0.0
        if self._rules.is_exhausted(structs.replace(message, reconsume_times=times), outcome):
            self._replays.pop(key, None)
            self._scheduler.set_poison(key, error_text(outcome.error))
            return 0.0
        self._replays[key] = times + 1
        return pause_after(outcome, self._rules.suspend)

    async def _dead_letter(self, key: str, entry: ParkedMessage) -> float:
        message = await self._find(key, entry)
        if message is None:
            return 0.0
        if not await dead_letter(self._runtime, message):
            return AFTER_FAILURE
        await self._retry_until_written(lambda: self.park.done(key, entry.queue_offset))
        return 0.0

    async def _find(self, key: str, entry: ParkedMessage) -> StoredMessage | None:
        """The parked message; one that was deleted or has expired is finished, returning None."""
        message = await self.park.find(entry, self._topic)
        if message is None:
            text = "%s: a parked message of key %r was deleted; it was at offset %d of %s"
            log.error(text, self._runtime.group, key, entry.queue_offset, self._held.queue)
        elif message.expires_at is None or message.expires_at > time.time():
            return message
        await self._retry_until_written(lambda: self.park.done(key, entry.queue_offset))
        return None

    async def _rewrite(self, key: str, step: RewriteParked) -> None:
        for entry in step.entries:
            await self.park.rewrite(entry)
        if step.dead_through is not None:
            await self.park.resume(key, step.dead_through)
        self._scheduler.rewritten(key)

    # Shared

    async def _call(self, messages: Sequence[StoredMessage]) -> Outcome | None:
        """Have the handler called; None if the call was withdrawn before it began."""
        handler = self._runtime.handlers.get(self._topic)
        if handler is None:
            return None
        call = OrderedCall(handler, messages, self._held, self._runtime)
        self._held.begin(call)
        try:
            self._runtime.workers.submit(call)
            outcome = await call.outcome
        finally:
            self._held.end(call)
        if outcome is not None:
            self._runtime.record(call, self._held, outcome)
            call.context.outcome = outcome
            self._runtime.hooks.after(call.context)
        return outcome

    async def _retry_until_written(self, write: Callable[[], Awaitable[None]]) -> None:
        """Repeat a write until it succeeds: without it a handler would get its message again."""
        while True:
            try:
                return await write()
            except Superseded:
                raise
            except BolideError as exc:
                self._runtime.throttled.warning("park", "%s: %s", self._runtime.group, exc)
                await self._held.sleep(AFTER_FAILURE)
                if self._held.is_dropped:
                    raise

    @contextmanager
    def _in_flight(self) -> Iterator[None]:
        """Keep the queue busy: its next holder waits until the step has ended."""
        token = object()
        self._held.begin(token)
        try:
            yield
        finally:
            self._held.end(token)
