"""The pull loop of a held queue."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from bolide.client.consumer.counters import TopicCounters
from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.pull.pull_loop import (
    PullCallbacks,
    PullLoop,
    PullOptions,
)
from bolide.client.consumer.pull.pull_request import Pull, PullResult, PullStatus
from bolide.client.consumer.subscription import Filter
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.refusals import FlowControl, SubscriptionNotFound
from bolide.remoting.errors import ConnectionLost
from tests.support.aio import on_loop, until
from tests.support.clock import FakeClock
from tests.unit.client.stored import stored


class Scene:
    """A queue whose pulls are answered by the test; after its answers it waits for ever."""

    def __init__(self, *answers: PullResult | Exception, repeat: PullResult | None = None) -> None:
        self.pulls: list[Pull] = []
        self.delivered: list[int] = []
        self.moved: list[int] = []
        self.heartbeats = 0
        self.is_blocked = False
        self.room = 1000
        self._answers = list(answers)
        self._repeat = repeat
        self.held = HeldQueue(MessageQueue("T", "broker-a", 0), 10, FakeClock())
        member: Any = SimpleNamespace(group="G", instance=self)
        puller: Any = self
        options = PullOptions(batch=256, carries_offsets=True, after_failure=0.001)
        callbacks = PullCallbacks(
            filter_of=lambda _: Filter.of("T", "*", 1),
            is_blocked=lambda _: self.is_blocked,
            deliver=self._deliver,
            on_offset_moved=lambda _, offset: self.moved.append(offset),
            room=lambda held: self.room - len(held.process),
        )
        self._pull_loop = PullLoop(member, puller, options, callbacks, TopicCounters(FakeClock()))

    async def __aenter__(self) -> "Scene":
        self._pull_loop.start(self.held)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.held.drop()
        assert self.held.pulling is not None
        await asyncio.wait([self.held.pulling])

    def heartbeat_soon(self) -> None:
        self.heartbeats += 1

    async def pull(self, pull: Pull) -> PullResult:
        self.pulls.append(pull)
        if self._answers:
            answer = self._answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        if self._repeat is not None:
            return self._repeat
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    def _deliver(self, _held: HeldQueue, messages: Sequence[StoredMessage]) -> None:
        self.delivered += [message.queue_offset for message in messages]

    async def until_pulled(self, count: int) -> None:
        await until(lambda: len(self.pulls) >= count)

    @property
    def offsets(self) -> list[int]:
        return [pull.queue_offset for pull in self.pulls]


def result(status: PullStatus, next_offset: int, *offsets: int) -> PullResult:
    return PullResult(status, next_offset, 0, 100, [stored(offset) for offset in offsets])


@on_loop
async def test_what_is_found_is_delivered_and_the_next_pull_goes_on_behind_it() -> None:
    found, none = result(PullStatus.FOUND, 15, 10, 14), result(PullStatus.NO_MATCHED_MSG, 40)
    async with Scene(found, none) as it:
        await it.until_pulled(3)
        assert it.offsets == [10, 15, 40]
        assert it.delivered == [10, 14]
        assert [pull.commit_offset for pull in it.pulls] == [10, 10, 10]
        it.held.done([stored(10), stored(14)])
        assert it.held.process.unfinished == 40


@on_loop
async def test_a_blocked_queue_is_not_pulled_until_it_is_woken() -> None:
    it = Scene()
    it.is_blocked = True
    async with it:
        await asyncio.sleep(0.01)
        assert it.pulls == []
        it.is_blocked = False
        it.held.wake()
        await it.until_pulled(1)


@on_loop
async def test_less_is_pulled_where_a_whole_batch_would_not_find_room() -> None:
    it = Scene(result(PullStatus.FOUND, 12, 10, 11))
    it.room = 257
    async with it:
        await it.until_pulled(2)
        assert [pull.max_count for pull in it.pulls] == [256, 32]


@on_loop
async def test_a_failed_pull_is_made_again() -> None:
    async with Scene(ConnectionLost("broker"), FlowControl("slower"), ValueError("a bug")) as it:
        await it.until_pulled(4)
        assert it.offsets == [10] * 4


@on_loop
async def test_a_broker_that_forgot_the_group_is_told_of_it_again() -> None:
    async with Scene(SubscriptionNotFound("who?")) as it:
        await it.until_pulled(2)
        assert it.heartbeats == 1


@on_loop
async def test_an_offset_that_is_not_there_is_reported() -> None:
    async with Scene(result(PullStatus.OFFSET_ILLEGAL, 77)) as it:
        await until(lambda: it.moved == [77])


@on_loop
async def test_answers_at_once_without_progress_do_not_become_a_busy_loop() -> None:
    async with Scene(repeat=result(PullStatus.NO_NEW_MSG, 10)) as it:
        await asyncio.sleep(0.25)
        assert 3 <= len(it.pulls) < 20
