"""Sends messages: drafts that a person or a program wrote, and copies of stored messages.

`send_message` is the operation. The rest is for other operations that send: `producer_of` makes a
producer for a cluster, `message_of` turns a draft into a message, and `send_one` sends and returns
the view of the result.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from bolide.client.errors import RouteNotFound
from bolide.client.producer.producer import Producer
from bolide.client.producer.results import SendResult, TransactionResult, TransactionState
from bolide.client.producer.transactions import TransactionProducer
from bolide.errors import BolideError
from bolide.model.message import Message
from bolide.model.message_checks import InvalidMessage
from bolide.model.message_queue import MessageQueue
from bolide.model.names import WRITE, is_sendable
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import change, read
from bolide.operations.errors import BadInput, Conflict, NotFound
from bolide.operations.topics.table import MESSAGE_TYPE
from bolide.operations.views import Failure, failure_of, reason_of
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.refusals import TopicNotFound

GROUP = "bolide-operations"
"""The producer group of plain sends."""
TRANSACTION_GROUP = "bolide-operations-transactions"
MAX_COUNT = 100
JAVA_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ's `messageDelayLevel` by default."""


class BodyFormat(StrEnum):
    """How the text of a draft stands for the bytes of the body."""

    TEXT = "text"
    """UTF-8."""
    JSON = "json"
    """UTF-8, refused if it is no valid JSON."""
    HEX = "hex"
    """Two hexadecimal digits per byte; blanks are ignored."""


class TransactionEnd(StrEnum):
    """How a transactional message ends."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    """Consumers never get the message."""
    OPEN = "open"
    """The half message stays: the broker asks for the outcome, gets none, and gives up later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message to send."""

    body: str
    body_format: BodyFormat = BodyFormat.TEXT
    tags: str = ""
    """One tag, by which consumers filter."""
    keys: list[str] = field(default_factory=list)
    """By which the message can be found; without blanks."""
    properties: dict[str, str] = field(default_factory=dict)
    """The user's own; names of RocketMQ are refused."""
    delay_level: int = 0
    """A delay level of the broker, from 1; 0 for none."""
    delay_ms: int | None = None
    """Delay in milliseconds, for brokers of RocketMQ 5 and Bolide."""
    deliver_at_ms: int | None = None
    """Time of delivery, milliseconds since 1970, instead of a delay."""
    sharding_key: str = ""
    """Messages of one key go to one queue, in order."""
    priority: int | None = None
    """For topics of the message type PRIORITY."""
    dedup_key: str = ""
    """A Bolide topic with `dedup.window` stores one message per key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """Where a message was stored."""

    topic: str
    message_id: str
    """Its unique id, by which consumers and `/messages` know it."""
    offset_message_id: str
    """The id that holds the broker's address and the position in its log."""
    broker: str
    queue: int
    queue_offset: int
    """Of the half message, if it was sent in a transaction."""
    status: str
    """SEND_OK, or how far it is stored: FLUSH_DISK_TIMEOUT and so on."""
    transaction_id: str | None = None
    transaction_end: TransactionEnd | None = None
    transaction_confirmed: bool | None = None
    """Whether the broker confirmed the end of the transaction; None without one."""
    recall_handle: str | None = None
    """With which a delayed message can be recalled."""
    is_duplicate: bool = False
    """It was not stored: the topic has a message with its `dedup_key`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """What became of a send."""

    messages: list[SentMessage]
    failure: str = ""
    """Why the others were not sent, if some were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableQueues:
    """How many queues of a topic can be written on a broker."""

    broker: str
    queues: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingOptions:
    """What a message to a topic may have."""

    topic: str
    message_type: str | None
    """The attribute `message.type` of the topic: NORMAL, FIFO, DELAY, TRANSACTION and so on."""
    delay_levels: list[str]
    """The delay of each level, from level 1."""
    queues: list[WritableQueues]
    failures: list[Failure] = field(default_factory=list)


