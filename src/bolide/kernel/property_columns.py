"""The properties of many messages at once, in plain Python.

Splitting all of them in one go costs half of what one by one does. Where they are not all as they
should be, each message's are read as `decode_properties` reads them.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

_NAMED = (b"UNIQ_KEY", b"KEYS", b"TAGS")
_NO_MARKS = bytes(byte for byte in range(256) if byte not in (1, 2))
_NAME_END, _PAIR_END = b"\x01", b"\x02"
_ENDS = {b"", _PAIR_END}


class Properties(NamedTuple):
    counts: list[int]
    """Pairs of each message."""
    names: list[bytes]
    values: list[bytes]
    unique_ids: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    tags: Sequence[bytes | None]


def read_properties(texts: list[bytes]) -> Properties:
    """Names and values as UTF-8, each name once a message."""
    if not _ENDS.issuperset([text[-1:] for text in texts]):
        texts = [*map(_ended, texts)]
    names, values = _split(b"".join(texts)) or ([], [])
    if names or not any(texts):
        counts = [text.count(_NAME_END) for text in texts]
        named = _find_named(counts, names, values)
        if named:
            return Properties(counts, names, values, *named)
    return _one_by_one(texts)


def as_utf_8(text: bytes) -> bytes:
    return text if text.isascii() else text.decode("utf-8", "replace").encode()


def read_pairs(text: bytes) -> dict[bytes, bytes]:
    """Properties as `decode_properties` reads them, but as UTF-8."""
    pairs = {}
    for pair in as_utf_8(text).split(_PAIR_END):
        name, _, value = pair.partition(_NAME_END)
        if name and value:
            pairs[name] = value
    return pairs


def _ended(text: bytes) -> bytes:
    """RocketMQ 4.9 leaves the last mark off."""
    return text + _PAIR_END if text and not text.endswith(_PAIR_END) else text


def _split(text: bytes) -> tuple[list[bytes], list[bytes]] | None:
    """Names and values, if the text is nothing but whole pairs of plain letters."""
    marks = text.translate(None, _NO_MARKS)
    if not text.isascii() or marks != b"\x01\x02" * (len(marks) // 2):
        return None
    parts = text.replace(_PAIR_END, _NAME_END).split(_NAME_END)
    if parts.pop() or b"" in parts:
        return None
    return parts[::2], parts[1::2]


def _find_named(
    counts: list[int], names: list[bytes], values: list[bytes]
) -> list[Sequence[bytes | None]] | None:
    """Unique ids, keys and tags; None if some message has a name twice."""
    count = counts[0] if counts else 0
    shape = tuple(names[:count])
    if counts == [count] * len(counts) and names == [*shape] * len(counts):
        if len(set(shape)) < count:
            return None
        return [
            values[shape.index(name) :: count] if name in shape else [None] * len(counts)
            for name in _NAMED
        ]
    return _find_in_rows(counts, names, values)


def _find_in_rows(
    counts: list[int], names: list[bytes], values: list[bytes]
) -> list[Sequence[bytes | None]] | None:
    places: dict[tuple[bytes, ...], tuple[int, int, int]] = {}
    unique_ids: list[bytes | None] = []
    keys: list[bytes | None] = []
    tags: list[bytes | None] = []
    for start, end in pairwise(accumulate(counts, initial=0)):
        shape = tuple(names[start:end])
        place = places.get(shape)
        if place is None:
            if len(set(shape)) < len(shape):
                return None
            unique_id, key, tag = (shape.index(n) if n in shape else -1 for n in _NAMED)
            places[shape] = place = unique_id, key, tag
        unique_id, key, tag = place
        unique_ids.append(values[start + unique_id] if unique_id >= 0 else None)
        keys.append(values[start + key] if key >= 0 else None)
        tags.append(values[start + tag] if tag >= 0 else None)
    return [unique_ids, keys, tags]


def _one_by_one(texts: list[bytes]) -> Properties:
    pairs = [*map(read_pairs, texts)]
    return Properties(
        [*map(len, pairs)],
        [name for each in pairs for name in each],
        [value for each in pairs for value in each.values()],
        *([each.get(name) for each in pairs] for name in _NAMED),
    )
