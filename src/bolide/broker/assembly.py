"""Builds the broker's object graph in one place, in stages, and connects its events.

The stages follow the layers of a broker: the tables as their files have them, the parts that know
topics, groups and clients, the way of a message into the store, the features, the handlers. Then
`_connect` wires the events: every `Listeners` of a part gets its listeners there. A part gets the
few others that it needs in its constructor and knows nothing of the rest. Tests assemble the same
graph around a memory store.
"""

import logging
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bolide.broker.admin.consumers import ConsumerHandlers
from bolide.broker.admin.queries import QueryHandlers
from bolide.broker.admin.runtime import ReplicaHandlers, RuntimeHandlers
from bolide.broker.admin.topic_stats import StatsHandlers
from bolide.broker.background import Background
from bolide.broker.consume.assignments import (
    AssignmentHandlers,
    Assignments,
    ClusterQueues,
    RequestModes,
)
from bolide.broker.consume.expiry import EXPIRING_TOPICS, Expiring, ExpiringTopics
from bolide.broker.consume.long_polling import LongPolling
from bolide.broker.consume.pull import PullHandlers, PullParts, Pulls
from bolide.broker.dedup.duplicates import Duplicates
from bolide.broker.dedup.windows import DedupWindows
from bolide.broker.delay import DelayScheduler
from bolide.broker.filters.filters import Filters
from bolide.broker.filters.functions import (
    FILTER_FUNCTIONS,
    FilterFunctions,
    FilterHandlers,
    FunctionTable,
)
from bolide.broker.filters.subscriptions import FilterTable
from bolide.broker.gate import Gate
from bolide.broker.maintenance import Maintenance
from bolide.broker.metadata.client_handlers import ClientHandlers, MemberNotices
from bolide.broker.metadata.clients import ClientTable
from bolide.broker.metadata.groups import GroupHandlers, GroupTable
from bolide.broker.metadata.offset_handlers import OffsetHandlers
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.queue_locks import QueueLocks
from bolide.broker.metadata.topic_handlers import TopicHandlers
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.pop.ack_handlers import PopAckHandlers
from bolide.broker.pop.notification import NotificationHandlers
from bolide.broker.pop.ordered import ORDERS, OrderTable
from bolide.broker.pop.pop import Pop
from bolide.broker.pop.pop_handlers import PopHandlers, PopParts
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.produce.request_reply import ReplyHandlers, ReplyPusher
from bolide.broker.produce.send import SendHandlers, SendParts
from bolide.broker.produce.send_back import SendBackHandlers, SendBackParts
from bolide.broker.registration import Registration
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.statistics import Statistics
from bolide.broker.timers import Timers, Timetable
from bolide.broker.timers.handlers import TimerHandlers
from bolide.broker.timers.recurring import Recurring
from bolide.broker.transactions.coordinator import Coordinator, TransactionHandlers
from bolide.broker.transactions.ending import EndingParts
from bolide.config import ConfigCell
from bolide.kernel import COMPILED
from bolide.model.message import Host
from bolide.protocol.bodies.groups import GroupConfigTable
from bolide.protocol.bodies.offsets import ConsumerOffsets
from bolide.protocol.bodies.pop import RequestModeTable
from bolide.protocol.bodies.replication import TimerMetrics
from bolide.protocol.bodies.topics import TopicConfigTable
from bolide.protocol.hosts import pack_host
from bolide.protocol.message_id import UniqueIdMaker
from bolide.protocol.refusals import ServerError
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Dispatcher
from bolide.store import tables as kinds
from bolide.store.config import StoreConfig, delay_levels
from bolide.store.contract import Store
from bolide.store.disk import Disk
from bolide.store.message_store import MessageStore
from bolide.store.tables import ConsumerFilters, DelayOffsets, Table, has_batch_queues

if TYPE_CHECKING:
    from bolide.broker.fast_path.path import FastPath

log = logging.getLogger(__name__)

HANDLERS: tuple[type, ...] = (
    SendHandlers,
    ReplyHandlers,
    SendBackHandlers,
    PullHandlers,
    ClientHandlers,
    OffsetHandlers,
    TopicHandlers,
    GroupHandlers,
    QueryHandlers,
    StatsHandlers,
    ConsumerHandlers,
    RuntimeHandlers,
    ReplicaHandlers,
    TimerHandlers,
    AssignmentHandlers,
    PopHandlers,
    NotificationHandlers,
    PopAckHandlers,
    TransactionHandlers,
    FilterHandlers,
)
"""All handler classes; `remoting.dispatch.handled_codes` lists the requests of each."""


