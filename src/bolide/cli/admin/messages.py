"""Message commands: the queryMsgBy… family, consumeMessage and sendMessage."""

import codecs
import time
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from bolide.admin import AdminClient, AdminError
from bolide.admin.messages import DEFAULT_LIMIT, TOOLS_GROUP
from bolide.cli.admin.credentials import own_credentials
from bolide.cli.admin.output import document_of, java_text, line_of, print_message
from bolide.cli.admin.session import AsDocument, NameServer, OfCluster, Switch, Topic, is_true, run
from bolide.cli.admin.times import parse_time
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.cli.tls_options import chosen_tls
from bolide.model.message import Message, StoredMessage
from bolide.model.properties import PropertyName
from bolide.protocol.bodies.consumers import DirectConsumption
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.headers.query import IndexType

if TYPE_CHECKING:
    from bolide.client.producer.producer import Producer
    from bolide.client.producer.results import SendResult


_PULLED_AT_ONCE = 32
MessageId = Annotated[str, typer.Option("-i", "--msgId", help="Id of the message.")]
ConsumerGroup = Annotated[
    str | None, typer.Option("-g", "--consumerGroup", help="With -d: the group that consumes it.")
]
ClientId = Annotated[
    str | None, typer.Option("-d", "--clientId", help="With -g: the client that consumes it.")
]


