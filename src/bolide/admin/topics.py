"""Topics: routes, configuration and statistics."""

from collections.abc import Iterable, Mapping

import msgspec

from bolide.admin.errors import AttributeUnknown
from bolide.admin.logical_queues import logical_bounds, logical_queues
from bolide.admin.servers import OnFailure, Servers, change_all, gather_answers, gather_reachable
from bolide.errors import BolideError
from bolide.model.names import READ
from bolide.protocol import fastjson
from bolide.protocol.bodies.groups import GroupList
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.routes import TopicList, TopicRoute
from bolide.protocol.bodies.topics import (
    MappedTopicConfigTable,
    TopicConfig,
    TopicConfigList,
    TopicStats,
)
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.namesrv import ClusterHeader, DeleteTopicHeader
from bolide.protocol.headers.topics import CreateTopicHeader, TopicConfigHeader, TopicHeader
from bolide.protocol.refusals import RequestCodeNotSupported, ServerError, TopicNotFound

_UNSUPPORTED = "unsupported key: "  # remark of Java brokers
DEFAULT_TOPIC = "TBW102"
DEFAULT_QUEUES = 8
"""Read and write queues of a topic created by `create`."""


class Topics:
    """The topics of a cluster."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def names(self, cluster: str | None = None) -> list[str]:
        """The names of all topics, or of those in one cluster."""
        if cluster is None:
            code, header = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None
        else:
            code, header = RequestCode.GET_TOPICS_BY_CLUSTER, ClusterHeader(cluster)
        reply = await self._servers.call_name_server(code, header)
        return fastjson.decode(reply.body, TopicList).topic_list

    async def system(self) -> list[str]:
        """The system topics of the cluster."""
        reply = await self._servers.call_name_server(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        return fastjson.decode(reply.body, TopicList).topic_list

    async def system_at(self, address: str) -> list[str]:
        """The system topics of one broker."""
        reply = await self._servers.call(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        return fastjson.decode(reply.body, TopicList).topic_list

    async def route(self, topic: str) -> TopicRoute:
        return await self._servers.route(topic)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that consumers read, sorted; those of a static topic are the logical ones."""
        if static := await logical_queues(self._servers, [topic]):
            return sorted(static)
        return sorted(
            MessageQueue(topic, data.broker_name, number)
            for data in (await self._servers.route(topic)).queue_datas
            if data.perm & READ
            for number in range(data.read_queue_nums)
        )

    async def first_address(self, topic: str) -> str:
        """The address of the first broker, by name, that serves the topic."""
        address, *_ = (await self._servers.addresses_of(topic)).values()
        return address

    async def addresses(self, topic: str, cluster: str | None = None) -> dict[str, str]:
        """The address of each broker that serves the topic, by name; preferably its master's."""
        return await self._servers.addresses_of(topic, cluster)

    async def clusters(self, topic: str) -> list[str]:
        """The clusters that serve the topic."""
        route = await self._servers.route(topic)
        return sorted({broker.cluster or "" for broker in route.broker_datas})

    async def config(self, address: str, topic: str) -> TopicConfig:
        """The topic as one broker has it; raises TopicNotFound."""
        header = TopicConfigHeader(topic=topic)
        try:
            return await self._servers.fetch(
                address, RequestCode.GET_TOPIC_CONFIG, TopicConfig, header
            )
        except RequestCodeNotSupported:  # RocketMQ 4.9 can only list all topics
            found = (await self.configs(address)).topic_config_table.get(topic)
        if found is None:
            raise TopicNotFound(f"broker {address} has no topic {topic!r}")
        return found

    async def configs(self, address: str) -> MappedTopicConfigTable:
        """All topics of one broker."""
        code = RequestCode.GET_ALL_TOPIC_CONFIG
        return await self._servers.fetch(address, code, MappedTopicConfigTable)

    async def update(self, address: str, config: TopicConfig) -> None:
        """Create or change a topic on one broker. Attributes are changes: `+name`, `-name`.

        Raises:
            InvalidParameter: the name or a number is invalid.
            AttributeUnknown: the broker does not know an attribute.
        """
        code, added = RequestCode.UPDATE_AND_CREATE_TOPIC, _added(config.attributes)
        try:
            await self._servers.call(address, code, create_header(config))
        except ServerError as exc:
            for name in added:
                if _UNSUPPORTED + name in (exc.remark or ""):
                    raise AttributeUnknown(address, name) from exc
            raise
        if added:  # RocketMQ 4.9 ignores attributes
            stored = (await self.config(address, config.topic_name)).attributes
            for name in added:
                if name not in stored:
                    raise AttributeUnknown(address, name)

    async def update_all(self, address: str, configs: Iterable[TopicConfig]) -> None:
        """Create or change many topics in one request, or one by one at RocketMQ 4.9.

        Raises the errors of `update`.
        """
        wanted = [*configs]
        body = fastjson.encode(TopicConfigList(wanted))
        try:
            await self._servers.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
        except RequestCodeNotSupported:
            for config in wanted:
                await self.update(address, config)

    async def create(
        self,
        topic: str,
        cluster: str,
        *,
        queues: int = DEFAULT_QUEUES,
        attributes: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Create a topic on every master of a cluster; returns their addresses.

        Raises the errors of `update`.
        """
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            attributes=dict(attributes or {}),
        )
        masters = await self._servers.masters_of(cluster)
        await change_all(masters, lambda address: self.update(address, config))
        return masters

    async def set_perm(self, address: str, topic: str, perm: int) -> TopicConfig:
        """Change the permission bits on one broker only; returns the topic as it was."""
        config = await self.config(address, topic)
        if config.perm != perm:
            changed = msgspec.structs.replace(config, perm=perm, attributes={})
            await self.update(address, changed)
        return config

    async def delete(self, topic: str, cluster: str) -> None:
        """Delete a topic and its messages from the brokers of a cluster and the NameServers.

        Raises the errors of `change_all`, after all of them were told.
        """
        members = await self._servers.members_of(cluster)
        try:
            await change_all(members, lambda address: self.delete_at(address, topic))
        finally:
            code = RequestCode.DELETE_TOPIC_IN_NAMESRV
            await self._servers.call_every_name_server(code, DeleteTopicHeader(topic, cluster))

    async def forget(self, name_server: str, topic: str, cluster: str) -> None:
        """Delete the route of a topic to the brokers of a cluster from one NameServer."""
        code, header = RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicHeader(topic, cluster)
        await self._servers.call(name_server, code, header)

    async def is_at(self, address: str, topic: str) -> bool:
        """Whether one broker has the topic."""
        try:
            await self.config(address, topic)
        except TopicNotFound:
            return False
        return True

    async def delete_at(self, address: str, topic: str) -> None:
        """Delete a topic and its messages from one broker; its slaves follow."""
        header = TopicHeader(topic)
        await self._servers.call(address, RequestCode.DELETE_TOPIC_IN_BROKER, header)

    async def stats(
        self, topic: str, cluster: str | None = None, *, on_failure: OnFailure | None = None
    ) -> TopicStats:
        """The bounds of all queues, from all brokers that serve the topic; rates are summed.

        A static topic has its logical queues too. Brokers that cannot be reached are left to
        `on_failure`, if it is given.
        """
        addresses = await self._servers.addresses_of(topic, cluster)
        found = await gather_reachable(
            addresses.values(), lambda address: self.stats_at(address, topic), on_failure
        )
        merged = TopicStats()
        for part in found.values():
            merged.offset_table |= part.offset_table
            merged.topic_put_tps += part.topic_put_tps
        queues = await logical_queues(self._servers, [topic])
        merged.offset_table |= logical_bounds(queues, merged.offset_table)
        return merged

    async def stats_at(self, address: str, topic: str) -> TopicStats:
        code = RequestCode.GET_TOPIC_STATS_INFO
        return await self._servers.fetch(address, code, TopicStats, TopicHeader(topic))

    async def groups(self, topic: str, *, on_failure: OnFailure | None = None) -> list[str]:
        """The groups that consume or have consumed the topic, on any broker.

        Brokers that cannot be reached are left to `on_failure`, if it is given.
        """
        addresses = (await self._servers.addresses_of(topic)).values()
        found = await gather_reachable(
            addresses, lambda address: self.groups_at(address, topic), on_failure
        )
        return sorted({group for part in found.values() for group in part.group_list})

    async def groups_and_failures(self, topic: str) -> tuple[list[str], list[BolideError]]:
        """The groups that the brokers tell of that do, and the failures of the others.

        Raises:
            BolideError: the brokers of the topic are not known.
        """
        addresses = (await self._servers.addresses_of(topic)).values()
        found, failures = await gather_answers(addresses, lambda at: self.groups_at(at, topic))
        return sorted({group for part in found.values() for group in part.group_list}), failures

    async def groups_at(self, address: str, topic: str) -> GroupList:
        """The groups that consume the topic at one broker: subscribed now, or with offsets."""
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        return await self._servers.fetch(address, code, GroupList, TopicHeader(topic))


def _added(attributes: Mapping[str, str]) -> list[str]:
    return [name.removeprefix("+") for name in attributes if not name.startswith("-")]


def create_header(config: TopicConfig, *, force: bool = False) -> CreateTopicHeader:
    """The header that creates or changes a topic; `force` matters for static topics only."""
    return CreateTopicHeader(
        topic=config.topic_name,
        default_topic=DEFAULT_TOPIC,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        attributes=attribute_changes(config.attributes) or None,
        force=force,
    )


def attribute_changes(attributes: Mapping[str, str]) -> str:
    """`{"+a": "b", "-c": ""}` as `+a=b,-c`; a name without a sign is added."""
    return ",".join(
        name if name.startswith("-") else f"+{name.removeprefix('+')}={value}"
        for name, value in attributes.items()
    )
