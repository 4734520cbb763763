"""Messages that flow, no faster than they are consumed, while members come and go by a script."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from bolide import Message, Producer
from tests.soak.cast import Cast
from tests.soak.ledger import Sent
from tests.soak.letters import body_of
from tests.soak.member import GROUPS
from tests.support.aio import until

SENDERS = 48
BATCHING = 6
"""How many of the senders send batches; the others send one message at a time."""
BATCH = 24

_SEND_WITHIN = 900.0
_CONSUME_WITHIN = 150.0


class Step(NamedTuple):
    """What happens when so much of all was sent: a role comes, goes or is killed."""

    at: float
    act: str
    role: str
    groups: tuple[str, ...] = GROUPS


class Play:
    """One run of so many messages.

    Args:
        most_behind: sending waits while the first group has so many messages before it.
    """

    def __init__(self, producer: Producer, cast: Cast, total: int, *, most_behind: int) -> None:
        self.sent = Sent()
        self.cast = cast
        self._producer = producer
        self._total = total
        self._most_behind = most_behind
        self._numbers = itertools.count()
        self._allowed = 0

    async def run(self, steps: Sequence[Step]) -> None:
        """Ends when all was sent and every group has got it, or with the first failure."""
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._read_on())
            tasks.create_task(self._act(steps))
            sizes = [BATCH] * BATCHING + [1] * (SENDERS - BATCHING)
            await asyncio.wait([tasks.create_task(self._send(size)) for size in sizes])
            await until(self._is_delivered, within=_CONSUME_WITHIN)
            reading.cancel()

    async def reached(self, part: float) -> None:
        """Wait until so much of all was sent."""
        wanted = int(part * self._total)
        await until(lambda: self.sent.count >= wanted, within=_SEND_WITHIN)

    def _is_delivered(self) -> bool:
        return all(ledger.count >= self.sent.count for ledger in self.cast.ledgers)

    async def _act(self, steps: Sequence[Step]) -> None:
        for step, following in itertools.pairwise([*steps, Step(1.0, "", "")]):
            await self.reached(step.at)
            # Messages flow while somebody comes or goes, but not past the step after it.
            self._allowed = int(following.at * self._total)
            act = getattr(self.cast, step.act)
            await (act(step.role, step.groups) if step.act == "come" else act(step.role))

    async def _send(self, size: int) -> None:
        """One request after the other, of so many messages, until all numbers are taken."""
        while numbers := [n for n in itertools.islice(self._numbers, size) if n < self._total]:
            while self._must_wait(numbers[0]):  # noqa: ASYNC110  there is no event
                await asyncio.sleep(0.01)
            messages = [Message(self.cast.topic, body_of(number)) for number in numbers]
            if size == 1:
                result = await self._producer.send(messages[0])
            else:
                (result,) = await self._producer.send_batch(messages, split=False)
            for place, number in enumerate(numbers):
                self.sent.acknowledged(result.queue.queue_id, result.queue_offset + place, number)

    def _must_wait(self, number: int) -> bool:
        behind = number - self.cast.ledgers[0].count
        return number >= self._allowed or behind > self._most_behind

    async def _read_on(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self.cast.read_notes()
            self.cast.check_alive()