@read("/topics/{topic}/sending")
async def sending_options(cluster: Cluster, *, topic: str) -> SendingOptions:
    """What a message to a topic may have: delay levels, queues, the message type."""
    route = await writable_route(cluster, topic)
    masters = {each.broker_name: each.broker_addrs.get(0) for each in route.broker_datas}
    writable = {each.broker_name: each for each in route.queue_datas if each.perm & WRITE}
    message_type, levels, failures = None, JAVA_DELAY_LEVELS, list[Failure]()
    address = next((at for name in sorted(writable) if (at := masters.get(name))), None)
    if address is not None:
        try:
            config = await cluster.admin.topics.config(address, topic)
            message_type = config.attributes.get(MESSAGE_TYPE)
            settings = await cluster.shared(
                f"broker settings {address}",
                lambda: cluster.admin.brokers.config(address),
                seconds=60,
            )
            levels = settings.get("messageDelayLevel") or levels
        except BolideError as error:
            failures.append(failure_of(address, error))
    return SendingOptions(
        topic=topic,
        message_type=message_type,
        delay_levels=levels.split(),
        queues=[
            WritableQueues(broker=name, queues=data.write_queue_nums)
            for name, data in sorted(writable.items())
        ],
        failures=failures,
    )


@change("POST", "/topics/{topic}/messages", target="topic {topic}", secret=frozenset({"message"}))
async def send_message(  # noqa: PLR0913  each is a choice of whoever sends
    cluster: Cluster,
    *,
    topic: str,
    message: Draft,
    broker: str = "",
    queue: int | None = None,
    transaction: TransactionEnd | None = None,
    count: int = 1,
) -> Sending:
    """Send a message to a topic.

    `broker` and `queue` together name one queue; otherwise the sharding key, if there is one, or
    the producer chooses it. `transaction` sends it in a transaction, and says how that ends.
    `count` sends so many copies, one after the other, each with an id of its own.
    """
    if not 1 <= count <= MAX_COUNT:
        raise BadInput("count", f"{count} is not from 1 to {MAX_COUNT}")
    route = await writable_route(cluster, topic)
    chosen = _chosen_queue(route, topic, broker, queue)
    built = message_of(topic, message)
    if transaction is None:
        async with producer_of(cluster) as producer:
            return await _repeat(count, lambda: send_one(producer, built, queue=chosen))
    if message.delay_level or message.delay_ms is not None or message.deliver_at_ms is not None:
        raise BadInput("transaction", "a transactional message cannot be delayed")
    end = transaction
    async with transaction_producer_of(cluster) as transactions:
        return await _repeat(count, lambda: _send_in_transaction(transactions, built, end, chosen))


def producer_of(cluster: Cluster) -> Producer:
    """A producer with the identity of the cluster, to be opened with `async with`."""
    identity = cluster.identity
    return Producer(
        GROUP,
        name_server=cluster.name_servers,
        access_key=identity.access_key,
        secret_key=identity.secret_key,
        tls=cluster.tls,
        vip_channel=cluster.vip_channel,
    )


def transaction_producer_of(cluster: Cluster) -> TransactionProducer:
    """As `producer_of`; it answers no questions for the outcome of transactions left open."""
    identity = cluster.identity
    return TransactionProducer(
        TRANSACTION_GROUP,
        check=lambda _: None,
        name_server=cluster.name_servers,
        access_key=identity.access_key,
        secret_key=identity.secret_key,
        tls=cluster.tls,
        vip_channel=cluster.vip_channel,
    )


def message_of(topic: str, draft: Draft) -> Message:
    """The message that a draft describes; raises BadInput."""
    with as_bad_input():
        return Message(
            topic,
            body_of(draft),
            tags=draft.tags.strip(),
            keys=[key for key in draft.keys if key],
            properties=draft.properties,
            delay_level=draft.delay_level,
            delay=None if draft.delay_ms is None else draft.delay_ms / 1000,
            deliver_at=None if draft.deliver_at_ms is None else draft.deliver_at_ms / 1000,
            sharding_key=draft.sharding_key,
            priority=draft.priority,
            dedup_key=draft.dedup_key,
        )


def body_of(draft: Draft) -> bytes:
    """The bytes of the body of a draft; raises BadInput."""
    if not draft.body:
        raise BadInput("body", "it is empty, and brokers refuse messages without a body")
    if draft.body_format is BodyFormat.HEX:
        try:
            return bytes.fromhex(draft.body)
        except ValueError as error:
            raise BadInput("body", f"not hexadecimal: {error}") from error
    if draft.body_format is BodyFormat.JSON:
        try:
            json.loads(draft.body)
        except (ValueError, RecursionError) as error:
            raise BadInput("body", f"not valid JSON: {error}") from error
    try:
        return draft.body.encode()
    except UnicodeEncodeError as error:
        raise BadInput("body", f"not valid Unicode: {error}") from error


