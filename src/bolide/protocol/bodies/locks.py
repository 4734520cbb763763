"""Queue locks of orderly consumers."""

from msgspec import field

from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.fastjson import Struct


class LockRequest(Struct, kw_only=True):
    """LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    consumer_group: str
    client_id: str
    only_this_broker: bool = False
    mq_set: list[MessageQueue] = field(default_factory=list)


class LockReply(Struct, kw_only=True):
    """The queues granted by LOCK_BATCH_MQ; clients require the member even if it is empty."""

    locked: list[MessageQueue] = field(name="lockOKMQSet", default_factory=list)