@dataclass(slots=True, kw_only=True)
class Surroundings:
    """What a broker is assembled from."""

    cell: ConfigCell[BrokerConfig]
    store_cell: ConfigCell[StoreConfig]
    store: MessageStore
    host: Host
    """The address that clients are told."""
    gate: Gate
    now: Callable[[], float]
    ignored: Mapping[str, str]
    """Settings of RocketMQ that were given and have no effect."""
    disk: Disk | None = None
    unique_ids: UniqueIdMaker | None = None


@dataclass(slots=True, kw_only=True)
class Tables:
    """The tables below `config`, as their files have them."""

    topics: Table[TopicConfigTable]
    groups: Table[GroupConfigTable]
    offsets: Table[ConsumerOffsets]
    delay_offsets: Table[DelayOffsets]
    timer_metrics: Table[TimerMetrics]
    request_modes: Table[RequestModeTable]
    consumer_filters: Table[ConsumerFilters]
    filter_functions: Table[FunctionTable]
    expiring_topics: Table[ExpiringTopics]
    orders: Table[OrderTable]

    def load(self) -> None:
        """Read all files. Blocks."""
        for each in fields(self):
            getattr(self, each.name).load()

    @classmethod
    def below(cls, root: Path, disk: Disk | None) -> "Tables":
        config = root / "config"
        return cls(
            topics=Table(config, kinds.TOPICS, disk=disk),
            groups=Table(config, kinds.GROUPS, disk=disk),
            offsets=Table(config, kinds.CONSUMER_OFFSETS, disk=disk),
            delay_offsets=Table(config, kinds.DELAY_OFFSETS, disk=disk),
            timer_metrics=Table(config, kinds.TIMER_METRICS, disk=disk),
            request_modes=Table(config, kinds.REQUEST_MODES, disk=disk),
            consumer_filters=Table(config, kinds.CONSUMER_FILTERS, disk=disk),
            filter_functions=Table(config, FILTER_FUNCTIONS, disk=disk),
            expiring_topics=Table(config, EXPIRING_TOPICS, disk=disk),
            orders=Table(config, ORDERS, disk=disk),
        )


@dataclass(slots=True, kw_only=True)
class Parts:
    """The parts of one broker. Only `assembly` and `server` see them all."""

    cell: ConfigCell[BrokerConfig]
    store_cell: ConfigCell[StoreConfig]
    store: MessageStore
    gate: Gate
    # metadata
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    clients: ClientTable
    locks: QueueLocks
    filters: Filters
    expiring: Expiring
    assignments: Assignments
    # the way into the store, and what waits for it
    statistics: Statistics
    background: Background
    durability: Durability
    long_polling: LongPolling
    intake: Intake
    # features
    duplicates: Duplicates
    delay: DelayScheduler
    timers: Timers
    transactions: Coordinator
    sends: SendHandlers
    pulls: Pulls
    pop: Pop
    maintenance: Maintenance
    # requests
    dispatcher: Dispatcher
    fast_path: "FastPath | None"

    def connection_lost(self, connection: Connection) -> None:
        """Forget a client whose connection is gone."""
        self.clients.connection_lost(connection)
        if self.fast_path is not None:
            self.fast_path.plans.forget(connection)


