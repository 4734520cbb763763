"""Commands that read queues.

consumeMessage, printMsg, printMsgByQueue, queryMsgByOffset, queryCq.
"""

import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Annotated

import msgspec
import typer

from bolide.admin import AdminClient, AdminError
from bolide.admin.messages import TOOLS_GROUP, PulledMessages
from bolide.cli.admin.messages import BodyFormat, check_charset, show_message
from bolide.cli.admin.output import document_of, java_text, line_of
from bolide.cli.admin.progress import Advance, print_cut, progress_bar
from bolide.cli.admin.session import AsDocument, NameServer, Switch, Topic, is_true, pass_over, run
from bolide.cli.admin.times import TIME_FORMATS, parse_time
from bolide.cli.documents import print_document
from bolide.logs import one_line
from bolide.model.message import StoredMessage
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.queues import ConsumeQueueEntry, ConsumeQueueSlice
from bolide.protocol.codes import ResponseCode
from bolide.protocol.tags import ALL, BadTagExpression, TagExpression
from bolide.remoting.errors import RemotingError

_PULLED_AT_ONCE = 32
_STATUS = {
    ResponseCode.PULL_NOT_FOUND: "NO_NEW_MSG",
    ResponseCode.PULL_RETRY_IMMEDIATELY: "NO_MATCHED_MSG",
    ResponseCode.PULL_OFFSET_MOVED: "OFFSET_ILLEGAL",
}
"""RocketMQ's names of what a pull without messages means (`PullStatus`)."""
_RULE = "-" * 56
_CQ_RULE = "=" * 38

Span = tuple[int, int]
"""The first offset to read in a queue, and the offset after the last."""
Times = tuple[int | None, int | None]

Begin = Annotated[
    str | None, typer.Option("-b", "--beginTimestamp", help=f"First store time: {TIME_FORMATS}.")
]
End = Annotated[
    str | None, typer.Option("-e", "--endTimestamp", help="Last store time, exclusive.")
]
Charset = Annotated[str, typer.Option("-c", "--charsetName", help="Charset of the bodies.")]
Tags = Annotated[
    str,
    typer.Option("-s", "--subExpression", help="Only these tags, such as 'TagA || TagB'."),
]


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
    times = _times(begin, end)

    async def act(admin: AdminClient) -> None:
        queues = await queues_of(admin, topic, broker, queue_id)
        spans = await spans_of(admin, queues, offset, times)
        total = sum(max(end - at, 0) for at, end in spans.values())
        left = count
        with progress_bar("messages", min(total, count), prints=True) as advance:
            for queue, span in spans.items():
                async for pulled in pulls(admin, queue, span, group=group):
                    for message in pulled.messages:
                        if left == 0:
                            _say_cut(message, total, count, len(spans))
                            return
                        left -= 1
                        _print_message(message, as_document=as_document)
                        advance(1)

    run(name_server, act)


