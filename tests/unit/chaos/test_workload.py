"""Dedup keys are sent until acknowledged; in the end all queues are read, whoever knows them."""

import random
from typing import Any

import pytest

from bolide.chaos.history import History, Kind, Outcome, Sent
from bolide.chaos.workload import Workload, WorkloadOptions, _Send
from bolide.client.producer.results import SendResult, SendStatus
from bolide.errors import BolideError
from bolide.model.message import Message
from bolide.model.message_queue import MessageQueue
from tests.support.aio import on_loop


class FakeReader:
    """Asks a NameServer that knows some brokers."""

    def __init__(self, *brokers: str) -> None:
        self._brokers = brokers

    async def fetch_subscribe_queues(self, topic: str) -> list[MessageQueue]:
        if not self._brokers:
            raise BolideError("no route")
        return [MessageQueue(topic, broker, 0) for broker in self._brokers]


def workload(registered: str, monkeypatch: pytest.MonkeyPatch) -> Workload:
    async def masters(name_servers: str) -> dict[str, dict[int, str]]:
        del name_servers
        return {group: {0: "127.0.0.1:2"} for group in registered.split(";")}

    monkeypatch.setattr("bolide.chaos.workload.masters", masters)
    history = History()
    for number, broker in enumerate(("broker-a", "broker-b")):
        history.record(
            Sent(
                id=str(number), kind=Kind.PLAIN, key="k", number=number, began=0.0, ended=1.0,
                outcome=Outcome.ACKNOWLEDGED, queue=f"{broker}/0", offset=0,
            )
        )  # fmt: skip
    return Workload("127.0.0.1:1", history, WorkloadOptions(read_within=0.0), seed=1)


async def brokers_of(readers: list[Any], found_by: Workload) -> dict[str, int]:
    found = await found_by._queues(Kind.PLAIN, readers)
    return {queue.broker_name: readers.index(reader) for queue, reader in found.items()}


@on_loop
async def test_a_queue_that_one_name_server_does_not_know_is_read_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = workload("broker-a;broker-b", monkeypatch)

    assert await brokers_of([FakeReader("broker-a"), FakeReader("broker-a", "broker-b")], load) == {
        "broker-a": 0,
        "broker-b": 1,
    }
    assert load.history.unread == []


@on_loop
async def test_a_queue_of_a_broker_that_is_away_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = workload("broker-a", monkeypatch)

    assert await brokers_of([FakeReader("broker-a"), FakeReader("broker-a")], load) == {
        "broker-a": 0
    }
    assert [(each.queue, each.error) for each in load.history.unread] == [
        ("broker-b/0", "its broker is not registered")
    ]


@on_loop
async def test_a_queue_that_its_broker_does_not_know_any_more_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = workload("broker-a;broker-b", monkeypatch)

    assert await brokers_of([FakeReader(), FakeReader()], load) == {}
    assert load.history.unread == []


class FakeProducer:
    """Answers with these statuses in turn, and then with the last; None: not at all."""

    def __init__(self, *statuses: SendStatus | None) -> None:
        self._statuses = list(statuses)

    async def send(self, message: Message) -> SendResult:
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        if status is None:
            raise BolideError("timeout")
        return SendResult(
            status=status, message_id="id", offset_message_id="id",
            queue=MessageQueue(message.topic, "broker-a", 0), queue_offset=7,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("statuses", "outcome", "tries"),
    [
        ([None, SendStatus.FLUSH_SLAVE_TIMEOUT, SendStatus.SEND_OK], Outcome.ACKNOWLEDGED, 3),
        ([SendStatus.SLAVE_NOT_AVAILABLE], Outcome.WEAK, 20),
        ([None], Outcome.UNKNOWN, 20),
    ],
)
@pytest.mark.usefixtures("_no_pause")
def test_a_dedup_key_is_sent_until_it_is_acknowledged(
    statuses: list[SendStatus | None], outcome: Outcome, tries: int
) -> None:
    @on_loop
    async def send() -> None:
        load = Workload("127.0.0.1:1", History(), WorkloadOptions(), seed=1)
        producer: Any = FakeProducer(*statuses)
        sent = await _Send(load, producer, Kind.DEDUP, "k", 1, random.Random(1)).run()

        assert (sent.outcome, sent.tries) == (outcome, tries)

    send()


@pytest.fixture
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bolide.chaos.workload._RETRY_PAUSE", 0.0)
