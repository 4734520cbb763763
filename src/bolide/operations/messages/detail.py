"""One message: its body, its properties, and where it is."""

import base64

from bolide.admin.errors import MessageNotFound
from bolide.model.message import StoredMessage, TransactionType, transaction_type
from bolide.model.properties import RESERVED_NAMES
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import read
from bolide.operations.errors import BadInput, NotFound
from bolide.operations.messages.bodies import body_of
from bolide.operations.messages.finding import messages_of_id
from bolide.operations.messages.rows import row_of
from bolide.operations.messages.views import MessageDetail, WholeBody
from bolide.protocol.bodies.message_queue import MessageQueue

_SYSTEM_PREFIX = "__"


@read("/messages/{topic}/ids/{message_id}")
async def view_message(cluster: Cluster, topic: str, message_id: str) -> MessageDetail:
    """Show one message with its properties and the beginning of its body.

    Args:
        topic: the topic.
        message_id: an id of either kind; of several messages with one unique id, the oldest is
            shown. An offset message id names exactly one.
    """
    found, _ = await messages_of_id(cluster, topic, message_id)
    return detail_of(found[0], copies=len(found))


@read("/messages/{topic}/at/{broker}/{queue_id}/{offset}")
async def view_message_at(
    cluster: Cluster, topic: str, broker: str, queue_id: int, offset: int
) -> MessageDetail:
    """Show the message at an offset of a queue.

    Args:
        topic: the topic.
        broker: the name of the broker.
        queue_id: the number of the queue.
        offset: the offset in the queue.
    """
    if offset < 0 or queue_id < 0:
        raise BadInput("offset" if offset < 0 else "queue_id", "it is negative")
    try:
        found = await cluster.admin.messages.at(MessageQueue(topic, broker, queue_id), offset)
    except MessageNotFound as exc:
        raise NotFound(f"{exc}: it is not stored yet, or was deleted") from exc
    return detail_of(found, copies=1)


@read("/messages/{topic}/ids/{message_id}/body")
async def message_body(cluster: Cluster, topic: str, message_id: str) -> WholeBody:
    """Return the whole body of a message, decompressed, in base64.

    Args:
        topic: the topic.
        message_id: an id of either kind.
    """
    found, _ = await messages_of_id(cluster, topic, message_id)
    body = found[0].body
    return WholeBody(size=len(body), base64=base64.b64encode(body).decode())


def detail_of(message: StoredMessage, *, copies: int) -> MessageDetail:
    own: dict[str, str] = {}
    system: dict[str, str] = {}
    for name, value in sorted(message.properties.items()):
        is_system = name in RESERVED_NAMES or name.startswith(_SYSTEM_PREFIX)
        (system if is_system else own)[name] = value
    kind = transaction_type(message.sys_flag)
    return MessageDetail(
        row=row_of(message),
        body=body_of(message),
        properties=own,
        system_properties=system,
        born_host=str(message.born_host),
        store_host=str(message.store_host),
        sys_flag=message.sys_flag,
        flag=message.flag,
        body_crc=message.body_crc,
        stored_size=message.size,
        physical_offset=message.physical_offset,
        transaction=None if kind is TransactionType.NONE else kind.name,
        copies=copies,
    )
