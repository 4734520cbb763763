"""Offset commands: resetOffsetByTime."""

from typing import Annotated

import typer

from bolide.admin import AdminClient
from bolide.admin.offsets import Rollback
from bolide.cli.admin.session import AsDocument, NameServer, OfCluster, Switch, Topic, is_true, run
from bolide.cli.admin.times import TIME_FORMATS, parse_time
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.refusals import ConsumerNotOnline

Moved = dict[MessageQueue, int] | list[Rollback]


def reset_offset_by_time(
    group: Annotated[str, typer.Option("-g", "--group", help="Name of the consumer group.")],
    topic: Topic,
    when: Annotated[str, typer.Option("-s", "--timestamp", help=f"{TIME_FORMATS}.")],
    force: Annotated[
        Switch,
        typer.Option("-f", "--force", help="false: only backwards, so that no message is skipped."),
    ] = "true",
    broker: Annotated[
        str | None, typer.Option("-b", "--broker", help="With -q: address of one broker.")
    ] = None,
    queue_id: Annotated[
        int | None, typer.Option("-q", "--queue", min=0, help="With -b: one queue.")
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option("-o", "--offset", min=0, help="With -b and -q: reset to this offset."),
    ] = None,
    cluster: OfCluster = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Reset a consumer group to a time.

    Its consumers may be running.
    """
    timestamp = parse_time(when)
    names = f"group[{group}], topic[{topic}]"
    times = f"timestamp(string)[{when}], timestamp(long)[{timestamp}]"
    if broker is not None and queue_id is not None:
        target_queue = (broker, MessageQueue(topic, "", queue_id))
        target = _reset_queue(name_server, group, target_queue, timestamp, offset)
        if as_document:
            print_document(
                {"broker": broker, "topic": topic, "queueId": queue_id, "offset": target}
            )
            return
        where = f"queueId[{queue_id}], broker[{broker}]"
        print(f"start reset consumer offset by specified, {names}, {where}, {times}")
        print(f"reset consumer offset to {target}")
        return
    if any(given is not None for given in (broker, queue_id, offset)):
        raise typer.BadParameter("-b, -q and -o mean one queue: give -b and -q")

    async def act(admin: AdminClient) -> Moved:
        forced = is_true(force)
        try:
            return await admin.offsets.reset_by_time(
                group, topic, timestamp, force=forced, cluster=cluster
            )
        except ConsumerNotOnline:
            return await admin.offsets.reset_stopped(
                group, topic, timestamp, force=forced, cluster=cluster
            )

    moved = run(name_server, act)
    if as_document:
        _print_document(moved)
    else:
        print(f"start reset consumer offset by specified, {names}, force[{force}], {times}")
        _print_moved(moved)


def _reset_queue(
    name_server: str | None,
    group: str,
    target_queue: tuple[str, MessageQueue],
    timestamp: int,
    offset: int | None,
) -> int:
    address, queue = target_queue

    async def act(admin: AdminClient) -> int:
        target = offset
        if target is None:
            target = await admin.offsets.search_at(address, queue, timestamp)
        await admin.offsets.reset_queue(address, group, queue, target)
        return target

    return run(name_server, act)


def _print_moved(moved: Moved) -> None:
    if isinstance(moved, dict):
        table = Table("#brokerName", "#queueId", "#offset")
        for queue, offset in sorted(moved.items()):
            table.add(queue.broker_name, queue.queue_id, offset)
        table.print()
        return
    titles = ("#brokerOffset", "#consumerOffset", "#timestampOffset", "#resetOffset")
    table = Table("#brokerName", "#queueId", *titles)
    for each in moved:
        offsets = (each.broker_offset, each.consumer_offset)
        names = (each.queue.broker_name, each.queue.queue_id)
        table.add(*names, *offsets, each.timestamp_offset, each.reset_offset)
    table.print()


def _print_document(moved: Moved) -> None:
    if not isinstance(moved, dict):
        moved = {each.queue: each.reset_offset for each in moved}
    print_document(
        [
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset}
            for queue, offset in sorted(moved.items())
        ]
    )
