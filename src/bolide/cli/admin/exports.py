"""Exports to files: exportMetadata, exportConfigs, exportMetrics; exportPopRecord."""

import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from bolide.admin import AdminClient
from bolide.admin.exports import merged_groups, merged_topics, plain, totals
from bolide.cli.admin.each_server import answers_of, applicable
from bolide.cli.admin.session import (
    AsDocument,
    BrokerAddress,
    ClusterName,
    NameServer,
    Switch,
    is_true,
    require_one,
    run,
)
from bolide.cli.documents import print_document
from bolide.logs import one_line
from bolide.private_files import create_file, make_directory

_DIRECTORY = Path("/tmp/rocketmq/export")  # noqa: S108  RocketMQ's

Directory = Annotated[
    Path, typer.Option("-f", "--filePath", help="Directory of the file; it is created.")
]
Cluster = Annotated[str, typer.Option("-c", "--clusterName", help="Cluster to export.")]


def export_metadata(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    directory: Directory = _DIRECTORY,
    only_topics: Annotated[
        bool, typer.Option("-t", "--topic", help="Only topics, to topic.json.")
    ] = False,
    only_groups: Annotated[
        bool,
        typer.Option("-g", "--subscriptionGroup", help="Only groups, to subscriptionGroup.json."),
    ] = False,
    special: Annotated[
        bool, typer.Option("-s", "--specialTopic", help="Also retry and dead-letter topics.")
    ] = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Write the topics and consumer groups of users to a file, metadata.json.

    For a cluster, the numbers of queues are the sums over its masters.
    """
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> dict[str, Any]:
        addresses = [broker] if broker else [*(await admin.exports.masters(cluster or "")).values()]
        found: dict[str, Any] = {}
        if not only_groups:
            topics = await answers_of(
                addresses, lambda at: admin.exports.topics(at, special=special)
            )
            found["topicConfigTable"] = merged_topics(topics.values())
        if not only_topics:
            groups = await answers_of(addresses, admin.exports.groups)
            found["subscriptionGroupTable"] = merged_groups(groups.values())
        return found | {"exportTime": int(time.time() * 1000)}

    if only_topics and only_groups:
        raise typer.BadParameter("give -t, only topics, or -g, only groups; without them both")
    name = "topic" if only_topics else "subscriptionGroup" if only_groups else "metadata"
    _write(directory / f"{name}.json", run(name_server, act), as_document=as_document)


def export_configs(
    cluster: Cluster,
    directory: Directory = _DIRECTORY,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Write what matters of the settings of a cluster to a file, configs.json."""

    async def act(admin: AdminClient) -> dict[str, Any]:
        masters = await admin.exports.masters(cluster)
        names = {address: name for name, address in masters.items()}
        configs = await answers_of(names, admin.exports.configs)
        members = await admin.clusters.members(cluster)
        return {
            "brokerConfigs": {names[at]: settings for at, settings in configs.items()},
            "clusterScale": {
                "namesrvSize": len(admin.name_servers.addresses),
                "masterBrokerSize": len(masters),
                "slaveBrokerSize": len(members) - len(masters),
            },
        }

    _write(directory / "configs.json", run(name_server, act), as_document=as_document)


def export_metrics(
    cluster: Cluster,
    directory: Directory = _DIRECTORY,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Write the rates, sizes and client versions of a cluster to a file, metrics.json."""

    async def act(admin: AdminClient) -> dict[str, Any]:
        names = {at: name for name, at in (await admin.exports.masters(cluster)).items()}
        found = await answers_of(names, admin.exports.metrics)
        return {
            "evaluateReport": {names[at]: metrics for at, metrics in found.items()},
            "totalData": totals(found.values()),
        }

    _write(directory / "metrics.json", run(name_server, act), as_document=as_document)


def _write(path: Path, document: dict[str, Any], *, as_document: bool) -> None:
    text = msgspec.json.format(msgspec.json.encode(plain(document)), indent=8)
    make_directory(path.parent)
    with create_file(path) as file:
        file.write(text + b"\n")
    if as_document:
        print_document({"file": str(path)})
    else:
        print(one_line(f"export {path} success"))


def export_pop_record(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    dry_run: Annotated[
        Switch, typer.Option("-d", "--dryRun", help="true: only show what would be asked.")
    ] = "false",
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Have brokers of RocketMQ write the pop records of RocksDB to their revive topic.

    Slaves included. Bolide's brokers accept it without effect: they have no such records.
    """
    require_one(broker, cluster)
    skips = is_true(dry_run)

    async def act(admin: AdminClient) -> dict[str, str]:
        if broker is not None:
            settings = await admin.brokers.config(broker)
            names = {broker: settings.get("brokerName", "")}
        else:
            assert cluster is not None
            names = {
                address: each.broker_name
                for each in await admin.clusters.brokers(cluster)
                for _, address in sorted(each.broker_addrs.items())
            }
        if skips:
            return names
        done = await applicable(
            answers_of(names, admin.brokers.export_pop_records, changes=True),
            "the broker has no pop: RocketMQ does since 5.0",
        )
        return {address: names[address] for address in done}

    names = run(name_server, act)
    if as_document:
        print_document(
            [{"brokerName": name, "brokerAddr": at, "dryRun": skips} for at, name in names.items()]
        )
        return
    for address, name in names.items():
        place = f"brokerName={name}, brokerAddr={address}, dryRun={dry_run}"
        print(one_line(f"Export broker records, {place}"))