def print_msg(
    topic: Topic,
    charset: Charset = "UTF-8",
    tags: Tags = ALL,
    begin: Begin = None,
    end: End = None,
    with_bodies: Annotated[
        Switch, typer.Option("-d", "--printBody", help="Whether to print the bodies.")
    ] = "true",
    parent: Annotated[
        str | None,
        typer.Option("-l", "--lmqParentTopic", help="The topic whose route is used."),
    ] = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Print all messages of a topic, or those of some tags or of a time."""
    _check_printing(charset, tags)
    times = _times(begin, end)

    async def act(admin: AdminClient) -> None:
        queues = await queues_of(admin, parent or topic, None, None)
        renamed = [msgspec.structs.replace(each, topic=topic) for each in queues]
        spans = await spans_of(admin, renamed, None, times)
        total = sum(max(end - at, 0) for at, end in spans.values())
        with progress_bar("messages", total, prints=True) as advance:
            for queue, span in spans.items():
                name = _queue_text(queue)
                _say(f"minOffset={span[0]}, maxOffset={span[1]}, {name}", as_document)
                async for pulled in pulls(admin, queue, span, tags=tags, advance=advance):
                    for message in pulled.messages:
                        _print_message(message, charset, is_true(with_bodies), as_document)
                    if (status := _STATUS.get(ResponseCode(pulled.code))) is not None:
                        did = (
                            "no matched msg."
                            if status == "NO_MATCHED_MSG"
                            else "print msg finished."
                        )
                        facts = f"status={status}, offset={pulled.next_offset}"
                        _say(f"{name} {did} {facts}", as_document)
                _say(_RULE, as_document)

    run(name_server, act)


def print_msg_by_queue(
    topic: Topic,
    broker: Annotated[str, typer.Option("-a", "--brokerName", help="Name of the broker.")],
    queue_id: Annotated[int, typer.Option("-i", "--queueId", min=0, help="Number of the queue.")],
    charset: Charset = "UTF-8",
    tags: Tags = ALL,
    begin: Begin = None,
    end: End = None,
    with_messages: Annotated[
        Switch,
        typer.Option("-p", "--print msg", "--printMsg", help="Whether to print the messages."),
    ] = "false",
    with_bodies: Annotated[
        Switch, typer.Option("-d", "--printBody", help="With -p: whether to print the bodies.")
    ] = "false",
    by_tag: Annotated[
        Switch, typer.Option("-f", "--calculate", help="Whether to count the messages by tag.")
    ] = "false",
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Print the messages of one queue, or count them by tag."""
    _check_printing(charset, tags)
    times = _times(begin, end)
    if not (is_true(with_messages) or is_true(by_tag) or as_document):
        print("nothing is printed: give -p true, -f true, or both", file=sys.stderr)
        return

    async def act(admin: AdminClient) -> Counter[str]:
        counts = Counter[str]()
        (queue,) = await queues_of(admin, topic, broker, queue_id)
        span = await span_of(admin, queue, None, times)
        with progress_bar(
            "messages", max(span[1] - span[0], 0), prints=is_true(with_messages)
        ) as advance:
            async for pulled in pulls(admin, queue, span, tags=tags, advance=advance):
                counts.update(each.tags for each in pulled.messages if each.tags)
                if is_true(with_messages):
                    for message in pulled.messages:
                        _print_message(message, charset, is_true(with_bodies), as_document)
        return counts

    counts = run(name_server, act).most_common()
    if as_document and not is_true(with_messages):
        print_document([{"tag": tag, "count": count} for tag, count in counts])
    elif is_true(by_tag) and not as_document:
        for tag, count in counts:
            print(f"Tag: {tag:<30} Count: {count}")


def query_msg_by_offset(
    topic: Topic,
    broker: Annotated[str, typer.Option("-b", "--brokerName", help="Name of the broker.")],
    queue_id: Annotated[int, typer.Option("-i", "--queueId", min=0, help="Number of the queue.")],
    offset: Annotated[int, typer.Option("-o", "--offset", min=0, help="Offset in the queue.")],
    charset: BodyFormat = None,
    route_topic: Annotated[
        str | None,
        typer.Option("-r", "--routeTopic", help="Not needed: brokers are found by their names."),
    ] = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the message at an offset of a queue, and which groups have consumed it."""
    check_charset(charset)

    async def act(admin: AdminClient) -> None:
        message = await admin.messages.at(MessageQueue(topic, broker, queue_id), offset)
        await show_message(admin, message, charset, as_document)

    run(name_server, act)


def query_cq(
    topic: Topic,
    queue_id: Annotated[int, typer.Option("-q", "--queue", min=0, help="Number of the queue.")],
    index: Annotated[int, typer.Option("-i", "--index", min=0, help="Offset of the first entry.")],
    count: Annotated[
        int, typer.Option("-c", "--count", min=1, help="Maximum number of entries.")
    ] = 10,
    broker: Annotated[
        str | None,
        typer.Option("-b", "--broker", help="Address of a broker; by default one of the topic."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("-g", "--consumer", help="Also try the filter of this consumer group."),
    ] = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show entries of a consume queue."""

    async def act(admin: AdminClient) -> ConsumeQueueSlice:
        address = broker or await admin.topics.first_address(topic)
        return await admin.messages.queue_entries(address, (topic, queue_id), index, count, group)

    found = run(name_server, act)
    if as_document:
        entries = enumerate(found.queue_data or [], index)
        rows = [{"index": at} | msgspec.to_builtins(each) for at, each in entries]
        print_document(msgspec.to_builtins(found) | {"queueData": rows})
    else:
        _print_queue_entries(found, index)
    last = index + len(found.queue_data or [])
    if last < found.max_queue_index and len(found.queue_data or []) == count:
        print_cut(count, f"of {found.max_queue_index - index} entries", f"-i {last} goes on")


def _print_queue_entries(found: ConsumeQueueSlice, index: int) -> None:
    if found.subscription_data is not None:
        text = msgspec.json.format(msgspec.json.encode(found.subscription_data), indent=8)
        print(f"Subscription data: \n{text.decode()}\n{_CQ_RULE}")
    if found.filter_data is not None:
        print(f"Filter data: \n{one_line(found.filter_data)}\n{_CQ_RULE}")
    print(f"Queue data: \nmax: {found.max_queue_index}, min: {found.min_queue_index}\n{_CQ_RULE}")
    for at, entry in enumerate(found.queue_data or [], index):
        print(f"idx: {at}\n{_entry_text(entry)}\n{_CQ_RULE}")


def _entry_text(entry: ConsumeQueueEntry) -> str:
    return one_line(
        f"ConsumeQueueData{{physicOffset={entry.physic_offset}, physicSize={entry.physic_size}, "
        f"tagsCode={entry.tags_code}, extendDataJson='{java_text(entry.extend_data_json)}', "
        f"bitMap='{java_text(entry.bit_map)}', eval={java_text(entry.eval)}, "
        f"msg='{java_text(entry.msg)}'}}"
    )


async def queues_of(
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


async def spans_of(
    admin: AdminClient, queues: Iterable[MessageQueue], offset: int | None, times: Times
) -> dict[MessageQueue, Span]:
    """The part of each queue to read, without those of brokers that cannot be reached."""
    spans: dict[MessageQueue, Span] = {}
    unreachable = set[str]()
    for queue in queues:
        if queue.broker_name in unreachable:
            continue
        try:
            spans[queue] = await span_of(admin, queue, offset, times)
        except RemotingError as exc:
            unreachable.add(queue.broker_name)
            pass_over(exc)
    return spans


async def span_of(
    admin: AdminClient, queue: MessageQueue, offset: int | None, times: Times
) -> Span:
    begin, end = times
    first = await (
        admin.offsets.min(queue) if begin is None else admin.offsets.search(queue, begin)
    )
    last = await (admin.offsets.max(queue) if end is None else admin.offsets.search(queue, end))
    return max(first, offset or 0), last


async def pulls(
    admin: AdminClient,
    queue: MessageQueue,
    span: Span,
    *,
    group: str = TOOLS_GROUP,
    tags: str = ALL,
    advance: Advance = lambda _: None,
) -> AsyncIterator[PulledMessages]:
    """Read a part of a queue, pull by pull."""
    at, end = span
    while at < end:
        pulled = await admin.messages.pull(
            queue, at, min(end - at, _PULLED_AT_ONCE), group=group, tags=tags
        )
        pulled.messages[:] = (each for each in pulled.messages if each.queue_offset < end)
        yield pulled
        if pulled.next_offset <= at:
            return
        advance(min(pulled.next_offset, end) - at)
        at = pulled.next_offset


def _times(begin: str | None, end: str | None) -> Times:
    return (parse_time(begin) if begin else None, parse_time(end) if end else None)


def _check_printing(charset: str, tags: str) -> None:
    check_charset(charset, option="-c")
    try:
        TagExpression.parse(tags)
    except BadTagExpression as exc:
        raise typer.BadParameter(f"-s {exc}") from exc


def _print_message(
    message: StoredMessage,
    charset: str = "UTF-8",
    with_body: bool = True,
    as_document: bool = False,
) -> None:
    if as_document:
        found = document_of(message)
        print_document(found if with_body else found | {"body": None, "bodyText": None})
        return
    print(line_of(message, message.body.decode(charset, "replace") if with_body else None))


def _say(text: str, as_document: bool) -> None:
    if not as_document:
        print(text)


def _queue_text(queue: MessageQueue) -> str:
    """A queue as Java prints it."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


def _say_cut(following: StoredMessage, total: int, count: int, queues: int) -> None:
    place = f"-b {following.broker_name} -i {following.queue_id} -o {following.queue_offset}"
    where = "in 1 queue" if queues == 1 else f"in {queues} queues"
    goes_on = f"-c {count * 2} shows more, {place} goes on in that queue"
    print_cut(count, f"of {total} messages {where}", goes_on)
