"""Addresses of clients as records hold them."""

from functools import lru_cache

from bolide.model.message import Host
from bolide.protocol.hosts import pack_host
from bolide.remoting.address import split_address

_NOWHERE = Host("0.0.0.0", 0)  # noqa: S104  an address that is none


@lru_cache(maxsize=8192)
def packed_peer(peer: str) -> bytes:
    """The packed form of a connection's `host:port`; zeros for one that has none."""
    try:
        ip, port = split_address(peer)
        return pack_host(Host(ip.partition("%")[0], port))
    except ValueError:
        return pack_host(_NOWHERE)
