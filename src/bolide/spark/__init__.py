"""Spark: the data sources `rocketmq` and `rocketmq-commitlog`, and the pipelines built on them.

Spark finds the sources by their names. For notebooks there are `session` and `topics`.
"""

from typing import TYPE_CHECKING, Any

from bolide.spark.session import session  # here, so that the name is not that of its module

if TYPE_CHECKING:
    from bolide.spark.view import topics

__all__ = ["session", "topics"]


def __getattr__(name: str) -> Any:
    if name != "topics":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bolide.spark.view import topics  # noqa: PLC0415  it loads pyspark

    return topics
