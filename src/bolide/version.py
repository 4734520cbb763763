"""The version of this package and the RocketMQ version it announces."""

__version__ = "0.1.0"

ROCKETMQ_VERSION = 513
"""Ordinal of V5_5_0 in RocketMQ's `MQVersion`: the behaviour that peers may expect."""

ROCKETMQ_VERSION_NAME = "V5_5_0"
"""Name of that version."""

_V4_0_0_SNAPSHOT = 212
_V6_0_0_SNAPSHOT = 612


def version_name(number: int) -> str:
    """The name of a RocketMQ version number (`MQVersion`): `V5_5_0` for 513.

    From 4.0 on each version has two numbers, the first for its snapshots.
    """
    if number < _V4_0_0_SNAPSHOT:
        return "V3"
    if number >= _V6_0_0_SNAPSHOT:
        return "HIGHER_VERSION"
    index, is_release = divmod(number - _V4_0_0_SNAPSHOT, 2)
    major, rest = divmod(index, 100)
    minor, patch = divmod(rest, 10)
    return f"V{4 + major}_{minor}_{patch}" + ("" if is_release else "_SNAPSHOT")
