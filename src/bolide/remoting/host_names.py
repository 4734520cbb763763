"""Hosts by name and by IP address: comparable texts, and lookups that are kept for a short time."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

from bolide.remoting.tasks import SingleFlight

log = logging.getLogger(__name__)

_RESOLVED_FOR = 10.0
"""Seconds for which the addresses of a host name are kept."""

_MAX_NAMES = 10_000


class HostNames:
    """The IP addresses of hosts; belongs to one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._resolved: dict[str, tuple[float, frozenset[str]]] = {}
        self._lookups: SingleFlight[str, frozenset[str]] = SingleFlight(OSError)

    async def addresses(self, host: str) -> frozenset[str]:
        """All addresses of a host; none while its name cannot be resolved."""
        address = as_ip_address(host)
        if address is not None:
            return frozenset((address,))
        at, found = self._resolved.get(host, (float("-inf"), frozenset[str]()))
        if self._clock() - at >= _RESOLVED_FOR:
            found = await self._lookups.run(host, lambda: self._look_up(host), f"resolve {host}")
            if len(self._resolved) >= _MAX_NAMES:
                self._resolved.clear()
            self._resolved[host] = self._clock(), found
        return found

    async def _look_up(self, host: str) -> frozenset[str]:
        try:
            loop = asyncio.get_running_loop()
            told = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as exc:
            log.debug("cannot resolve %s: %s", host, exc)
            return frozenset()
        return frozenset(plain_host(str(each[4][0])) for each in told)


def plain_host(host: str) -> str:
    """An address without scope, and as IPv4 if it is one inside IPv6; other texts as they are."""
    return as_ip_address(host) or host


def as_ip_address(host: str) -> str | None:
    """The same as `plain_host`, but None if the text is no IP address."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
