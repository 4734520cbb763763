"""By its name Spark finds the data source `rocketmq-commitlog` here, without registering."""

from bolide.spark.commit_log import CommitLogSource as DefaultSource

__all__ = ["DefaultSource"]
