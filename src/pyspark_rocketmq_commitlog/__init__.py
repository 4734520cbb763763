"""Registers the source `rocketmq-commitlog`, as `pyspark_rocketmq` does for `rocketmq`."""

from bolide.spark.commit_log import CommitLogSource as DefaultSource

__all__ = ["DefaultSource"]