def assemble(given: Surroundings, tables: Tables) -> Parts:
    """Build a broker around an open store and loaded tables; nothing runs yet."""
    cell, store, now, host = given.cell, given.store, given.now, pack_host(given.host)
    config, levels = cell.value, delay_levels(given.store_cell.value.message_delay_level)
    background, long_polling = Background(), LongPolling()
    statistics = Statistics(
        config.broker_cluster_name, now, idle_minutes=config.max_stats_idle_time
    )

    # Metadata: topics, groups, offsets, clients.
    topics = TopicTable(tables.topics, cell, now)
    groups = GroupTable(tables.groups, cell, now)
    offsets = OffsetTable(tables.offsets, now)
    clients = ClientTable(cell, groups, now)
    locks = QueueLocks()
    filters = Filters(
        cell,
        FilterTable(tables.consumer_filters, now),
        FilterFunctions(tables.filter_functions, cell, now),
        clients,
    )
    expiring = Expiring(tables.expiring_topics, now=now, exists=topics.__contains__)
    assignments = Assignments(
        cell, clients, ClusterQueues(cell, topics), RequestModes(tables.request_modes)
    )

    # The way of a message into the store.
    durability = Durability(store, given.store_cell)
    intake = Intake(store, durability, long_polling)

    # Features.
    windows = DedupWindows(
        cell=cell,
        store=store,
        topics=topics,
        background=background,
        waiting=lambda: delay.progress(),  # noqa: PLW0108  made below
        now=now,
    )
    duplicates = Duplicates(windows, store=store, intake=intake, now=now)
    delay = DelayScheduler(
        store,
        intake,
        durability,
        tables.delay_offsets,
        delays=levels,
        store_host=host,
        is_delivered=duplicates.is_delivered,
        now=now,
    )
    timers = Timers(
        store,
        intake,
        durability,
        tables.timer_metrics,
        cell=cell,
        store_host=host,
        now=now,
        disk=given.disk,
        continuations=(Recurring(topics.find, now).continued,),
    )
    transactions = Coordinator(
        EndingParts(
            store=store,
            topics=topics,
            intake=intake,
            duplicates=duplicates,
            durability=durability,
            statistics=statistics,
            store_host=host,
            max_level=delay.max_level,
            timetable=Timetable(cell, now, lenient=True),
            now=now,
        ),
        cell=cell,
        store_cell=given.store_cell,
        offsets=offsets,
        clients=clients,
        host=given.host,
        last_record=store.log.last_record,
    )
    sends = SendHandlers(
        SendParts(
            cell=cell,
            topics=topics,
            groups=groups,
            locks=locks,
            intake=intake,
            duplicates=duplicates,
            durability=durability,
            statistics=statistics,
            background=background,
            expiring=expiring,
            unique_ids=given.unique_ids or _unique_ids(host),
            store_host=given.host,
            max_level=delay.max_level,
            max_message_size=lambda: given.store_cell.value.max_message_size,
            hooks=given.gate.hooks,
            now=now,
        )
    )
    pulls = Pulls(
        PullParts(
            cell=cell,
            store_cell=given.store_cell,
            store=store,
            log_end=lambda: store.log.written,
            topics=topics,
            groups=groups,
            offsets=offsets,
            clients=clients,
            long_polling=long_polling,
            statistics=statistics,
            background=background,
            expiring=expiring,
            filters=filters,
            hooks=given.gate.hooks,
            now=now,
        )
    )
    pop = Pop(
        cell=cell,
        store_cell=given.store_cell,
        store=store,
        log_end=lambda: store.log.written,
        topics=topics,
        groups=groups,
        offsets=offsets,
        statistics=statistics,
        intake=intake,
        durability=durability,
        long_polling=long_polling,
        expiring=expiring,
        orders=tables.orders,
        store_host=host,
        now=now,
    )
    parts = Parts(
        cell=cell,
        store_cell=given.store_cell,
        store=store,
        gate=given.gate,
        topics=topics,
        groups=groups,
        offsets=offsets,
        clients=clients,
        locks=locks,
        filters=filters,
        expiring=expiring,
        assignments=assignments,
        statistics=statistics,
        background=background,
        durability=durability,
        long_polling=long_polling,
        intake=intake,
        duplicates=duplicates,
        delay=delay,
        timers=timers,
        transactions=transactions,
        sends=sends,
        pulls=pulls,
        pop=pop,
        maintenance=Maintenance(
            pop=pop,
            offsets=offsets,
            groups=groups,
            delay=delay,
            timers=timers,
            filters=filters,
            statistics=statistics,
            clients=clients,
            locks=locks,
            store_config=given.store_cell,
        ),
        dispatcher=Dispatcher(),
        fast_path=None,
    )
    transaction_handlers = TransactionHandlers(transactions, store, background)
    parts.fast_path = _fast_path(parts, given.host)
    handlers = [
        transaction_handlers,
        *_message_handlers(given, parts),
        *_tool_handlers(given, parts),
    ]
    parts.dispatcher = Dispatcher(*handlers, gate=given.gate)
    _connect(parts, tables)
    if parts.fast_path is not None:
        _connect_fast_path(parts, parts.fast_path, transaction_handlers)
    return parts


