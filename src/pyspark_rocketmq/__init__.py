"""Lets Spark find the source `rocketmq` by itself: it looks for modules with such a name."""

from bolide.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