async def send_one(
    producer: Producer, message: Message, *, queue: MessageQueue | None = None
) -> SentMessage:
    """Send a message; one with a sharding key goes to the queue of that key, as in Java."""
    with as_bad_input():
        try:
            if queue is not None:
                result = await producer.send(message, queue=queue)
            elif message.sharding_key:
                result = await producer.send(message, key=message.sharding_key)
            else:
                result = await producer.send(message)
        except RouteNotFound as error:
            raise NotFound(reason_of(error)) from error
    return sent_message(message, result)


def sent_message(message: Message, result: SendResult) -> SentMessage:
    """The view of the result of a send."""
    end, is_confirmed = None, None
    if isinstance(result, TransactionResult):
        end = _ENDS[result.state]
        is_confirmed = None if end is TransactionEnd.OPEN else result.is_confirmed
    return SentMessage(
        topic=message.topic,
        message_id=result.message_id,
        offset_message_id=result.offset_message_id,
        broker=result.queue.broker_name,
        queue=result.queue.queue_id,
        queue_offset=result.queue_offset,
        status=result.status.name,
        transaction_id=result.transaction_id if end else None,
        transaction_end=end,
        transaction_confirmed=is_confirmed,
        recall_handle=result.recall_handle,
        is_duplicate=result.repeats > 0,
    )


async def writable_route(cluster: Cluster, topic: str) -> TopicRoute:
    """The route of a topic that messages can be sent to.

    Without this check, a send would create a missing topic where brokers do that.

    Raises:
        NotFound: there is no such topic.
        BadInput: only brokers write to it.
        Conflict: no broker lets it be written.
    """
    if not is_sendable(topic):
        raise BadInput("topic", f"only brokers write to {topic}")
    try:
        route = await cluster.admin.topics.route(topic)
    except TopicNotFound as error:
        raise NotFound(f"there is no topic {topic!r}: create it first") from error
    if not any(each.perm & WRITE and each.write_queue_nums for each in route.queue_datas):
        raise Conflict(f"no queue of topic {topic!r} can be written: change its permission first")
    return route


@contextmanager
def as_bad_input() -> Iterator[None]:
    """Turn what is wrong with a message into BadInput, which names the field."""
    try:
        yield
    except InvalidMessage as error:
        raise BadInput(error.field, error.reason) from error


_STATES = {
    TransactionEnd.COMMIT: TransactionState.COMMIT,
    TransactionEnd.ROLLBACK: TransactionState.ROLLBACK,
    TransactionEnd.OPEN: TransactionState.UNKNOWN,
}
_ENDS = {state: end for end, state in _STATES.items()}


async def _send_in_transaction(
    producer: TransactionProducer,
    message: Message,
    end: TransactionEnd,
    queue: MessageQueue | None,
) -> SentMessage:
    with as_bad_input():
        key = None if queue else message.sharding_key or None
        transaction = await producer.begin(message, queue=queue, key=key)
    return sent_message(message, await transaction.end(_STATES[end]))


def _chosen_queue(
    route: TopicRoute, topic: str, broker: str, queue: int | None
) -> MessageQueue | None:
    if not broker and queue is None:
        return None
    if not broker or queue is None:
        raise BadInput("queue", "broker and queue go together: queues are numbered on each broker")
    counts = {each.broker_name: each.write_queue_nums for each in route.queue_datas}
    if broker not in counts:
        raise BadInput("broker", f"{broker!r} does not serve the topic; {_listed(counts)} do")
    if not 0 <= queue < counts[broker]:
        raise BadInput("queue", f"{queue} is not from 0 to {counts[broker] - 1}")
    return MessageQueue(topic, broker, queue)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


async def _repeat(count: int, send: Callable[[], Awaitable[SentMessage]]) -> Sending:
    """Send so often; a failure after the first time is part of the result."""
    sent: list[SentMessage] = []
    for _ in range(count):
        try:
            sent.append(await send())
        except BolideError as error:
            if not sent:
                raise
            return Sending(messages=sent, failure=reason_of(error))
    return Sending(messages=sent)
