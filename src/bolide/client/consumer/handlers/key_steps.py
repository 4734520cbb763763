"""Do the steps that lanes ask for: call handlers, write to the park topic, make dead letters."""

import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from msgspec import structs

from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.handlers.handler import Outcome
from bolide.client.consumer.handlers.invocation import Consumption
from bolide.client.consumer.handlers.key_scheduler import (
    Bury,
    Consume,
    KeyScheduler,
    ParkAgain,
    Pass,
    Refresh,
    Replay,
    SetAside,
    Step,
)
from bolide.client.consumer.handlers.ordered import OrderedJob, is_sent_away, pause_after
from bolide.client.consumer.parking.park import AFTER_FAILURE, Park, Superseded
from bolide.client.consumer.parking.parked_keys import Entry
from bolide.client.consumer.parking.records import error_text
from bolide.errors import BolideError
from bolide.model.message import StoredMessage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetryRules:
    """When a message has failed for good, and how long to wait until then."""

    max_times: int | None
    """None tries for ever."""
    suspend: float

    def is_worn_out(self, message: StoredMessage, outcome: Outcome) -> bool:
        if outcome.delay_level < 0:
            return True
        return self.max_times is not None and message.reconsume_times >= self.max_times


class KeySteps:
    """Does the steps of one tenure, for each key one after the other.

    Args:
        park: None if failing keys are not parked: then they hold up their lane, or become dead
            letters after `max_times`.
    """

    def __init__(
        self,
        held: HeldQueue,
        topic: str,
        common: Consumption,
        lanes: KeyScheduler,
        park: Park | None,
        rules: RetryRules,
    ) -> None:
        self._held = held
        self._topic = topic
        self._common = common
        self._lanes = lanes
        self._park = park
        self._rules = rules
        self._replays: dict[str, int] = {}  # how often the first message set aside failed

    @property
    def park(self) -> Park:
        assert self._park is not None
        return self._park

    async def perform(self, key: str, step: Step) -> float:
        """Do one step; how many seconds the key waits before its next one.

        Raises:
            Superseded: the queue is another member's now.
        """
        try:
            with self._under_way():
                return await self._perform(key, step)
        except Superseded:
            raise
        except BolideError as exc:
            text = "%s: key %r of %s waits: %s"
            self._common.rare.warning("park", text, self._common.group, key, self._held.queue, exc)
            return AFTER_FAILURE

    async def _perform(self, key: str, step: Step) -> float:
        match step:
            case Consume(messages):
                return await self._consume(key, messages)
            case Pass(message):
                self._done(key, [message])
            case SetAside():
                await self._set_aside(key, step)
            case Replay(entry):
                return await self._replay(key, entry)
            case Bury(entry):
                return await self._bury(key, entry)
            case ParkAgain(error):
                await self.park.block(key, error)
                self._lanes.is_parked_now(key)
            case Refresh():
                await self._refresh(key, step)
        return 0.0

    # What was pulled

    async def _consume(self, key: str, messages: Sequence[StoredMessage]) -> float:
        outcome = await self._call(messages)
        if outcome is None:
            return 0.0
        self._done(key, messages[: outcome.done])
        return await self._retry(key, list(messages[outcome.done :]), outcome)

    async def _retry(self, key: str, failed: list[StoredMessage], outcome: Outcome) -> float:
        """Count the failure of the first messages; how long to wait before they come again."""
        while failed and self._rules.is_worn_out(failed[0], outcome):
            if self._park is not None:
                self._lanes.poisoned(key, error_text(outcome.error))
                return 0.0
            if not await is_sent_away(self._common, failed[0]):
                break
            self._done(key, [failed.pop(0)])
        if not failed:
            return 0.0
        again = [structs.replace(m, reconsume_times=m.reconsume_times + 1) for m in failed]
        for message in again:
            self._held.process.replace(message)
        self._lanes.again(key, again)
        return pause_after(outcome, self._rules.suspend)

    async def _set_aside(self, key: str, step: SetAside) -> None:
        if step.since_ms is None:
            text = "%s: key %r of %s is set aside: %s"
            log.warning(text, self._common.group, key, self._held.queue, step.error)
        since_ms = int(time.time() * 1000) if step.since_ms is None else step.since_ms
        await self.park.put(key, step.message, step.error, since_ms)
        self._lanes.is_parked_now(key)
        self._done(key, [step.message])

    def _done(self, key: str, messages: Sequence[StoredMessage]) -> None:
        self._lanes.done(key, len(messages))
        self._held.done(messages)

    # What was set aside

    async def _replay(self, key: str, entry: Entry) -> float:
        message = await self._find(key, entry)
        if message is None:
            return 0.0
        times = self._replays.get(key, 0)
        outcome = await self._call([structs.replace(message, reconsume_times=times)])
        if outcome is None:
            return 0.0
        if outcome.done:
            self._replays.pop(key, None)
            await self._insist(lambda: self.park.done(key, entry.offset))
            return 0.0
        if self._rules.is_worn_out(structs.replace(message, reconsume_times=times), outcome):
            self._replays.pop(key, None)
            self._lanes.poisoned(key, error_text(outcome.error))
            return 0.0
        self._replays[key] = times + 1
        return pause_after(outcome, self._rules.suspend)

    async def _bury(self, key: str, entry: Entry) -> float:
        message = await self._find(key, entry)
        if message is None:
            return 0.0
        if not await is_sent_away(self._common, message):
            return AFTER_FAILURE
        await self._insist(lambda: self.park.done(key, entry.offset))
        return 0.0

    async def _find(self, key: str, entry: Entry) -> StoredMessage | None:
        """The message that was set aside; without one, or if its time is over, that is that."""
        message = await self.park.find(entry, self._topic)
        if message is None:
            text = "%s: a message of key %r that was set aside is gone; it was at offset %d of %s"
            log.error(text, self._common.group, key, entry.offset, self._held.queue)
        elif message.expires_at is None or message.expires_at > time.time():
            return message
        await self._insist(lambda: self.park.done(key, entry.offset))
        return None

    async def _refresh(self, key: str, step: Refresh) -> None:
        for entry in step.entries:
            await self.park.refresh(entry)
        if step.dead_through is not None:
            await self.park.resume(key, step.dead_through)
        self._lanes.refreshed(key)

    # How

    async def _call(self, messages: Sequence[StoredMessage]) -> Outcome | None:
        """Have the handler called; None if the call was withdrawn before it began."""
        handler = self._common.handlers.get(self._topic)
        if handler is None:
            return None
        job = OrderedJob(handler, messages, self._held, self._common)
        self._held.begin(job)
        try:
            self._common.workers.submit(job)
            outcome = await job.outcome
        finally:
            self._held.end(job)
        if outcome is not None:
            self._common.note(job, self._held, outcome)
            job.context.outcome = outcome
            self._common.hooks.after(job.context)
        return outcome

    async def _insist(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write what must not be forgotten now: else a handler gets its message once more."""
        while True:
            try:
                return await write()
            except Superseded:
                raise
            except BolideError as exc:
                self._common.rare.warning("park", "%s: %s", self._common.group, exc)
                await self._held.sleep(AFTER_FAILURE)
                if self._held.is_dropped:
                    raise

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        """Whoever gets the queue next waits for the end of it."""
        token = object()
        self._held.begin(token)
        try:
            yield
        finally:
            self._held.end(token)
