"""The value of a property in a property string."""

_PAIR_END = 2


def find_property(properties: bytes, key: bytes) -> str | None:
    """The value behind 0x02 name 0x01; of several the last one that is not empty."""
    at = properties.rfind(key)
    while at >= 0:
        start = at + len(key)
        end = properties.find(_PAIR_END, start)
        if end < 0:
            end = len(properties)
        if end > start:
            return properties[start:end].decode("utf-8", "replace")
        at = properties.rfind(key, 0, at)
    return None
