"""Commands that send: sendMessage, checkMsgSendRT; and the producer of commands that send."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from bolide.admin import AdminClient
from bolide.cli.admin.credentials import own_credentials
from bolide.cli.admin.session import (
    AsDocument,
    NameServer,
    Switch,
    Topic,
    exit_code_of,
    is_true,
    reason_of,
    run,
)
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.cli.tls_options import chosen_tls
from bolide.client.errors import RouteNotFound
from bolide.errors import BolideError
from bolide.model.message import Message, StoredMessage
from bolide.model.properties import PropertyName
from bolide.protocol.bodies.message_queue import MessageQueue

if TYPE_CHECKING:
    from bolide.client.producer.producer import Producer
    from bolide.client.producer.results import SendResult

LARGEST_BODY = 64 * 1024 * 1024
"""Bytes; brokers refuse far smaller ones by default (maxMessageSize)."""


def send_message(
    topic: Topic,
    body: Annotated[str, typer.Option("-p", "--body", help="Body of the message.")],
    keys: Annotated[str, typer.Option("-k", "--key", help="Keys, separated by spaces.")] = "",
    tags: Annotated[str, typer.Option("-c", "--tags", help="Tag of the message.")] = "",
    broker: Annotated[
        str | None, typer.Option("-b", "--broker", help="With -i: name of one broker.")
    ] = None,
    queue_id: Annotated[
        int | None, typer.Option("-i", "--qid", min=0, help="With -b: one queue.")
    ] = None,
    trace: Annotated[
        Switch, typer.Option("-m", "--msgTraceEnable", help="Trace the message.")
    ] = "false",
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Send a message."""
    if (broker is None) != (queue_id is None):
        raise typer.BadParameter("-b and -i go together: queues are numbered on each broker")
    queue = None if broker is None else MessageQueue(topic, broker, queue_id or 0)

    async def act(admin: AdminClient) -> "SendResult":
        async with producer_of(admin, trace=is_true(trace)) as producer:
            message = Message(topic, body.encode(), tags=tags, keys=keys.split())
            return await producer.send(message, queue=queue)

    _print(run(name_server, act), as_document)


def check_msg_send_rt(
    topic: Topic,
    amount: Annotated[
        int, typer.Option("-a", "--amount", min=1, help="How many messages to send.")
    ] = 100,
    size: Annotated[
        int, typer.Option("-s", "--size", min=1, max=LARGEST_BODY, help="Bytes of each message.")
    ] = 128,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Send messages to the queues of a topic in turn, and show how long each takes, in ms."""

    async def act(admin: AdminClient) -> list[_Sent]:
        if not as_document:
            print(_RT_LINE.format("#Broker Name", "#QID", "#Send Result", "#RT"))
        sent = []
        async with producer_of(admin) as producer:
            message = Message(topic, b"a" * size)
            for number in range(amount):
                one = await _timed(producer, message, number)
                sent.append(one)
                if not as_document:
                    result = "true" if one.failure is None else "false"
                    print(_RT_LINE.format(one.broker, one.queue_id, result, round(one.ms)))
        return sent

    sent = run(name_server, act)
    # As in RocketMQ: the first send does not count, which opens the connection.
    counted = sent[1:] or sent
    average = sum(each.ms for each in counted) / len(counted)
    failures = [each.failure for each in sent if each.failure is not None]
    if as_document:
        rows = [each.document() for each in sent]
        print_document({"sends": rows, "avgRt": round(average, 2), "failed": len(failures)})
    else:
        print(f"Avg RT: {average:.2f}")
    if failures:
        text = f"{len(failures)} of {amount} sends failed, the last one: {reason_of(failures[-1])}"
        print(text, file=sys.stderr)
        raise typer.Exit(exit_code_of(failures[-1]))


_RT_LINE = "{:<32}  {:<4}  {:<20}    {}"


@dataclass(frozen=True, slots=True)
class _Sent:
    """How long a send to a queue took, and why it failed if it did."""

    broker: str
    queue_id: int
    ms: float
    failure: BolideError | None

    def document(self) -> dict[str, object]:
        place = {"brokerName": self.broker, "queueId": self.queue_id}
        failure = None if self.failure is None else reason_of(self.failure)
        return place | {"sendResult": not failure, "rt": round(self.ms, 3), "failure": failure}


async def _timed(producer: "Producer", message: Message, number: int) -> _Sent:
    """Send to the queues in turn, as RocketMQ's tool."""
    chosen = MessageQueue(message.topic, "", -1)

    def select(queues: Sequence[MessageQueue], _message: Message, _key: object) -> MessageQueue:
        nonlocal chosen
        chosen = queues[number % len(queues)]
        return chosen

    began = time.monotonic()
    failure: BolideError | None = None
    try:
        await producer.send(message, selector=select, key=number)
    except RouteNotFound:
        raise
    except BolideError as exc:
        failure = exc
    ms = (time.monotonic() - began) * 1000
    return _Sent(chosen.broker_name, chosen.queue_id, ms, failure)


async def resend(
    admin: AdminClient, message: StoredMessage, unit_name: str, *, as_document: bool
) -> None:
    """Send a stored message again with its properties, except the deduplication key."""
    properties = dict(message.properties)
    properties.pop(PropertyName.DEDUP_KEY, None)
    again = Message.unchecked(message.topic, message.body, properties, message.flag)
    async with producer_of(admin, unit_name) as producer:
        result = await producer.send(again)
    if not as_document:
        print(f"prepare resend msg. originalMsgId={message.message_id}")
    _print(result, as_document)


def producer_of(admin: AdminClient, unit_name: str = "", *, trace: bool = False) -> "Producer":
    """A producer in a group of its own; imported here so that other commands start faster."""
    from bolide.client.producer.producer import Producer  # noqa: PLC0415

    group = f"mqadmin-{time.time_ns()}"
    addresses = admin.name_servers.addresses
    access_key, secret_key = own_credentials()
    return Producer(
        group,
        name_server=addresses,
        unit_name=unit_name,
        trace=trace,
        access_key=access_key,
        secret_key=secret_key,
        tls=chosen_tls(),
    )


def _print(result: "SendResult", as_document: bool) -> None:
    queue = result.queue
    if as_document:
        print_document(
            {
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "queueOffset": result.queue_offset,
                "status": result.status.name,
                "messageId": result.message_id,
                "offsetMessageId": result.offset_message_id,
            }
        )
        return
    table = Table("#Broker Name", "#QID", "#Send Result", "#MsgId")
    table.add(queue.broker_name, queue.queue_id, result.status.name, result.message_id)
    table.print()
