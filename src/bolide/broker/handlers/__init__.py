"""What a broker can be asked: one module a subject."""

from functools import partial

from bolide.broker.handlers.assignment import AssignmentHandlers
from bolide.broker.handlers.clients import ClientHandlers
from bolide.broker.handlers.consumers import ConsumerHandlers
from bolide.broker.handlers.filters import FilterHandlers
from bolide.broker.handlers.groups import GroupHandlers
from bolide.broker.handlers.offsets import OffsetHandlers
from bolide.broker.handlers.pop import PopHandlers, PopParts
from bolide.broker.handlers.pop_ack import PopAckHandlers
from bolide.broker.handlers.pop_watch import PopWatchHandlers
from bolide.broker.handlers.pull import PullHandlers
from bolide.broker.handlers.query import QueryHandlers
from bolide.broker.handlers.replicas import ReplicaHandlers
from bolide.broker.handlers.replies import ReplyHandlers
from bolide.broker.handlers.runtime import RuntimeHandlers
from bolide.broker.handlers.send import SendHandlers, SendParts
from bolide.broker.handlers.send_back import SendBackHandlers, SendBackParts
from bolide.broker.handlers.stats import StatsHandlers
from bolide.broker.handlers.timers import TimerHandlers
from bolide.broker.handlers.topics import TopicHandlers
from bolide.broker.handlers.transactions import TransactionHandlers
from bolide.broker.parts import Parts
from bolide.broker.replies import Replies

__all__ = ["HANDLERS", "all_handlers"]

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
    PopWatchHandlers,
    PopAckHandlers,
    TransactionHandlers,
    FilterHandlers,
)
"""Each says by its marks which requests it answers."""


def all_handlers(parts: Parts) -> list[object]:
    """The handler groups of a broker, each with the parts it needs."""
    return [
        *_sends(parts),
        SendBackHandlers(
            SendBackParts(
                cell=parts.cell,
                store=parts.store,
                topics=parts.topics,
                groups=parts.groups,
                intake=parts.intake,
                durability=parts.durability,
                statistics=parts.statistics,
                store_host=parts.host,
                max_level=parts.delay.max_level,
                now=parts.now,
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
        TransactionHandlers(parts.transactions, parts.store, parts.background),
        PopHandlers(
            PopParts(
                cell=parts.cell,
                pop=parts.pop,
                filters=parts.filters,
                statistics=parts.statistics,
                background=parts.background,
                hooks=parts.hooks,
                now=parts.now,
            )
        ),
        PopWatchHandlers(parts.pop, parts.cell, parts.now),
        PopAckHandlers(parts.pop, parts.statistics),
        *_administration(parts),
    ]


def _sends(parts: Parts) -> list[object]:
    """Those of messages that come in, replies among them."""
    sends = SendHandlers(
        SendParts(
            cell=parts.cell,
            topics=parts.topics,
            groups=parts.groups,
            locks=parts.locks,
            intake=parts.intake,
            duplicates=parts.duplicates,
            durability=parts.durability,
            statistics=parts.statistics,
            background=parts.background,
            expiring=parts.expiring,
            unique_ids=parts.unique_ids,
            store_host=parts.host,
            max_level=parts.delay.max_level,
            max_message_size=lambda: parts.store_cell.value.max_message_size,
            hooks=parts.hooks,
            now=parts.now,
        )
    )
    replies = ReplyHandlers(
        sends,
        Replies(parts.clients, parts.host, parts.now),
        cell=parts.cell,
        background=parts.background,
        now=parts.now,
    )
    return [sends, replies]


def _administration(parts: Parts) -> list[object]:
    """Those that administrators and replicas ask."""
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
            now=parts.now,
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
            timer_figures=parts.timers.figures,
            boot_time=parts.now(),
            ignored=parts.ignored,
        ),
        ReplicaHandlers(offsets=parts.offsets, delay_offsets=parts.delay.table),
        TimerHandlers(
            parts.timers,
            topics=parts.topics,
            intake=parts.intake,
            durability=parts.durability,
            cell=parts.cell,
            store_host=parts.host,
            now=parts.now,
        ),
    ]


def _forget_group(parts: Parts, group: str) -> None:
    parts.statistics.forget_group(group)
    parts.pop.forget_group(group)
