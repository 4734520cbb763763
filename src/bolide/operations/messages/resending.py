"""Stored messages again: handed to a consumer of a group, or sent as a new message."""

from dataclasses import dataclass

from bolide.admin.errors import GroupUnknown
from bolide.model.message import Message, StoredMessage
from bolide.model.names import is_reserved
from bolide.model.properties import REPLAYED_FROM, RESERVED_NAMES
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import change
from bolide.operations.errors import BadInput, Conflict, NotSupported
from bolide.operations.messages.bodies import preview_of
from bolide.operations.messages.finding import message_of
from bolide.operations.messages.rows import row_of
from bolide.operations.messages.sending import (
    BodyFormat,
    Draft,
    SentMessage,
    as_bad_input,
    body_of,
    producer_of,
    send_one,
    writable_route,
)
from bolide.operations.messages.views import ConsumePreview, ConsumeResult, CopyPreview
from bolide.protocol.bodies.consumers import ConsumeVerdict
from bolide.protocol.refusals import RequestCodeNotSupported

_SUCCEEDED = (ConsumeVerdict.CR_SUCCESS, ConsumeVerdict.CR_COMMIT)


async def preview_consume(
    cluster: Cluster, topic: str, message_id: str, group: str, client_id: str = ""
) -> ConsumePreview:
    """Which consumer would get which message."""
    message = await message_of(cluster, topic, message_id)
    clients = await _clients(cluster, group)
    chosen = _chosen(clients, client_id, group)
    return ConsumePreview(
        message=row_of(message),
        group=group,
        client_id=chosen,
        clients=clients,
        effect=(
            f"{chosen} handles the message once more, now; no offset changes, and no other"
            " consumer gets it"
        ),
    )


@change(
    "POST",
    "/messages/{topic}/ids/{message_id}/consume",
    target="message {message_id} of topic {topic} for group {group}",
    preview=preview_consume,
)
async def consume_message(
    cluster: Cluster, topic: str, message_id: str, group: str, client_id: str = ""
) -> ConsumeResult:
    """Hand a stored message to a consumer of a group again, and tell how it handled it.

    The consumer gets it at once, whatever the offsets are, and nothing is stored: if it fails, it
    is not tried again.

    Args:
        topic: the topic.
        message_id: an id of either kind.
        group: a consumer group with connected consumers.
        client_id: which of its consumers; by default the first one.
    """
    message = await message_of(cluster, topic, message_id)
    chosen = _chosen(await _clients(cluster, group), client_id, group)
    try:
        answer = await cluster.admin.clients.consume_directly(
            group, chosen, message.offset_message_id, str(message.store_host)
        )
    except RequestCodeNotSupported as exc:
        raise NotSupported(f"client {chosen} does not take messages directly") from exc
    return ConsumeResult(
        group=group,
        client_id=chosen,
        result=None if answer.consume_result is None else answer.consume_result.value,
        succeeded=answer.consume_result in _SUCCEEDED,
        remark=answer.remark,
        took_ms=answer.spent_time_mills,
    )


async def _clients(cluster: Cluster, group: str) -> list[str]:
    """The ids of the connected consumers; raises Conflict without any."""
    try:
        found, errors = await cluster.admin.clients.consumers_and_failures(group)
    except GroupUnknown:
        found, errors = None, []
    if found is None:
        if errors:
            raise errors[0]
        raise Conflict(f"no consumer of group {group!r} is connected: start one, then repeat it")
    return [each.client_id for each in found.connection_set if each.client_id]


def _chosen(clients: list[str], client_id: str, group: str) -> str:
    if client_id and client_id not in clients:
        known = ", ".join(clients)
        raise BadInput("client_id", f"{client_id!r} is not of group {group!r}, which has {known}")
    if not clients:
        raise Conflict(f"no consumer of group {group!r} is connected: start one, then repeat it")
    return client_id or clients[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyChanges:
    """What is to be different in the copy of a message; None leaves a part as it is."""

    topic: str | None = None
    """Send it to another topic."""
    tags: str | None = None
    keys: list[str] | None = None
    properties: dict[str, str] | None = None
    """All of the sender's own properties."""
    body: str | None = None
    body_format: BodyFormat = BodyFormat.TEXT


async def preview_copy(
    cluster: Cluster, topic: str, message_id: str, changes: CopyChanges | None = None
) -> CopyPreview:
    """The message that would be sent."""
    source = await message_of(cluster, topic, message_id)
    copy = _copy(source, changes or CopyChanges())
    await writable_route(cluster, copy.topic)
    return CopyPreview(
        source=row_of(source),
        topic=copy.topic,
        tags=copy.tags or "",
        keys=list(copy.keys),
        properties=own_properties(copy),
        size=len(copy.body),
        body_preview=preview_of(copy.body),
        changed=_changed(source, copy),
    )


@change(
    "POST",
    "/messages/{topic}/ids/{message_id}/send",
    target="message {message_id} of topic {topic}",
    preview=preview_copy,
    secret=frozenset({"changes"}),
)
async def send_copy(
    cluster: Cluster, topic: str, message_id: str, changes: CopyChanges | None = None
) -> SentMessage:
    """Send a stored message as a new one, with changes if they are wanted.

    All groups of the topic get it. It keeps body, tags, keys, sharding key and the sender's own
    properties, and gets the property REPLAYED_FROM with the place of the original. It is a new
    message with an id of its own; delays and transactions are not repeated.

    Args:
        topic: the topic of the original.
        message_id: an id of either kind.
        changes: what is to be different.
    """
    source = await message_of(cluster, topic, message_id)
    copy = _copy(source, changes or CopyChanges())
    await writable_route(cluster, copy.topic)
    async with producer_of(cluster) as producer:
        return await send_one(producer, copy)


def own_properties(message: Message | StoredMessage) -> dict[str, str]:
    """The properties that the sender set."""
    return {n: v for n, v in message.properties.items() if _is_own(n)}


def _is_own(name: str) -> bool:
    return name not in RESERVED_NAMES and not name.startswith("__") and name != REPLAYED_FROM


def _copy(source: StoredMessage, changes: CopyChanges) -> Message:
    """The new message; raises BadInput."""
    topic = source.topic if changes.topic is None else changes.topic.strip()
    if is_reserved(topic):
        raise BadInput("topic", f"{topic} is one of the brokers or of one group: give another one")
    body = source.body
    if changes.body is not None:
        body = body_of(Draft(body=changes.body, body_format=changes.body_format))
    own = own_properties(source) if changes.properties is None else changes.properties
    place = f"{source.topic}/{source.broker_name}/{source.queue_id}@{source.queue_offset}"
    with as_bad_input():
        return Message(
            topic,
            body,
            tags=(source.tags or "") if changes.tags is None else changes.tags.strip(),
            keys=source.keys if changes.keys is None else [each for each in changes.keys if each],
            properties={**own, REPLAYED_FROM: place},
            sharding_key=source.sharding_key or "",
            flag=source.flag,
        )


def _changed(source: StoredMessage, copy: Message) -> list[str]:
    pairs = {
        "topic": (source.topic, copy.topic),
        "tags": (source.tags or "", copy.tags or ""),
        "keys": (source.keys, copy.keys),
        "properties": (own_properties(source), own_properties(copy)),
        "body": (source.body, copy.body),
    }
    return [name for name, (before, after) in pairs.items() if before != after]
