"""The NameServers of a client: a list that may change, and which of it is asked."""

import logging
import random
import urllib.request
from collections.abc import Iterable
from http.client import HTTPException

from bolide.client.settings import parse_addresses
from bolide.errors import ConfigError

log = logging.getLogger(__name__)

REFRESH_INTERVAL = 120.0
"""Seconds between two looks at an address server."""

RETRY_INTERVAL = 1.0
"""The same as long as it has told no list."""

_MAX_ANSWER = 64 * 1024


class NameServers:
    """One of the list is asked until it fails, then the next; clients begin at different ones."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        self._addresses = tuple(addresses)
        self._chosen = _any_place(self._addresses)

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._addresses

    def set(self, addresses: str | Iterable[str]) -> bool:
        """Replace the list; False if it says the same as before.

        Raises:
            ConfigError: an address is not of the form host:port.
        """
        wanted = parse_addresses(addresses)
        if set(wanted) == set(self._addresses):
            return False
        log.info("the NameServers are now %s", ", ".join(wanted) or "none")
        self._addresses = wanted
        self._chosen = _any_place(wanted)
        return True

    def in_order(self) -> tuple[str, ...]:
        """All of them, the chosen one first."""
        return self._addresses[self._chosen :] + self._addresses[: self._chosen]

    def choose(self, address: str) -> None:
        """It answered: ask it first from now on."""
        if address in self._addresses:
            self._chosen = self._addresses.index(address)


def _any_place(addresses: tuple[str, ...]) -> int:
    return random.randrange(len(addresses)) if addresses else 0  # noqa: S311  to spread load


def fetch_addresses(url: str, timeout: float) -> tuple[str, ...]:
    """Ask an address server for the list. Blocks.

    Raises:
        ConfigError: the URL or the answer cannot be used.
        OSError: it does not answer.
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"address_server={url!r}: must be a URL of http:// or https://")
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=timeout) as answer:
            text = answer.read(_MAX_ANSWER).decode("utf-8", "replace")
    except (HTTPException, ValueError) as exc:
        raise ConfigError(f"address_server={url!r}: what answers there is no HTTP: {exc}") from exc
    return parse_addresses(text.strip())
