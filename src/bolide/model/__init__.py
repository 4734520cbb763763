"""Common value types: messages, their queues and their properties.

The package does no I/O; the wire and disk formats are in `bolide.protocol`. Its modules import only
from this package and from `bolide.errors`.
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
