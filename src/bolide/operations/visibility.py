"""Which names of the history an identity may see.

The history samples with the rights of the console's own identity. A user of the cluster with fewer
rights must not learn from it what the brokers would refuse. Bolide's brokers tell what an identity
may do. RocketMQ's do not: there, others than the identity that samples see nothing of the history.
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice

from bolide.errors import BolideError
from bolide.operations.cluster import Cluster
from bolide.protocol.headers.access import WhoAmIReply
from bolide.remoting.errors import RemotingError

_SECONDS = 30.0
"""How long an answer counts; a change of the policies is seen after that."""
_TOGETHER = 8
_MOST_ASKED = 400
"""Names of which a list of the first few is made."""


async def visible_topics(cluster: Cluster, topics: Iterable[str]) -> list[str]:
    """Those of the topics whose figures the identity of `cluster` may see, in the same order.

    For users with limited rights, it is one request per topic, which counts for half a minute:
    pass the names of one page.
    """
    return await _visible(cluster, [f"Topic:{each}" for each in topics])


async def visible_groups(cluster: Cluster, groups: Iterable[str]) -> list[str]:
    """Those of the groups whose figures the identity of `cluster` may see, in the same order.

    It costs what `visible_topics` does.
    """
    return await _visible(cluster, [f"Group:{each}" for each in groups])


async def first_visible_topics(cluster: Cluster, topics: Iterable[str], count: int) -> list[str]:
    """The first topics of a long list whose figures the identity may see."""
    return await _first_visible(cluster, [f"Topic:{each}" for each in topics], count)


async def first_visible_groups(cluster: Cluster, groups: Iterable[str], count: int) -> list[str]:
    """The first groups of a long list whose figures the identity may see."""
    return await _first_visible(cluster, [f"Group:{each}" for each in groups], count)


async def sees_all(cluster: Cluster) -> bool:
    """Whether the identity may see the figures of every topic and group."""
    history = cluster.history
    if history is not None and history.access_key == cluster.identity.access_key:
        return True
    try:
        found = await cluster.shared(
            "visibility identity", lambda: _who_am_i(cluster), seconds=_SECONDS
        )
    except BolideError:  # RocketMQ's broker, or none that answers
        return False
    return found.access_control == "none" or found.is_super


async def sees_brokers(cluster: Cluster) -> bool:
    """Whether the identity may see the figures of brokers, and sums over all topics and groups."""
    if await sees_all(cluster):
        return True
    try:
        info = await cluster.shared(
            "visibility info", cluster.admin.clusters.info, seconds=_SECONDS
        )
    except BolideError:
        return False
    names = [f"Cluster:{each}" for each in info.cluster_addr_table]
    return bool(names) and len(await _visible(cluster, names)) == len(names)


async def _first_visible(cluster: Cluster, resources: Sequence[str], count: int) -> list[str]:
    found: list[str] = []
    left = iter(resources[:_MOST_ASKED])
    while len(found) < count and (some := [*islice(left, max(count, _TOGETHER))]):
        found += await _visible(cluster, some)
    return found[:count]


async def _visible(cluster: Cluster, resources: Sequence[str]) -> list[str]:
    if not resources or await sees_all(cluster):
        return [each.partition(":")[2] for each in resources]
    limit = asyncio.Semaphore(_TOGETHER)

    async def may_get(resource: str) -> bool:
        async with limit:
            return await cluster.shared(
                f"visibility of {resource}", lambda: _may_get(cluster, resource), seconds=_SECONDS
            )

    allowed = await asyncio.gather(*map(may_get, resources))
    return [
        each.partition(":")[2] for each, is_seen in zip(resources, allowed, strict=True) if is_seen
    ]


async def _may_get(cluster: Cluster, resource: str) -> bool:
    """Whether a broker says so; False if none tells."""
    for address in await _brokers(cluster):
        try:
            return (await cluster.admin.permissions.can_i(address, resource, "Get")).allowed
        except RemotingError:
            continue
        except BolideError:
            return False
    return False


async def _who_am_i(cluster: Cluster) -> WhoAmIReply:
    addresses = await _brokers(cluster)
    for address in addresses[:-1]:
        try:
            return await cluster.admin.permissions.who_am_i(address)
        except RemotingError:
            continue
    return await cluster.admin.permissions.who_am_i(addresses[-1] if addresses else None)


async def _brokers(cluster: Cluster) -> list[str]:
    """Addresses of the masters. Policies are checked by brokers, not by NameServers."""
    info = await cluster.shared("visibility info", cluster.admin.clusters.info, seconds=_SECONDS)
    brokers = [each for each in info.broker_addr_table.values() if each.broker_addrs]
    return [each.broker_addrs[min(each.broker_addrs)] for each in brokers]
