"""Request signatures: HMAC-SHA1 over fields and body, as in Java's `AclUtils` and `AclSigner`."""

import hmac
from base64 import b64encode
from collections.abc import Iterable, Mapping

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105  the name of a field
UNSIGNED = "_UNIQUE_KEY_QUERY"
UNSIGNED_VERSION = 399
"""4.9 servers exclude this field from the signature, 5.x servers only for such an old client."""


def signature(
    fields: Mapping[str, str], body: bytes, secret: bytes, version: int = UNSIGNED_VERSION
) -> str:
    """Sign the field values, ordered by name and concatenated, followed by the body.

    Args:
        version: of the client, as the request names it.
    """
    return _sign(fields, body, secret, version).decode()


def is_signed_by(fields: Mapping[str, str], body: bytes, secret: bytes, version: int) -> bool:
    """Whether the field `Signature` of a request is that of the owner of a secret.

    Takes the same time wherever a wrong signature differs.

    Args:
        version: of the client, as the request names it.
    """
    given = fields.get(SIGNATURE)
    if given is None:
        return False
    expected = _sign(fields, body, secret, version)
    return hmac.compare_digest(expected, given.encode(errors="replace"))


def _sign(fields: Mapping[str, str], body: bytes, secret: bytes, version: int) -> bytes:
    left_out = (SIGNATURE, UNSIGNED) if version <= UNSIGNED_VERSION else (SIGNATURE,)
    text = "".join([fields[name] for name in _ordered(fields) if name not in left_out])
    # Java writes a question mark for half a surrogate pair, too.
    content = text.encode(errors="replace") + body
    return b64encode(hmac.digest(secret, content, "sha1"))


def _ordered(names: Iterable[str]) -> list[str]:
    """Sort as Java does, by UTF-16 units; of ASCII names that is the order of Python."""
    ordered = sorted(names)
    if all(map(str.isascii, ordered)):
        return ordered
    return sorted(ordered, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
