"""Topic requests: create, change, delete, list (`AdminBrokerProcessor`)."""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal

import msgspec

from bolide.broker.background import ADMIN, MAX_BODY, on_thread, read_json
from bolide.broker.metadata.clients import ClientTable
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.queue_mappings import QueueMappings
from bolide.broker.metadata.topic_attributes import (
    DEDUP_WINDOW,
    MESSAGE_TYPE,
    MIXED,
    changed_attributes,
    has_window,
    parse_changes,
)
from bolide.broker.metadata.topics import (
    TopicTable,
    is_system_topic,
    system_topic_names,
    validate_topic,
)
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.model.names import INHERIT, READ, WRITE, group_of_retry_topic, pop_retry_topics
from bolide.protocol import fastjson
from bolide.protocol.bodies.groups import GroupList, GroupSubscription
from bolide.protocol.bodies.routes import TopicList
from bolide.protocol.bodies.topics import (
    MAX_QUEUES,
    MappedTopicConfig,
    MappedTopicConfigTable,
    TopicConfig,
    TopicConfigList,
    TopicFilterType,
)
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.groups import GroupHeader, TopicGroupHeader
from bolide.protocol.headers.topics import (
    AllTopicsHeader,
    AllTopicsReply,
    CreateTopicHeader,
    TopicConfigHeader,
    TopicHeader,
)
from bolide.protocol.refusals import InvalidParameter, TopicNotFound
from bolide.remoting.address import format_address
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.store.contract import Store
from bolide.store.unsupported import LIGHT_PREFIX

log = logging.getLogger(__name__)

_ALL_PERMISSIONS = READ | WRITE | INHERIT


