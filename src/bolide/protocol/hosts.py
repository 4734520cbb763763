"""The binary form of a host in records and ids: IP of 4 or 16 bytes, then the port in 4.

Both directions are cached: a broker sees the same few thousand peers repeatedly.
"""

import struct
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from bolide.model.message import Host

V4_SIZE = 8
V6_SIZE = 20

_PORT = struct.Struct(">I")


@lru_cache(maxsize=8192)
def pack_host(host: Host) -> bytes:
    """Raises ValueError if the host is not an IP address."""
    return ip_address(host.ip).packed + _PORT.pack(host.port)


@lru_cache(maxsize=8192)
def unpack_host(packed: bytes) -> Host:
    """Unpack 8 or 20 bytes; the caller ensures one of these lengths."""
    ip, port = packed[: -_PORT.size], _PORT.unpack(packed[-_PORT.size :])[0]
    return Host(str(IPv6Address(ip) if len(packed) == V6_SIZE else IPv4Address(ip)), port)
