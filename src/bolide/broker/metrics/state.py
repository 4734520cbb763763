"""Whether a broker does its work, as metrics of our own: what alerts ask for."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from bolide.broker.components import Parts
from bolide.broker.metrics.families import gauge
from bolide.broker.transactions.open_halves import OpenHalves
from bolide.kernel import read_record
from bolide.metrics.families import Family, Scope
from bolide.model.names import HALF_TOPIC
from bolide.protocol.record import Record
from bolide.store.reading import ReadLimits

REASONS = ("store", "role", "disk", "permission", "time", "registration")
"""What a broker may lack, as GET /readyz names it."""


class State(NamedTuple):
    """What only the event loop may look at, taken when a collection begins."""

    missing: frozenset[str]
    is_writable: bool
    replicas: tuple[int, int] | None
    """Connected slaves, and those of them that are in sync; None on a slave."""

    @classmethod
    def of(cls, parts: Parts, missing: Collection[str]) -> "State":
        status = None if parts.master is None else parts.master.status()
        return cls(
            frozenset(missing),
            not {"store", "disk"} & set(missing),
            None if status is None else (len(status.ha_connection_info), status.in_sync_slave_nums),
        )


def state_families(
    parts: Parts, scope: Scope, state: State, halves: OpenHalves | None, now: float
) -> Iterator[Family]:
    yield gauge(
        "bolide_not_ready",
        "1 for each reason for which the broker accepts no messages; /readyz tells more.",
        [((reason,), int(reason in state.missing)) for reason in REASONS],
        labels=("reason",), scope=scope,
    )  # fmt: skip
    yield gauge(
        "bolide_store_writable", "0 while the store refuses messages: its disk is full or fails.",
        [((), int(state.is_writable))], scope=scope,
    )  # fmt: skip
    if state.replicas is not None:
        connected, in_sync = state.replicas
        yield gauge(
            "bolide_replicas_connected", "Slaves that are connected to this master.",
            [((), connected)], scope=scope,
        )  # fmt: skip
        yield gauge(
            "bolide_replicas_in_sync", "Those of them that are less than haMaxGapNotInSync behind.",
            [((), in_sync)], scope=scope,
        )  # fmt: skip
    if halves is not None:
        yield gauge(
            "bolide_half_messages_oldest_seconds", "Age of the oldest open transaction.",
            [((), _oldest(parts, halves, now))], scope=scope,
        )  # fmt: skip


def _oldest(parts: Parts, halves: OpenHalves, now: float) -> float:
    """Seconds since the first open half message was made; 0 without any. Blocks."""
    store, first = parts.store, halves.first
    if first >= store.max_offset(HALF_TOPIC, 0):
        return 0.0
    result = store.read(HALF_TOPIC, 0, first, ReadLimits(1, 1, 1))
    record = read_record(bytes(result.records[0])) if result.records else None
    if not isinstance(record, Record):
        return 0.0
    return max(now - record.born_timestamp / 1000, 0.0)
