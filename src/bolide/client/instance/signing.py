"""Request signatures: HMAC-SHA1 over fields and body, as in Java's `AclClientRPCHook`."""

import hmac
from base64 import b64encode
from collections.abc import Mapping

from bolide.protocol.frame import Frame

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105  the name of a field
UNSIGNED = "_UNIQUE_KEY_QUERY"
UNSIGNED_VERSION = 399
"""4.9 servers exclude this field from the signature, 5.x servers only for such an old client."""


class Signer:
    """A hook that signs every request of a client."""

    def __init__(self, access_key: str, secret_key: str, security_token: str | None = None) -> None:
        self._credentials = {ACCESS_KEY: access_key}
        if security_token:
            self._credentials[SECURITY_TOKEN] = security_token
        self._secret = secret_key.encode()

    def before(self, peer: str, request: Frame) -> None:
        if request.fields and UNSIGNED in request.fields:
            request.version = min(request.version, UNSIGNED_VERSION)
        fields = {**(request.fields or {}), **self._credentials}
        fields[SIGNATURE] = signature(fields, request.body, self._secret)
        request.fields = fields

    def after(self, peer: str, request: Frame, response: Frame) -> None:
        pass


def signature(fields: Mapping[str, str], body: bytes, secret: bytes) -> str:
    """Sign the field values, ordered by name and concatenated, followed by the body."""
    values = "".join(fields[name] for name in sorted(fields) if name not in (SIGNATURE, UNSIGNED))
    return b64encode(hmac.digest(secret, values.encode() + body, "sha1")).decode()
