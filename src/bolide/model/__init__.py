"""Values that every part speaks of: messages, their queues and their properties.

No bytes and no I/O; how a value looks on the wire and on disk is written in `bolide.protocol`.
A module here imports only from this package.
"""

from bolide.model.message import (
    CompressionType,
    Host,
    Message,
    StoredMessage,
    SysFlag,
    TransactionType,
)
from bolide.model.message_checks import InvalidMessage
from bolide.model.message_queue import MessageQueue
from bolide.model.properties import PropertyName

__all__ = [
    "CompressionType",
    "Host",
    "InvalidMessage",
    "Message",
    "MessageQueue",
    "PropertyName",
    "StoredMessage",
    "SysFlag",
    "TransactionType",
]
