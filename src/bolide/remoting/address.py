"""Addresses in RocketMQ's form: `host:port`, IPv6 in brackets."""

from ipaddress import ip_address


def format_address(address: object) -> str:
    """Format a socket address as `host:port`, IPv6 in brackets."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(address or "?")


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port` or `[host]:port`.

    Raises:
        ValueError: the address has neither form.
    """
    host, _, port = address.strip().rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{address!r} is not an address of the form host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def host_of(peer: str) -> str:
    """The host of a peer `host:port`; the whole text if it has another form."""
    try:
        return split_address(peer)[0]
    except ValueError:
        return peer


def is_loopback_host(host: str) -> bool:
    """Whether a host, an IP address or a name, is this machine by its loopback interface."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
