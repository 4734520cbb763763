"""Consumer groups: configuration, subscriptions, and whether a group pulls or pops."""

from collections.abc import Iterable

import msgspec

from bolide.admin.servers import Servers, gather_by_key
from bolide.model.names import RETRY_PREFIX
from bolide.protocol import fastjson
from bolide.protocol.bodies.groups import (
    GroupConfig,
    GroupConfigList,
    GroupConfigTable,
    GroupForbidden,
    GroupSubscription,
)
from bolide.protocol.bodies.heartbeat import Subscription
from bolide.protocol.bodies.pop import RequestMode, RequestModeSetting, RequestModeTable
from bolide.protocol.bodies.routes import TopicList
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.groups import (
    REMOVE_OFFSET,
    DeleteGroupHeader,
    GroupForbiddenHeader,
    GroupHeader,
    TopicGroupHeader,
)
from bolide.protocol.headers.pop import PollingHeader, PollingReply
from bolide.protocol.refusals import GroupNotFound, RequestCodeNotSupported


class Groups:
    """The consumer groups of a cluster."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def names(self, cluster: str) -> list[str]:
        """The names of all groups on the masters of a cluster."""
        masters = await self._servers.masters_of(cluster)
        tables = await gather_by_key(masters, self.configs)
        return sorted({name for t in tables.values() for name in t.subscription_group_table})

    async def config(self, address: str, group: str) -> GroupConfig:
        """The group as one broker has it; raises GroupNotFound."""
        code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        try:
            return await self._servers.fetch(address, code, GroupConfig, GroupHeader(group))
        except RequestCodeNotSupported:  # RocketMQ 4.9 can only list all groups
            found = (await self.configs(address)).subscription_group_table.get(group)
        if found is None:
            raise GroupNotFound(f"broker {address} has no group {group!r}")
        return found

    async def find_config(self, address: str, group: str) -> GroupConfig | None:
        """The group as one broker has it; None if it has none.

        Brokers that create groups by themselves create one that is asked for with `config`.
        """
        return (await self.configs(address)).subscription_group_table.get(group)

    async def configs(self, address: str) -> GroupConfigTable:
        """All groups of one broker."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return await self._servers.fetch(address, code, GroupConfigTable)

    async def update(self, address: str, config: GroupConfig) -> None:
        """Create the group on one broker, or change it.

        Attributes are changes: "+name" and "name" set one, "-name" removes it.
        """
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self._servers.call(address, code, body=fastjson.encode(_with_signs(config)))

    async def update_all(self, address: str, configs: Iterable[GroupConfig]) -> None:
        """Create or change many groups, in one request unless the broker is RocketMQ 4.9."""
        wanted = [_with_signs(each) for each in configs]
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        try:
            await self._servers.call(address, code, body=fastjson.encode(GroupConfigList(wanted)))
        except RequestCodeNotSupported:
            for each in wanted:
                await self.update(address, each)

    async def delete(self, address: str, group: str, *, offsets: bool = False) -> None:
        """Delete the group from one broker, optionally with its committed offsets."""
        fields = DeleteGroupHeader(group_name=group, clean_offset=offsets).to_fields()
        if offsets:
            fields[REMOVE_OFFSET] = "true"
        await self._servers.call(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)

    async def topics(self, group: str) -> list[str]:
        """The topics that the group has consumed, on any broker."""
        addresses = await self._servers.addresses_of_group(group)
        code = RequestCode.QUERY_TOPICS_BY_CONSUMER
        found = await gather_by_key(
            addresses.values(),
            lambda address: self._servers.fetch(address, code, TopicList, GroupHeader(group)),
        )
        return sorted({topic for part in found.values() for topic in part.topic_list})

    async def find_subscription(self, group: str, topic: str) -> Subscription | None:
        """The subscription of the group to the topic, from the first broker that knows it."""
        header = TopicGroupHeader(topic, group)
        code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
        for address in (await self._servers.addresses_of(topic)).values():
            answer = await self._servers.fetch(address, code, GroupSubscription, header)
            if answer.subscription_data is not None:
                return answer.subscription_data
        return None

    async def forbid(
        self, address: str, group: str, topic: str, *, readable: bool | None = None
    ) -> GroupForbidden:
        """Whether the group may read the topic, after setting it to `readable` if given."""
        header = GroupForbiddenHeader(group=group, topic=topic, readable=readable)
        code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
        return await self._servers.fetch(address, code, GroupForbidden, header)


def _with_signs(config: GroupConfig) -> GroupConfig:
    """The configuration with a sign before the name of each attribute, as brokers want it."""
    signed = {
        name if name.startswith(("+", "-")) else f"+{name}": value
        for name, value in config.attributes.items()
    }
    return msgspec.structs.replace(config, attributes=signed)


def group_of(retry_topic: str) -> str:
    """The group of a retry topic; pop consumers also have one retry topic per topic."""
    return retry_topic.removeprefix(RETRY_PREFIX).partition("+")[0]


class Pop:
    """Consume modes of groups, pull or pop; not supported by RocketMQ 4.9."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def set_mode(
        self, address: str, topic: str, group: str, mode: RequestMode, share_with: int = 0
    ) -> None:
        """Set whether consumers with broker-side queue assignment pull or pop.

        Args:
            address: address of a broker; use the same mode on every master of a cluster.
            topic: topic of the messages.
            group: group of the consumers; consumers that rebalance themselves continue to pull.
            mode: pull or pop.
            share_with: in pop mode, how many members share a queue; 0 for all.

        Raises:
            TopicNotFound: the broker does not have the topic.
            GroupNotFound: the broker does not have the group and does not create it.
            NoPermission: the topic is a retry topic.
        """
        setting = RequestModeSetting(
            topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=share_with
        )
        code = RequestCode.SET_MESSAGE_REQUEST_MODE
        await self._servers.call(address, code, body=fastjson.encode(setting))

    async def modes(self, address: str) -> list[RequestModeSetting]:
        """The modes set on one broker; other groups have the broker's default."""
        code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
        table = await self._servers.fetch(address, code, RequestModeTable)
        groups = table.message_request_mode_map.values()
        return [setting for by_group in groups for setting in by_group.values()]

    async def waiting(self, address: str, group: str, topic: str, queue_id: int = -1) -> int:
        """The number of pop requests in long polling on one broker; queue -1 means all queues."""
        header = PollingHeader(consumer_group=group, topic=topic, queue_id=queue_id)
        reply = await self._servers.call(address, RequestCode.POLLING_INFO, header)
        return PollingReply.from_fields(reply.fields).polling_num
