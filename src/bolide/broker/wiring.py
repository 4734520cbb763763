"""Connects the events of the broker's parts: every `Listeners` gets its listeners here.

A part announces what changed and does not know who listens.
"""

import logging
from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING

from bolide.broker.admin.runtime import RuntimeHandlers
from bolide.broker.audit.subjects import EXEMPT, Subjects
from bolide.broker.components import Parts
from bolide.broker.consume.admission import Admitted
from bolide.broker.metadata.client_handlers import MemberNotices
from bolide.broker.metadata.topic_attributes import is_compacted
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.registration import Registration
from bolide.broker.replicas.master import MasterReplication
from bolide.broker.replicas.slave import SlaveReplication
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.tables import Tables
from bolide.broker.transactions.coordinator import TransactionHandlers
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.headers.pull import PullHeader
from bolide.protocol.headers.send import SendHeader
from bolide.protocol.refusals import ServerError
from bolide.remoting.dispatch import Request
from bolide.store.compaction.topic_compaction import TopicCompaction
from bolide.store.contract import Store
from bolide.store.tables import has_batch_queues

if TYPE_CHECKING:
    from bolide.broker.fast_path.path import FastPath

log = logging.getLogger(__name__)


def connect(parts: Parts, tables: Tables) -> None:
    """Connect the events of the parts, each with all of its listeners."""
    parts.durability.on_progress.add(parts.intake.wake_up_to)
    parts.durability.on_rolled_back.add(parts.duplicates.windows.discard_lost)
    if isinstance(parts.replication, MasterReplication):
        parts.intake.on_appended.add(parts.replication.wake)
        parts.durability.on_flushed.add(parts.replication.wake)
        parts.replication.on_confirmed.add(parts.durability.confirmed)
        parts.replication.on_replicated.add(parts.durability.replicated)
    else:
        parts.replication.on_readable.add(parts.long_polling.arrived)
    parts.long_polling.on_arrival.add(parts.pop.polling.arrived)
    parts.gate.on_revoked.add(parts.long_polling.revoke_all)
    parts.delay.on_delivered.add(parts.statistics.delivered_delayed)
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
    if not isinstance(parts.replication, SlaveReplication):  # `MetadataSync` does so for a slave
        parts.topics.on_change.add(partial(_set_queue_types, parts.store, parts.topics))
    parts.mappings.on_change.add(partial(_release_pulls, parts))
    if parts.store.compaction is not None:  # a memory store has none
        follow_compaction = partial(_follow_compaction, parts.topics, parts.store.compaction)
        follow_compaction(each.topic_name for each in parts.topics)
        parts.topics.on_change.add(follow_compaction)
    notices = MemberNotices(parts.clients, parts.background)
    parts.clients.on_members_changed.add(notices.members_changed)


def connect_audit(parts: Parts, handlers: Iterable[object]) -> None:
    """Have the requests that administer recorded, and those that access control denies."""
    if not parts.cell.value.audit_enable:
        return
    (settings,) = (each.settings for each in handlers if isinstance(each, RuntimeHandlers))
    describers = Subjects(parts, settings).describers()
    parts.auditor.take_over(parts.dispatcher.routes, describers, EXEMPT)
    parts.gate.on_denied.add(parts.auditor.denials.add)


def _release_pulls(parts: Parts, topics: Collection[str]) -> None:
    """Answer the waiting pulls of static topics: another broker may lead their queues now."""
    for topic in topics:
        found = parts.topics.find(topic)
        queues = range(found.read_queue_nums if found else 0)
        parts.long_polling.release((topic, queue_id) for queue_id in queues)


def connect_registration(parts: Parts, registration: Registration) -> None:
    """Have the NameServers told of changes; a registration needs a network and comes last."""
    parts.topics.on_change.add(registration.record_change)
    parts.topics.on_published.add(registration.announce)
    parts.mappings.on_change.add(registration.record_change)
    parts.cell.on_change(registration.record_change)
    if isinstance(parts.replication, SlaveReplication):
        registration.on_master_known.add(parts.replication.follow)
        if not parts.role.is_elected:
            parts.replication.on_master_missing.add(registration.record_change)


def _follow_compaction(
    topics: TopicTable, compaction: TopicCompaction, names: Iterable[str]
) -> None:
    """Tell the store which of the topics keep the newest message of each key."""
    for name in names:
        topic = topics.find(name)
        if topic is not None and is_compacted(topic):
            compaction.add(name)
        else:
            compaction.discard(name)


def _set_queue_types(store: Store, topics: TopicTable, changed: Collection[str]) -> None:
    """Tell the store which topics have batch queues, before their first message."""
    for topic in filter(None, map(topics.find, changed)):
        store.set_batched(topic.topic_name, is_batched=has_batch_queues(topic))


async def _follow(topics: TopicTable) -> None:
    try:
        await topics.follow_settings()
    except ServerError as exc:
        log.warning("cannot apply the settings of topic TBW102: %s", exc.remark)


def connect_fast_path(
    parts: Parts, fast_path: "FastPath", transaction_handlers: TransactionHandlers
) -> None:
    """Have plans made by what handlers admit, and dropped by what changes."""
    plans, sends, pulls = fast_path.plans, fast_path.sends, fast_path.pulls

    def prepare_send(request: Request[SendHeader], header: SendHeader, topic: TopicConfig) -> None:
        if topic.topic_name not in parts.mappings:  # its requests must be translated
            sends.prepare(request, header, topic)

    def prepare_pull(request: Request[PullHeader], admitted: Admitted) -> None:
        if admitted.topic.topic_name not in parts.mappings:
            pulls.prepare(request, admitted)

    parts.sends.on_admitted.add(prepare_send)
    transaction_handlers.on_admitted.add(sends.prepare_end)
    parts.pulls.on_admitted.add(prepare_pull)

    parts.gate.on_revoked.add(plans.drop_all)
    parts.topics.on_change.add(fast_path.topics_changed)
    parts.mappings.on_change.add(fast_path.topics_changed)
    parts.groups.on_change.add(plans.drop_groups)
    parts.clients.on_change.add(plans.drop_group)
    parts.filters.table.on_change.add(plans.drop_group)
    parts.expiring.on_change.add(lambda _: plans.drop_all())  # retry topics are affected too
    parts.cell.on_change(lambda _: fast_path.settings_changed())
    parts.store_cell.on_change(lambda _: fast_path.settings_changed())

    parts.intake.on_burst_end.add(sends.end_burst)
    parts.statistics.before_read.add(sends.report_queues)
    parts.statistics.before_read.add(pulls.report_tallies)
    parts.statistics.in_slices.append(sends.report_in_slices)
    parts.statistics.in_slices.append(pulls.report_in_slices)
    parts.statistics.before_read.add(sends.report_traffic)