class TopicHandlers:
    """Creates, changes, deletes and lists topics; `forget` is called with each deleted topic."""

    def __init__(  # noqa: PLR0913  a deletion touches every table
        self,
        *,
        topics: TopicTable,
        mappings: QueueMappings,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: ClientTable,
        store: Store,
        cell: ConfigCell[BrokerConfig],
        forget: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._forget = forget
        self._topics = topics
        self._mappings = mappings
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._store = store
        self._cell = cell

    @handles(CreateTopicHeader, RequestCode.UPDATE_AND_CREATE_TOPIC)
    async def update(self, request: Request[CreateTopicHeader]) -> Reply:
        await self._update([topic_of_request(request.header)], request.connection.peer)
        return Reply()

    @handles(NoHeader, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, max_body=MAX_BODY)
    async def update_list(self, request: Request[NoHeader]) -> Reply:
        configs = (await read_json(request, TopicConfigList)).topic_config_list
        await self._update(configs, request.connection.peer)
        return Reply()

    async def _update(self, configs: list[TopicConfig], peer: str) -> None:
        """Apply configurations whose attributes are signed changes."""
        for config in configs:
            validate_config(config, self._cell.value)
        log.info("%s changes topics %s", peer, [config.topic_name for config in configs])
        await self._topics.change_all(configs, _with_attributes)

    # ---- deleting

    @handles(TopicHeader, RequestCode.DELETE_TOPIC_IN_BROKER)
    async def delete(self, request: Request[TopicHeader]) -> Reply:
        topic = request.header.topic
        if not topic.strip():
            raise InvalidParameter("The specified topic is blank.")
        if topic not in self._topics:  # files that an unknown topic left are removed too
            validate_topic(topic)
        _refuse_system_topic(topic, self._cell.value)
        log.info("%s deletes topic %s", request.connection.peer, topic)
        for name in [topic, *self._pop_retry_topics(topic)]:
            await self._delete(name)
        return Reply()

    async def _delete(self, topic: str) -> None:
        async def clean() -> None:
            self._offsets.remove_topic(topic)
            await on_thread(ADMIN, self._store.remove_topic, topic)
            await self._offsets.save_now()
            await self._mappings.delete(topic)

        await self._topics.delete(topic, clean)
        self._forget(topic)

    def _pop_retry_topics(self, topic: str) -> list[str]:
        """POP retry topics of the groups that consume the topic.

        A name of the V1 rule that is also the ordinary retry topic of another group is left out.
        """
        names = [
            name
            for group in self._offsets.groups_of(topic)
            for name in pop_retry_topics(group, topic)
        ]
        return [
            name
            for name in names
            if name in self._topics and group_of_retry_topic(name) not in self._groups
        ]

    @handles(NoHeader, RequestCode.CLEAN_UNUSED_TOPIC)
    async def clean_unused(self, request: Request[NoHeader]) -> Reply:
        """Remove the queues of topics that no longer exist."""
        for topic in self._store.topics():
            if not (topic.startswith(LIGHT_PREFIX) or is_system_topic(topic, self._cell.value)):
                await self._topics.if_unknown(topic, partial(self._remove_queues, topic))
        return Reply()

    async def _remove_queues(self, topic: str) -> None:
        log.warning("removing the queues of unknown topic %s", topic)
        await on_thread(ADMIN, self._store.remove_topic, topic)

    # ---- listing

    @handles(TopicConfigHeader, RequestCode.GET_TOPIC_CONFIG)
    def show(self, request: Request[TopicConfigHeader]) -> Reply:
        found = self._topics.find(request.header.topic)
        if found is None:
            raise TopicNotFound(f"No topic in this broker. topic: {request.header.topic}")
        mapping = self._mappings.find(found.topic_name) if request.header.logical else None
        members = msgspec.structs.asdict(found)
        return Reply(body=fastjson.encode(MappedTopicConfig(**members, mapping_detail=mapping)))

    @handles(AllTopicsHeader, RequestCode.GET_ALL_TOPIC_CONFIG)
    async def show_all(self, request: Request[AllTopicsHeader]) -> Reply:
        # One reply whatever page was requested. In standard JSON, which Java reads as well.
        table = self._topics.table
        table.topic_queue_mapping_detail_map = self._mappings.details
        table.mapping_data_version = self._mappings.data_version
        order: Literal["sorted"] | None = None if self._mappings else "sorted"
        total = AllTopicsReply(len(table.topic_config_table))
        body = await on_thread(ADMIN, _encode_topics, table, order)
        return Reply(header=total, body=body)

    @handles(NoHeader, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    def show_system_topics(self, request: Request[NoHeader]) -> Reply:
        return _topic_list(system_topic_names(self._cell.value))

    @handles(TopicHeader, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
    def groups_of_topic(self, request: Request[TopicHeader]) -> Reply:
        topic = request.header.topic
        groups = self._clients.subscribers(topic) | self._offsets.groups_of(topic)
        return Reply(body=fastjson.encode(GroupList(group_list=sorted(groups))))

    @handles(GroupHeader, RequestCode.QUERY_TOPICS_BY_CONSUMER)
    def topics_of_group(self, request: Request[GroupHeader]) -> Reply:
        config = self._cell.value
        address = format_address((config.broker_ip1, config.listen_port))
        return _topic_list(self._offsets.topics_of(request.header.group), address)

    @handles(TopicGroupHeader, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER)
    def subscription(self, request: Request[TopicGroupHeader]) -> Reply:
        group, topic = request.header.group, request.header.topic
        found = self._clients.subscription(group, topic)
        body = GroupSubscription(group=group, topic=topic, subscription_data=found)
        return Reply(body=fastjson.encode(body))


def _encode_topics(table: MappedTopicConfigTable, order: Literal["sorted"] | None) -> bytes:
    """Encode all topics. For threads; msgspec's sort is slow unless the keys are in order."""
    table.topic_config_table = dict(sorted(table.topic_config_table.items()))
    return msgspec.json.encode(table, order=order)


def topic_of_request(header: CreateTopicHeader) -> TopicConfig:
    """The topic that a request describes; its attributes are signed changes."""
    return TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        topic_filter_type=_filter_type(header.topic_filter_type),
        topic_sys_flag=header.topic_sys_flag or 0,
        order=header.order,
        attributes=parse_changes(header.attributes),
    )


def _with_attributes(config: TopicConfig, known: TopicConfig | None) -> TopicConfig:
    """Apply the changes of attributes to those that the topic has."""
    attributes = changed_attributes(known.attributes if known else None, config.attributes)
    changed = msgspec.structs.replace(config, attributes=attributes)
    if DEDUP_WINDOW in attributes and not has_window(changed):
        raise InvalidParameter(
            f"topic {config.topic_name}: {DEDUP_WINDOW} is not allowed on retry and dead-letter"
            " topics, whose messages keep the keys of the original messages"
        )
    return changed


def validate_config(config: TopicConfig, settings: BrokerConfig) -> None:
    """Raise InvalidParameter if no topic can be created with this configuration."""
    name = config.topic_name
    validate_topic(name)
    _refuse_system_topic(name, settings)
    kind = config.attributes.get(f"+{MESSAGE_TYPE}")
    if kind == MIXED and not settings.enable_mixed_message_type:
        raise InvalidParameter(
            "MIXED message type is not supported. Set enableMixedMessageType=true on this"
            " broker, or give the topic another message.type."
        )
    for queues in (config.read_queue_nums, config.write_queue_nums):
        if not 0 <= queues <= MAX_QUEUES:
            raise InvalidParameter(
                f"topic {name}: {queues} queues are not possible, only 0 to {MAX_QUEUES}"
            )
    if not 0 <= config.perm <= _ALL_PERMISSIONS:
        raise InvalidParameter(
            f"topic {name}: permission {config.perm} is out of range;"
            " add up 4 to read, 2 to write, 1 to inherit"
        )


def _refuse_system_topic(topic: str, settings: BrokerConfig) -> None:
    if is_system_topic(topic, settings):
        raise InvalidParameter(f"The topic[{topic}] is conflict with system topic.")


def _filter_type(name: str) -> TopicFilterType:
    try:
        return TopicFilterType(name)
    except ValueError as exc:
        raise InvalidParameter(
            f"filter type {name!r} is none of {', '.join(TopicFilterType)}"
        ) from exc


def _topic_list(topics: Iterable[str], broker_address: str | None = None) -> Reply:
    found = TopicList(topic_list=sorted(topics), broker_addr=broker_address)
    return Reply(body=fastjson.encode(found))