def query_msg_by_id(
    topic: Topic,
    message_ids: Annotated[
        str, typer.Option("-i", "--msgId", help="Message ids, separated by commas.")
    ],
    group: ConsumerGroup = None,
    client_id: ClientId = None,
    send_again: Annotated[
        Switch, typer.Option("-s", "--sendMessage", help="Send the message again.")
    ] = "false",
    unit_name: Annotated[
        str, typer.Option("-u", "--unitName", help="With -s: the producer's unit.")
    ] = "",
    charset: Annotated[
        str | None,
        typer.Option("-f", "--bodyFormat", help="Also print the body, decoded with this charset."),
    ] = None,
    cluster: OfCluster = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show messages by unique id or offset message id.

    Also shows which groups have consumed them.
    """
    _check_charset(charset)

    async def act(admin: AdminClient) -> None:
        for message_id in filter(None, map(str.strip, message_ids.split(","))):
            message = await admin.messages.find(topic, message_id, cluster)
            if group is not None and client_id is not None:
                _print_verdict(await _push(admin, message, group, client_id), as_document)
            elif is_true(send_again):
                await resend(admin, message, unit_name, as_document=as_document)
            else:
                await _show(admin, message, charset, as_document)

    run(name_server, act)


class KeyType(StrEnum):
    """What queryMsgByKey looks for."""

    KEYS = IndexType.KEYS
    TAGS = IndexType.TAGS


def query_msg_by_key(
    topic: Topic,
    key: Annotated[
        str, typer.Option("-k", "--msgKey", help="One key of the message, or its tags.")
    ],
    key_type: Annotated[
        KeyType, typer.Option("-p", "--keyType", help="K: the key is a key. T: it is the tags.")
    ] = KeyType.KEYS,
    begin: Annotated[
        int, typer.Option("-b", "--beginTimestamp", help="First store time, in ms.")
    ] = 0,
    end: Annotated[
        int | None, typer.Option("-e", "--endTimestamp", help="Last store time, in ms.")
    ] = None,
    limit: Annotated[
        int, typer.Option("-m", "--maxNum", min=1, help="Maximum number of messages per broker.")
    ] = DEFAULT_LIMIT,
    cluster: OfCluster = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """List messages by key or tags."""

    async def find(admin: AdminClient) -> list[StoredMessage]:
        look_up = admin.messages.by_key if key_type is KeyType.KEYS else admin.messages.by_tags
        return await look_up(topic, key, limit=limit, begin=begin, end=end, cluster=cluster)

    found = run(name_server, find)
    if as_document:
        print_document([document_of(message) for message in found])
        return
    table = Table("#Message ID", "#QID", "#Offset")
    for message in found:
        table.add(message.message_id, message.queue_id, message.queue_offset)
    table.print()


def query_msg_by_unique_key(
    topic: Topic,
    message_id: MessageId,
    group: ConsumerGroup = None,
    client_id: ClientId = None,
    show_all: Annotated[
        bool,
        typer.Option("-a", "--showAll", help="All messages with the id; by default the oldest."),
    ] = False,
    cluster: OfCluster = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show a message by its unique id."""

    async def act(admin: AdminClient) -> None:
        found = await admin.messages.by_unique_id(topic, message_id, cluster)
        if group is not None and client_id is not None:
            _print_verdict(await _push(admin, found[0], group, client_id), as_document)
            return
        for message in found if show_all else found[:1]:
            await _show(admin, message, None, as_document)

    run(name_server, act)


def consume_message(
    topic: Topic,
    broker: Annotated[
        str | None, typer.Option("-b", "--brokerName", help="Name of one broker.")
    ] = None,
    queue_id: Annotated[
        int | None, typer.Option("-i", "--queueId", min=0, help="With -b: one queue.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option("-o", "--offset", min=0, help="With -b and -i: first offset.")
    ] = None,
    group: Annotated[
        str, typer.Option("-g", "--consumerGroup", help="Consume as this group.")
    ] = TOOLS_GROUP,
    begin: Annotated[
        str | None, typer.Option("-s", "--beginTimestamp", help="First store time.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("-e", "--endTimestamp", help="Last store time, exclusive.")
    ] = None,
    count: Annotated[
        int, typer.Option("-c", "--MessageNumber", min=1, help="Maximum number of messages.")
    ] = 128,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Print messages of a topic.

    The committed offsets of the group do not change.
    """
    if queue_id is not None and broker is None:
        raise typer.BadParameter("-i needs -b: queues are numbered on each broker")
    if offset is not None and queue_id is None:
        raise typer.BadParameter("-o needs -i: offsets are those of one queue")
    times = (parse_time(begin) if begin else None, parse_time(end) if end else None)

    async def act(admin: AdminClient) -> None:
        left = count
        for queue in await _queues(admin, topic, broker, queue_id):
            span = await _span(admin, queue, offset, times)
            async for message in _messages(admin, queue, span, group):
                if left == 0:
                    return
                left -= 1
                print_document(document_of(message)) if as_document else print(line_of(message))

    run(name_server, act)


async def _show(
    admin: AdminClient, message: StoredMessage, charset: str | None, as_document: bool
) -> None:
    tracks = await admin.tracks.of(message)
    if as_document:
        print_document(document_of(message) | {"tracks": tracks})
    else:
        print_message(message, tracks, charset)


async def _push(
    admin: AdminClient, message: StoredMessage, group: str, client_id: str
) -> DirectConsumption:
    return await admin.clients.consume_directly(
        group, client_id, message.offset_message_id, str(message.store_host)
    )


def _print_verdict(verdict: DirectConsumption, as_document: bool) -> None:
    if as_document:
        print_document(verdict)
        return
    print(
        f"ConsumeMessageDirectlyResult [order={java_text(verdict.order)}, "
        f"autoCommit={java_text(verdict.auto_commit)}, "
        f"consumeResult={java_text(verdict.consume_result)}, "
        f"remark={java_text(verdict.remark)}, spentTimeMills={verdict.spent_time_mills}]"
    )


def _check_charset(charset: str | None) -> None:
    try:
        codecs.lookup(charset or "utf-8")
    except LookupError as exc:
        raise typer.BadParameter(f"-f {charset!r} is no charset") from exc


async def _queues(
    admin: AdminClient, topic: str, broker: str | None, queue_id: int | None
) -> list[MessageQueue]:
    """The queues selected by the options, sorted."""
    route = await admin.topics.route(topic)
    counts = {data.broker_name: data.read_queue_nums for data in route.queue_datas}
    found = [
        MessageQueue(topic, name, number)
        for name, count in sorted(counts.items())
        for number in range(count)
        if broker in {None, name} and queue_id in {None, number}
    ]
    if not found:
        wanted = "" if queue_id is None else f"queue {queue_id} on "
        known = ", ".join(f"{name} ({count} queues)" for name, count in sorted(counts.items()))
        raise AdminError(f"topic {topic!r} has no {wanted}broker {broker!r}; it is on {known}")
    return found


async def _span(
    admin: AdminClient,
    queue: MessageQueue,
    offset: int | None,
    times: tuple[int | None, int | None],
) -> tuple[int, int]:
    """The first offset to print, and the offset after the last."""
    begin, end = times
    first = await (
        admin.offsets.min(queue) if begin is None else admin.offsets.search(queue, begin)
    )
    last = await (admin.offsets.max(queue) if end is None else admin.offsets.search(queue, end))
    return max(first, offset or 0), last


async def _messages(
    admin: AdminClient, queue: MessageQueue, span: tuple[int, int], group: str
) -> AsyncIterator[StoredMessage]:
    at, end = span
    while at < end:
        pulled = await admin.messages.pull(queue, at, min(end - at, _PULLED_AT_ONCE), group=group)
        for message in pulled.messages:
            if message.queue_offset < end:
                yield message
        if pulled.next_offset <= at:
            return
        at = pulled.next_offset


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
        async with _producer(admin, trace=is_true(trace)) as producer:
            message = Message(topic, body.encode(), tags=tags, keys=keys.split())
            return await producer.send(message, queue=queue)

    _print(run(name_server, act), as_document)


async def resend(
    admin: AdminClient, message: StoredMessage, unit_name: str, *, as_document: bool
) -> None:
    """Send a stored message again with its properties, except the deduplication key."""
    properties = dict(message.properties)
    properties.pop(PropertyName.DEDUP_KEY, None)
    again = Message.unchecked(message.topic, message.body, properties, message.flag)
    async with _producer(admin, unit_name) as producer:
        result = await producer.send(again)
    if not as_document:
        print(f"prepare resend msg. originalMsgId={message.message_id}")
    _print(result, as_document)


def _producer(admin: AdminClient, unit_name: str = "", *, trace: bool = False) -> "Producer":
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
