"""The topics of a broker (`TopicConfigManager`), their names, and the system topics."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator

import msgspec

from bolide.broker.background import on_saving_thread
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.model.names import (
    ALLOWED_NAME,
    BENCHMARK_TOPIC,
    HALF_TOPIC,
    INHERIT,
    MAX_SYSTEM_TOPIC_LENGTH,
    MAX_TOPIC_LENGTH,
    OFFSET_MOVED_EVENT,
    OP_HALF_TOPIC,
    POP_JOURNAL_TOPIC,
    READ,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    TBW102,
    TIMER_TOPIC,
    TOOLS_GROUP,
    TRANSACTION_GROUP,
    WRITE,
    is_dead_letter_topic,
    is_retry_topic,
    reply_topic,
    revive_topic,
)
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.topics import MappedTopicConfigTable, TopicConfig, TopicConfigTable
from bolide.protocol.refusals import InvalidParameter, ServerError, TopicNotFound
from bolide.remoting.tasks import uninterrupted
from bolide.store.tables import Table
from bolide.store.unserved import LIGHT_PREFIX

SYSTEM_GROUPS = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)
_LONGEST_GROUP = MAX_SYSTEM_TOPIC_LENGTH - len(RETRY_PREFIX)


def validate_topic(topic: str) -> None:
    """Raises InvalidParameter if a topic may not be called so."""
    if topic.startswith(LIGHT_PREFIX):
        raise InvalidParameter(
            f"topic {topic[:MAX_TOPIC_LENGTH]!r} is a light message queue, which this broker does"
            " not serve: use a topic of another name"
        )
    of_group = is_retry_topic(topic) or is_dead_letter_topic(topic)
    _validate("topic", topic, MAX_SYSTEM_TOPIC_LENGTH if of_group else MAX_TOPIC_LENGTH)


def validate_group(group: str) -> None:
    """Raises InvalidParameter if a consumer group may not be called so."""
    _validate("group", group, _LONGEST_GROUP)


def _validate(kind: str, name: str, longest: int) -> None:
    if not name.strip():
        raise InvalidParameter(f"The specified {kind} is blank: give it a name.")
    if not ALLOWED_NAME.fullmatch(name):
        raise InvalidParameter(
            f"The specified {kind} {name[:longest]!r} contains illegal characters,"
            " allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    if len(name) > longest:
        raise InvalidParameter(
            f"The specified {kind} {name[:longest]!r}… has {len(name)} characters:"
            f" at most {longest} are allowed."
        )


def system_topic_names(config: BrokerConfig) -> set[str]:
    """The topics that a broker with these settings keeps for itself."""
    cluster = config.broker_cluster_name
    own = {cluster, config.broker_name, reply_topic(cluster)}
    if config.trace_topic_enable:
        own.add(config.msg_trace_topic_name)
    return own | SYSTEM_TOPICS


def is_system_topic(topic: str, config: BrokerConfig) -> bool:
    return topic.startswith(SYSTEM_TOPIC_PREFIX) or topic in system_topic_names(config)


def system_topics(config: BrokerConfig, delay_levels: int) -> Iterator[TopicConfig]:
    """What a broker with these settings starts with (`TopicConfigManager.init`)."""
    cluster = config.broker_cluster_name
    yield topic_of(SELF_TEST_TOPIC, 1)
    if config.auto_create_topic_enable:
        yield topic_of(TBW102, config.default_topic_queue_nums, perm=READ | WRITE | INHERIT)
    yield topic_of(BENCHMARK_TOPIC, 1024)
    yield topic_of(cluster, 16, perm=_own_perm(usable=config.cluster_topic_enable))
    yield topic_of(config.broker_name, 1, perm=_own_perm(usable=config.broker_topic_enable))
    yield topic_of(OFFSET_MOVED_EVENT, 1)
    yield topic_of(SCHEDULE_TOPIC, delay_levels)
    yield topic_of(TIMER_TOPIC, 1)
    if config.trace_topic_enable:
        yield topic_of(config.msg_trace_topic_name, 1)
    yield topic_of(reply_topic(cluster), 1)
    yield topic_of(HALF_TOPIC, 1)
    yield topic_of(OP_HALF_TOPIC, 1)
    yield topic_of(POP_JOURNAL_TOPIC, 1)
    yield topic_of(revive_topic(cluster), config.revive_queue_num)


def _own_perm(*, usable: bool) -> int:
    return INHERIT | READ | WRITE if usable else INHERIT


def topic_of(
    name: str,
    queues: int,
    *,
    perm: int = READ | WRITE,
    order: bool = False,
    topic_sys_flag: int = 0,
    topic_filter_type: str = "SINGLE_TAG",
) -> TopicConfig:
    """A topic with as many queues to read as to write."""
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        order=order,
        topic_sys_flag=topic_sys_flag,
        topic_filter_type=topic_filter_type,
    )


log = logging.getLogger("bolide.broker.topics")  # documented in docs/how-to/logging.md

Topics = dict[str, TopicConfig]

UNIT, UNIT_SUBSCRIPTION = 1, 2
"""Bits of a topic's system flag."""

