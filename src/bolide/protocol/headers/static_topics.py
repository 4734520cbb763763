"""Fields that requests about static topics have beside those of their headers."""

from collections.abc import Mapping

from bolide.protocol.header import Header

_LOGICAL, _BROKER = "lo", "bname"


def is_physical(fields: Mapping[str, str] | None) -> bool:
    """Whether a request means physical queues; brokers say so to each other."""
    return fields is not None and fields.get(_LOGICAL, "").lower() == "false"


def physical_fields(header: Header, broker_name: str) -> dict[str, str]:
    """The fields of a request about a physical queue of another broker."""
    return {_LOGICAL: "false", _BROKER: broker_name} | header.to_fields()
