"""The identity of a queue: topic, broker name and queue id."""

from typing import Annotated

import msgspec


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """One queue of a topic on one broker group, in RocketMQ's sort order."""

    topic: str
    broker_name: str
    queue_id: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"