# ---- handlers


def _message_handlers(given: Surroundings, parts: Parts) -> list[object]:
    """Handlers of requests that clients send."""
    return [
        parts.sends,
        ReplyHandlers(
            parts.sends,
            ReplyPusher(parts.clients, given.host, given.now),
            cell=parts.cell,
            background=parts.background,
            now=given.now,
        ),
        SendBackHandlers(
            SendBackParts(
                cell=parts.cell,
                store=parts.store,
                topics=parts.topics,
                groups=parts.groups,
                intake=parts.intake,
                durability=parts.durability,
                statistics=parts.statistics,
                store_host=given.host,
                max_level=parts.delay.max_level,
                now=given.now,
            )
        ),
        PullHandlers(parts.pulls),
        ClientHandlers(
            clients=parts.clients,
            groups=parts.groups,
            topics=parts.topics,
            locks=parts.locks,
            filters=parts.filters,
            cell=parts.cell,
        ),
        OffsetHandlers(
            store=parts.store,
            offsets=parts.offsets,
            groups=parts.groups,
            topics=parts.topics,
            clients=parts.clients,
        ),
        AssignmentHandlers(assignments=parts.assignments, topics=parts.topics, groups=parts.groups),
        PopHandlers(
            PopParts(
                cell=parts.cell,
                pop=parts.pop,
                filters=parts.filters,
                statistics=parts.statistics,
                background=parts.background,
                hooks=given.gate.hooks,
                now=given.now,
            )
        ),
        NotificationHandlers(parts.pop, parts.cell, given.now),
        PopAckHandlers(parts.pop, parts.statistics),
        TimerHandlers(
            parts.timers,
            topics=parts.topics,
            intake=parts.intake,
            durability=parts.durability,
            cell=parts.cell,
            store_host=given.host,
            now=given.now,
        ),
    ]


def _tool_handlers(given: Surroundings, parts: Parts) -> list[object]:
    """Handlers of requests that administrators and replicas send."""
    return [
        TopicHandlers(
            topics=parts.topics,
            groups=parts.groups,
            offsets=parts.offsets,
            clients=parts.clients,
            store=parts.store,
            cell=parts.cell,
            forget=parts.statistics.forget_topic,
        ),
        GroupHandlers(
            groups=parts.groups, offsets=parts.offsets, forget=partial(_forget_group, parts)
        ),
        QueryHandlers(store=parts.store, clients=parts.clients, filters=parts.filters.table),
        FilterHandlers(parts.filters.functions),
        StatsHandlers(
            store=parts.store,
            topics=parts.topics,
            groups=parts.groups,
            offsets=parts.offsets,
            clients=parts.clients,
            statistics=parts.statistics,
            cell=parts.cell,
            now=given.now,
        ),
        ConsumerHandlers(
            store=parts.store,
            topics=parts.topics,
            groups=parts.groups,
            offsets=parts.offsets,
            clients=parts.clients,
            cell=parts.cell,
        ),
        RuntimeHandlers(
            store=parts.store,
            statistics=parts.statistics,
            cell=parts.cell,
            store_cell=parts.store_cell,
            delay=parts.delay,
            figures=partial(_figures, parts),
            boot_time=given.now(),
            ignored=given.ignored,
        ),
        ReplicaHandlers(offsets=parts.offsets, delay_offsets=parts.delay.table),
    ]


def _forget_group(parts: Parts, group: str) -> None:
    parts.statistics.forget_group(group)
    parts.pop.forget_group(group)


def _figures(parts: Parts) -> Mapping[str, str]:
    """What features add to the runtime information."""
    figures = dict(parts.timers.figures())
    if parts.fast_path is not None:
        figures |= parts.fast_path.fall_throughs.figures()
    return figures


# ---- events


