"""A peer sent bytes that mean nothing."""

from bolide.errors import BolideError


class ProtocolError(BolideError):
    """A peer's bytes break the protocol; the text says where and how."""
