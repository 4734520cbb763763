"""Messages of mixed size: each says which one it is, and all of its body follows from that."""

import random
import struct

_NUMBER = struct.Struct(">Q")
_POOL_SIZE = 128 * 1024
# Hexadecimal digits: half of it is noise, so that compression has something to do.
_POOL = random.Random(4).randbytes(_POOL_SIZE // 2).hex().encode()

SIZES = [(16, 256)] * 200 + [(256, 2048)] * 48 + [(2048, 16384)] * 7 + [(16384, 65536)]
"""Smallest and largest size, in bytes; each of these 256 is as frequent as the others."""


class Damaged(Exception):
    """A body is not what was sent."""


def body_of(number: int) -> bytes:
    noise = number * 0x9E37_79B9_7F4A_7C15 >> 16  # cheap: it is asked for millions of times
    least, most = SIZES[noise % 256]
    size = least + (noise >> 8) % (most - least + 1) - _NUMBER.size
    at = (noise >> 24) % (_POOL_SIZE - size)
    return _NUMBER.pack(number) + _POOL[at : at + size]


def number_of(body: bytes) -> int:
    """Which message it is. Raises Damaged if it is not exactly that."""
    (number,) = _NUMBER.unpack_from(body)
    if body != body_of(number):
        raise Damaged(f"{body[:40]!r}… of {len(body)} bytes is not message {number}")
    return int(number)
