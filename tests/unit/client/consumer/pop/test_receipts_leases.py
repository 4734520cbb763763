"""Leases of popped messages: acknowledged in batches, renewed, and never both at once."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from bolide.client.consumer.pop import receipts
from bolide.client.consumer.pop.popped_queues import PoppedQueue
from bolide.client.consumer.pop.receipts import Leases
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.refusals import NoMessage
from tests.support.aio import on_loop, until
from tests.unit.client.stored import stored


class Broker:
    """Records requests; `is_open` delays its replies."""

    def __init__(self) -> None:
        self.acked: list[list[int]] = []
        self.changed: list[tuple[int, float]] = []
        self.failures: list[BolideError] = []
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def ack(self, messages: Sequence[StoredMessage]) -> None:
        await self._answer()
        self.acked.append([message.queue_offset for message in messages])

    async def change_invisible(self, message: StoredMessage, seconds: float) -> None:
        await self._answer()
        self.changed.append((message.queue_offset, seconds))

    async def _answer(self) -> None:
        await self.is_open.wait()
        if self.failures:
            raise self.failures.pop()


def leased(count: int, seconds: float = 60.0) -> tuple[Broker, Leases, PoppedQueue, list[Any]]:
    broker, held = Broker(), PoppedQueue(MessageQueue("T", "broker-a", -1), lambda: 0.0)
    receipts: Any = broker
    leases = Leases(receipts, seconds)
    messages = [stored(offset) for offset in range(count)]
    leases.begin(held, messages)
    return broker, leases, held, messages


@on_loop
async def test_what_is_done_while_a_broker_is_told_goes_with_the_next_telling() -> None:
    broker, leases, held, messages = leased(5)
    leases.acknowledge(held, messages[:1])
    leases.acknowledge(held, messages[1:2])
    broker.is_open.clear()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    leases.acknowledge(held, messages[2:3])
    leases.acknowledge(held, messages[3:])
    assert held.leased_count == 5
    broker.is_open.set()
    await until(lambda: held.leased_count == 0)
    assert broker.acked == [[0, 1], [2, 3, 4]]
    await leases.close(1.0)


@on_loop
async def test_what_is_half_over_is_prolonged_once() -> None:
    broker, leases, held, _ = leased(2, seconds=0.2)
    leases.renew([held])
    assert broker.changed == []
    await asyncio.sleep(0.11)
    leases.renew([held])
    leases.renew([held])
    await until(lambda: len(broker.changed) == 2)
    assert broker.changed == [(0, 0.2), (1, 0.2)]
    leases.renew([held])
    await leases.close(1.0)
    assert len(broker.changed) == 2


@on_loop
async def test_an_acknowledgement_waits_for_the_receipt_that_is_on_its_way() -> None:
    broker, leases, held, messages = leased(1, seconds=0.0)
    broker.is_open.clear()
    await asyncio.sleep(0.01)
    leases.renew([held])
    await asyncio.sleep(0)
    leases.acknowledge(held, messages)
    leases.renew([held])  # too late for another one
    broker.is_open.set()
    await until(lambda: broker.acked == [[0]])
    assert broker.changed == [(0, 0.0)]
    await leases.close(1.0)


@on_loop
async def test_a_broker_that_does_not_listen_is_told_again_but_not_what_it_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receipts, "ACK_RETRY_DELAY", 0.01)
    broker, leases, held, messages = leased(2)
    broker.failures = [BolideError("gone for a moment")]
    leases.acknowledge(held, messages[:1])
    await until(lambda: broker.acked == [[0]])
    broker.failures = [NoMessage("never heard of it")]
    leases.retry_after(held, messages[1], 10.0)
    await until(lambda: not broker.failures)
    await leases.close(5.0)
    assert broker.changed == []
    assert held.leased_count == 0
