"""Registers the source `rocketmq`: Spark loads `DefaultSource` from modules named `pyspark_*`."""

from bolide.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
