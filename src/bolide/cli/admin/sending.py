"""Sending: sendMessage, and a stored message once more."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from bolide.admin import AdminClient
from bolide.cli.admin.options import Json, NameServer, Switch, Topic, is_true
from bolide.cli.admin.session import run
from bolide.cli.admin.tables import Table, print_json
from bolide.model.message import Message, StoredMessage
from bolide.model.properties import PropertyName
from bolide.protocol.bodies.message_queue import MessageQueue

if TYPE_CHECKING:
    from bolide.client.producer.producer import Producer
    from bolide.client.producer.results import SendResult


def send_message(
    topic: Topic,
    body: Annotated[str, typer.Option("-p", "--body", help="What the message says.")],
    keys: Annotated[str, typer.Option("-k", "--key", help="Keys, with blanks between.")] = "",
    tags: Annotated[str, typer.Option("-c", "--tags", help="Its tag.")] = "",
    broker: Annotated[
        str | None, typer.Option("-b", "--broker", help="With -i: name of one broker.")
    ] = None,
    queue_id: Annotated[
        int | None, typer.Option("-i", "--qid", min=0, help="With -b: one queue.")
    ] = None,
    trace: Annotated[Switch, typer.Option("-m", "--msgTraceEnable", help="Trace it.")] = "false",
    as_json: Json = False,
    name_server: NameServer = None,
) -> None:
    """Send a message."""
    if (broker is None) != (queue_id is None):
        raise typer.BadParameter("-b and -i go together: queues are numbered on each broker")
    queue = None if broker is None else MessageQueue(topic, broker, queue_id or 0)

    async def act(admin: AdminClient) -> "SendResult":
        async with _producer(admin, trace=is_true(trace)) as producer:
            message = Message(topic, body.encode(), tags=tags, keys=keys.split())
            return await producer.send(message, queue=queue)

    _print(run(name_server, act), as_json)


async def resend(
    admin: AdminClient, message: StoredMessage, unit_name: str, *, as_json: bool
) -> None:
    """Send a stored message again, properties and all but the key that makes it a repeat."""
    properties = dict(message.properties)
    properties.pop(PropertyName.DEDUP_KEY, None)
    again = Message.unchecked(message.topic, message.body, properties, message.flag)
    async with _producer(admin, unit_name) as producer:
        result = await producer.send(again)
    if not as_json:
        print(f"prepare resend msg. originalMsgId={message.message_id}")
    _print(result, as_json)


def _producer(admin: AdminClient, unit_name: str = "", *, trace: bool = False) -> "Producer":
    """One of a group that nobody else is in; other commands do without it and load faster."""
    from bolide.client.producer.producer import Producer  # noqa: PLC0415

    group = f"mqadmin-{time.time_ns()}"
    addresses = admin.name_servers.addresses
    return Producer(group, name_server=addresses, unit_name=unit_name, trace=trace)


def _print(result: "SendResult", as_json: bool) -> None:
    queue = result.queue
    if as_json:
        print_json(
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
