"""Topic commands: updateTopic, updateTopicPerm, topicList, topicRoute, topicStatus,
updateOrderConf.
"""

from collections.abc import Awaitable
from typing import Annotated, Literal, TypeVar

import msgspec
import typer

from bolide.admin import AdminClient
from bolide.admin.errors import AdminError
from bolide.admin.servers import ask_failed_no_more, gather_by_key
from bolide.cli.admin.each_server import answers_of, changed_at
from bolide.cli.admin.output import by_queue, java_map, java_text, time_text
from bolide.cli.admin.session import (
    AsDocument,
    BrokerAddress,
    ClusterName,
    NameServer,
    OfCluster,
    Switch,
    Topic,
    is_true,
    pass_over,
    require_one,
    run,
    targets,
)
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.errors import BolideError
from bolide.logs import one_line
from bolide.model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.bodies.topics import TopicConfig

T = TypeVar("T")

_READ, _WRITE, _INHERIT = 4, 2, 1
_INT_MAX = 2**31 - 1
_UNIT, _UNIT_SUBSCRIBED = 1, 2
Perm = Annotated[
    int,
    typer.Option("-p", "--perm", min=0, max=7, help="Permission: 2 write, 4 read, 6 both."),
]


def update_topic(
    topic: Topic,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    read_queues: Annotated[
        int,
        typer.Option(
            "-r", "--readQueueNums", min=1, max=_INT_MAX, help="Read queues on each broker."
        ),
    ] = 8,
    write_queues: Annotated[
        int,
        typer.Option(
            "-w", "--writeQueueNums", min=1, max=_INT_MAX, help="Write queues on each broker."
        ),
    ] = 8,
    perm: Perm = 6,
    order: Annotated[
        Switch,
        typer.Option("-o", "--order", help="Whether the number of queues of each broker is fixed."),
    ] = "false",
    unit: Annotated[
        Switch, typer.Option("-u", "--unit", help="Whether the topic belongs to one unit.")
    ] = "false",
    unit_subscribed: Annotated[
        Switch, typer.Option("-s", "--hasUnitSub", help="Whether units subscribe to the topic.")
    ] = "false",
    attributes: Annotated[
        str | None, typer.Option("-a", "--attributes", help="Changes: +a=b,+c=d,-e")
    ] = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Create or change a topic."""
    require_one(broker, cluster)
    config = TopicConfig(
        topic_name=topic,
        read_queue_nums=read_queues,
        write_queue_nums=write_queues,
        perm=perm,
        order=is_true(order),
        topic_sys_flag=_UNIT * is_true(unit) | _UNIT_SUBSCRIBED * is_true(unit_subscribed),
        attributes=parse_attributes(attributes or ""),
    )

    async def act(admin: AdminClient) -> None:
        addresses = await changed_at(
            await targets(admin, broker, cluster),
            lambda address: admin.topics.update(address, config),
            None if as_document else "create topic to {} success.",
        )
        order_conf = await _set_order_conf(admin, config, broker, cluster)
        if as_document:
            print_document({"brokers": addresses, "topicConfig": config, "orderConf": order_conf})
            return
        if order_conf is not None:
            kind = "cluster" if cluster else "broker"
            print(f"set {kind} orderConf. isOrder=true, orderConf=[{order_conf}]")
        print(config_text(config))

    run(name_server, act)


def update_topic_perm(
    topic: Topic,
    perm: Perm,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Change the read and write permission of a topic."""
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> None:
        async def change(address: str) -> TopicConfig:
            old = await admin.topics.set_perm(address, topic, perm)
            if not as_document:
                _print_perm(address, old, perm, whole=broker is not None)
            return old

        found = await answers_of(await targets(admin, broker, cluster), change, changes=True)
        if as_document:
            changed = ((address, old.perm) for address, old in found.items())
            print_document([{"broker": at, "oldPerm": old, "perm": perm} for at, old in changed])

    run(name_server, act)


def topic_list(
    with_clusters: Annotated[
        bool, typer.Option("-c", "--clusterModel", help="Also show clusters and consumer groups.")
    ] = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """List all topics."""
    if with_clusters:
        _list_with_groups(name_server, as_document)
        return
    names = run(name_server, lambda admin: admin.topics.names())
    if as_document:
        print_document(names)
    else:
        print("\n".join(map(one_line, names)))


def topic_route(
    topic: Topic,
    as_list: Annotated[bool, typer.Option("-l", "--list", help="Print a table.")] = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show which brokers serve a topic."""
    route = run(name_server, lambda admin: admin.topics.route(topic))
    text = fastjson.encode(route, standard=True)
    if as_document:
        print_document(msgspec.json.decode(text))
    elif as_list:
        _print_route(route)
    else:
        print(msgspec.json.format(text, indent=8).decode())


def topic_status(
    topic: Topic,
    cluster: OfCluster = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the offsets of the queues of a topic.

    The last column is the time of the last write.
    """
    stats = run(name_server, lambda admin: admin.topics.stats(topic, cluster, on_failure=pass_over))
    if as_document:
        print_document({"queues": by_queue(stats.offset_table), "topicPutTps": stats.topic_put_tps})
        return
    table = Table("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated")
    for queue, ends in sorted(stats.offset_table.items()):
        updated = time_text(ends.last_update_timestamp) if ends.last_update_timestamp > 0 else ""
        table.add(queue.broker_name, queue.queue_id, ends.min_offset, ends.max_offset, updated)
    table.print()
    print(f"\nTopic Put TPS: {stats.topic_put_tps}")


def _print_perm(address: str, old: TopicConfig, perm: int, *, whole: bool) -> None:
    if old.perm == perm:
        print(f"new perm equals to the old one in {address}!")
        return
    print(f"update topic perm from {old.perm} to {perm} in {address} success.")
    if whole:
        print(f"{config_text(msgspec.structs.replace(old, perm=perm))}.")


def parse_attributes(text: str) -> dict[str, str]:
    """Parse `+a=b,-c` to `{"+a": "b", "-c": ""}`; raises a usage error."""
    found = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = word.partition("=")
        adds = name[:1] == "+" and bool(equals)
        removes = name[:1] == "-" and not equals
        if len(name) < 2 or not (adds or removes):
            raise typer.BadParameter(f"attribute {word!r} is neither +name=value nor -name")
        found[name] = value
    return found


def config_text(config: TopicConfig) -> str:
    """The configuration in the format of Java's tools."""
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={_perm_text(config.perm)}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={java_text(config.order)}, attributes={java_map(config.attributes)}]"
    )


def _perm_text(perm: int) -> str:
    bits = ((_READ, "R"), (_WRITE, "W"), (_INHERIT, "X"))
    return "".join(letter if perm & bit else "-" for bit, letter in bits)


async def _set_order_conf(
    admin: AdminClient, config: TopicConfig, broker: str | None, cluster: str | None
) -> str | None:
    """Set the order configuration, which fixes the number of queues of an ordered topic."""
    if not config.order:
        return None
    topic, queues = config.topic_name, config.write_queue_nums
    if broker is not None:
        name = (await admin.clusters.broker_at(broker)).broker_name
        await admin.name_servers.add_order_conf(topic, name, queues)
        return f"{name}:{queues}"
    assert cluster is not None
    names = [found.broker_name for found in await admin.clusters.brokers(cluster)]
    return await admin.name_servers.put_order_conf(topic, dict.fromkeys(names, queues))


def _list_with_groups(name_server: str | None, as_document: bool) -> None:
    async def act(admin: AdminClient) -> list[dict[str, object]]:
        hidden = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
        names = [name for name in await admin.topics.names() if not name.startswith(hidden)]
        with ask_failed_no_more():
            found = await gather_by_key(names, lambda topic: _topic_entry(admin, topic))
        return [*found.values()]

    found = run(name_server, act)
    if as_document:
        print_document(found)
        return
    table = Table("#Cluster Name", "#Topic", "#Consumer Group")
    for entry in found:
        groups = ["N/A"] if entry["consumerGroups"] is None else entry["consumerGroups"]
        assert isinstance(groups, list)
        for group in groups or [""]:
            table.add(entry["cluster"] or "N/A", entry["topic"], group)
    table.print()


async def _topic_entry(admin: AdminClient, topic: str) -> dict[str, object]:
    """The clusters and groups of a topic; None where a broker does not tell."""
    clusters = await _or_none(admin.topics.clusters(topic))
    groups = await _or_none(admin.topics.groups(topic))
    joined = None if clusters is None else ",".join(clusters)
    return {"cluster": joined, "topic": topic, "consumerGroups": groups}


async def _or_none(answer: Awaitable[T]) -> T | None:
    try:
        return await answer
    except BolideError as exc:
        pass_over(exc)
        return None


def _print_route(route: TopicRoute) -> None:
    queues = {data.broker_name: data for data in route.queue_datas}
    titles = ("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")
    table = Table(*titles)
    for broker in sorted(route.broker_datas, key=lambda broker: broker.broker_name):
        data = queues[broker.broker_name]
        addresses = java_map({str(key): at for key, at in sorted(broker.broker_addrs.items())})
        counts = (data.read_queue_nums, data.write_queue_nums, data.perm)
        table.add(broker.cluster or "", broker.broker_name, addresses, *counts)
    reads = sum(data.read_queue_nums for data in queues.values())
    writes = sum(data.write_queue_nums for data in queues.values())
    table.add("Total:", len(queues), "", reads, writes, "")
    table.print()


def update_order_conf(
    topic: Topic,
    method: Annotated[
        Literal["put", "get", "delete"], typer.Option("-m", "--method", help="Operation.")
    ],
    value: Annotated[
        str | None, typer.Option("-v", "--orderConf", help="With put: broker:queues;broker:queues")
    ] = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Set, show or delete the order configuration of a topic.

    NameServers with orderMessageEnable send it to producers, which then use only these queues.
    """
    queues = _parsed(value or "") if method == "put" else {}

    async def act(admin: AdminClient) -> str | None:
        if method == "put":
            return await admin.name_servers.put_order_conf(topic, queues)
        if method == "get":
            return await _require(admin, topic)
        await admin.name_servers.delete_order_conf(topic)
        return None

    conf = run(name_server, act)
    if as_document:
        print_document({"topic": topic, "method": method, "orderConf": conf})
    elif method == "delete":
        print(f"delete orderConf success. topic=[{topic}]")
    else:
        done = "get" if method == "get" else "update"
        print(f"{done} orderConf success. topic=[{topic}], orderConf=[{conf}]")


async def _require(admin: AdminClient, topic: str) -> str:
    found = await admin.name_servers.find_order_conf(topic)
    if found is None:
        raise AdminError(f"topic {topic!r} has no order configuration; -m put sets one")
    return found


def _parsed(text: str) -> dict[str, int]:
    """Parse `broker-a:4` to `{"broker-a": 4}`; raises a usage error."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        broker, _, count = part.rpartition(":")
        if not broker or not count.isdecimal() or not int(count):
            raise typer.BadParameter(f"-v {part!r} is not broker:queues")
        found[broker] = int(count)
    if not found:
        raise typer.BadParameter("-m put needs -v broker:queues;broker:queues")
    return found
