"""Bulk decoding of the properties of many messages, in plain Python.

One split over all messages costs half as much as one split per message. If any property string is
irregular, each message is decoded on its own, as by `decode_properties`.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

_NAMED = (b"UNIQ_KEY", b"KEYS", b"TAGS")
_NO_SEPARATORS = bytes(byte for byte in range(256) if byte not in (1, 2))
_NAME_END, _PAIR_END = b"\x01", b"\x02"
_ENDS = {b"", _PAIR_END}


class Properties(NamedTuple):
    """Decoded properties of several messages."""

    counts: list[int]
    """Number of pairs of each message."""
    names: list[bytes]
    values: list[bytes]
    unique_ids: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    tags: Sequence[bytes | None]


def read_properties(texts: list[bytes]) -> Properties:
    """Decode property strings to names and values in UTF-8, each name once per message."""
    if not _ENDS.issuperset([text[-1:] for text in texts]):
        texts = [*map(_with_pair_end, texts)]
    names, values = _split(b"".join(texts)) or ([], [])
    if names or not any(texts):
        counts = [text.count(_NAME_END) for text in texts]
        named = _find_named(counts, names, values)
        if named:
            return Properties(counts, names, values, *named)
    return _decode_each(texts)


def as_utf_8(text: bytes) -> bytes:
    return text if text.isascii() else text.decode("utf-8", "replace").encode()


def read_pairs(text: bytes) -> dict[bytes, bytes]:
    """Decode like `decode_properties`, but to UTF-8."""
    pairs = {}
    for pair in as_utf_8(text).split(_PAIR_END):
        name, _, value = pair.partition(_NAME_END)
        if name and value:
            pairs[name] = value
    return pairs


def _with_pair_end(text: bytes) -> bytes:
    """Add the last pair end, which RocketMQ 4.9 omits."""
    return text + _PAIR_END if text and not text.endswith(_PAIR_END) else text


def _split(text: bytes) -> tuple[list[bytes], list[bytes]] | None:
    """Return names and values, or None unless the text is ASCII and consists of complete pairs."""
    separators = text.translate(None, _NO_SEPARATORS)
    if not text.isascii() or separators != b"\x01\x02" * (len(separators) // 2):
        return None
    parts = text.replace(_PAIR_END, _NAME_END).split(_NAME_END)
    if parts.pop() or b"" in parts:
        return None
    return parts[::2], parts[1::2]


def _find_named(
    counts: list[int], names: list[bytes], values: list[bytes]
) -> list[Sequence[bytes | None]] | None:
    """Return unique ids, keys and tags; None if a message has a name twice."""
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


def _decode_each(texts: list[bytes]) -> Properties:
    pairs = [*map(read_pairs, texts)]
    return Properties(
        [*map(len, pairs)],
        [name for each in pairs for name in each],
        [value for each in pairs for value in each.values()],
        *([each.get(name) for each in pairs] for name in _NAMED),
    )
