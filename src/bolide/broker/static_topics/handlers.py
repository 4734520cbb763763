"""The request that creates or changes a static topic on this broker."""

import logging

import msgspec

from bolide.broker.background import ADMIN, MAX_BODY, on_thread, read_json
from bolide.broker.metadata.queue_mappings import QueueMappings
from bolide.broker.metadata.topic_handlers import topic_of_request, validate_config
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.protocol.bodies.queues import QueueMappingDetail
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.topics import CreateTopicHeader
from bolide.protocol.refusals import InvalidParameter, ServerError
from bolide.protocol.static_topics.positions import BadMapping, led_queues
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.store.contract import Store

log = logging.getLogger(__name__)


class StaticTopicHandlers:
    """Creates and changes static topics."""

    def __init__(
        self,
        *,
        topics: TopicTable,
        mappings: QueueMappings,
        store: Store,
        cell: ConfigCell[BrokerConfig],
    ) -> None:
        self._topics = topics
        self._mappings = mappings
        self._store = store
        self._cell = cell

    @handles(CreateTopicHeader, RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, max_body=MAX_BODY)
    async def update(self, request: Request[CreateTopicHeader]) -> Reply:
        """Take over a mapping, then the topic: a topic alone would be served as a plain one."""
        config = topic_of_request(request.header)
        validate_config(config, self._cell.value)
        mapping = await read_json(request, QueueMappingDetail)
        self._check(config, mapping)
        log.info("%s changes static topic %s", request.connection.peer, config.topic_name)
        known = self._topics.find(config.topic_name)
        attributes = known.attributes if known else {}
        config = msgspec.structs.replace(config, attributes=attributes)
        before = self._mappings.find(config.topic_name)
        try:
            await self._mappings.update(mapping, force=request.header.force)
        except BadMapping as exc:
            raise ServerError(str(exc)) from exc
        # NameServers take over a mapping only with a new version of the topics.
        await self._topics.update(config, always=True)
        if before is not None and led_queues(before).keys() - led_queues(mapping).keys():
            # Whoever now reads the end of a queue that this broker no longer leads must see all
            # messages that it has taken.
            await on_thread(ADMIN, self._store.flush)
        return Reply()

    def _check(self, config: TopicConfig, mapping: QueueMappingDetail) -> None:
        own = self._cell.value.broker_name
        if mapping.topic != config.topic_name:
            raise InvalidParameter(
                f"the mapping is one of topic {mapping.topic}, not {config.topic_name}"
            )
        if mapping.bname != own:
            raise InvalidParameter(
                f"the mapping is one of broker {mapping.bname}, but this is {own}: ask the"
                " NameServer for the addresses again"
            )
        for items in mapping.hosted_queues.values():
            for item in items:
                if item.bname == own and item.queue_id >= config.write_queue_nums:
                    raise InvalidParameter(
                        f"the mapping has queue {item.queue_id} of this broker, but topic"
                        f" {config.topic_name} gets {config.write_queue_nums} queues here"
                    )