def _connect(parts: Parts, tables: Tables) -> None:
    """Connect the events of the parts, each with all of its listeners."""
    parts.durability.on_progress.add(parts.intake.wake_up_to)
    parts.durability.on_rolled_back.add(parts.duplicates.windows.discard_lost)
    parts.long_polling.on_arrival.add(parts.pop.polling.arrived)
    parts.offsets.on_reset.add(parts.pop.positions.reset)
    parts.offsets.on_reset.add(
        lambda _, topic, offsets: parts.long_polling.arrived_in(topic, offsets)
    )
    parts.offsets.on_removed.add(parts.pop.positions.forget)

    def save_offsets_by(config: BrokerConfig) -> None:
        tables.offsets.interval = config.consumer_offsets_interval

    save_offsets_by(parts.cell.value)
    parts.cell.on_change(save_offsets_by)

    def follow_settings(_: BrokerConfig) -> None:
        parts.background.start(_follow(parts.topics), "broker-model-topic")

    parts.cell.on_change(follow_settings)
    parts.topics.on_change.add(parts.duplicates.windows.topics_changed)
    parts.topics.on_change.add(partial(_set_queue_types, parts.store, parts.topics))
    notices = MemberNotices(parts.clients, parts.background)
    parts.clients.on_members_changed.add(notices.members_changed)


def connect_registration(parts: Parts, registration: Registration) -> None:
    """Have the NameServers told of changes; a registration needs a network and comes last."""
    parts.topics.on_change.add(registration.record_change)
    parts.topics.on_published.add(registration.announce)
    parts.cell.on_change(registration.record_change)


def _set_queue_types(store: Store, topics: TopicTable, changed: Collection[str]) -> None:
    """Tell the store which topics have batch queues, before their first message."""
    for topic in filter(None, map(topics.find, changed)):
        store.set_batched(topic.topic_name, is_batched=has_batch_queues(topic))


async def _follow(topics: TopicTable) -> None:
    try:
        await topics.follow_settings()
    except ServerError as exc:
        log.warning("cannot apply the settings of topic TBW102: %s", exc.remark)


def _connect_fast_path(
    parts: Parts, fast_path: "FastPath", transaction_handlers: TransactionHandlers
) -> None:
    """Have plans made by what handlers admit, and dropped by what changes."""
    plans, sends, pulls = fast_path.plans, fast_path.sends, fast_path.pulls
    parts.sends.on_admitted.add(sends.prepare)
    transaction_handlers.on_admitted.add(sends.prepare_end)
    parts.pulls.on_admitted.add(pulls.prepare)

    parts.gate.on_revoked.add(plans.drop_all)
    parts.topics.on_change.add(fast_path.topics_changed)
    parts.groups.on_change.add(plans.drop_groups)
    parts.clients.on_change.add(plans.drop_group)
    parts.filters.table.on_change.add(plans.drop_group)
    parts.expiring.on_change.add(lambda _: plans.drop_all())  # retry topics are affected too
    parts.cell.on_change(lambda _: fast_path.settings_changed())
    parts.store_cell.on_change(lambda _: fast_path.settings_changed())

    parts.intake.on_burst_end.add(sends.end_burst)
    parts.statistics.before_read.add(sends.report_queues)
    parts.statistics.before_read.add(pulls.report_tallies)


def _fast_path(parts: Parts, host: Host) -> "FastPath | None":
    """The fast path, if its compiled modules are there and wanted."""
    if not COMPILED:
        return None
    try:
        from bolide.broker.fast_path import path, plans, pulls, sends  # noqa: PLC0415  compiled
        from bolide.broker.fast_path.fall_through import FallThroughs  # noqa: PLC0415
    except ModuleNotFoundError:  # the kernel is compiled, these modules are not
        return None
    prepared, fall_throughs = plans.Plans(), FallThroughs()
    return path.FastPath(
        prepared,
        sends.SendPath(
            cell=parts.cell,
            store_cell=parts.store_cell,
            store=parts.store,
            intake=parts.intake,
            durability=parts.durability,
            statistics=parts.statistics,
            store_host=host,
            gate=parts.gate,
            halves=parts.transactions.queue,
            plans=prepared,
            fall_throughs=fall_throughs,
        ),
        pulls.PullPath(parts.pulls, gate=parts.gate, plans=prepared, fall_throughs=fall_throughs),
        fall_throughs,
    )


def _unique_ids(host: bytes) -> UniqueIdMaker:
    return UniqueIdMaker(host[:-4], os.getpid(), int.from_bytes(os.urandom(4)))
