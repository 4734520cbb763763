"""Signatures of requests with a key that is prepared once for many.

`protocol.signature` says what is signed; `_signatures` is the compiled version.
"""

import hmac
from base64 import b64encode

from bolide.protocol.errors import ProtocolError
from bolide.protocol.framing import decode_frame, frame_size
from bolide.protocol.signature import is_signed_by


class SigningKey:
    """A secret with which requests are signed."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, content: bytes) -> bytes:
        """The signature of a content, in Base64."""
        return b64encode(hmac.digest(self._secret, content, "sha1"))

    def is_signed(self, data: bytes, position: int) -> bool:
        """Whether the whole frame at `position` is signed with this key.

        False may also mean that its header is written in an unusual way. Takes the same time
        wherever a wrong signature differs.
        """
        size = frame_size(data, position) if position >= 0 else 0
        if size < 8 or size > len(data) - position:
            return False
        try:
            frame = decode_frame(data[position + 4 : position + size])
        except ProtocolError:
            return False
        return is_signed_by(frame.fields or {}, frame.body, self._secret, frame.version)
