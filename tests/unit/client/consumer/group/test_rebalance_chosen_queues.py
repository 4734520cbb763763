"""Queues that a user chose: held, sooner or later."""

import asyncio
from collections.abc import Collection

import pytest

from bolide.client.consumer.group import rebalance
from bolide.client.consumer.group.rebalance import ChosenQueues
from bolide.model.message_queue import MessageQueue
from tests.support.aio import on_loop, until

QUEUE, OTHER = MessageQueue("T", "broker-a", 0), MessageQueue("U", "broker-a", 0)


class AssignmentTarget:
    """Holds what it is asked to, but for those that a test keeps back."""

    def __init__(self) -> None:
        self.held: set[MessageQueue] = set()
        self.kept_back: set[MessageQueue] = set()
        self.fails = False
        self.changes = 0

    def of_topic(self, topic: str) -> frozenset[MessageQueue]:
        return frozenset(queue for queue in self.held if queue.topic == topic)

    def topics(self) -> Collection[str]:
        return {queue.topic for queue in self.held}

    async def assign(self, topic: str, wanted: Collection[MessageQueue]) -> bool:
        self.changes += 1
        if self.fails:
            raise OSError("away")
        self.held -= self.of_topic(topic)
        self.held |= set(wanted) - self.kept_back
        return self.of_topic(topic) == set(wanted)


@on_loop
async def test_the_last_choice_counts() -> None:
    target = AssignmentTarget()
    chosen = ChosenQueues(target)
    await chosen.choose([QUEUE])
    await chosen.choose([OTHER])
    assert target.held == {OTHER}


@on_loop
async def test_a_queue_that_is_not_to_be_had_is_tried_for_until_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rebalance, "CHOICE_RETRY_INTERVAL", 0.001)
    target = AssignmentTarget()
    target.kept_back = {QUEUE}
    chosen = ChosenQueues(target)
    await chosen.choose([QUEUE, OTHER])
    assert target.held == {OTHER}
    running = asyncio.create_task(chosen.run())
    target.fails = True
    await until(lambda: "trying again" in caplog.text)
    target.fails = False
    target.kept_back = set()
    await until(lambda: target.held == {QUEUE, OTHER})
    await asyncio.sleep(0.01)
    changes = target.changes
    await asyncio.sleep(0.02)
    assert target.changes == changes  # nothing is missing any more
    running.cancel()
    await asyncio.wait([running])
