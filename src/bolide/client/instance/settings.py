"""Settings common to producers and consumers, and namespaces.

A namespace is prepended to a name as `ns%name`, after the prefix of retry and dead-letter topics:
`%RETRY%ns%group`.
"""

import os
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

from bolide.errors import ConfigError
from bolide.model.names import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)
from bolide.remoting.address import split_address
from bolide.remoting.tls import ClientTls, pop_client_tls

SEPARATOR = "%"
DEFAULT_NAME = "DEFAULT"

_SYSTEM_PREFIXES = (SYSTEM_TOPIC_PREFIX, SYSTEM_GROUP_PREFIX)


def wrap(namespace: str, name: str) -> str:
    """Add the namespace; names of the system and names that have it stay unchanged."""
    if not namespace or not name or name in SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIXES):
        return name
    prefix, bare = _split(name)
    return name if bare.startswith(namespace + SEPARATOR) else f"{prefix}{namespace}%{bare}"


def unwrap(namespace: str, name: str) -> str:
    """Remove the namespace; names of other namespaces stay unchanged."""
    if not namespace:
        return name
    prefix, bare = _split(name)
    return prefix + bare.removeprefix(namespace + SEPARATOR)


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


class ClientArguments(TypedDict, total=False):
    """The keyword arguments of every client; see `ClientSettings`."""

    name_server: str | Iterable[str] | None
    address_server: str | None
    instance_name: str
    unit_name: str
    unit_mode: bool
    namespace: str
    client_ip: str | None
    access_key: str | None
    secret_key: str | None
    security_token: str | None
    tls: ClientTls | bool | None
    trust: Path | str | None
    certificate: Path | str | None
    key: Path | str | None
    vip_channel: bool
    route_interval: float
    heartbeat_interval: float
    call_timeout: float
    connect_timeout: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Settings of every client; durations in seconds."""

    name_servers: tuple[str, ...] = ()
    """Addresses; one is used until it fails, then the next."""

    address_server: str | None = None
    """URL that returns the list of NameServers; queried every 2 minutes."""

    instance_name: str = DEFAULT_NAME
    """Clients with the same name in one process share connections and must have the same
    settings; by default a client shares nothing."""

    unit_name: str = ""
    unit_mode: bool = False
    namespace: str = ""
    """Prepended to the names of topics and groups on the wire, and removed on receipt."""

    client_ip: str = ""
    """Part of the client id; by default the address of this machine."""

    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls: ClientTls | None = None
    """TLS to all servers; plain text by default. As arguments of a client, `tls=True` checks
    servers with the system's authorities, and the files `trust`, `certificate` and `key` of
    `ClientTls` may be given without it."""

    vip_channel: bool = False
    """Send to the broker's port - 2, which serves no pulls."""

    route_interval: float = 30.0
    heartbeat_interval: float = 30.0
    call_timeout: float = 3.0
    connect_timeout: float = 3.0

    def __post_init__(self) -> None:
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("access_key and secret_key must be given together")
        for name in ("route_interval", "heartbeat_interval", "call_timeout", "connect_timeout"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}={getattr(self, name)}: must be over 0 seconds")

    @classmethod
    def of(cls, **arguments: Unpack[ClientArguments]) -> Self:
        """Build the settings from keyword arguments and the environment.

        Raises:
            ConfigError: a setting is invalid.
        """
        rest: dict[str, Any] = dict(arguments)
        given = rest.pop("name_server", None)
        if given is None and not rest.get("address_server"):
            given = os.environ.get("NAMESRV_ADDR", "")
        rest["client_ip"] = rest.get("client_ip") or own_address()
        rest["tls"] = pop_client_tls(rest)
        return cls(name_servers=parse_addresses(given or ()), **rest)

    @property
    def client_id(self) -> str:
        words = [f"{self.client_ip}@{self.instance_name}", self.unit_name]
        return "@".join(word for word in words if word)

    def with_own_name(self) -> Self:
        """Replace the default instance name by a unique one."""
        if self.instance_name != DEFAULT_NAME:
            return self
        return replace(self, instance_name=f"{os.getpid()}#{time.monotonic_ns()}")

    def wrap(self, name: str) -> str:
        """Add the namespace to a topic or group name."""
        return wrap(self.namespace, name)

    def unwrap(self, name: str) -> str:
        """Remove the namespace from a topic or group name."""
        return unwrap(self.namespace, name)


def parse_addresses(given: str | Iterable[str]) -> tuple[str, ...]:
    """Parse a list of addresses, or a string of addresses separated by `;`.

    Raises:
        ConfigError: an address is not of the form host:port.
    """
    words = given.split(";") if isinstance(given, str) else list(given)
    addresses = tuple(word.strip() for word in words if word.strip())
    for address in addresses:
        try:
            split_address(address)
        except ValueError as exc:
            raise ConfigError(f"name_server: {exc}") from exc
    return addresses


@cache
def own_address() -> str:
    """The address of this machine towards other hosts; determined without sending packets."""
    probes = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
    for family, target in probes:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            return str(probe.getsockname()[0])
    return "127.0.0.1"
