"""deleteTopic, and what a group deletion shares with it."""

from dataclasses import dataclass
from typing import Annotated

import typer

from bolide.admin import AdminClient
from bolide.admin.consequences import TopicDeletion
from bolide.cli.admin.confirmation import DryRun, Effect, Yes, confirm
from bolide.cli.admin.each_server import answers_of
from bolide.cli.admin.output import time_text
from bolide.cli.admin.session import AsDocument, NameServer, Topic, run
from bolide.cli.command_line import FAILED, fail
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.protocol.refusals import Refusal

_NONE = "no broker of cluster {cluster} has topic {topic}"


def delete_topic(
    topic: Topic,
    cluster: Annotated[str, typer.Option("-c", "--clusterName", help="Cluster to delete it from.")],
    yes: Yes = False,
    dry_run: DryRun = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Delete a topic and its messages.

    The topic is deleted from the brokers of the cluster and from the NameServers.
    """
    if dry_run or not yes:
        found = run(name_server, lambda admin: admin.consequences.of_deleting_topic(topic, cluster))
        if found is None and dry_run:  # what the command would end with
            fail(_NONE.format(topic=topic, cluster=cluster), FAILED)
        confirm(
            f"Delete topic {topic} from cluster {cluster}?",
            _effect(topic, cluster, found),
            {"topic": topic, "cluster": cluster} | _effect_document(found),
            yes=yes,
            dry_run=dry_run,
            as_document=as_document,
        )
    done = run(name_server, lambda admin: delete_everywhere(admin, topic, cluster))
    if done.was_nowhere:
        fail(_NONE.format(topic=topic, cluster=cluster), FAILED)
    if as_document:
        print_document({"topic": topic, "cluster": cluster})
        return
    what = f"delete topic [{topic}] from"
    if done.missing_brokers:
        for address in done.brokers:
            print(f"{what} broker [{address}] success.")
    else:
        print(f"{what} cluster [{cluster}] success.")
    if done.missing_name_servers:
        for address in done.name_servers:
            print(f"{what} NameServer [{address}] success.")
    else:
        print(f"{what} NameServer success.")


@dataclass(frozen=True, slots=True)
class Deletion:
    """Where a topic was deleted, and how many servers failed."""

    brokers: list[str]
    missing_brokers: int
    name_servers: list[str]
    missing_name_servers: int
    was_nowhere: bool


async def delete_everywhere(admin: AdminClient, topic: str, cluster: str) -> Deletion:
    """Delete a topic wherever a server answers; failures are passed over."""

    async def delete(address: str) -> bool:
        try:
            had = await admin.topics.is_at(address, topic)
        except Refusal:  # who may delete it, but not look
            had = True
        await admin.topics.delete_at(address, topic)
        return had

    members = await admin.clusters.members(cluster)
    name_servers = admin.name_servers.require_addresses()
    had = await answers_of(members, delete, changes=True)
    told = await answers_of(
        name_servers, lambda address: admin.topics.forget(address, topic, cluster), changes=True
    )
    return Deletion(
        [address for address, was_there in had.items() if was_there],
        len(members) - len(had),
        [*told],
        len(name_servers) - len(told),
        was_nowhere=len(had) == len(members) and not any(had.values()),
    )


def _effect(topic: str, cluster: str, found: TopicDeletion | None) -> Effect:
    if found is None:
        return _NONE.format(topic=topic, cluster=cluster)
    written = time_text(found.last_write_ms) if found.last_write_ms > 0 else "never"
    text = f"{found.messages} messages in {found.queues} queues are lost, last write {written}"
    if not found.groups:
        return [text, "no group consumes the topic"]
    table = Table("#Group", "#Members", "#Backlog")
    for each in found.groups:
        table.add(each.group, each.members, each.backlog)
    return [text, "groups that consume the topic:", table]


def _effect_document(found: TopicDeletion | None) -> dict[str, object]:
    if found is None:
        return {"queues": 0, "messages": 0, "lastWrite": 0, "groups": []}
    return {
        "queues": found.queues,
        "messages": found.messages,
        "lastWrite": found.last_write_ms,
        "groups": [
            {"group": each.group, "members": each.members, "backlog": each.backlog}
            for each in found.groups
        ],
    }
