"""A second check of requests that name a message by its place in the log.

Their topic is known only when the message is found, so the gate cannot decide by it: without this
check a user who may consume one topic could read any message by its offset.
"""

from typing import Any, Protocol, runtime_checkable

from bolide.auth.access import Access
from bolide.model.names import is_internal
from bolide.model.properties import PropertyName
from bolide.protocol.frame import Frame
from bolide.protocol.record import Record
from bolide.remoting.dispatch import Request


@runtime_checkable
class ChecksFoundMessages(Protocol):
    """An `Access` that decides by topics."""

    def check_found(self, request: Frame, peer: str, topic: str) -> None:
        """Raises NoPermission if the sender may not have a message of this topic."""
        ...


class FoundMessageCheck:
    """What handlers call when they have found a message."""

    def __init__(self, access: Access | None = None) -> None:
        self._access = access

    def __call__(self, request: Request[Any], record: Record) -> None:
        """Raises NoPermission."""
        if isinstance(self._access, ChecksFoundMessages):
            topic = topic_of_found(record)
            self._access.check_found(request.frame, request.connection.peer, topic)


def topic_of_found(record: Record) -> str:
    """The topic that a message was sent to, which is another one while the broker holds it."""
    if not is_internal(record.topic):
        return record.topic
    return record.decode_properties().get(PropertyName.REAL_TOPIC) or record.topic
