"""The handle by which a producer recalls a timer message (`RecallMessageHandle`).

URL-safe base64 of `v1`, topic, broker, delivery time in milliseconds and unique id, separated by
spaces.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

from bolide.protocol.errors import ProtocolError

_VERSION = "v1"
_PARTS = 5
_LONGEST = 4096


class BadRecallHandle(ProtocolError):
    def __init__(self, handle: str | None) -> None:
        shown = handle[:80] if handle else handle
        super().__init__(
            f"{shown!r} is no recall handle: take it from the answer to a send of a message that"
            " waits for its time"
        )
        self.handle = handle


class RecallHandle(NamedTuple):
    topic: str
    broker_name: str
    timestamp: int
    """One more than the millisecond at which the message is due."""
    unique_id: str

    def encode(self) -> str:
        parts = _VERSION, self.topic, self.broker_name, str(self.timestamp), self.unique_id
        return urlsafe_b64encode(" ".join(parts).encode()).decode()

    @classmethod
    def decode(cls, handle: str) -> "RecallHandle":
        """Raises BadRecallHandle."""
        try:
            parts = urlsafe_b64decode(handle[:_LONGEST].encode()).decode().split(" ")
            version, topic, broker_name, timestamp, unique_id = parts[:_PARTS]
            if version != _VERSION or not timestamp.isdecimal() or not unique_id:
                raise BadRecallHandle(handle)
            return cls(topic, broker_name, int(timestamp), unique_id)
        except (ValueError, binascii.Error) as exc:
            raise BadRecallHandle(handle) from exc
