"""Credentials in settings: JSON texts whose values never appear in an error."""

from dataclasses import replace
from typing import TypeVar

import msgspec

from bolide.auth.settings import AccessSettings
from bolide.errors import ConfigError
from bolide.remoting.signing import Signer

S = TypeVar("S")
C = TypeVar("C", bound=AccessSettings)


class InitialUser(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """`initAuthenticationUser`; type and status are accepted, the user is an enabled super user."""

    username: str
    password: str
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.username!r})"


class InnerCredentials(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """`innerClientAuthenticationCredentials`."""

    access_key: str
    secret_key: str
    security_token: str | None = None
    signature: str | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.access_key!r})"


def initial_user(settings: AccessSettings) -> InitialUser | None:
    """The super user of `initAuthenticationUser`. Raises ConfigError."""
    found = _decode(
        "initAuthenticationUser",
        settings.init_authentication_user,
        InitialUser,
        '{"username":"...","password":"..."}',
    )
    if found is not None and not (found.username.strip() and found.password.strip()):
        raise ConfigError("initAuthenticationUser: username and password must not be blank")
    return found


def inner_credentials(settings: AccessSettings) -> InnerCredentials | None:
    """The identity of a server's own requests to other servers. Raises ConfigError."""
    found = _decode(
        "innerClientAuthenticationCredentials",
        settings.inner_client_authentication_credentials,
        InnerCredentials,
        '{"accessKey":"...","secretKey":"..."}',
    )
    if found is not None and not (found.access_key.strip() and found.secret_key.strip()):
        raise ConfigError(
            "innerClientAuthenticationCredentials: accessKey and secretKey must not be blank"
        )
    return found


def with_inner_credentials(settings: C) -> C:
    """Sign a server's own requests as the first super user, if there are no other credentials.

    For servers whose users are the same: those of `bolide standalone`.
    """
    first = initial_user(settings)
    if first is None or settings.inner_client_authentication_credentials:
        return settings
    found = InnerCredentials(first.username, first.password)
    text = msgspec.json.encode(found).decode()
    return replace(settings, inner_client_authentication_credentials=text)


def inner_signers(settings: AccessSettings) -> tuple[Signer, ...]:
    """The hook that signs a server's own requests to other servers, if it has credentials."""
    found = inner_credentials(settings)
    if found is None:
        return ()
    return (Signer(found.access_key, found.secret_key, found.security_token),)


def _decode(key: str, text: str | None, shape: type[S], form: str) -> S | None:
    if text is None or not text.strip():
        return None
    try:
        return msgspec.json.decode(text, type=shape)
    except (msgspec.DecodeError, UnicodeError):
        # No cause: its text may quote the value.
        raise ConfigError(f"{key}: must be JSON of the form {form}") from None
