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
LEAST_SIZE = _STAMP.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Messages of a benchmark; `senders` is how many requests are under way at a time."""

    topic: str = DEFAULT_TOPIC
    senders: int = 64
    size: int = 128
    keys: bool = False
    property_size: int = 0
    tag_count: int = 0
    delay_level: int = 0


def message_maker(load: Workload, now: Callable[[], float] = time.time) -> Callable[[], Message]:
    """A function that gives the next message: a key a second, and the tags in turn."""
    body = random_body(load.size)
    properties = filling(load.property_size)
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
    always = make()
    return lambda: always


def random_body(size: int) -> bytes:
    letters = random.choices(string.ascii_letters + string.digits, k=size)  # noqa: S311  filler
    return "".join(letters).encode()


def filling(size: int) -> dict[str, str]:
    """Properties whose names and values are a little over `size` characters."""
    found: dict[str, str] = {}
    held = 0
    while held < size:
        name, value = f"prop{len(found)}", f"hello{len(found)}"
        found[name] = value
        held += len(name) + len(value)
    return found


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
