"""Retries that nobody has a handler for."""

from typing import Any

import pytest

from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.handlers import concurrent
from bolide.client.consumer.handlers.concurrent import ConcurrentDelivery
from bolide.client.consumer.handlers.invocation import ConsumerRuntime, Hooks
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from tests.support.aio import on_loop, until
from tests.support.clock import FakeClock
from tests.unit.client.stored import stored


class Broker:
    """Takes messages back, but not at the first try."""

    def __init__(self) -> None:
        self.tries: list[int] = []

    async def send(self, message: StoredMessage, delay_level: int) -> None:
        self.tries.append(message.queue_offset)
        if len(self.tries) == 1:
            raise BolideError("away")


def runtime(send_back: Any) -> ConcurrentDelivery:
    nothing: Any = None
    return ConcurrentDelivery(
        ConsumerRuntime("G", {}, nothing, send_back, counters=nothing, hooks=Hooks([]))
    )


def held_queue() -> HeldQueue:
    held = HeldQueue(MessageQueue("%RETRY%G", "broker-a", 0), 0, FakeClock())
    held.accept([stored(0), stored(1)], 2)
    return held


@on_loop
async def test_one_that_cannot_be_sent_back_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrent, "RETRY_DELAY", 0.001)
    broker, held = Broker(), held_queue()
    consuming = runtime(broker)
    consuming.deliver(held, [stored(0), stored(1)])
    await until(lambda: held.process.unfinished == 2)
    assert broker.tries == [0, 1, 0]
    await consuming.close()


@on_loop
async def test_without_a_place_to_send_it_back_to_it_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(concurrent, "RETRY_DELAY", 0.001)
    held = held_queue()
    consuming = runtime(None)
    consuming.deliver(held, [stored(0), stored(1)])
    await until(lambda: held.process.unfinished == 2)
    await consuming.close()
