"""Consume queue extensions written by a Java broker; Bolide only reads them.

With `enableConsumeQueueExt` Java puts a unit beside each queue entry, and the unit's address in
place of the tags code. A unit (`ConsumeQueueExt.CqExtUnit`):

    2  size of the whole unit; 0 or less: no unit, or the end of the used part of the file
    8  tags code
    8  store time in milliseconds
    2  size of the bit map
    n  bit map: a Bloom filter of the consumers whose filters may match
"""

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_HEAD = struct.Struct(">hqqh")
_BASE = -(2**63)
_HIGHEST_ADDRESS = -(2**31) - 1
_END_MARK_SIZE = 4


CodeFilter = Callable[[int], bool]


class ExtUnit(NamedTuple):
    tags_code: int
    store_timestamp: int
    bit_map: bytes


def is_address(tags_code: int) -> bool:
    """Whether a tags code is the address of a unit; hash codes are never that low."""
    return tags_code <= _HIGHEST_ADDRESS


class QueueExtensions:
    """The extension units of all queues of a store; most stores have none."""

    def __init__(self, root: Path, file_size: int) -> None:
        self.directory = root / "consumequeue_ext"
        self._file_size = file_size
        self.exist = self.directory.exists()

    def find(self, topic: str, queue_id: int, address: int) -> ExtUnit | None:
        """Return the unit at an address, or None if it is missing or damaged. Blocks."""
        if not is_address(address):
            return None
        offset = address - _BASE
        within = offset % self._file_size
        path = self.directory / topic / str(queue_id) / f"{offset - within:020d}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return self._read(descriptor, within)
        finally:
            os.close(descriptor)

    def through(self, wanted: CodeFilter, topic: str, queue_id: int) -> CodeFilter:
        """Wrap a filter on tags codes to follow addresses; an address without a unit matches."""

        def code(tags_code: int) -> bool:
            if not is_address(tags_code):
                return wanted(tags_code)
            unit = self.find(topic, queue_id, tags_code)
            return unit is None or wanted(unit.tags_code)

        return code

    def _read(self, descriptor: int, at: int) -> ExtUnit | None:
        head = os.pread(descriptor, _HEAD.size, at)
        if len(head) < _HEAD.size:
            return None
        size, tags_code, store_timestamp, bits = _HEAD.unpack(head)
        end = self._file_size - _END_MARK_SIZE
        if bits < 0 or size != _HEAD.size + bits or at + size > end:
            return None
        bit_map = os.pread(descriptor, bits, at + _HEAD.size)
        return ExtUnit(tags_code, store_timestamp, bit_map) if len(bit_map) == bits else None
