"""Where messages can be: names of topics, the queues of a topic, the topic of an id."""

from bolide.errors import BolideError
from bolide.model.names import TRACE_TOPIC
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import read
from bolide.operations.errors import BadInput, NotFound
from bolide.operations.messages.ranges import bounds_of
from bolide.operations.messages.views import MessagePlace, QueueList, QueueRange
from bolide.operations.visibility import visible_topics
from bolide.protocol.message_id import BadMessageId
from bolide.protocol.trace import TraceRecord, read_records

_MAX_NAMES = 50


@read("/topic-names")
async def suggest_topics(cluster: Cluster, *, search: str = "", size: int = 20) -> list[str]:
    """Names of topics that contain a text, those first that begin with it.

    Args:
        search: any part of the name, in any case; nothing for all.
        size: how many are wanted, up to 50.
    """
    if not 1 <= size <= _MAX_NAMES:
        raise BadInput("size", f"{size} is not between 1 and {_MAX_NAMES}")
    names = await cluster.shared("topic names", cluster.admin.topics.names, seconds=3)
    wanted = search.strip().lower()
    found = [each for each in names if wanted in each.lower()]
    found.sort(key=lambda each: (not each.lower().startswith(wanted), each.startswith("%"), each))
    return (await visible_topics(cluster, found))[:size]


@read("/messages/{topic}/queues")
async def message_queues(cluster: Cluster, topic: str) -> QueueList:
    """List the queues of a topic that can be read, with their first and last offsets.

    Args:
        topic: the topic.
    """
    bounds, failures = await bounds_of(cluster, topic)
    queues = [
        QueueRange(
            broker=queue.broker_name,
            queue_id=queue.queue_id,
            low=at.min_offset,
            high=at.max_offset,
            updated_ms=at.last_update_timestamp or None,
        )
        for queue, at in sorted(bounds.items())
    ]
    return QueueList(topic=topic, queues=queues, failures=failures)


@read("/message-places/{message_id}")
async def locate_message(cluster: Cluster, message_id: str) -> MessagePlace:
    """Find the topic of a message by its id alone.

    An offset message id names its broker, which knows the topic. A unique id does not tell: the
    topic is found if the clients write traces; otherwise it has to be given.

    Args:
        message_id: an id of either kind.
    """
    message_id = message_id.strip()
    try:
        found = await cluster.admin.messages.view(message_id)
    except BadMessageId as exc:
        raise BadInput("message_id", f"{message_id!r} is no id of a message") from exc
    except BolideError:
        topic = await _traced_topic(cluster, message_id)
        if topic is None:
            raise NotFound(
                f"the topic of message {message_id} cannot be told by its id: give the topic"
            ) from None
        return MessagePlace(topic=topic, message_id=message_id)
    return MessagePlace(topic=found.topic, message_id=message_id)


async def _traced_topic(cluster: Cluster, message_id: str) -> str | None:
    try:
        found = await cluster.admin.messages.by_key(
            TRACE_TOPIC, message_id, on_failure=lambda _: None
        )
    except BolideError:
        return None
    for message in found:
        for record in read_records(message.body.decode("utf-8", "replace")):
            if isinstance(record, TraceRecord) and record.topic:
                ids = (record.message_id or "").split(",")
                if message_id in ids:
                    return record.topic
    return None
