"""The topic table (`TopicConfigManager`), the rules for names, and the system topics."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from bolide.broker.background import ADMIN, changed_keys, on_thread, save_or_restore, slices
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.events import AwaitedListeners, Listeners
from bolide.model.names import (
    ALLOWED_NAME,
    AUDIT_TOPIC,
    BENCHMARK_TOPIC,
    HALF_TOPIC,
    INHERIT,
    MAX_SYSTEM_TOPIC_LENGTH,
    MAX_TOPIC_LENGTH,
    OFFSET_MOVED_EVENT,
    OP_HALF_TOPIC,
    PIPELINE_TOPIC,
    POP_JOURNAL_TOPIC,
    READ,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    TBW102,
    TIMER_TOPIC,
    WRITE,
    is_dead_letter_topic,
    is_retry_topic,
    reply_topic,
    revive_topic,
)
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.topics import (
    MappedTopicConfigTable,
    TopicConfig,
    TopicConfigTable,
    TopicFilterType,
)
from bolide.protocol.refusals import InvalidParameter, TopicNotFound
from bolide.remoting.tasks import uninterrupted
from bolide.store.tables import Table, has_batch_queues, with_batch_queues
from bolide.store.unsupported import LIGHT_PREFIX

log = logging.getLogger("bolide.broker.topics")  # documented in docs/how-to/logging.md

Topics = dict[str, TopicConfig]

UNIT, UNIT_SUBSCRIPTION = 1, 2
"""Bits of a topic's system flag (`TopicSysFlag`)."""

_RETRY_QUEUES = 1

_MAX_GROUP_LENGTH = MAX_SYSTEM_TOPIC_LENGTH - len(RETRY_PREFIX)


