"""Java's transaction producers with our broker, and ours with Java's brokers."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from bolide import Message, TransactionProducer, TransactionState
from tests.interop.bench import Server
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.interop.processes import ChildProcess
from tests.support.aio import on_loop
from tests.support.own_cluster import create_topic
from tests.support.transactions import WAYS, Book, all_delivered, delivered

ASKED_OFTEN = {"transactionTimeOut": 300, "transactionCheckInterval": 500}


def test_a_producer_of_java_is_asked_by_our_broker_and_its_answers_count(
    rocketmq: str, java_client: Callable[..., ChildProcess], tmp_path: Path
) -> None:
    with (
        bolide_namesrv(tmp_path / "namesrv") as namesrv,
        bolide_broker(tmp_path / "broker", namesrv.address, **ASKED_OFTEN),
    ):
        job = (namesrv.address, "java-writers", "T", 2, *WAYS)
        lines = java_client(rocketmq, "Transactions", *job).wait()
        found = asyncio.run(delivered(namesrv.address, "T"))
    asked = {line.split()[1]: line.split()[2:] for line in lines if line.startswith("checked")}
    assert asked == {body: ["T", body, "true"] for body in WAYS if body.startswith("unknown")}
    assert sorted(found) == sorted(body for body in WAYS if "commit" in body)


@pytest.mark.long  # the matrix has the same in short
@on_loop
async def test_our_producer_is_asked_by_a_broker_of_apaches(
    rocketmq: str, java_namesrv: Callable[..., Server], java_broker: Callable[..., Server]
) -> None:
    namesrv = await asyncio.to_thread(java_namesrv, rocketmq)
    await asyncio.to_thread(
        java_broker,
        rocketmq,
        namesrv.address,
        transactionTimeOut=500,
        transactionCheckInterval=1000,
    )
    book = Book()
    async with TransactionProducer(
        "our-writers", check=book.check, name_server=namesrv.address, send_timeout=10
    ) as producer:
        await create_topic(producer, "T", 1)
        for body in WAYS:
            sent = await producer.send_in_transaction(Message("T", body.encode()), book.local)
            assert sent.is_confirmed is (sent.state is not TransactionState.UNKNOWN)
        await book.all_known(WAYS)
        await all_delivered(namesrv.address, "T", {body for body in WAYS if "commit" in body})
