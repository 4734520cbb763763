"""What a broker can be asked: one module a subject."""

from bolide.broker.handlers.clients import ClientHandlers
from bolide.broker.handlers.consumers import ConsumerHandlers
from bolide.broker.handlers.groups import GroupHandlers
from bolide.broker.handlers.offsets import OffsetHandlers
from bolide.broker.handlers.pull import PullHandlers, PullParts
from bolide.broker.handlers.query import QueryHandlers
from bolide.broker.handlers.replicas import ReplicaHandlers
from bolide.broker.handlers.runtime import RuntimeHandlers
from bolide.broker.handlers.send import SendHandlers, SendParts
from bolide.broker.handlers.send_back import SendBackHandlers, SendBackParts
from bolide.broker.handlers.stats import StatsHandlers
from bolide.broker.handlers.topics import TopicHandlers
from bolide.broker.parts import Parts

__all__ = ["HANDLERS", "all_handlers"]

HANDLERS: tuple[type, ...] = (
    SendHandlers,
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
)
"""Each says by its marks which requests it answers."""


def all_handlers(parts: Parts) -> list[object]:
    """The handler groups of a broker, each with the parts it needs."""
    return [
        SendHandlers(
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
                unique_ids=parts.unique_ids,
                store_host=parts.host,
                max_level=parts.delay.max_level,
                max_message_size=lambda: parts.store_cell.value.max_message_size,
                hooks=parts.hooks,
                now=parts.now,
            )
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
                store_host=parts.host,
                max_level=parts.delay.max_level,
                now=parts.now,
            )
        ),
        PullHandlers(
            PullParts(
                cell=parts.cell,
                store_cell=parts.store_cell,
                store=parts.store,
                log_end=lambda: parts.store.log.written,
                topics=parts.topics,
                groups=parts.groups,
                offsets=parts.offsets,
                clients=parts.clients,
                arrivals=parts.arrivals,
                statistics=parts.statistics,
                background=parts.background,
                hooks=parts.hooks,
                now=parts.now,
            )
        ),
        ClientHandlers(
            clients=parts.clients,
            groups=parts.groups,
            topics=parts.topics,
            locks=parts.locks,
            cell=parts.cell,
        ),
        OffsetHandlers(
            store=parts.store,
            offsets=parts.offsets,
            groups=parts.groups,
            topics=parts.topics,
            clients=parts.clients,
        ),
        *_administration(parts),
    ]


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
            groups=parts.groups, offsets=parts.offsets, forget=parts.statistics.forget_group
        ),
        QueryHandlers(store=parts.store, clients=parts.clients),
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
            boot_time=parts.now(),
            ignored=parts.ignored,
        ),
        ReplicaHandlers(offsets=parts.offsets, delay_offsets=parts.delay.table),
    ]
