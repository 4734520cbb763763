"""Who belongs into the sync-state set, as far as its master can tell.

A slave that has caught up joins. One that is gone for a second, or does not come nearer for
`haMaxTimeSlaveNotCatchup`, leaves.
"""

from collections.abc import Callable

from bolide.broker.replicas.controllers import GroupState
from bolide.broker.replicas.master import MasterReplication
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.replication.epochs import Epochs
from bolide.store.message_store import MessageStore

_GONE_AFTER = 1.0
"""Seconds without a connection after which a slave leaves the sync-state set."""


class SyncStateSetRule:
    """Decides from what slaves report, and for how long they have been behind."""

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        store: MessageStore,
        epochs: Epochs,
        clock: Callable[[], float],
    ) -> None:
        self._cell = cell
        self._store = store
        self._epochs = epochs
        self._clock = clock
        self._gone_since: dict[int, float] = {}
        self._behind: dict[int, tuple[float, int]] = {}

    def forget(self) -> None:
        """This broker is no master: what it saw of slaves is void."""
        self._gone_since.clear()
        self._behind.clear()

    def wanted(self, master: MasterReplication, state: GroupState, own_id: int) -> frozenset[int]:
        """The members that the set should have now."""
        now, acks = self._clock(), master.primary.acks()
        last, confirmed = self._epochs.last, self._store.log.readable
        start = last.start if last else 0
        self._gone_since = {m: at for m, at in self._gone_since.items() if m in state.members}
        wanted = {own_id}
        for member in state.members - {own_id}:
            if not self._has_left(member, acks.get(member), now):
                wanted.add(member)
        for member, acked in acks.items():
            is_near = acked >= confirmed and acked >= start
            if member not in state.members and is_near and master.primary.is_joinable(member):
                wanted.add(member)
        return frozenset(wanted)

    def _has_left(self, member: int, acked: int | None, now: float) -> bool:
        """Whether a member of the set is gone, or has been behind for too long."""
        if acked is None:
            return now - self._gone_since.setdefault(member, now) >= _GONE_AFTER
        self._gone_since.pop(member, None)
        if acked >= self._store.log.written:
            self._behind.pop(member, None)
            return False
        since, position = self._behind.setdefault(member, (now, self._store.log.written))
        if acked >= position:  # it has what was there when it was last found behind
            self._behind[member] = now, self._store.log.written
            return False
        return now - since >= self._cell.value.ha_max_time_slave_not_catchup