class TopicTable:
    """All topics by name, backed by a loaded table; belongs to one event loop.

    A change becomes visible only after the file is written, so no message is acknowledged in a
    topic that a crash would lose. Configurations are immutable: a change replaces them.
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
        self.written = table.value
        """All topics, without a change that is still being written; it must not be modified."""
        self._topics: Topics = table.value.topic_config_table
        self._version = table.value.data_version
        self._writing = asyncio.Lock()  # one file, one writer
        self.on_change: Listeners[Collection[str]] = Listeners()
        """Topics of these names were created, changed or deleted."""
        self.on_published: AwaitedListeners[[]] = AwaitedListeners()
        """A change is visible; NameServers must know of it before its caller does."""

    def find(self, topic: str) -> TopicConfig | None:
        return self._topics.get(topic)

    def require(self, topic: str) -> TopicConfig:
        """Return the topic or raise TopicNotFound."""
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
        """All topics in their wire form; the map is a copy."""
        return MappedTopicConfigTable(
            topic_config_table=dict(self._topics), data_version=self.data_version
        )

    # ---- changing

    async def create_on_send(
        self, topic: str, default_topic: str, default_queue_nums: int, *, unit: bool = False
    ) -> TopicConfig:
        """Return the topic of a send; create a missing one after `default_topic`, its template.

        Raises:
            TopicNotFound: the topic cannot be created; the remark says why and what to do.
        """
        if found := self._topics.get(topic):
            return found
        if is_retry_topic(topic):
            return await self.create_retry(topic, _RETRY_QUEUES, unit=unit)
        created = self._inherited(topic, default_topic, default_queue_nums)
        created.topic_sys_flag = UNIT if unit else 0
        return await self._create(created)

    async def create_retry(
        self,
        topic: str,
        queue_nums: int,
        perm: int = READ | WRITE,
        *,
        order: bool = False,
        unit: bool = False,
    ) -> TopicConfig:
        """Return the retry or dead-letter topic of a group; create it if it is missing.

        With `order`, an existing topic becomes an ordered topic. Without it, an ordered topic
        stays one, since not every caller knows whether the topic is ordered.
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
        """Make the named topics ordered topics; unknown names are ignored."""
        unordered = {topic for topic in topics if (found := self.find(topic)) and not found.order}

        def make_ordered(known: Topics) -> None:
            for topic in unordered & known.keys():
                known[topic] = msgspec.structs.replace(known[topic], order=True)

        if unordered:
            await self._change(make_ordered)

    async def update(self, config: TopicConfig, *, always: bool = False) -> None:
        """Create a topic or replace its configuration.

        Args:
            always: make a new version even if nothing changes, for what is registered with it.
        """
        await self.update_all([config], always=always)

    async def update_all(self, configs: Iterable[TopicConfig], *, always: bool = False) -> None:
        """Like `update`, for several topics in one write; unchanged ones cause none."""
        await self.change_all(configs, lambda config, _: config, always=always)

    async def change_all(
        self,
        configs: Iterable[TopicConfig],
        merge_one: Callable[[TopicConfig, TopicConfig | None], TopicConfig],
        *,
        always: bool = False,
    ) -> None:
        """Like `update_all`; `merge_one` makes each topic from what is given and what is there.

        Nothing else changes the topics meanwhile. Raises what `merge_one` raises.
        """
        updates = {config.topic_name: config for config in configs}

        def merge(topics: Topics) -> None:
            for name, given in updates.items():
                config = merge_one(given, topics.get(name))
                if topics.get(name) != config:
                    log.info("topic %s: %s, was %s", name, config, topics.get(name))
                    topics[name] = config

        await self._change(merge, always=always)

    async def adopt(self, table: TopicConfigTable) -> set[str]:
        """Replace all topics by those of the master; returns the names of those that differ."""
        async with self._writing:
            known, topics = self._topics, table.topic_config_table
            changed = await on_thread(ADMIN, changed_keys, known, topics)
            if not changed and table.data_version == self._version:
                return set()
            before = self._table.value
            self._table.value = TopicConfigTable(
                topic_config_table=topics, data_version=table.data_version
            )
            self._table.changed()
            await save_or_restore(self._table, before)
            self._publish()
            for some in slices(changed):
                self.on_change(set(some))
                await asyncio.sleep(0)
            return set(changed)

    async def delete(self, topic: str, clean: Callable[[], Awaitable[None]] | None = None) -> bool:
        """Delete a topic; returns False if there was none.

        Args:
            clean: removes the topic's queues and offsets; runs before the topic can be recreated.
        """
        found = topic in self._topics
        await self._change(lambda topics: topics.pop(topic, None), clean)
        log.info("deleted topic %s" if found else "no topic %s to delete", topic)
        return found

    async def if_unknown(self, topic: str, clean: Callable[[], Awaitable[None]]) -> None:
        """Run `clean` if the topic does not exist; it cannot be created meanwhile."""

        async def clean_if_unknown() -> None:
            async with self._writing:
                if topic not in self._topics:
                    await clean()

        await uninterrupted(clean_if_unknown())

    def create_system_topics(self, delay_levels: int = 18) -> None:
        """Create missing system topics. Blocks; called at start."""
        topics = {each.topic_name: each for each in system_topics(self._cell.value, delay_levels)}
        topics |= self._topics
        self._adapt_to_settings(topics, delay_levels)
        if topics != self._topics:
            self._stage(topics)
            self._table.save()
            self._publish()

    def restore(self, queues: Mapping[str, int], batched: Collection[str] = ()) -> None:
        """Create the topics that only the log knows, for a replica that becomes master. Blocks.

        Messages are copied at once and topics a moment later, so the newest may be missing. Their
        settings are lost; without the topics their messages would be, too.

        Args:
            queues: the number of queues in the store, by topic.
            batched: the topics whose queues are batch queues.
        """
        config, topics = self._cell.value, dict(self._topics)
        for topic, count in queues.items():
            if topic in topics or topic.startswith(LIGHT_PREFIX) or is_system_topic(topic, config):
                continue
            is_of_group = is_retry_topic(topic) or is_dead_letter_topic(topic)
            wanted = count if is_of_group else max(count, config.default_topic_queue_nums)
            topics[topic] = topic_of(topic, wanted)
            log.warning(
                "topic %s is made again for its messages, with %s queues: its own settings were"
                " not copied before the old master was lost", topic, wanted,
            )  # fmt: skip
        for topic in batched:
            if (found := topics.get(topic)) is not None and not has_batch_queues(found):
                # What else is known of it is of a deleted topic, and may not go together with it.
                topics[topic] = with_batch_queues(found)
                log.warning("topic %s has batches: its queue.type is BatchCQ", topic)
        if topics != self._topics:
            self._stage(topics)
            self._table.save()
            self._publish()

    async def follow_settings(self) -> None:
        """Adapt TBW102, the template of new topics, to the settings: producers read its route."""
        await self._change(self._adapt_template)

    # ---- inside

    def _inherited(self, topic: str, template: str, queue_nums: int) -> TopicConfig:
        config, found = self._cell.value, self._topics.get(template)
        if template == TBW102 and not config.auto_create_topic_enable:
            raise _not_found(topic, "create it, or set autoCreateTopicEnable=true on this broker")
        if found is None:
            raise _not_found(topic, f"create it; its template {template} does not exist either")
        if not found.perm & INHERIT:
            raise _not_found(
                topic, f"create it; {template} lacks the permission to be its template"
            )
        # A changed setting applies before TBW102 is rewritten.
        limit = config.default_topic_queue_nums if template == TBW102 else found.write_queue_nums
        queues = max(1, min(queue_nums, limit))
        filter_type = found.topic_filter_type
        return topic_of(topic, queues, perm=found.perm & ~INHERIT, topic_filter_type=filter_type)

    async def _create(self, config: TopicConfig) -> TopicConfig:
        await self._change(lambda topics: topics.setdefault(config.topic_name, config))
        found = self._topics.get(config.topic_name, config)
        if found is config:
            log.info("created topic %s: %s", config.topic_name, config)
        return found

    def _adapt_to_settings(self, topics: Topics, delay_levels: int) -> None:
        """Update system topics that depend on settings, which may differ from the file's."""
        self._adapt_template(topics)
        delayed = topics[SCHEDULE_TOPIC]
        if min(delayed.read_queue_nums, delayed.write_queue_nums) < delay_levels:
            topics[SCHEDULE_TOPIC] = topic_of(SCHEDULE_TOPIC, delay_levels)

    def _adapt_template(self, topics: Topics) -> None:
        """Set TBW102's inherit permission and number of queues."""
        if template := topics.get(TBW102):
            config = self._cell.value
            queues = config.default_topic_queue_nums
            is_inherited = config.auto_create_topic_enable
            perm = template.perm | INHERIT if is_inherited else template.perm & ~INHERIT
            topics[TBW102] = msgspec.structs.replace(
                template, perm=perm, read_queue_nums=queues, write_queue_nums=queues
            )

    async def _change(
        self,
        edit: Callable[[Topics], object],
        afterwards: Callable[[], Awaitable[None]] | None = None,
        *,
        always: bool = False,
    ) -> None:
        """Edit a copy of the topics, write it if it differs or `always`, then publish it."""
        before = self._version

        async def change() -> None:
            async with self._writing:
                topics = dict(self._topics)
                edit(topics)
                if always or topics != self._topics:
                    await self._replace(topics)
                if afterwards is not None:
                    await afterwards()

        await uninterrupted(change())
        if self._version != before:
            await self.on_published()

    async def _replace(self, topics: Topics) -> None:
        before, known = self._table.value, self._topics
        self._stage(topics)
        await save_or_restore(self._table, before)
        self._publish()
        names = known.keys() | topics.keys()
        self.on_change({name for name in names if known.get(name) != topics.get(name)})

    def _stage(self, topics: Topics) -> None:
        """Put the topics into the file's table, to be written next."""
        version = self._version.bumped(int(self._now() * 1000))
        self._table.value = TopicConfigTable(topic_config_table=topics, data_version=version)
        self._table.changed()

    def _publish(self) -> None:
        """Make the written topics and their version visible."""
        self.written = self._table.value
        self._topics = self._table.value.topic_config_table
        self._version = self._table.value.data_version


