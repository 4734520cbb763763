"""Addresses as RocketMQ writes them: `host:port`, IPv6 in brackets."""


def format_address(address: object) -> str:
    """`host:port` of a socket address, IPv6 in brackets."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(address or "?")


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[host]:port`.

    Raises:
        ValueError: it is neither; the text says so.
    """
    host, _, port = address.strip().rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{address!r} is not an address of the form host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)
