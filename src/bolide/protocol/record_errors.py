"""Errors of message records, one class for each case that recovery distinguishes."""

from bolide.errors import BolideError
from bolide.protocol.errors import ProtocolError


class RecordTooLarge(BolideError, ValueError):
    """A part of a message is too large: body, topic or properties."""

    def __init__(self, part: str, size: int, limit: int) -> None:
        super().__init__(f"{part} of {size} bytes is over the limit of {limit}")
        self.part = part
        self.size = size
        self.limit = limit


class BadRecord(ProtocolError):
    """The buffer has no complete, sound record at `position`."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"record at {position}: {reason}")
        self.position = position
        self.reason = reason


class TruncatedRecord(BadRecord):
    """The buffer ends before the record does."""

    def __init__(self, position: int, needed: int, available: int) -> None:
        super().__init__(position, f"needs {needed} bytes, {available} are left")
        self.needed = needed
        self.available = available


class BadMagic(BadRecord):
    """No record begins here; behind the end of a log there are usually zeros."""

    def __init__(self, position: int, magic: int) -> None:
        super().__init__(position, f"unknown magic {magic:#010x}")
        self.magic = magic


class BadLengths(BadRecord):
    """The lengths inside the record do not add up to its size."""


class BadChecksum(BadRecord):
    """A checksum does not match."""
