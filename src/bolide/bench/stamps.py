"""Messages that carry the time they were made, for whom sends and listens in one process.

offset  size
0       8     token of the run: messages of other runs are passed over
8       8     time of this process's monotonic clock in nanoseconds
16      …     filler
"""

import secrets
import struct
import time
from collections.abc import Callable

from bolide.bench.workload import random_body
from bolide.model.message import Message

_STAMP = struct.Struct(">8sq")
LEAST_SIZE = _STAMP.size


class Stamps:
    """Makes messages of one run and tells the age of those that come back."""

    def __init__(
        self, topic: str, size: int, now_ns: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        self._topic = topic
        self._token = secrets.token_bytes(8)
        self._filler = random_body(max(size - LEAST_SIZE, 0))
        self._now_ns = now_ns

    def message(self) -> Message:
        return Message(self._topic, _STAMP.pack(self._token, self._now_ns()) + self._filler)

    def age(self, body: bytes) -> float | None:
        """Seconds since the message was made; None if another run made it."""
        if len(body) < LEAST_SIZE:
            return None
        token, made = _STAMP.unpack_from(body)
        return (self._now_ns() - made) / 1e9 if token == self._token else None