_RETRY_QUEUES = 1


class TopicTable:
    """All topics by name, out of a table that is loaded; belongs to one event loop.

    A topic that is new, changed or gone is so for `find` only when the file says it too: no
    message is acknowledged in a topic that a crash would forget. The configurations are never
    changed in place.
    """

    def __init__(
        self,
        table: Table[TopicConfigTable],
        cell: ConfigCell[BrokerConfig],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._table = table
        self._cell = cell
        self._now = now
        self._topics: Topics = table.value.topic_config_table
        self._version = table.value.data_version
        self._writing = asyncio.Lock()  # one file, one writer
        self._listeners: list[Callable[[], None]] = []
        self.announce: Callable[[], Awaitable[None]] | None = None
        """Awaited after each change: tells NameServers, so that who asked for it finds a route."""

    def find(self, topic: str) -> TopicConfig | None:
        return self._topics.get(topic)

    def require(self, topic: str) -> TopicConfig:
        """Raises TopicNotFound, which says what to do."""
        found = self._topics.get(topic)
        if found is None:
            raise _not_found(topic, "create it, for example with mqadmin updateTopic")
        return found

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(list(self._topics.values()))

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    @property
    def data_version(self) -> DataVersion:
        return self._version

    @property
    def table(self) -> MappedTopicConfigTable:
        """All topics as peers get them; whoever changes the map changes a copy."""
        return MappedTopicConfigTable(
            topic_config_table=dict(self._topics), data_version=self.data_version
        )

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have `listener` called after each change that can be seen."""
        self._listeners.append(listener)

    # ---- changing

    async def create_on_send(
        self, topic: str, default_topic: str, default_queue_nums: int, *, unit: bool = False
    ) -> TopicConfig:
        """The topic that somebody sends to, made after its model if it is not there.

        Raises:
            TopicNotFound: it may not be made; says why and what to do.
        """
        if found := self._topics.get(topic):
            return found
        if is_retry_topic(topic):
            return await self.create_retry(topic, _RETRY_QUEUES, unit=unit)
        made = self._inherited(topic, default_topic, default_queue_nums)
        made.topic_sys_flag = UNIT if unit else 0
        return await self._create(made)

    async def create_retry(
        self,
        topic: str,
        queue_nums: int,
        perm: int = READ | WRITE,
        *,
        order: bool = False,
        unit: bool = False,
    ) -> TopicConfig:
        """The retry or dead-letter topic of a group, made if it is not there.

        One that is there becomes an `order` topic if asked, and never stops being one by this:
        not everybody who asks for the topic knows.
        """
        found = self._topics.get(topic)
        if found is not None and found.order >= order:
            return found
        if found is not None:
            ordered = msgspec.structs.replace(found, order=True)
            await self.update(ordered)
            return ordered
        flag = UNIT_SUBSCRIPTION if unit else 0
        return await self._create(
            topic_of(topic, queue_nums, perm=perm, order=order, topic_sys_flag=flag)
        )

    async def set_order(self, topics: Iterable[str]) -> None:
        """These are ordered topics from now on, those of them that are here; none stops being one
        by being left out."""
        wanted = {topic for topic in topics if (found := self.find(topic)) and not found.order}

        def mark(known: Topics) -> None:
            for topic in wanted & known.keys():
                known[topic] = msgspec.structs.replace(known[topic], order=True)

        if wanted:
            await self._change(mark)

    async def update(self, config: TopicConfig) -> None:
        """Create a topic or give it another configuration."""
        await self.update_all([config])

    async def update_all(self, configs: Iterable[TopicConfig]) -> None:
        """As `update`, in one go; what is as it was changes nothing."""
        given = {config.topic_name: config for config in configs}

        def merge(topics: Topics) -> None:
            for name, config in given.items():
                if topics.get(name) != config:
                    log.info("topic %s: %s, was %s", name, config, topics.get(name))
                    topics[name] = config

        await self._change(merge)

    async def delete(self, topic: str, clean: Callable[[], Awaitable[None]] | None = None) -> bool:
        """Forget a topic; False if there was none.

        Args:
            clean: removes what else is left of it, before anybody can create it again.
        """
        found = topic in self._topics
        await self._change(lambda topics: topics.pop(topic, None), clean)
        log.info("topic %s is deleted" if found else "there is no topic %s to delete", topic)
        return found

    async def if_unknown(self, topic: str, clean: Callable[[], Awaitable[None]]) -> None:
        """Run `clean` if there is no such topic, before anybody can create it."""

        async def look() -> None:
            async with self._writing:
                if topic not in self._topics:
                    await clean()

        await uninterrupted(look())

    def create_system_topics(self, delay_levels: int = 18) -> None:
        """Make those of the broker's own topics that are missing. Blocks: call it at start."""
        topics = {made.topic_name: made for made in system_topics(self._cell.value, delay_levels)}
        topics |= self._topics
        self._adapt_to_settings(topics, delay_levels)
        if topics != self._topics:
            self._prepare(topics)
            self._table.save()
            self._show()

    async def follow_settings(self) -> None:
        """Make the model of new topics what the settings say: producers look at its route."""
        await self._change(self._adapt_model)

    # ---- inside

    def _inherited(self, topic: str, model: str, queue_nums: int) -> TopicConfig:
        config, found = self._cell.value, self._topics.get(model)
        if model == TBW102 and not config.auto_create_topic_enable:
            raise _not_found(topic, "create it, or set autoCreateTopicEnable=true on this broker")
        if found is None:
            raise _not_found(topic, f"create it; {model}, its model, does not exist here either")
        if not found.perm & INHERIT:
            raise _not_found(topic, f"create it; {model} lacks the permission to be its model")
        # The setting counts at once, and TBW102 follows it.
        most = config.default_topic_queue_nums if model == TBW102 else found.write_queue_nums
        queues = max(1, min(queue_nums, most))
        filter_type = found.topic_filter_type
        return topic_of(topic, queues, perm=found.perm & ~INHERIT, topic_filter_type=filter_type)

    async def _create(self, made: TopicConfig) -> TopicConfig:
        await self._change(lambda topics: topics.setdefault(made.topic_name, made))
        found = self._topics.get(made.topic_name, made)
        if found is made:
            log.info("topic %s is created: %s", made.topic_name, made)
        return found

    def _adapt_to_settings(self, topics: Topics, delay_levels: int) -> None:
        """Settings may differ from what the file says."""
        self._adapt_model(topics)
        delayed = topics[SCHEDULE_TOPIC]
        if min(delayed.read_queue_nums, delayed.write_queue_nums) < delay_levels:
            topics[SCHEDULE_TOPIC] = topic_of(SCHEDULE_TOPIC, delay_levels)

    def _adapt_model(self, topics: Topics) -> None:
        """Whether topics are created by sending, and with how many queues."""
        if model := topics.get(TBW102):
            config = self._cell.value
            may, queues = config.auto_create_topic_enable, config.default_topic_queue_nums
            perm = model.perm | INHERIT if may else model.perm & ~INHERIT
            topics[TBW102] = msgspec.structs.replace(
                model, perm=perm, read_queue_nums=queues, write_queue_nums=queues
            )

    async def _change(
        self,
        edit: Callable[[Topics], object],
        afterwards: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Edit a copy of the topics, save it, then let everybody see it."""
        before = self._version

        async def change() -> None:
            async with self._writing:
                topics = dict(self._topics)
                edit(topics)
                if topics != self._topics:
                    await self._replace(topics)
                if afterwards is not None:
                    await afterwards()

        await uninterrupted(change())
        if self.announce is not None and self._version != before:
            await self.announce()

    async def _replace(self, topics: Topics) -> None:
        before = self._table.value
        self._prepare(topics)
        try:
            await on_saving_thread(self._table.save)
        except OSError as exc:
            self._table.value = before
            raise ServerError(
                f"nothing is changed, {self._table.path} cannot be written: {exc}"
            ) from exc
        self._show()
        for listener in self._listeners:
            listener()

    def _prepare(self, topics: Topics) -> None:
        """Make these the next ones to be saved."""
        version = self._version.bumped(int(self._now() * 1000))
        self._table.value = TopicConfigTable(topic_config_table=topics, data_version=version)
        self._table.changed()

    def _show(self) -> None:
        """Let everybody see what is saved: the topics together with their version."""
        self._topics = self._table.value.topic_config_table
        self._version = self._table.value.data_version


def _not_found(topic: str, advice: str) -> TopicNotFound:
    # The first words are RocketMQ's, which people search for.
    return TopicNotFound(f"topic[{topic}] not exist, apply first please: {advice}")
