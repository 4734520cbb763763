"""Signs the requests of a client, as Java's `AclClientRPCHook`."""

from bolide.protocol.frame import Frame
from bolide.protocol.signature import (
    ACCESS_KEY,
    SECURITY_TOKEN,
    SIGNATURE,
    UNSIGNED,
    UNSIGNED_VERSION,
    signature,
)


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
