"""Who may connect to the replication port, which hands out the whole log."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from bolide.errors import ConfigError

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class PeerPolicy:
    """Admits loopback, the listed addresses and networks, or everybody with a verified certificate.

    With mutual TLS the handshake has checked the certificate before `admits` is called.
    """

    networks: tuple[_Network, ...] = ()
    has_mutual_tls: bool = False

    advice = "set haAllowedReplicas to the addresses of the slaves, or haTlsEnable=true"

    @classmethod
    def of(cls, texts: Iterable[str], *, has_mutual_tls: bool = False) -> Self:
        """Raises ConfigError for a text that is no address or network."""
        return cls(tuple(map(_network, texts)), has_mutual_tls)

    def admits(self, host: str) -> bool:
        if self.has_mutual_tls:
            return True
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        return address.is_loopback or any(address in network for network in self.networks)


def _network(text: str) -> _Network:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError as exc:
        raise ConfigError(
            f"haAllowedReplicas={text}: not an IP address or network such as 10.0.0.0/24"
        ) from exc
