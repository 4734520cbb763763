"""The names of RocketMQ's versions, which peers tell as numbers (`MQVersion`)."""

_V4_0_0_SNAPSHOT = 212
_V6_0_0_SNAPSHOT = 612


def version_name(number: int) -> str:
    """`V5_3_3` for 479. From 4.0 on each version has two numbers, the first for its snapshots."""
    if number < _V4_0_0_SNAPSHOT:
        return "V3"
    if number >= _V6_0_0_SNAPSHOT:
        return "HIGHER_VERSION"
    place, is_release = divmod(number - _V4_0_0_SNAPSHOT, 2)
    major, rest = divmod(place, 100)
    minor, patch = divmod(rest, 10)
    return f"V{4 + major}_{minor}_{patch}" + ("" if is_release else "_SNAPSHOT")
