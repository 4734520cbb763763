"""Offset commands: resetOffsetByTime, skipAccumulatedMessage, cloneGroupOffset."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Annotated

import typer

from bolide.admin import AdminClient
from bolide.admin.errors import GroupOffline, GroupUnknown
from bolide.admin.offset_moves import OffsetMove, Rollback
from bolide.admin.offsets import AT_END
from bolide.cli.admin.confirmation import DryRun, Yes, confirm
from bolide.cli.admin.each_server import answers_of
from bolide.cli.admin.session import (
    AsDocument,
    NameServer,
    OfCluster,
    Switch,
    Topic,
    is_true,
    run,
)
from bolide.cli.admin.times import TIME_FORMATS, parse_time
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.refusals import ConsumerNotOnline

Moved = list[dict[MessageQueue, int] | list[Rollback]]
"""What was moved on each broker, by the broker or by committing."""

OfGroup = Annotated[str, typer.Option("-g", "--group", help="Name of the consumer group.")]
Force = Annotated[
    Switch,
    typer.Option("-f", "--force", help="false: only backwards, so that no message is skipped."),
]


def reset_offset_by_time(
    group: OfGroup,
    topic: Topic,
    when: Annotated[str, typer.Option("-s", "--timestamp", help=f"{TIME_FORMATS}; -1 is the end.")],
    force: Force = "true",
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
    cplus: Annotated[
        bool, typer.Option("--cplus", help="Not needed: brokers know which members are C++.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Reset a consumer group to a time.

    Its consumers may be running.
    """
    timestamp = parse_time(when)
    names = f"group[{group}], topic[{topic}]"
    times = f"timestamp(string)[{when}], timestamp(long)[{timestamp}]"
    question = f"Reset group {group} in topic {topic}?"
    choice = _Choice(question, yes, dry_run, as_document)
    if broker is not None and queue_id is not None:
        queue = MessageQueue(topic, "", queue_id)
        target = _queue_target(name_server, (broker, queue), timestamp, offset)

        async def planned(admin: AdminClient) -> list[OffsetMove]:
            return [await admin.offsets.plan_queue_reset(broker, group, queue, target)]

        choice.confirm(name_server, group, planned)
        run(name_server, lambda admin: admin.offsets.reset_queue(broker, group, queue, target))
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
    moved = _reset(name_server, _Target(group, topic, timestamp, is_true(force), cluster), choice)
    if as_document:
        _print_document(moved)
    else:
        print(f"start reset consumer offset by specified, {names}, force[{force}], {times}")
        _print_moved(moved, "#resetOffset")


