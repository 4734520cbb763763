"""Static topics: creating them, giving them more queues, moving their queues to other brokers."""

import time
from collections.abc import Collection, Mapping

from bolide.admin.errors import BrokerUnknown, ClusterNotFound
from bolide.admin.servers import MASTER, Servers, gather_by_key
from bolide.admin.topics import create_header
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import ClusterInfo
from bolide.protocol.bodies.topics import MappedTopicConfig, MappingPlan, TopicStats
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.topics import TopicConfigHeader, TopicHeader
from bolide.protocol.refusals import TopicNotFound
from bolide.protocol.static_topics.planning import (
    REMAP,
    check_plan,
    mapping_of,
    place_leaders,
    plan_creation,
    plan_remapping,
    unused_at,
)


class StaticTopics:
    """Topics whose number of queues is fixed while the queues move between brokers."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def brokers(
        self, *, names: Collection[str] = (), clusters: Collection[str] = ()
    ) -> list[str]:
        """The names of brokers that have a master: the given ones, and all of some clusters.

        Raises:
            BrokerUnknown, ClusterNotFound: there is no such broker or cluster.
        """
        info = await self._servers.info()
        for cluster in clusters:
            if cluster not in info.cluster_addr_table:
                raise ClusterNotFound(cluster, info.cluster_addr_table)
        members = {name for cluster in clusters for name in info.cluster_addr_table[cluster]}
        found = sorted({*names, *members})
        _masters(info, found)
        return found

    async def configs(self, topic: str) -> dict[str, MappedTopicConfig]:
        """The topic with its mapping at every broker that has it, by the brokers' names."""
        info = await self._servers.info()
        masters = {
            name: broker.broker_addrs[MASTER]
            for name, broker in sorted(info.broker_addr_table.items())
            if MASTER in broker.broker_addrs
        }

        async def config(name: str) -> MappedTopicConfig | None:
            try:
                return await self._servers.fetch(
                    masters[name],
                    RequestCode.GET_TOPIC_CONFIG,
                    MappedTopicConfig,
                    TopicConfigHeader(topic=topic, logical=True),
                )
            except TopicNotFound:
                return None

        found = await gather_by_key(masters, config)
        return {name: config for name, config in found.items() if config is not None}

    # ---- plans

    async def plan_creation(self, topic: str, queues: int, brokers: Collection[str]) -> MappingPlan:
        """Plan a new static topic, or more queues for one. Raises BadMapping."""
        known = await self.configs(topic)
        return plan_creation(topic, queues, brokers=brokers, known=known, now=_now_ms())

    async def plan_remapping(self, topic: str, brokers: Collection[str]) -> MappingPlan:
        """Plan to have all queues of a topic led by these brokers. Raises BadMapping."""
        known = await self.configs(topic)
        return plan_remapping(topic, brokers=brokers, known=known, now=_now_ms())

    async def apply(self, plan: MappingPlan, *, force: bool = False) -> None:
        """Carry out a plan.

        A plan that failed midway is carried out again with `force`, which replaces what the
        brokers have.

        Raises:
            BadMapping: the plan contradicts itself.
            BrokerUnknown: a broker of the plan has no master now; nothing is changed.
        """
        check_plan(plan.topic, plan.broker_config_map)
        info = await self._servers.info()
        self._complete(plan, info)
        masters = _masters(info, plan.broker_config_map)
        gaining, losing = plan.broker_to_map_in, plan.broker_to_map_out
        others = [name for name in masters if name not in {*gaining, *losing}]
        if plan.type == REMAP:
            # The new leaders accept messages first, the old ones stop, and only then is it known
            # where the new ones begin.
            await self._write(plan, gaining, masters, force=force)
            await self._write(plan, losing, masters, force=force)
            for name in losing:
                place_leaders(plan, name, await self._ends(masters[name], name, plan.topic))
        await self._write(plan, [*gaining, *others], masters, force=force)

    def _complete(self, plan: MappingPlan, info: ClusterInfo) -> None:
        """Have the other brokers of the clusters know the topic too, without queues."""
        configs = plan.broker_config_map
        (total,) = {mapping_of(name, each).total_queues for name, each in configs.items()}
        for members in info.cluster_addr_table.values():
            if not configs.keys() & set(members):
                continue
            for name in members:
                configs.setdefault(name, unused_at(name, plan.topic, plan.epoch, total))

    async def _write(
        self,
        plan: MappingPlan,
        names: Collection[str],
        masters: Mapping[str, str],
        *,
        force: bool,
    ) -> None:
        for name in names:
            config = plan.broker_config_map[name]
            await self._servers.call(
                masters[name],
                RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
                create_header(config, force=force),
                body=fastjson.encode(mapping_of(name, config)),
            )

    async def _ends(self, address: str, name: str, topic: str) -> dict[int, int]:
        """The max offset of each queue of a topic at a broker."""
        code = RequestCode.GET_TOPIC_STATS_INFO
        stats = await self._servers.fetch(address, code, TopicStats, TopicHeader(topic))
        return {
            queue.queue_id: found.max_offset
            for queue, found in stats.offset_table.items()
            if queue.broker_name == name
        }


def _masters(info: ClusterInfo, names: Collection[str]) -> dict[str, str]:
    """The addresses of masters by broker name. Raises BrokerUnknown."""
    found = {}
    for name in names:
        broker = info.broker_addr_table.get(name)
        if broker is None or MASTER not in broker.broker_addrs:
            raise BrokerUnknown(name, info.broker_addr_table)
        found[name] = broker.broker_addrs[MASTER]
    return found


def _now_ms() -> int:
    return int(time.time() * 1000)
