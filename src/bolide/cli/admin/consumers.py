"""Client commands: consumerProgress, consumerConnection, producerConnection."""

from typing import Annotated

import typer

from bolide.admin import AdminClient
from bolide.admin.consumer_lag import GroupLag, inflight_of, lag_of
from bolide.cli.admin.output import Table, by_queue, java_text, print_json, time_text
from bolide.cli.admin.session import Json, NameServer, OfCluster, Switch, Topic, is_true, run
from bolide.errors import BolideError
from bolide.logs import one_line
from bolide.protocol.bodies.consumers import ConsumerConnections
from bolide.protocol.bodies.heartbeat import ConsumeType
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.stats import ConsumeStats
from bolide.version import version_name


def consumer_progress(
    group: Annotated[
        str | None, typer.Option("-g", "--groupName", help="One group; by default all.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("-t", "--topicName", help="With -g: only this topic.")
    ] = None,
    show_clients: Annotated[
        Switch,
        typer.Option(
            "-s", "--showClientIP", help="With -g: show the client that consumes each queue."
        ),
    ] = "false",
    cluster: OfCluster = None,
    as_json: Json = False,
    name_server: NameServer = None,
) -> None:
    """Show the lag and the rate of consumers."""
    if group is None:
        found = run(name_server, lambda admin: admin.progress.of_all())
        print_json(found) if as_json else _print_groups(found)
        return
    wanted = group

    async def act(admin: AdminClient) -> tuple[ConsumeStats, dict[MessageQueue, str] | None]:
        stats = await admin.offsets.progress(wanted, topic, cluster)
        if not stats.offset_table:
            await admin.clients.consumers(wanted)  # raises GroupOffline without consumers
        return stats, await _owners(admin, wanted) if is_true(show_clients) else None

    stats, owners = run(name_server, act)
    if as_json:
        _print_document(stats, owners)
    else:
        _print_progress(stats, owners)


def consumer_connection(
    group: Annotated[str, typer.Option("-g", "--consumerGroup", help="Name of the group.")],
    broker: Annotated[
        str | None, typer.Option("-b", "--brokerAddr", help="Query only this broker.")
    ] = None,
    as_json: Json = False,
    name_server: NameServer = None,
) -> None:
    """Show the connected consumers of a group.

    Their subscriptions are listed below.
    """
    found = run(name_server, lambda admin: admin.clients.consumers(group, broker))
    if as_json:
        print_json(found)
    else:
        _print_consumers(found)


def producer_connection(
    group: Annotated[str, typer.Option("-g", "--producerGroup", help="Name of the group.")],
    topic: Topic,
    as_json: Json = False,
    name_server: NameServer = None,
) -> None:
    """Show the connected producers of a group.

    Queries the brokers of the topic.
    """
    found = run(name_server, lambda admin: admin.clients.producers(group, topic))
    if as_json:
        print_json(found)
        return
    for number, each in enumerate(found.connection_set, 1):
        version = version_name(each.version)
        client_id = one_line(java_text(each.client_id))
        print(f"{number:04d}  {client_id:<32} {each.client_addr:<22} {each.language} {version}")


async def _owners(admin: AdminClient, group: str) -> dict[MessageQueue, str]:
    """The IP address of the client that consumes each queue, as far as clients report it."""
    owners: dict[MessageQueue, str] = {}
    try:
        for each in (await admin.clients.consumers(group)).connection_set:
            client_id = each.client_id or ""
            running = await admin.clients.running(group, client_id)
            owners |= dict.fromkeys(running.mq_table, client_id.partition("@")[0])
    except BolideError:
        return owners  # an old client, or one that has just left; its queues show N/A
    return owners


def _print_progress(stats: ConsumeStats, owners: dict[MessageQueue, str] | None) -> None:
    titles = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset"]
    titles += ["#Client IP"] if owners is not None else []
    table = Table(*titles, "#Diff", "#Inflight", "#LastTime")
    for queue, at in sorted(stats.offset_table.items()):
        columns = [queue.topic, queue.broker_name, queue.queue_id]
        owner = [] if owners is None else [owners.get(queue, "N/A")]
        lags = [at.broker_offset - at.consumer_offset, at.pull_offset - at.consumer_offset]
        last = time_text(at.last_timestamp, millis=False) if at.last_timestamp else "N/A"
        table.add(*columns, at.broker_offset, at.consumer_offset, *owner, *lags, last)
    table.print()
    print(f"\nConsume TPS: {stats.consume_tps:.2f}")
    print(f"Consume Diff Total: {lag_of(stats)}")
    print(f"Consume Inflight Total: {inflight_of(stats)}")


def _print_document(stats: ConsumeStats, owners: dict[MessageQueue, str] | None) -> None:
    queues = by_queue(stats.offset_table)
    if owners is not None:
        for entry, queue in zip(queues, sorted(stats.offset_table), strict=True):
            entry["clientIp"] = owners.get(queue)
    totals = {"diffTotal": lag_of(stats), "inflightTotal": inflight_of(stats)}
    print_json({"queues": queues, "consumeTps": stats.consume_tps} | totals)


def _print_groups(found: list[GroupLag]) -> None:
    table = Table("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total")
    for each in found:
        version = "OFFLINE" if each.version is None else version_name(each.version)
        kind = "PULL" if each.consume_type is ConsumeType.CONSUME_ACTIVELY else "PUSH"
        pushes = each.consume_type is ConsumeType.CONSUME_PASSIVELY
        model = each.message_model if pushes and each.message_model else ""
        table.add(
            each.group,
            each.clients,
            version,
            kind if each.clients else "",
            model if each.clients else "",
            int(each.tps),
            each.lag,
        )
    table.print()


def _print_consumers(found: ConsumerConnections) -> None:
    table = Table("#ClientId", "#ClientAddr", "#Language", "#Version")
    for each in found.connection_set:
        table.add(each.client_id, each.client_addr, each.language, version_name(each.version))
    table.print()
    print("\nBelow is subscription:")
    subscriptions = Table("#Topic", "#SubExpression")
    for topic, subscription in sorted(found.subscription_table.items()):
        subscriptions.add(topic, subscription.sub_string)
    subscriptions.print()
    print(f"\nConsumeType: {java_text(found.consume_type)}")
    print(f"MessageModel: {java_text(found.message_model)}")
    print(f"ConsumeFromWhere: {java_text(found.consume_from_where)}")
