"""Spark integration: the sources `rocketmq` and `rocketmq-commitlog`, archives and pipelines.

Spark finds the sources by their names. `session` and `topics` are the entry points for notebooks.
"""

from typing import TYPE_CHECKING, Any

from bolide.spark.session import session  # eager: the name is the function, not the module

if TYPE_CHECKING:
    from bolide.spark.view import topics

__all__ = ["session", "topics"]


def __getattr__(name: str) -> Any:
    if name != "topics":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bolide.spark.view import topics  # noqa: PLC0415  imports pyspark

    return topics
