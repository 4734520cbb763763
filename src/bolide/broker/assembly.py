"""Builds the broker's object graph in one place and in stages.

The stages follow the layers of a broker: the tables as their files have them, the parts that know
topics, groups and clients, the way of a message into the store, the features, the handlers. Then
`broker.wiring` connects their events. A part gets the few others that it needs in its constructor
and knows nothing of the rest. Tests assemble the same graph around a memory store.
"""

import logging
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from bolide.auth.permission_queries import PermissionQueryHandlers
from bolide.broker.admin.consumers import ConsumerHandlers
from bolide.broker.admin.plain_acl import PlainAclHandlers
from bolide.broker.admin.queries import QueryHandlers
from bolide.broker.admin.runtime import RuntimeHandlers
from bolide.broker.admin.topic_stats import StatsHandlers
from bolide.broker.admin.users import PolicyHandlers, UserHandlers
from bolide.broker.audit.trail import AuditHandlers, auditor_of
from bolide.broker.background import Background
from bolide.broker.components import Parts, Surroundings
from bolide.broker.consume.assignments import (
    AssignmentHandlers,
    Assignments,
    ClusterQueues,
    RequestModes,
)
from bolide.broker.consume.cold_reads import ColdReadHandlers, ColdReads
from bolide.broker.consume.expiry import Expiring
from bolide.broker.consume.long_polling import LongPolling
from bolide.broker.consume.pull import PullHandlers, PullParts, Pulls
from bolide.broker.dedup.duplicates import Duplicates
from bolide.broker.dedup.windows import DedupWindows
from bolide.broker.delay import DelayScheduler
from bolide.broker.filters.filters import Filters
from bolide.broker.filters.functions import (
    FilterFunctions,
    FilterHandlers,
)
from bolide.broker.filters.subscriptions import FilterTable
from bolide.broker.maintenance import Maintenance
from bolide.broker.metadata.client_handlers import ClientHandlers
from bolide.broker.metadata.clients import ClientTable
from bolide.broker.metadata.groups import GroupHandlers, GroupTable
from bolide.broker.metadata.offset_handlers import OffsetHandlers
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.queue_locks import QueueLocks
from bolide.broker.metadata.queue_mappings import QueueMappings
from bolide.broker.metadata.topic_handlers import TopicHandlers
from bolide.broker.metadata.topics import TopicTable, is_system_topic
from bolide.broker.pop.ack_handlers import PopAckHandlers
from bolide.broker.pop.acting import ActingPop
from bolide.broker.pop.notification import NotificationHandlers
from bolide.broker.pop.pop import Pop
from bolide.broker.pop.pop_handlers import PopHandlers, PopParts
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.produce.request_reply import ReplyHandlers, ReplyPusher
from bolide.broker.produce.send import SendHandlers, SendParts
from bolide.broker.produce.send_back import FindCompacted, SendBackHandlers, SendBackParts
from bolide.broker.replicas.acting_master import ActingMaster
from bolide.broker.replicas.escape import Escape
from bolide.broker.replicas.handlers import (
    OffsetCopyHandlers,
    ReplicaHandlers,
    RoleChangeHandlers,
)
from bolide.broker.replicas.known_hosts import KnownHosts
from bolide.broker.replicas.master import MasterReplication
from bolide.broker.replicas.metadata_sync import MetadataSync, SyncedParts
from bolide.broker.replicas.slave import SlaveReplication
from bolide.broker.replicas.table_copies import StateSource
from bolide.broker.static_topics.cleaning import MappingCleaner
from bolide.broker.static_topics.handlers import StaticTopicHandlers
from bolide.broker.static_topics.peers import Peers
from bolide.broker.static_topics.physical_queues import QueueAccess
from bolide.broker.static_topics.requests import StaticTopicRequests
from bolide.broker.statistics import Statistics
from bolide.broker.tables import Tables
from bolide.broker.timers import Timers, Timetable
from bolide.broker.timers.acting import ActingTimers
from bolide.broker.timers.handlers import TimerHandlers
from bolide.broker.timers.recurring import Recurring
from bolide.broker.transactions.coordinator import Coordinator, TransactionHandlers
from bolide.broker.transactions.ending import EndingParts
from bolide.broker.wiring import connect, connect_audit, connect_fast_path
from bolide.kernel import COMPILED
from bolide.model.message import Host
from bolide.protocol.hosts import pack_host
from bolide.protocol.message_id import UniqueIdMaker
from bolide.remoting.dispatch import Dispatcher
from bolide.remoting.latencies import RpcLatencies
from bolide.store.config import delay_levels
from bolide.store.message_store import MessageStore