def skip_accumulated_message(
    group: OfGroup,
    topic: Topic,
    force: Force = "true",
    cluster: OfCluster = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Move a consumer group to the end of a topic, past all that it has not consumed."""
    question = f"Skip what group {group} has not consumed of topic {topic}?"
    choice = _Choice(question, yes, dry_run, as_document)
    moved = _reset(name_server, _Target(group, topic, AT_END, is_true(force), cluster), choice)
    _print_document(moved) if as_document else _print_moved(moved, "#rollbackOffset")


def clone_group_offset(
    source: Annotated[
        str, typer.Option("-s", "--srcGroup", help="The group whose offsets are copied.")
    ],
    target: Annotated[str, typer.Option("-d", "--destGroup", help="The group that gets them.")],
    topic: Topic,
    offline: Annotated[
        str | None,
        typer.Option("-o", "--offline", help="Not used, as in RocketMQ: stop the group first."),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Copy the committed offsets of a group in a topic to another group."""
    question = f"Give group {target} the offsets of group {source} in topic {topic}?"
    plan = run(name_server, lambda admin: admin.offsets.plan_copy(source, target, topic))
    moves = [each for part in plan.values() for each in part]

    async def planned(_: AdminClient) -> list[OffsetMove]:
        return moves

    choice = _Choice(question, yes, dry_run, as_document, is_overwritten=True)
    choice.confirm(name_server, target, planned)

    async def act(admin: AdminClient) -> list[str]:
        async def commit(address: str) -> None:
            await admin.offsets.commit_moves(address, target, plan[address])

        return [*(await answers_of(plan, commit, changes=True))]

    done = run(name_server, act)
    if as_document:
        print_document([_document(each) for address in done for each in plan[address]])
        return
    groups = f"srcGroup[{source}], destGroup=[{target}]"
    where = "" if len(done) == len(plan) else f", only on {', '.join(done)}"
    print(f"clone group offset success. {groups}, topic[{topic}]{where}")


@dataclass(frozen=True, slots=True)
class _Target:
    """What is reset, and to which time."""

    group: str
    topic: str
    timestamp: int
    force: bool
    cluster: str | None


@dataclass(frozen=True, slots=True)
class _Choice:
    """Whether offsets are moved: what is asked, and the options that answer it."""

    question: str
    yes: bool
    dry_run: bool
    as_document: bool
    is_overwritten: bool = False
    """Whether running members overwrite the offsets instead of going on from them."""

    def confirm(
        self,
        name_server: str | None,
        group: str,
        plan: Callable[[AdminClient], Awaitable[list[OffsetMove]]],
    ) -> None:
        """Show the planned moves, and ask; what is agreed to already is not planned."""
        if self.yes and not self.dry_run:
            return

        async def look(admin: AdminClient) -> tuple[list[OffsetMove], int]:
            return await plan(admin), await _members(admin, group)

        moves, members = run(name_server, look)
        fate = "overwrite the offsets: stop them first" if self.is_overwritten else "go on there"
        online = f"{members} members of group {group} are online"
        confirm(
            self.question,
            [_moves_table(moves), f"{online}{f', who {fate}' if members else ''}"],
            [_document(each) for each in moves],
            yes=self.yes,
            dry_run=self.dry_run,
            as_document=self.as_document,
        )


def _reset(name_server: str | None, target: _Target, choice: _Choice) -> Moved:
    group, topic, timestamp = target.group, target.topic, target.timestamp
    choice.confirm(
        name_server,
        group,
        lambda admin: admin.offsets.plan_reset(
            group, topic, timestamp, force=target.force, cluster=target.cluster
        ),
    )

    async def act(admin: AdminClient) -> Moved:
        async def reset(address: str) -> dict[MessageQueue, int] | list[Rollback]:
            offsets, what = admin.offsets, (address, group, topic, timestamp)
            try:
                return await offsets.reset_at(*what, force=target.force)
            except ConsumerNotOnline:
                return await offsets.reset_stopped_at(*what, force=target.force)

        addresses = (await admin.topics.addresses(topic, target.cluster)).values()
        return [*(await answers_of(addresses, reset, changes=True)).values()]

    return run(name_server, act)


def _queue_target(
    name_server: str | None,
    target_queue: tuple[str, MessageQueue],
    timestamp: int,
    offset: int | None,
) -> int:
    """The offset that -o names, or that of the time."""
    if offset is not None:
        return offset
    return run(name_server, lambda admin: _offset_at(admin, target_queue, timestamp))


async def _offset_at(
    admin: AdminClient, target_queue: tuple[str, MessageQueue], timestamp: int
) -> int:
    address, queue = target_queue
    if timestamp == AT_END:
        return (await admin.offsets.bounds_at(address, queue))[1].max_offset
    return await admin.offsets.search_at(address, queue, timestamp)


async def _members(admin: AdminClient, group: str) -> int:
    try:
        return len((await admin.clients.consumers(group)).connection_set)
    except (GroupOffline, GroupUnknown):
        return 0


def _moves_table(moves: Iterable[OffsetMove]) -> Table:
    table = Table(
        "#brokerName", "#queueId", "#minOffset", "#maxOffset", "#before", "#after",
        "#deliveredAgain", "#skipped",
    )  # fmt: skip
    redelivered = skipped = 0
    is_known = True
    for each in moves:
        queue, before = each.queue, "-" if each.before is None else each.before
        bounds = (each.min_offset, each.max_offset)
        counts = (each.redelivered, _count(each.skipped_at_most, each.skipped is not None))
        table.add(queue.broker_name, queue.queue_id, *bounds, before, each.after, *counts)
        redelivered += each.redelivered
        skipped += each.skipped_at_most
        is_known = is_known and each.skipped is not None
    table.add("Total:", "", "", "", "", "", redelivered, _count(skipped, is_known))
    return table


def _count(at_most: int, is_known: bool) -> str:
    return str(at_most) if is_known else f"up to {at_most}"


def _document(move: OffsetMove) -> dict[str, object]:
    return {
        "brokerName": move.queue.broker_name,
        "queueId": move.queue.queue_id,
        "minOffset": move.min_offset,
        "maxOffset": move.max_offset,
        "before": move.before,
        "after": move.after,
        "deliveredAgain": move.redelivered,
        "skipped": move.skipped,
    }


def _print_moved(moved: Moved, title: str) -> None:
    by_brokers = [(q, at) for part in moved if isinstance(part, dict) for q, at in part.items()]
    committed = [each for part in moved if isinstance(part, list) for each in part]
    if by_brokers or not committed:
        table = Table("#brokerName", "#queueId", "#offset")
        for queue, offset in sorted(by_brokers):
            table.add(queue.broker_name, queue.queue_id, offset)
        table.print()
    if committed:
        titles = ("#brokerOffset", "#consumerOffset", "#timestampOffset", title)
        table = Table("#brokerName", "#queueId", *titles)
        for each in committed:
            offsets = (each.broker_offset, each.consumer_offset)
            names = (each.queue.broker_name, each.queue.queue_id)
            table.add(*names, *offsets, each.timestamp_offset, each.reset_offset)
        table.print()


def _print_document(moved: Moved) -> None:
    offsets: dict[MessageQueue, int] = {}
    for part in moved:
        if isinstance(part, list):
            offsets |= {each.queue: each.reset_offset for each in part}
        else:
            offsets |= part
    print_document(
        [
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset}
            for queue, offset in sorted(offsets.items())
        ]
    )
