"""Transactions, requests and their replies, traces."""

from bolide import (
    Message,
    Producer,
    StoredMessage,
    Trace,
    TransactionProducer,
    TransactionState,
)
from bolide.client.errors import RequestTimedOut
from tests.interop.matrix.ours.deliveries import Deliveries
from tests.interop.matrix.ours.stage import Facts, Stage, until_so
from tests.interop.matrix.ours.telling import result_told

TRANSACTIONS = ("unknown 0", "unknown 1", "commit 0", "rollback 0", "commit 1", "rollback 1")
ENDS = {
    "unknown": TransactionState.UNKNOWN,
    "commit": TransactionState.COMMIT,
    "rollback": TransactionState.ROLLBACK,
}
PATIENCE = 20.0


async def transaction(stage: Stage) -> Facts:
    """Each ends as its body says; of those that are not known then, number 0 is committed."""
    deliveries = Deliveries()
    checked: list[str] = []

    async def check(message: StoredMessage) -> TransactionState:
        checked.append(message.body.decode())
        committed = checked[-1] == "unknown 0" or checked[-1].startswith("commit")
        return TransactionState.COMMIT if committed else TransactionState.ROLLBACK

    async def local(message: Message) -> TransactionState:
        return ENDS[message.body.decode().split()[0]]

    async with (
        stage.push_consumer() as consumer,
        TransactionProducer(
            f"{stage.group}_producers", name_server=stage.name_server, check=check, send_timeout=10
        ) as producer,
    ):
        await consumer.subscribe(stage.topic, "*", deliveries)
        sent = [
            await producer.send_in_transaction(stage.message(body, "tag"), local)
            for body in TRANSACTIONS
        ]
        await until_so(lambda: len(checked) >= 2)
        return {
            "sent": [{"status": each.status.name, "id": each.message_id} for each in sent],
            "checked": checked,
            "deliveries": await deliveries.wait(3),
        }


async def request(stage: Stage) -> Facts:
    async def reply(message: StoredMessage) -> None:
        if message.body != b"silence":
            body = b"re: " + message.body
            await stage.producer.reply(message, body, properties={"colour": "red"})

    async with stage.push_consumer() as consumer:
        await consumer.subscribe(stage.topic, "*", reply)
        first = await stage.producer.request(stage.message("first"), timeout=PATIENCE)
        second = await stage.producer.request(stage.message("second"), timeout=PATIENCE)
        timed_out = False
        try:
            await stage.producer.request(stage.message("silence"), timeout=1.0)
        except RequestTimedOut:
            timed_out = True
        return {
            "reply": first.body.decode(),
            "colour": first.properties.get("colour"),
            "later": second.body.decode(),
            "timed_out": timed_out,
        }


async def trace(stage: Stage) -> Facts:
    deliveries = Deliveries()
    traces = Trace(topic=f"{stage.topic}_traces")
    async with (
        stage.push_consumer(trace=traces) as consumer,
        Producer(
            f"{stage.group}_producers", name_server=stage.name_server, trace=traces
        ) as producer,
    ):
        await consumer.subscribe(stage.topic, "*", deliveries)
        sent = await producer.send(Message(stage.topic, b"message", tags="tag", keys="key"))
        await deliveries.wait(1)
        return {
            "sent": result_told(sent),
            "traces": await stage.stored_until(
                lambda found: _is_whole("".join(message.body for message in found)), traces.topic
            ),
        }


def _is_whole(told: str) -> bool:
    return all(f"{kind}\x01" in told for kind in ("Pub", "SubBefore", "SubAfter"))
