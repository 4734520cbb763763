"""Client commands.

consumerProgress, consumerConnection, producerConnection, producer, allocateMQ.
"""

from typing import Annotated

import msgspec
import typer

from bolide.admin import AdminClient
from bolide.admin.consumer_lag import GroupLag, inflight_of, lag_of
from bolide.cli.admin.output import UNKNOWN, by_queue, java_text, time_text, total_text
from bolide.cli.admin.session import (
    AsDocument,
    NameServer,
    OfCluster,
    Switch,
    Topic,
    is_true,
    items,
    pass_over,
    run,
)
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.errors import BolideError
from bolide.logs import one_line, plain_json
from bolide.model import allocation
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
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the lag and the rate of consumers."""
    if group is None:
        found = run(name_server, lambda admin: admin.progress.of_all())
        for exc in (exc for each in found for exc in each.failures):
            pass_over(exc)
        print_document([*map(_group_document, found)]) if as_document else _print_groups(found)
        return
    wanted = group

    async def act(admin: AdminClient) -> tuple[ConsumeStats, dict[MessageQueue, str] | None]:
        stats = await admin.offsets.progress(wanted, topic, cluster, on_failure=pass_over)
        if not stats.offset_table:
            await admin.clients.consumers(wanted)  # raises GroupOffline without consumers
        return stats, await _owners(admin, wanted) if is_true(show_clients) else None

    stats, owners = run(name_server, act)
    if as_document:
        _print_document(stats, owners)
    else:
        _print_progress(stats, owners)


def consumer_connection(
    group: Annotated[str, typer.Option("-g", "--consumerGroup", help="Name of the group.")],
    broker: Annotated[
        str | None, typer.Option("-b", "--brokerAddr", help="Query only this broker.")
    ] = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the connected consumers of a group.

    Their subscriptions are listed below.
    """
    found = run(
        name_server,
        lambda admin: admin.clients.consumers(group, broker, on_failure=pass_over),
    )
    if as_document:
        print_document(found)
    else:
        _print_consumers(found)


def producer_connection(
    group: Annotated[str, typer.Option("-g", "--producerGroup", help="Name of the group.")],
    topic: Topic,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the connected producers of a group.

    Queries the brokers of the topic.
    """
    found = run(
        name_server,
        lambda admin: admin.clients.producers(group, topic, on_failure=pass_over),
    )
    if as_document:
        print_document(found)
        return
    for number, each in enumerate(found.connection_set, 1):
        version = version_name(each.version)
        client_id = one_line(java_text(each.client_id))
        print(f"{number:04d}  {client_id:<32} {each.client_addr:<22} {each.language} {version}")


def producer(
    broker: Annotated[str, typer.Option("-b", "--broker", help="Address of one broker.")],
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """List the producers connected to a broker."""
    found = run(name_server, lambda admin: admin.brokers.producers(broker)).data
    if as_document:
        rows = [
            {"group": group} | msgspec.to_builtins(each)
            for group, members in sorted(found.items())
            for each in members
        ]
        print_document(rows)
        return
    for group, members in sorted(found.items()):
        if not members:
            print(one_line(f"producer group ({group}) instances are empty"))
        for each in members:
            facts = (
                f"clientId={java_text(each.client_id)},remoteIP={java_text(each.remote_ip)}, "
                f"language={java_text(each.language)}, version={each.version}, "
                f"lastUpdateTimestamp={each.last_update_timestamp}"
            )
            print(one_line(f"producer group ({group}) instance : {facts}"))


def allocate_mq(
    topic: Topic,
    addresses: Annotated[
        str,
        typer.Option("-i", "--ipList", help="Addresses of the members, separated by commas."),
    ],
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show how the queues of a topic are divided among members, on average."""
    members = items(addresses)
    if not members:
        raise typer.BadParameter("-i names no address")
    queues = run(name_server, lambda admin: admin.topics.queues(topic))
    shares = {
        member: allocation.average(queues, index, len(members))
        for index, member in enumerate(members)
    }
    if as_document:
        print_document(
            [
                {"ip": member} | msgspec.to_builtins(queue)
                for member, share in shares.items()
                for queue in share
            ]
        )
        return
    # Java prints the fields of a queue by name.
    result = {
        member: [dict(sorted(msgspec.to_builtins(queue).items())) for queue in share]
        for member, share in shares.items()
    }
    print(plain_json(msgspec.json.encode({"result": result}).decode()))


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
    print_document({"queues": queues, "consumeTps": stats.consume_tps} | totals)


def _print_groups(found: list[GroupLag]) -> None:
    table = Table("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total")
    for each in found:
        away = "OFFLINE" if each.clients is not None else UNKNOWN
        version = away if each.version is None else version_name(each.version)
        is_connected = each.version is not None
        kind = "PULL" if each.consume_type is ConsumeType.CONSUME_ACTIVELY else "PUSH"
        pushes = each.consume_type is ConsumeType.CONSUME_PASSIVELY
        model = each.message_model if pushes and each.message_model else ""
        table.add(
            each.group,
            total_text(each.clients, each.least_clients),
            version,
            kind if is_connected else "",
            model if is_connected else "",
            UNKNOWN if each.tps is None else int(each.tps),
            total_text(each.lag, each.least_lag),
        )
    table.print()


def _group_document(found: GroupLag) -> dict[str, object]:
    return {
        "group": found.group,
        "clients": found.clients,
        "leastClients": found.least_clients,
        "version": found.version,
        "consumeType": found.consume_type,
        "messageModel": found.message_model,
        "tps": found.tps,
        "diffTotal": found.lag,
        "leastDiffTotal": found.least_lag,
    }


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
