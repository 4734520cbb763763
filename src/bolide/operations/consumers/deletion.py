"""Delete consumer groups."""

from dataclasses import dataclass, field

from bolide.errors import BolideError
from bolide.model.names import dead_letter_topic, park_topic
from bolide.operations.cluster import Cluster
from bolide.operations.consumers.directory import (
    Broker,
    Directory,
    KnownGroup,
    forget_directory,
    in_turn,
    read_directory,
)
from bolide.operations.consumers.figures import read_live
from bolide.operations.consumers.settings import GroupChanged, settings_of
from bolide.operations.declaration import change
from bolide.operations.errors import BadInput, Conflict
from bolide.operations.views import LIVE, failure_of
from bolide.protocol.refusals import TopicNotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class LostBacklog:
    """Messages of a topic that the group has not consumed."""

    topic: str
    messages: int = field(metadata=LIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeletionEffect:
    """What is lost with a group."""

    group: str
    brokers: list[str]
    """Brokers that have settings or offsets of it, among those chosen."""
    members: int | None = field(metadata=LIVE)
    backlog: list[LostBacklog]
    """The messages stay for other groups; this one forgets where it was."""
    retry_messages: int | None = field(metadata=LIVE)
    """Messages in its retry topics, which are deleted."""
    dead_letters: int | None = field(metadata=LIVE)
    topics: list[str]
    """Topics that are deleted."""
    keeps_offsets: bool


async def deletion_effect(
    cluster: Cluster,
    *,
    group: str,
    brokers: list[str] | None = None,
    keep_offsets: bool = False,
    keep_dead_letters: bool = False,
) -> GroupDeletionEffect:
    """What is lost if the group is deleted."""
    forget_directory(cluster)
    directory = await read_directory(cluster)
    known = directory.group(group)
    chosen = _deleted_at(directory, known, brokers)
    lost = await cluster.admin.consequences.of_deleting_group(group, [at.address for at in chosen])
    live = await read_live(cluster, directory, known)
    own = {*known.retry_topics, dead_letter_topic(group), park_topic(group)}
    return GroupDeletionEffect(
        group=group,
        brokers=[each.name for each in chosen],
        members=live.client_count,
        backlog=[
            LostBacklog(topic=each.topic, messages=max(each.backlog, 0))
            for each in lost.topics
            if each.topic not in own
        ],
        retry_messages=lost.retry_messages,
        dead_letters=lost.dead_letters,
        topics=await _own_topics(cluster, known, brokers, keep_dead_letters=keep_dead_letters),
        keeps_offsets=keep_offsets,
    )


@change(
    "DELETE",
    "/groups/{group}",
    target="group {group}",
    preview=deletion_effect,
    state=settings_of,
)
async def delete_group(
    cluster: Cluster,
    *,
    group: str,
    brokers: list[str] | None = None,
    keep_offsets: bool = False,
    keep_dead_letters: bool = False,
    with_members: bool = False,
) -> GroupChanged:
    """Delete a consumer group, with its offsets, retry topics and dead letters.

    Stop its members first: brokers that create groups by themselves would create it again. Without
    `with_members` the deletion is refused while members are connected. With `brokers` it is deleted
    from these only, and its topics stay.
    """
    forget_directory(cluster)
    directory = await read_directory(cluster)
    known = directory.group(group)
    if known.is_system:
        raise BadInput("group", f"{group} belongs to the brokers")
    live = await read_live(cluster, directory, known)
    if live.members and not with_members:
        names = ", ".join(each.client_id or "" for each in live.members[:3])
        raise Conflict(f"{len(live.members)} members are connected ({names}): stop them first")
    topics = await _own_topics(cluster, known, brokers, keep_dead_letters=keep_dead_letters)

    async def delete(broker: Broker) -> None:
        await cluster.admin.groups.delete(broker.address, group, offsets=not keep_offsets)

    chosen = _deleted_at(directory, known, brokers)
    done, failures = await in_turn(chosen, delete)
    for name in sorted({broker.cluster for broker in chosen}):
        for topic in topics:
            try:
                await cluster.admin.topics.delete(topic, name)
            except TopicNotFound:
                continue
            except BolideError as error:
                failures.append(failure_of(f"topic {topic}", error))
    return GroupChanged(group=group, brokers=done, topics=topics, failures=failures)


def _deleted_at(directory: Directory, known: KnownGroup, brokers: list[str] | None) -> list[Broker]:
    return directory.chosen(brokers, {*known.configs, *known.offsets_at})


async def _own_topics(
    cluster: Cluster, known: KnownGroup, brokers: list[str] | None, *, keep_dead_letters: bool
) -> list[str]:
    """The topics that a deletion from all brokers takes with it."""
    if brokers is not None:
        return []
    topics = {*await cluster.admin.topics.names()}
    own = {*known.retry_topics, park_topic(known.name)}
    if not keep_dead_letters:
        own.add(dead_letter_topic(known.name))
    return sorted(own & topics)
