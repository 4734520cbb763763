"""consumerStatus: what the members of a group report of themselves, and what is wrong with it."""

import re
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from bolide.admin import AdminClient
from bolide.admin.consumer_status import GroupStatus
from bolide.cli.admin.output import java_text
from bolide.cli.admin.progress import progress_bar
from bolide.cli.admin.session import AsDocument, NameServer, pass_over, run
from bolide.cli.documents import print_document
from bolide.logs import one_line
from bolide.private_files import SECRET_MODE, create_new_file
from bolide.protocol.bodies.consumers import HeldPopQueue, HeldQueue, RunningConsumer
from bolide.version import version_name

_UNSAFE = re.compile(r"[^0-9A-Za-z@#_.-]|^\.")
_LONGEST_NAME = 200
_ROW = "{:<10} {:<40} {:<20} {}"


def consumer_status(
    group: Annotated[str, typer.Option("-g", "--consumerGroup", help="Name of the group.")],
    client_id: Annotated[
        str | None, typer.Option("-i", "--clientId", help="Only this member, printed.")
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option("-b", "--brokerAddr", help="Only members connected to this broker."),
    ] = None,
    stacks: Annotated[
        bool, typer.Option("-s", "--jstack", help="Also the stacks of all their threads.")
    ] = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show what the members of a consumer group report, and whether they subscribe alike.

    Without -i what each reports is written to a file in a new directory below this one.
    """
    if client_id is not None:
        member = run(
            name_server, lambda admin: admin.clients.running(group, client_id, stacks=stacks)
        )
        if as_document:
            print_document(_document(client_id, member))
        else:
            print(running_text(member), end="")
        return

    async def act(admin: AdminClient) -> None:
        with progress_bar("members") as advance:
            status = await admin.consumer_status.of(
                group,
                broker,
                stacks=stacks,
                on_answer=lambda: advance(1),
                on_failure=pass_over,
            )
        for exc in status.failures.values():
            pass_over(exc)
        if as_document:
            _print_document(status)
        else:
            _print_members(status)
            _print_findings(status)

    run(name_server, act)


def _print_members(status: GroupStatus) -> None:
    directory = Path(str(int(time.time() * 1000)))
    if status.members:
        directory.mkdir(exist_ok=True)
    print(_ROW.format("#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile"))
    answered = [each for each in status.connections if each.client_id in status.members]
    for number, each in enumerate(answered, 1):
        name = each.client_id or ""
        path = directory / _file_name(name)
        path.unlink(missing_ok=True)
        with create_new_file(path, SECRET_MODE) as file:
            file.write(running_text(status.members[name]).encode())
        print(_ROW.format(number, one_line(name), version_name(each.version), path))


def _file_name(client_id: str) -> str:
    """A client chooses its id: it must not lead to another directory."""
    return _UNSAFE.sub("_", client_id)[:_LONGEST_NAME].replace("..", "__") or "_"


def _print_findings(status: GroupStatus) -> None:
    if not status.members:
        return
    differences = status.differences()
    if differences:
        print("\n\nWARN: Different subscription in the same group of consumer!!!")
        for each in differences:
            for name, expression in each.expressions.items():
                wanted = "not subscribed" if expression is None else expression
                print(one_line(f"{each.topic} {name}: {wanted}"))
        return
    print("\n\nSame subscription in the same group of consumer\n\nRebalance OK")
    for problem in status.problems():
        queue = problem.queue
        place = (
            f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
            f"queueId={queue.queue_id}]"
        )
        print(one_line(f"{problem.client_id} {place} {problem.text}"))


def _print_document(status: GroupStatus) -> None:
    versions = {each.client_id: version_name(each.version) for each in status.connections}
    members: list[dict[str, object]] = [
        {"version": versions.get(name)} | _document(name, member)
        for name, member in sorted(status.members.items())
    ]
    print_document(
        {
            "sameSubscription": not status.differences(),
            "differences": {each.topic: each.expressions for each in status.differences()},
            "problems": [
                f"{each.client_id} {each.queue} {each.text}" for each in status.problems()
            ],
            "members": members,
        }
    )


def _document(client_id: str, member: RunningConsumer) -> dict[str, object]:
    def queues(table: Iterable[tuple[object, object]]) -> list[object]:
        return [msgspec.to_builtins(queue) | msgspec.to_builtins(at) for queue, at in table]

    return {
        "clientId": client_id,
        "properties": member.properties,
        "subscriptionSet": member.subscription_set,
        "mqTable": queues(sorted(member.mq_table.items())),
        "mqPopTable": queues(sorted(member.mq_pop_table.items())),
        "statusTable": member.status_table,
        "userConsumerInfo": member.user_consumer_info,
        "jstack": member.jstack,
    }


def running_text(member: RunningConsumer) -> str:
    """What a member reports, as RocketMQ's tool writes it."""
    blocks = [
        ["#Consumer Properties#", *_pairs(member.properties)],
        ["#Consumer Subscription#", *_subscriptions(member)],
        ["#Consumer Offset#", *_offsets(member)],
        ["#Consumer MQ Detail#", *_queues(member)],
        ["#Consumer Pop Detail#", *_pop_queues(member)],
        ["#Consumer RT&TPS#", *_rates(member)],
        ["#User Consume Info#", *_pairs(member.user_consumer_info)],
    ]
    text = "\n\n".join("".join(f"{one_line(line)}\n" for line in block) for block in blocks)
    if member.jstack is None:
        return text
    # A client sends the stacks: their lines are theirs, other control characters are not printed.
    lines = "\n".join(one_line(line.expandtabs(4)) for line in member.jstack.splitlines())
    return f"{text}\n\n#Consumer jstack#\n{lines}\n"


def _pairs(values: dict[str, str]) -> list[str]:
    return [f"{name:<40}: {value}" for name, value in values.items()]


def _subscriptions(member: RunningConsumer) -> list[str]:
    found = sorted(member.subscription_set, key=lambda each: each.topic)
    return [
        f"{number:03d} Topic: {each.topic:<40} ClassFilter: {java_text(each.class_filter_mode):<8}"
        f" SubExpression: {each.sub_string}"
        for number, each in enumerate(found, 1)
    ]


def _offsets(member: RunningConsumer) -> list[str]:
    row = "{:<64}  {:<32}  {:<4}  {:<20}"
    titles = row.format("#Topic", "#Broker Name", "#QID", "#Consumer Offset")
    return [titles] + [
        row.format(queue.topic, queue.broker_name, queue.queue_id, held.commit_offset)
        for queue, held in sorted(member.mq_table.items())
    ]


def _queues(member: RunningConsumer) -> list[str]:
    row = "{:<64}  {:<32}  {:<4}  {}"
    titles = row.format("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo")
    return [titles] + [
        row.format(queue.topic, queue.broker_name, queue.queue_id, _held_text(held))
        for queue, held in sorted(member.mq_table.items())
    ]


def _pop_queues(member: RunningConsumer) -> list[str]:
    row = "{:<32}  {:<32}  {:<4}  {}"
    titles = row.format("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo")
    return [titles] + [
        row.format(queue.topic, queue.broker_name, queue.queue_id, _pop_text(held))
        for queue, held in sorted(member.mq_pop_table.items())
    ]


def _rates(member: RunningConsumer) -> list[str]:
    titles = (
        f"{'#Topic':<64}  {'#Pull RT':>14} {'#Pull TPS':>14} {'#Consume RT':>14} "
        f"{'#ConsumeOK TPS':>14} {'#ConsumeFailed TPS':>18} {'#ConsumeFailedMsgsInHour':>25}"
    )
    return [titles] + [
        f"{topic:<64}  {at.pull_rt:14.2f} {at.pull_tps:14.2f} {at.consume_rt:14.2f} "
        f"{at.consume_ok_tps:14.2f} {at.consume_failed_tps:18.2f} {at.consume_failed_msgs:25d}"
        for topic, at in sorted(member.status_table.items())
    ]


def _held_text(held: HeldQueue) -> str:
    facts = {
        "commitOffset": held.commit_offset,
        "cachedMsgMinOffset": held.cached_msg_min_offset,
        "cachedMsgMaxOffset": held.cached_msg_max_offset,
        "cachedMsgCount": held.cached_msg_count,
        "cachedMsgSizeInMiB": held.cached_msg_size_in_mib,
        "transactionMsgMinOffset": held.transaction_msg_min_offset,
        "transactionMsgMaxOffset": held.transaction_msg_max_offset,
        "transactionMsgCount": held.transaction_msg_count,
        "locked": java_text(held.locked),
        "tryUnlockTimes": held.try_unlock_times,
        "lastLockTimestamp": _compact_time(held.last_lock_timestamp),
        "droped": java_text(held.droped),
        "lastPullTimestamp": _compact_time(held.last_pull_timestamp),
        "lastConsumeTimestamp": _compact_time(held.last_consume_timestamp),
    }
    return f"ProcessQueueInfo [{', '.join(f'{name}={value}' for name, value in facts.items())}]"


def _pop_text(held: HeldPopQueue) -> str:
    return (
        f"PopProcessQueueInfo [waitAckCount:{held.wait_ack_count}, "
        f"droped:{java_text(held.droped)}, lastPopTimestamp:{held.last_pop_timestamp}]"
    )


def _compact_time(timestamp_ms: int) -> str:
    """Local time as `yyyyMMddHHmmssSSS`; the number itself if out of range."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000).astimezone()
    except (ValueError, OverflowError, OSError):  # a client may have sent any number
        return str(timestamp_ms)
    return f"{moment:%Y%m%d%H%M%S}{timestamp_ms % 1000:03d}"
