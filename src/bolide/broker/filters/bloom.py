"""The bits of a consumer in RocketMQ's Bloom filter.

Ours sets no such bits: it evaluates expressions when messages are read. But Java brokers throw
the whole table of filters away if an entry lacks its bits.
"""

import struct

from bolide.store.tables import BloomPositions

_BITS, _HASHES = 112, 3  # of 32 consumers and one error in five, RocketMQ's defaults
_BLOCK = struct.Struct("<QQ")
_LONG = 0xFFFF_FFFF_FFFF_FFFF
_C1, _C2 = 0x87C3_7B91_1142_53D5, 0x4CF5_AD43_2745_937F
_MIX1, _MIX2 = 0xFF51_AFD7_ED55_8CCD, 0xC4CE_B9FE_1A85_EC53


def positions(group: str, topic: str) -> BloomPositions:
    """The bits of a group that filters a topic."""
    hashed = _murmur3(f"{group}#{topic}".encode())
    low, high = hashed & 0xFFFF_FFFF, hashed >> 32
    sums = [(low + number * high) & 0xFFFF_FFFF for number in range(1, _HASHES + 1)]
    return BloomPositions(bit_num=_BITS, bit_pos=[_positive(each) % _BITS for each in sums])


def _positive(value: int) -> int:
    """Java's int, its bits flipped if it is negative."""
    return value ^ 0xFFFF_FFFF if value & 0x8000_0000 else value


def _murmur3(data: bytes) -> int:
    """The first half of MurmurHash3 x64 128 with seed 0."""
    first = second = 0
    whole = len(data) - len(data) % _BLOCK.size
    for one, two in _BLOCK.iter_unpack(data[:whole]):
        first ^= _scatter(one, _C1, 31, _C2)
        first = (_rotated(first, 27) + second) * 5 + 0x52DC_E729 & _LONG
        second ^= _scatter(two, _C2, 33, _C1)
        second = (_rotated(second, 31) + first) * 5 + 0x3849_5AB5 & _LONG
    one, two = _BLOCK.unpack(data[whole:].ljust(_BLOCK.size, b"\0"))
    second ^= _scatter(two, _C2, 33, _C1) ^ len(data)
    first ^= _scatter(one, _C1, 31, _C2) ^ len(data)
    first = first + second & _LONG
    second = second + first & _LONG
    return _mixed(first) + _mixed(second) & _LONG


def _scatter(value: int, factor: int, bits: int, further: int) -> int:
    return _rotated(value * factor & _LONG, bits) * further & _LONG


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _LONG


def _mixed(value: int) -> int:
    value = (value ^ value >> 33) * _MIX1 & _LONG
    value = (value ^ value >> 33) * _MIX2 & _LONG
    return value ^ value >> 33
