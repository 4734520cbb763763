"""What a server prints at its start about who can connect to it, and what protects it."""

from typing import Protocol

from bolide.remoting.address import format_address, is_loopback_host, split_address
from bolide.remoting.tls import UNCERTIFIED_CLIENTS, ClientAuth, TlsMode


class ExposedServer(Protocol):
    """The settings that decide who can connect and do what."""

    @property
    def bind_address(self) -> str: ...
    @property
    def allow_remote_admin(self) -> bool: ...
    @property
    def has_access_control(self) -> bool: ...
    @property
    def authentication_enabled(self) -> bool: ...
    @property
    def authorization_enabled(self) -> bool: ...
    @property
    def tls_mode(self) -> TlsMode: ...
    @property
    def tls_certificate(self) -> object: ...
    @property
    def tls_client_auth(self) -> ClientAuth: ...
    @property
    def use_tls(self) -> bool: ...
    @property
    def tls_client_verify(self) -> bool: ...


def describe_exposure(config: ExposedServer, port: int, rights: str) -> str:
    """One line: from where the server can be reached, and what protects it.

    Args:
        rights: what everybody may do without access control.
    """
    control = _describe_control(config)
    if is_loopback_host(config.bind_address):
        return "Reachable from this machine only." + (
            f" {control}" if config.has_access_control else ""
        )
    reachable = f"Reachable from the network at {format_address((config.bind_address, port))}."
    if config.has_access_control:
        return f"{reachable} {control}"
    who = "anybody who reaches it"
    if config.tls_mode is TlsMode.ENFORCING and config.tls_client_auth is ClientAuth.REQUIRE:
        who = "anybody with a client certificate"
    if config.allow_remote_admin:
        return (
            f"{reachable} Access control is off and allowRemoteAdmin is on: {who} can {rights},"
            " and change and delete everything."
        )
    return (
        f"{reachable} Access control is off: {who} can {rights}; administration is taken from this"
        " machine only."
    )


def _describe_control(config: ExposedServer) -> str:
    if config.authentication_enabled and not config.authorization_enabled:
        return (
            "Requests must be signed, but every user may do everything: authorizationEnabled is"
            " false."
        )
    return "Access control is on: requests must be signed."


def describe_metrics(address: str) -> str:
    """One line: where metrics are, and who can read them."""
    host, _ = split_address(address)
    who = (
        "from this machine only"
        if is_loopback_host(host)
        else "by anybody who reaches it; there is no access control, and nothing can be changed"
    )
    return f"Metrics at http://{address}/metrics, readable {who}."


def describe_encryption(config: ExposedServer) -> str:
    """One line: what is encrypted, and whether the server verifies those that it calls."""
    if config.use_tls and not config.tls_client_verify:
        unverified = " Its own calls accept any server: tls.client.authServer=false."
        return _served(config) + unverified
    return _served(config)


def _served(config: ExposedServer) -> str:
    if config.tls_mode is TlsMode.DISABLED:
        return "Serving plain text only: tls.server.mode=disabled."
    if config.tls_certificate is None:
        return "Serving plain text only: no tls.server.certPath is set."
    if config.tls_mode is TlsMode.ENFORCING:
        return "Serving TLS only."
    served = "Serving TLS and plain text on one port."
    if config.tls_client_auth is ClientAuth.REQUIRE:
        return f"{served} {UNCERTIFIED_CLIENTS}"
    return served
