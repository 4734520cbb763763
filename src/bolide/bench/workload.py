"""The messages a benchmark sends.

`Stamps` puts a time stamp in the body, so that a listener in the same process can compute the age
of a message:

offset  size
0       8     token of the run; messages of other runs are ignored
8       8     monotonic clock of this process, in nanoseconds
16      …     filler
"""

import random
import secrets
import string
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from bolide.model.message import Message

DEFAULT_TOPIC = "BenchmarkTest"
_STAMP = struct.Struct(">8sq")
MIN_SIZE = _STAMP.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The messages of a benchmark; `senders` is the number of requests in flight."""

    topic: str = DEFAULT_TOPIC
    senders: int = 64
    size: int = 128
    keys: bool = False
    property_size: int = 0
    tag_count: int = 0
    delay_level: int = 0


def message_maker(load: Workload, now: Callable[[], float] = time.time) -> Callable[[], Message]:
    """A function that makes the next message, with the current second as key and rotating tags."""
    body = random_body(load.size)
    properties = filler_properties(load.property_size)
    numbers = count()

    def make() -> Message:
        return Message(
            load.topic,
            body,
            tags=f"tag{next(numbers) % load.tag_count}" if load.tag_count else "",
            keys=str(int(now())) if load.keys else (),
            properties=properties,
            delay_level=load.delay_level,
        )

    if load.keys or load.tag_count:
        return make
    constant = make()
    return lambda: constant


def random_body(size: int) -> bytes:
    letters = random.choices(string.ascii_letters + string.digits, k=size)  # noqa: S311  filler
    return "".join(letters).encode()


def filler_properties(size: int) -> dict[str, str]:
    """Properties whose names and values total at least `size` characters."""
    found: dict[str, str] = {}
    held = 0
    while held < size:
        name, value = f"prop{len(found)}", f"hello{len(found)}"
        found[name] = value
        held += len(name) + len(value)
    return found


class Stamps:
    """Makes the messages of one run and computes the age of those received."""

    def __init__(
        self, topic: str, size: int, now_ns: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        self._topic = topic
        self._token = secrets.token_bytes(8)
        self._filler = random_body(max(size - MIN_SIZE, 0))
        self._now_ns = now_ns

    def message(self) -> Message:
        return Message(self._topic, _STAMP.pack(self._token, self._now_ns()) + self._filler)

    def age(self, body: bytes) -> float | None:
        """Seconds since the message was made; None if it is from another run."""
        if len(body) < MIN_SIZE:
            return None
        token, made = _STAMP.unpack_from(body)
        return (self._now_ns() - made) / 1e9 if token == self._token else None