if TYPE_CHECKING:
    from bolide.broker.fast_path.path import FastPath

log = logging.getLogger(__name__)

HANDLERS: tuple[type, ...] = (
    SendHandlers,
    ReplyHandlers,
    SendBackHandlers,
    PullHandlers,
    ColdReadHandlers,
    ClientHandlers,
    OffsetHandlers,
    TopicHandlers,
    GroupHandlers,
    QueryHandlers,
    StatsHandlers,
    ConsumerHandlers,
    RuntimeHandlers,
    OffsetCopyHandlers,
    RoleChangeHandlers,
    ReplicaHandlers,
    PlainAclHandlers,
    TimerHandlers,
    AssignmentHandlers,
    PopHandlers,
    NotificationHandlers,
    PopAckHandlers,
    TransactionHandlers,
    FilterHandlers,
    StaticTopicHandlers,
    UserHandlers,
    PolicyHandlers,
    PermissionQueryHandlers,
    AuditHandlers,
)
"""All handler classes; `remoting.dispatch.handled_codes` lists the requests of each."""


def assemble(given: Surroundings, tables: Tables) -> Parts:
    """Build a broker around an open store and loaded tables; nothing runs yet."""
    cell, store, now, host = given.cell, given.store, given.now, pack_host(given.host)
    config, levels = cell.value, delay_levels(given.store_cell.value.message_delay_level)
    background, long_polling = Background(), LongPolling()
    statistics = Statistics(
        config.broker_cluster_name,
        now,
        idle_minutes=config.max_stats_idle_time,
        is_system=lambda topic: is_system_topic(topic, cell.value),
    )

    # Metadata: topics, groups, offsets, clients.
    topics = TopicTable(tables.topics, cell, now)
    mappings = QueueMappings(tables.queue_mappings, now)
    groups = GroupTable(tables.groups, cell, now)
    offsets = OffsetTable(tables.offsets, now, is_copy=not given.role.is_master)
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
    master = (
        MasterReplication(cell, store, given.role, given.epochs) if given.role.is_master else None
    )
    durability = Durability(store, given.store_cell, master)
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
    recurring = Recurring(topics.find, now)
    timers = Timers(
        store,
        intake,
        durability,
        tables.timer_metrics,
        cell=cell,
        store_host=host,
        now=now,
        disk=given.disk,
        continuations=(recurring.continued,),
        on_stored=statistics.stored,
    )
    peers = Peers(cell)
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
        may_send=given.gate.access.may_send,
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
            max_compacted_size=lambda: store.compaction.max_record,
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
            cold_reads=ColdReads(cell=cell, clients=clients, now=now),
            expiring=expiring,
            filters=filters,
            hooks=given.gate.hooks,
            now=now,
            is_slave=lambda: not given.role.is_master,
            master_is_up=lambda: replication.is_master_up,
            is_acting=lambda: acting is not None and acting.is_acting,
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
        is_master=given.role.is_master,
    )
    acting = (
        None
        if given.role.is_master
        else _acting_master(given, peers, recurring, delay=delay, timers=timers, pop=pop)
    )
    replication = master or _slave_replication(
        given,
        tables,
        SyncedParts(topics=topics, groups=groups, offsets=offsets, delay=delay, timers=timers),
    )
    queue_access = QueueAccess(store, offsets, peers)
    parts = Parts(
        cell=cell,
        store_cell=given.store_cell,
        store=store,
        gate=given.gate,
        auditor=auditor_of(given, intake, durability),
        role=given.role,
        replication=replication,
        acting=acting,
        topics=topics,
        mappings=mappings,
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
        peers=peers,
        mapping_cleaner=MappingCleaner(mappings, queue_access, given.store_cell, now),
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
            is_master=given.role.is_master,
        ),
        dispatcher=Dispatcher(latencies=RpcLatencies()),
        fast_path=None,
    )
    transaction_handlers = TransactionHandlers(
        transactions, store, background, given.gate.check_found
    )
    parts.fast_path = _fast_path(parts, given.host)
    handlers = [
        transaction_handlers,
        *_message_handlers(given, parts),
        *_tool_handlers(given, parts, tables),
    ]
    parts.dispatcher = Dispatcher(*handlers, gate=given.gate, latencies=parts.dispatcher.latencies)
    StaticTopicRequests(
        mappings, queue_access, background, offsets=offsets, receive=sends.receive
    ).take_over(parts.dispatcher.routes)
    connect(parts, tables)
    connect_audit(parts, handlers)
    if parts.fast_path is not None:
        connect_fast_path(parts, parts.fast_path, transaction_handlers)
    return parts


