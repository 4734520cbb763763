"""Upkeep of brokers: cleanExpiredCQ, cleanUnusedTopic, deleteExpiredCommitLog,
resetMasterFlushOffset, setCommitLogReadAheadMode, switchTimerEngine, addBroker, removeBroker.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

import typer

from bolide.admin import AdminClient
from bolide.cli.admin.confirmation import DryRun, Yes, confirm
from bolide.cli.admin.each_server import answers_of, applicable
from bolide.cli.admin.session import (
    AsDocument,
    BrokerAddress,
    ClusterName,
    NameServer,
    require_one,
    run,
    targets,
)
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.logs import one_line

_MAX_LONG = 2**63 - 1

OneCluster = Annotated[
    str | None, typer.Option("-c", "--cluster", "--clusterName", help="All masters of a cluster.")
]
Container = Annotated[
    str,
    typer.Option("-c", "--brokerContainerAddr", help="Address of the broker container, host:port."),
]


def clean_expired_cq(
    broker: BrokerAddress = None,
    cluster: OneCluster = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Delete the parts of consume queues whose messages are gone.

    Without -b and -c: at all masters. Bolide's brokers do it by themselves whenever they delete
    files of the log.
    """

    async def clean(admin: AdminClient, address: str) -> None:
        await admin.brokers.clean_expired_queues(address)

    _clean((broker, cluster), clean, as_document=as_document, name_server=name_server)


