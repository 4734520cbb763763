"""Replies: messages that answer a request, for the client that asked."""

from collections.abc import Iterable, Mapping

from bolide.client.errors import CannotReply
from bolide.model.message import Message, StoredMessage
from bolide.model.names import reply_topic
from bolide.model.properties import PropertyName

REPLY = "reply"
"""What MSG_TYPE says of a reply."""

_CARRIED = (PropertyName.CORRELATION_ID, PropertyName.REPLY_TO_CLIENT, PropertyName.TTL)


def reply_to(
    request: StoredMessage,
    body: bytes | bytearray | memoryview,
    *,
    tags: str = "",
    keys: str | Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
) -> Message:
    """The message that answers a request; any producer may send it.

    Raises:
        CannotReply: the message does not say where its reply goes; names what is missing.
        InvalidMessage: something given is not as it must be; names the field.
    """
    said = request.properties
    missing = [name for name in (PropertyName.CLUSTER, *_CARRIED[:2]) if not said.get(name)]
    if missing:
        raise CannotReply(request.message_id, missing)
    topic = reply_topic(said[PropertyName.CLUSTER])
    carried = {name: said[name] for name in _CARRIED if name in said}
    plain = Message(topic, body, tags=tags, keys=keys, properties=properties)
    return plain.with_properties({PropertyName.MESSAGE_TYPE: REPLY, **carried})


def is_reply(properties: Mapping[str, str]) -> bool:
    return properties.get(PropertyName.MESSAGE_TYPE) == REPLY