def _slave_replication(given: Surroundings, tables: Tables, parts: SyncedParts) -> SlaveReplication:
    sync = MetadataSync(given.cell, given.store, tables, parts, given.role.member_id)
    return SlaveReplication(given.cell, given.store, given.role, sync, given.epochs)


def _acting_master(
    given: Surroundings,
    peers: Peers,
    recurring: Recurring,
    *,
    delay: DelayScheduler,
    timers: Timers,
    pop: Pop,
) -> ActingMaster:
    escape = Escape(given.cell, peers)
    return ActingMaster(
        given.cell,
        given.role,
        delay=delay,
        timers=ActingTimers(
            given.store,
            timers,
            cell=given.cell,
            store_host=pack_host(given.host),
            now=given.now,
            continuations=(recurring.continued,),
        ),
        pop=ActingPop(pop, escape.send, cell=given.cell, log_end=lambda: given.store.log.written),
        escape=escape,
    )


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
                find_compacted=_find_compacted(parts.store),
                check_found=given.gate.check_found,
            )
        ),
        PullHandlers(parts.pulls),
        ColdReadHandlers(parts.pulls.parts.cold_reads, parts.store_cell),
        ClientHandlers(
            clients=parts.clients,
            groups=parts.groups,
            topics=parts.topics,
            locks=parts.locks,
            filters=parts.filters,
            cell=parts.cell,
            identify=given.gate.identify if given.gate.access.verifies_identity else None,
            on_registered=parts.statistics.registered,
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
            on_stored=parts.statistics.stored,
        ),
    ]


def _find_compacted(store: MessageStore) -> FindCompacted:
    """How messages of compaction topics are found; a memory store has none."""
    return (lambda *_: None) if store.compaction is None else store.compaction.find_record


def _tool_handlers(given: Surroundings, parts: Parts, tables: Tables) -> list[object]:
    """Handlers of requests that administrators and replicas send."""
    known_hosts = KnownHosts(is_open=not given.gate.access.verifies_identity)
    return [
        TopicHandlers(
            topics=parts.topics,
            mappings=parts.mappings,
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
        QueryHandlers(
            store=parts.store,
            clients=parts.clients,
            filters=parts.filters.table,
            check_found=given.gate.check_found,
        ),
        FilterHandlers(parts.filters.functions, given.gate.access),
        StatsHandlers(
            store=parts.store,
            topics=parts.topics,
            mappings=parts.mappings,
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
            check_found=given.gate.check_found,
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
        RoleChangeHandlers(given.observe, known_hosts, given.controllers),
        OffsetCopyHandlers(offsets=parts.offsets, delay_offsets=parts.delay.table),
        ReplicaHandlers(
            cell=parts.cell,
            store=parts.store,
            role=given.role,
            replication=parts.replication,
            epochs=given.epochs,
            state=StateSource(
                parts.store, tables, parts.topics, parts.delay, parts.timers.last_checkpoint
            ),
            known_hosts=known_hosts,
            acting=parts.acting,
        ),
        PlainAclHandlers(given.gate.access, parts.cell),
        StaticTopicHandlers(
            topics=parts.topics, mappings=parts.mappings, store=parts.store, cell=parts.cell
        ),
        AuditHandlers(parts.store),
        *(
            kind(given.gate.access)
            for kind in (UserHandlers, PolicyHandlers, PermissionQueryHandlers)
        ),
    ]


def _forget_group(parts: Parts, group: str) -> None:
    parts.statistics.forget_group(group)
    parts.pop.forget_group(group)


def _figures(parts: Parts) -> Mapping[str, str]:
    """What features add to the runtime information."""
    figures = dict(parts.timers.figures()) | parts.replication.figures()
    if parts.fast_path is not None:
        figures |= parts.fast_path.fall_throughs.figures()
    return figures


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
            latencies=parts.dispatcher.latencies,
        ),
        pulls.PullPath(
            parts.pulls,
            gate=parts.gate,
            plans=prepared,
            fall_throughs=fall_throughs,
            latencies=parts.dispatcher.latencies,
        ),
        fall_throughs,
    )


def _unique_ids(host: bytes) -> UniqueIdMaker:
    return UniqueIdMaker(host[:-4], os.getpid(), int.from_bytes(os.urandom(4)))