def delete_expired_commit_log(
    broker: BrokerAddress = None,
    cluster: OneCluster = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Delete the log files that are older than fileReservedTime now, not at the hour deleteWhen.

    Without -b and -c: at all masters.
    """

    async def delete(admin: AdminClient, address: str) -> None:
        await admin.brokers.delete_expired_log(address)

    _clean((broker, cluster), delete, as_document=as_document, name_server=name_server)


def clean_unused_topic(
    broker: BrokerAddress = None,
    cluster: OneCluster = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Delete the queues of topics that a broker does not have any more.

    Without -b and -c: at all masters. The messages of these topics cannot be consumed afterwards,
    also if the topic is created again.
    """

    async def look(admin: AdminClient) -> dict[str, int]:
        addresses = await _masters(admin, broker, cluster)
        return await answers_of(addresses, lambda at: _count_topics(admin, at))

    counts = run(name_server, look)
    table = Table("#Broker", "#Topics that stay", "#What is deleted")
    for address, count in counts.items():
        table.add(address, count, "queues of all other topics; a broker does not list them")
    confirm(
        f"Delete the queues of all topics but these at {', '.join(counts)}?",
        table,
        [{"broker": address, "topicsThatStay": count} for address, count in counts.items()],
        yes=yes,
        dry_run=dry_run,
        as_document=as_document,
    )

    async def clean(admin: AdminClient, address: str) -> None:
        await admin.brokers.clean_unused_topics(address)

    _clean((broker, cluster), clean, as_document=as_document, name_server=name_server)


async def _count_topics(admin: AdminClient, address: str) -> int:
    return len((await admin.topics.configs(address)).topic_config_table)


def _clean(
    brokers: tuple[str | None, str | None],
    clean: Callable[[AdminClient, str], Awaitable[None]],
    *,
    as_document: bool,
    name_server: str | None,
) -> None:
    async def act(admin: AdminClient) -> dict[str, bool]:
        addresses = await _masters(admin, *brokers)
        answers = await answers_of(addresses, lambda at: clean(admin, at), changes=True)
        return {address: address in answers for address in addresses}

    done = run(name_server, act)
    if as_document:
        print_document([{"broker": at, "success": success} for at, success in done.items()])
    else:
        print("success" if all(done.values()) else "false")


async def _masters(admin: AdminClient, broker: str | None, cluster: str | None) -> list[str]:
    """The broker, or the masters of one cluster or of all; -b wins over -c as in RocketMQ."""
    if broker is not None:
        return [broker]
    if cluster is not None:
        return await admin.clusters.masters(cluster)
    clusters = sorted((await admin.clusters.info()).cluster_addr_table)
    return [address for name in clusters for address in await admin.clusters.masters(name)]


def reset_master_flush_offset(
    broker: Annotated[
        str, typer.Option("-b", "--brokerAddr", help="Address of the slave, host:port.")
    ],
    offset: Annotated[
        int,
        typer.Option("-o", "--offset", min=0, max=_MAX_LONG, help="Position in the log, in bytes."),
    ],
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Set the position up to which a slave takes the log of its master as flushed.

    Bolide's slaves accept it without effect: they start where their own log ends.
    """
    reason = "the broker has no such position: RocketMQ does since 5.0"
    run(
        name_server,
        lambda admin: applicable(admin.brokers.reset_flush_offset(broker, offset), reason),
    )
    if as_document:
        print_document({"broker": broker, "masterFlushOffset": offset})
    else:
        print(f"reset master flush offset to {offset} success")


def set_commit_log_read_ahead_mode(
    mode: Annotated[
        Literal["0", "1"],
        typer.Option(
            "-m", "--commitLogReadAheadMode", help="0: the system reads ahead. 1: it does not."
        ),
    ],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Set whether the operating system reads the log of brokers ahead; slaves included."""
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> tuple[dict[str, str], dict[str, str]]:
        titles = await titles_of(admin, broker, cluster)
        asked = answers_of(
            titles, lambda at: admin.brokers.set_read_ahead(at, int(mode)), changes=True
        )
        return titles, await applicable(asked, "the broker cannot: RocketMQ does since 5.2")

    titles, answers = run(name_server, act)
    if as_document:
        print_document([{"broker": at, "mode": mode} for at in answers])
    else:
        for address, remark in answers.items():
            print(f" ============{titles[address]}============")
            print(one_line(f"commitLog set readAhead mode rstStr{remark}"))


async def titles_of(admin: AdminClient, broker: str | None, cluster: str | None) -> dict[str, str]:
    """The brokers of -b or -c, slaves included, with the titles of RocketMQ's tools."""
    if broker is not None:
        return {broker: broker}
    assert cluster is not None
    titles = {}
    for each in await admin.clusters.brokers(cluster):
        master = each.broker_addrs.get(0, "NO_MASTER")
        for broker_id, address in sorted(each.broker_addrs.items()):
            slave = f"My Master: {master}=====Slave: {address}"
            titles[address] = slave if broker_id else f"Master: {master}"
    return titles


def switch_timer_engine(
    engine: Annotated[
        Literal["R", "F"],
        typer.Option("-e", "--engineType", help="R: RocksDB. F: the files of the timer wheel."),
    ],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Have brokers keep their timers in RocksDB or in files.

    Bolide's brokers have one engine, the files, and refuse the other.
    """
    require_one(broker, cluster)
    name = {"R": "ROCKSDB_TIMELINE", "F": "FILE_TIME_WHEEL"}[engine]

    async def act(admin: AdminClient) -> dict[str, None]:
        addresses = await targets(admin, broker, cluster)
        return await answers_of(
            addresses, lambda at: admin.brokers.switch_timer_engine(at, engine), changes=True
        )

    reason = "the broker has one engine for timers: RocketMQ has two since 5.5"
    answers = run(name_server, lambda admin: applicable(act(admin), reason))
    if as_document:
        print_document([{"broker": address, "engine": name} for address in answers])
    else:
        for address in answers:
            print(f"switchTimerEngine to {name} success, {address}")


def add_broker(
    container: Container,
    config_path: Annotated[
        str,
        typer.Option(
            "-b", "--brokerConfigPath", help="Path of the broker's file on the container's machine."
        ),
    ],
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Start a broker in a broker container of RocketMQ.

    Not applicable to Bolide, whose brokers are processes of their own; see `bolide broker
    --workers`.
    """
    run(
        name_server,
        lambda admin: applicable(
            admin.brokers.add_to_container(container, config_path), _no_container(container)
        ),
    )
    if as_document:
        print_document({"container": container, "brokerConfigPath": config_path})
    else:
        print(f"add broker to {container} success")


def remove_broker(
    container: Container,
    identity: Annotated[
        str,
        typer.Option(
            "-b", "--brokerIdentity", help="clusterName:brokerName:brokerId of the broker."
        ),
    ],
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Stop a broker in a broker container of RocketMQ.

    Not applicable to Bolide, whose brokers are processes of their own.
    """
    cluster, broker_name, broker_id = _identity(identity)
    run(
        name_server,
        lambda admin: applicable(
            admin.brokers.remove_from_container(container, cluster, broker_name, broker_id),
            _no_container(container),
        ),
    )
    if as_document:
        print_document({"container": container, "brokerIdentity": identity})
    else:
        print(f"remove broker from {container} success")


def _no_container(address: str) -> str:
    return f"{address} is no broker container: it is started and stopped as a process of its own"


def _identity(text: str) -> tuple[str, str, int]:
    parts = [part.strip() for part in text.split(":")]
    if len(parts) != 3 or not all(parts) or not parts[2].isdecimal():
        raise typer.BadParameter(f"-b {text!r} is not clusterName:brokerName:brokerId")
    return parts[0], parts[1], int(parts[2])
