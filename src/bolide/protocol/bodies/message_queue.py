"""The JSON form of a queue; it also stands as the key of maps."""

from bolide.protocol.fastjson import FrozenStruct
from bolide.protocol.header import Int


class MessageQueue(FrozenStruct, frozen=True, order=True):
    """One queue of a topic on one broker group, in RocketMQ's sort order."""

    topic: str
    broker_name: str
    queue_id: Int
