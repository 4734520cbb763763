"""Commands about static topics: updateStaticTopic, remappingStaticTopic."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from bolide.admin import AdminClient
from bolide.cli.admin.session import AsDocument, NameServer, Switch, Topic, is_true, run
from bolide.cli.documents import print_document
from bolide.errors import ConfigError
from bolide.private_files import create_file
from bolide.protocol import fastjson
from bolide.protocol.bodies.topics import MappedTopicConfig, MappingPlan
from bolide.protocol.static_topics.planning import CREATE, REMAP, mapping_of
from bolide.protocol.static_topics.positions import led_queues

BrokerNames = Annotated[
    str | None, typer.Option("-b", "--brokers", help="Names of brokers, separated by commas.")
]
ClusterNames = Annotated[
    str | None,
    typer.Option("-c", "--clusters", help="All brokers of these clusters, separated by commas."),
]
MapFile = Annotated[
    Path | None,
    typer.Option("-mf", "--mapFile", help="File with a plan, as an earlier command wrote it."),
]
ForceReplace = Annotated[
    Switch,
    typer.Option("-fr", "--forceReplace", help="With -mf: replace what the brokers have."),
]


def update_static_topic(
    topic: Topic,
    queues: Annotated[
        int, typer.Option("-qn", "--totalQueueNum", min=1, help="Number of logical queues.")
    ],
    brokers: BrokerNames = None,
    clusters: ClusterNames = None,
    map_file: MapFile = None,
    force: ForceReplace = "false",
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Create a static topic, or give it more queues."""
    _require_brokers(brokers, clusters, map_file)

    async def act(admin: AdminClient) -> None:
        if map_file is not None:
            plan = _read(map_file, topic)
        else:
            targets = await _targets(admin, brokers, clusters)
            before = await admin.static_topics.configs(topic)
            plan = await admin.static_topics.plan_creation(topic, queues, targets)
            _write_files(plan, before, CREATE, quiet=as_document)
        await admin.static_topics.apply(plan, force=is_true(force))
        _show(plan, as_document=as_document)

    run(name_server, act)


def remapping_static_topic(
    topic: Topic,
    brokers: BrokerNames = None,
    clusters: ClusterNames = None,
    map_file: MapFile = None,
    force: ForceReplace = "false",
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Move the queues of a static topic to other brokers.

    Producers and consumers go on meanwhile. Messages stay where they are: the new brokers read
    them from the old ones.
    """
    _require_brokers(brokers, clusters, map_file)

    async def act(admin: AdminClient) -> None:
        if map_file is not None:
            plan = _read(map_file, topic)
        else:
            targets = await _targets(admin, brokers, clusters)
            before = await admin.static_topics.configs(topic)
            plan = await admin.static_topics.plan_remapping(topic, targets)
            _write_files(plan, before, REMAP, quiet=as_document)
        await admin.static_topics.apply(plan, force=is_true(force))
        _show(plan, as_document=as_document)

    run(name_server, act)


def _require_brokers(brokers: str | None, clusters: str | None, map_file: Path | None) -> None:
    if map_file is None and (brokers is None) == (clusters is None):
        raise typer.BadParameter("give either -b, names of brokers, or -c, names of clusters")


async def _targets(admin: AdminClient, brokers: str | None, clusters: str | None) -> list[str]:
    return await admin.static_topics.brokers(names=_names(brokers), clusters=_names(clusters))


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _read(path: Path, topic: str) -> MappingPlan:
    try:
        plan = fastjson.decode(path.read_bytes(), MappingPlan)
    except (OSError, fastjson.BadJson) as exc:
        raise ConfigError(f"{path} has no plan of a static topic: {exc}") from exc
    if plan.topic != topic:
        raise ConfigError(f"{path} has a plan of topic {plan.topic}, not of {topic}")
    return plan


def _write_files(
    plan: MappingPlan, before: dict[str, MappedTopicConfig], kind: str, *, quiet: bool
) -> None:
    """Write the old and the new state where RocketMQ's tool does."""
    details = [config.mapping_detail for config in before.values() if config.mapping_detail]
    epoch = max((detail.epoch for detail in details), default=plan.epoch)
    old = MappingPlan(topic=plan.topic, type=kind, epoch=epoch, broker_config_map=before)
    for name, each in (("old", old), ("new", plan)):
        suffix = "before" if each is old else "after"
        path = Path(tempfile.gettempdir()) / f"{plan.topic}-{each.epoch}.{suffix}"
        with create_file(path) as file:
            file.write(fastjson.encode(each))
        if not quiet:
            print(f"The {name} mapping data is written to file {path}")


def _show(plan: MappingPlan, *, as_document: bool) -> None:
    if as_document:
        print_document(plan)
        return
    for name, config in sorted(plan.broker_config_map.items()):
        led = sorted(led_queues(mapping_of(name, config)))
        print(f"{name} leads the queues {led}")
