"""Errors in the bytes that a peer sent."""

from bolide.errors import BolideError


class ProtocolError(BolideError):
    """A peer violates the protocol; the text says where and how."""
