"""Message commands: queryMsgById, queryMsgByKey, queryMsgByUniqueKey."""

import codecs
from collections import Counter
from enum import StrEnum
from typing import Annotated

import typer

from bolide.admin import AdminClient
from bolide.admin.errors import MessageNotFound
from bolide.admin.message_history import Track
from bolide.admin.messages import DEFAULT_LIMIT
from bolide.cli.admin.output import document_of, java_text, print_message
from bolide.cli.admin.progress import print_cut, progress_bar
from bolide.cli.admin.sending import resend
from bolide.cli.admin.session import (
    AsDocument,
    NameServer,
    OfCluster,
    Switch,
    Topic,
    is_true,
    pass_over,
    run,
)
from bolide.cli.admin.times import TIME_FORMATS, parse_time
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.protocol.bodies.consumers import DirectConsumption
from bolide.protocol.headers.query import IndexType
from bolide.protocol.message_id import BadMessageId

BodyFormat = Annotated[
    str | None,
    typer.Option("-f", "--bodyFormat", help="Also print the body, decoded with this charset."),
]
MessageId = Annotated[str, typer.Option("-i", "--msgId", help="Id of the message.")]
ConsumerGroup = Annotated[
    str | None, typer.Option("-g", "--consumerGroup", help="With -d: the group that consumes it.")
]
ClientId = Annotated[
    str | None, typer.Option("-d", "--clientId", help="With -g: the client that consumes it.")
]


def query_msg_by_id(
    message_ids: Annotated[
        str, typer.Option("-i", "--msgId", help="Message ids, separated by commas.")
    ],
    topic: Annotated[
        str | None,
        typer.Option("-t", "--topic", help="Name of the topic; an offset message id needs none."),
    ] = None,
    group: ConsumerGroup = None,
    client_id: ClientId = None,
    send_again: Annotated[
        Switch, typer.Option("-s", "--sendMessage", help="Send the message again.")
    ] = "false",
    unit_name: Annotated[
        str, typer.Option("-u", "--unitName", help="With -s: the producer's unit.")
    ] = "",
    charset: BodyFormat = None,
    cluster: OfCluster = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show messages by unique id or offset message id.

    Also shows which groups have consumed them.
    """
    check_charset(charset)

    async def act(admin: AdminClient) -> None:
        for message_id in filter(None, map(str.strip, message_ids.split(","))):
            message = await _find(admin, topic, message_id, cluster)
            if group is not None and client_id is not None:
                _print_verdict(await _push(admin, message, group, client_id), as_document)
            elif is_true(send_again):
                await resend(admin, message, unit_name, as_document=as_document)
            else:
                await show_message(admin, message, charset, as_document)

    run(name_server, act)


async def _find(
    admin: AdminClient, topic: str | None, message_id: str, cluster: str | None
) -> StoredMessage:
    if topic is not None:
        return await admin.messages.find(topic, message_id, cluster, on_failure=pass_over)
    try:
        return await admin.messages.view(message_id)
    except (BadMessageId, MessageNotFound) as exc:
        exc.add_note("a unique id is looked up in a topic: give -t")
        raise


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
        str, typer.Option("-b", "--beginTimestamp", help=f"First store time: {TIME_FORMATS}.")
    ] = "0",
    end: Annotated[
        str | None, typer.Option("-e", "--endTimestamp", help="Last store time, likewise.")
    ] = None,
    limit: Annotated[
        int, typer.Option("-m", "--maxNum", min=1, help="Maximum number of messages per broker.")
    ] = DEFAULT_LIMIT,
    last_key: Annotated[
        str | None,
        typer.Option("-l", "--lastKey", help="Where the index of a RocksDB broker goes on."),
    ] = None,
    cluster: OfCluster = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """List messages by key or tags."""
    first, last = parse_time(begin), None if end is None else parse_time(end)

    async def find(admin: AdminClient) -> list[StoredMessage]:
        look_up = admin.messages.by_key if key_type is KeyType.KEYS else admin.messages.by_tags
        with progress_bar("brokers") as advance:
            return await look_up(
                topic,
                key,
                limit=limit,
                begin=first,
                end=last,
                cluster=cluster,
                last_key=last_key,
                on_answer=lambda: advance(1),
                on_failure=pass_over,
            )

    found = run(name_server, find)
    if as_document:
        print_document([document_of(message) for message in found])
    else:
        table = Table("#Message ID", "#QID", "#Offset")
        for message in found:
            table.add(message.message_id, message.queue_id, message.queue_offset)
        table.print()
    _say_cut(found, limit)


def query_msg_by_unique_key(
    topic: Topic,
    message_id: MessageId,
    group: ConsumerGroup = None,
    client_id: ClientId = None,
    show_all: Annotated[
        bool,
        typer.Option("-a", "--showAll", help="All messages with the id; by default the oldest."),
    ] = False,
    begin: Annotated[
        str, typer.Option("-s", "--startTime", help=f"First store time: {TIME_FORMATS}.")
    ] = "0",
    end: Annotated[
        str | None, typer.Option("-e", "--endTime", help="Last store time, likewise.")
    ] = None,
    cluster: OfCluster = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show a message by its unique id."""
    first, last = parse_time(begin), None if end is None else parse_time(end)

    async def act(admin: AdminClient) -> None:
        found = await admin.messages.by_unique_id(
            topic, message_id, cluster, begin=first, end=last, on_failure=pass_over
        )
        if group is not None and client_id is not None:
            _print_verdict(await _push(admin, found[0], group, client_id), as_document)
            return
        for message in found if show_all else found[:1]:
            await show_message(admin, message, None, as_document)

    run(name_server, act)


def _say_cut(found: list[StoredMessage], limit: int) -> None:
    """Say which brokers may have more."""
    counts = Counter(message.broker_name for message in found)
    full = sorted(name for name, count in counts.items() if count >= limit)
    if full:
        brokers = f"from {', '.join(full)}, which may have more"
        print_cut(limit, brokers, f"-m {limit * 2} shows more, -b and -e another time")


async def show_message(
    admin: AdminClient, message: StoredMessage, charset: str | None, as_document: bool
) -> None:
    """Print a message and which groups have consumed it, as far as that is known."""
    tracks: list[Track] | None = None
    try:
        tracks = await admin.tracks.of(message, on_failure=pass_over)
    except BolideError as exc:  # which must not hide the message
        pass_over(exc)
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


def check_charset(charset: str | None, option: str = "-f") -> None:
    """Raises a usage error."""
    try:
        codecs.lookup(charset or "utf-8")
    except LookupError as exc:
        raise typer.BadParameter(f"{option} {charset!r} is no charset") from exc
