"""Errors that `AdminClient` raises itself, in addition to refusals and connection errors."""

from collections.abc import Iterable

from bolide.errors import BolideError
from bolide.protocol.bodies.message_queue import MessageQueue


class AdminError(BolideError):
    """Base class; the text says what to do."""


class NoNameServer(AdminError):
    """No NameServer is configured."""

    def __init__(self) -> None:
        super().__init__("no name server is given: name one, or set NAMESRV_ADDR=host:port")


class BadAddress(AdminError):
    """A malformed address."""

    def __init__(self, reason: object) -> None:
        super().__init__(str(reason))


class ClusterNotFound(AdminError):
    """No broker of that cluster is registered."""

    def __init__(self, cluster: str, known: Iterable[str]) -> None:
        names = ", ".join(sorted(known)) or "none"
        super().__init__(f"the name server knows no cluster {cluster!r}; it knows {names}")
        self.cluster = cluster


class BrokerUnknown(AdminError):
    """No broker of that name or address is registered, or it has no master."""

    def __init__(self, broker: str, known: Iterable[str]) -> None:
        names = ", ".join(sorted(known)) or "none"
        super().__init__(f"the name server knows no broker {broker!r}; it knows {names}")
        self.broker = broker


class NotControlled(AdminError):
    """The controllers know no broker group of that name."""

    def __init__(self, names: Iterable[str], controller: str) -> None:
        super().__init__(
            f"the controller {controller} knows no broker group {', '.join(names)}: its brokers"
            " have no controllers, or others"
        )


class AttributeUnknown(AdminError):
    """The broker does not know a topic attribute, or ignores attributes altogether."""

    def __init__(self, address: str, attribute: str) -> None:
        super().__init__(
            f"broker {address} does not know the attribute {attribute!r}: RocketMQ has attributes"
            " since 5.0, and only Bolide's brokers have dedup.window"
        )
        self.address = address
        self.attribute = attribute


class GroupOffline(AdminError):
    """No client of the group is connected to the queried brokers."""

    def __init__(self, group: str, where: Iterable[str]) -> None:
        brokers = ", ".join(where) or "no broker"
        super().__init__(f"no client of group {group!r} is connected to {brokers}")
        self.group = group


class GroupUnknown(AdminError):
    """No broker has the retry topic of the group, which the first consumer creates."""

    def __init__(self, group: str) -> None:
        super().__init__(f"no consumer of group {group!r} has ever connected")
        self.group = group


class NoOffsets(AdminError):
    """The group has committed no offset in the topic."""

    def __init__(self, group: str, topic: str) -> None:
        super().__init__(f"group {group!r} has no offsets in topic {topic!r}")
        self.group = group
        self.topic = topic


class QueueUnknown(AdminError):
    """The broker does not have that queue of a topic."""

    def __init__(self, address: str, queue: MessageQueue, known: Iterable[int]) -> None:
        ids = ", ".join(map(str, sorted(known))) or "none"
        super().__init__(
            f"broker {address} has no queue {queue.queue_id} of topic {queue.topic!r}; it has {ids}"
        )


class OffsetOutOfRange(AdminError):
    """A queue has no message at an offset, and does not end there."""

    def __init__(self, offset: int, first: int, end: int) -> None:
        super().__init__(f"offset {offset} is not in the queue, which is from {first} to {end}")
        self.offset = offset


class MessageNotFound(AdminError):
    """None of the queried brokers has such a message."""

    def __init__(self, topic: str, what: str) -> None:
        super().__init__(f"no message of topic {topic!r} is found by {what}")
        self.topic = topic
