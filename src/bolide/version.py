"""The version of this package and the RocketMQ version it announces."""

__version__ = "0.1.0"

ROCKETMQ_VERSION = 479
"""Ordinal of V5_3_3 in RocketMQ's `MQVersion`: the behaviour that peers may expect."""

ROCKETMQ_VERSION_NAME = "V5_3_3"
"""Name of that version."""