def _not_found(topic: str, advice: str) -> TopicNotFound:
    # The first words are those of RocketMQ's own message, which users search for.
    return TopicNotFound(f"topic[{topic}] not exist, apply first please: {advice}")


def validate_topic(topic: str) -> None:
    """Raise InvalidParameter if the name of a topic is not allowed."""
    if topic.startswith(LIGHT_PREFIX):
        raise InvalidParameter(
            f"topic {topic[:MAX_TOPIC_LENGTH]!r} is a light message queue, which this broker does"
            " not serve: use a topic of another name"
        )
    of_group = is_retry_topic(topic) or is_dead_letter_topic(topic)
    # A retry topic of POP is named "%RETRY%group+topic"; acting masters send to it.
    name = topic.replace("+", "_", 1) if is_retry_topic(topic) else topic
    _validate("topic", name, MAX_SYSTEM_TOPIC_LENGTH if of_group else MAX_TOPIC_LENGTH)


def validate_group(group: str) -> None:
    """Raise InvalidParameter if the name of a consumer group is not allowed."""
    _validate("group", group, _MAX_GROUP_LENGTH)


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
    """Names of the system topics of a broker with these settings."""
    cluster = config.broker_cluster_name
    own = (POP_JOURNAL_TOPIC, AUDIT_TOPIC, TIMER_TOPIC, revive_topic(cluster))
    names = {cluster, config.broker_name, reply_topic(cluster), *own}
    if config.trace_topic_enable:
        names.add(config.msg_trace_topic_name)
    return names | SYSTEM_TOPICS


def is_system_topic(topic: str, config: BrokerConfig) -> bool:
    return topic.startswith(SYSTEM_TOPIC_PREFIX) or topic in system_topic_names(config)


def system_topics(config: BrokerConfig, delay_levels: int) -> Iterator[TopicConfig]:
    """The system topics that a broker with these settings creates (`TopicConfigManager.init`)."""
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
    yield topic_of(AUDIT_TOPIC, 1, perm=0)
    yield topic_of(PIPELINE_TOPIC, 1)
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
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG,
) -> TopicConfig:
    """Build a topic configuration with equal numbers of read and write queues."""
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        order=order,
        topic_sys_flag=topic_sys_flag,
        topic_filter_type=topic_filter_type,
    )
