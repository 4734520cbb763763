"""Trace records that go out in one message."""

from collections import deque

from bolide.model.message import Message
from bolide.model.properties import KEY_SEPARATOR, PropertyName
from bolide.protocol.trace import TraceRecord, encode_record

MAX_BODY = 128_000
MAX_KEYS = 16_000
"""Bytes: all properties of a message together may have 32,767."""


class Parcel:
    """Fills up with records until one does not fit."""

    def __init__(self) -> None:
        self.count = 0
        self._texts: list[bytes] = []
        self._size = 0
        self._keys: dict[str, None] = {}
        self._keys_size = 0

    @classmethod
    def next(cls, waiting: deque[TraceRecord], most: int) -> "Parcel":
        """One of the first records that wait, which there must be; they wait no more."""
        parcel = cls()
        while waiting and parcel.count < most and parcel.take(waiting[0]):
            waiting.popleft()
        return parcel

    def take(self, record: TraceRecord) -> bool:
        """False if it does not fit; an empty parcel takes any."""
        text = encode_record(record).encode()
        words = [word for word in record.index_keys() if word not in self._keys]
        size = _size_of(words)
        if self.count and (self._size + len(text) > MAX_BODY or self._keys_size + size > MAX_KEYS):
            return False
        if size > MAX_KEYS:  # it is found by its id then, and not by its keys
            words, size = words[:1], _size_of(words[:1])
        self._texts.append(text)
        self._size += len(text)
        self._keys.update(dict.fromkeys(words))
        self._keys_size += size
        self.count += 1
        return True

    def message(self, topic: str) -> Message:
        keys = {PropertyName.KEYS: KEY_SEPARATOR.join(self._keys)} if self._keys else {}
        return Message.unchecked(topic, b"".join(self._texts), keys)


def _size_of(words: list[str]) -> int:
    return sum(len(word.encode()) + len(KEY_SEPARATOR) for word in words)
