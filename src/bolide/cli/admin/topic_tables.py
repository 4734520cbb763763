"""Many topics at once, and where a topic is: updateTopicList, topicClusterList."""

from pathlib import Path
from typing import Annotated

import typer

from bolide.admin import AdminClient
from bolide.cli.admin.each_server import answers_of
from bolide.cli.admin.session import (
    AsDocument,
    BrokerAddress,
    ClusterName,
    NameServer,
    Topic,
    require_one,
    run,
    targets,
)
from bolide.cli.documents import print_document
from bolide.logs import one_line
from bolide.protocol import fastjson
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.fastjson import BadJson


def update_topic_list(
    file: Annotated[
        Path,
        typer.Option(
            "-f",
            "--filename",
            exists=True,
            dir_okay=False,
            help="JSON list of topics, each with topicName, readQueueNums, writeQueueNums, perm …",
        ),
    ],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Create or change the topics of a file."""
    require_one(broker, cluster)
    configs = _read(file)

    async def act(admin: AdminClient) -> dict[str, None]:
        async def update(address: str) -> None:
            await admin.topics.update_all(address, configs)

        addresses = await targets(admin, broker, cluster)
        return await answers_of(addresses, update, changes=True)

    answers = run(name_server, act)
    if as_document:
        names = [config.topic_name for config in configs]
        print_document({"brokers": [*answers], "topics": names})
    else:
        for address in answers:
            done = f"submit batch of topic config to {address} success"
            print(f"{done}, please check the result later.")


def topic_cluster_list(
    topic: Topic,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """List the clusters that serve a topic."""
    clusters = run(name_server, lambda admin: admin.topics.clusters(topic))
    if as_document:
        print_document(clusters)
    else:
        print("\n".join(map(one_line, clusters)))


def _read(file: Path) -> list[TopicConfig]:
    try:
        configs = fastjson.decode(file.read_bytes(), list[TopicConfig])
    except BadJson as exc:
        raise typer.BadParameter(f"{file} is no JSON list of topics: {exc}") from exc
    if not configs:
        raise typer.BadParameter(f"{file} names no topic")
    for config in configs:
        if not config.topic_name:
            raise typer.BadParameter(f"{file} has a topic without a topicName")
    return configs
