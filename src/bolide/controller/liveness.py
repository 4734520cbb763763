"""Which brokers are alive, who holds a lease, and when a master may be replaced.

Times are of `boot_clock`, which goes on while the machine is suspended. With an expiry of E:

- a broker of ours that is silent for E is dead; a broker of RocketMQ tells its own time-out,
- a lease lasts L = 0.9 E from the moment at which the broker sent the heartbeat,
- a heartbeat is due each 0.15 E.

The broker measures its lease by its own clock. `LEASE_MARGIN` covers clocks of different rates.
"""

import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from bolide.controller.commands import Candidate, Group
from bolide.protocol.headers.namesrv import BrokerHeartbeatHeader

_JAVA_TIMEOUT = 10.0
_LOWEST_PRIORITY = 2**31 - 1


def boot_clock() -> float:
    """Seconds since the machine started, including those in which it was suspended."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Times that follow from the expiry, in seconds."""

    expiry: float

    @property
    def lease(self) -> float:
        return 0.9 * self.expiry

    @property
    def heartbeat(self) -> float:
        return 0.15 * self.expiry

    @property
    def lease_over(self) -> float:
        """After this time on our clock a lease has ended on any clock."""
        return self.lease * 1.02 + 0.05


@dataclass(slots=True)
class LiveBroker:
    """What the last heartbeat of a broker said."""

    id: int
    address: str
    seen_at: float
    timeout: float
    is_leased: bool
    """Whether it waits for answers, as our brokers do; RocketMQ's have no lease."""
    connection: Hashable
    epoch: int = -1
    max_offset: int = -1
    priority: int = _LOWEST_PRIORITY

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.id, self.epoch, self.max_offset, self.priority)


class LiveTable:
    """The brokers that one controller hears from, by group and id."""

    def __init__(self, times: LeaseTimes, clock: Callable[[], float]) -> None:
        self._times = times
        self._clock = clock
        self._groups: dict[str, dict[int, LiveBroker]] = {}
        self._starts: dict[tuple[str, int], float] = {}

    def heartbeat(
        self, header: BrokerHeartbeatHeader, connection: Hashable, *, is_leased: bool
    ) -> None:
        """Note a heartbeat, whose broker id is given."""
        asked = (header.heartbeat_timeout_mills or 0) / 1000
        id_ = header.broker_id
        assert id_ is not None
        self._groups.setdefault(header.broker_name, {})[id_] = LiveBroker(
            id=id_,
            address=header.broker_addr,
            seen_at=self._clock(),
            timeout=self._times.expiry if is_leased else asked or _JAVA_TIMEOUT,
            is_leased=is_leased,
            connection=connection,
            epoch=_given(header.epoch, -1),
            max_offset=_given(header.max_offset, -1),
            priority=_given(header.election_priority, _LOWEST_PRIORITY),
        )

    def restarted(self, group: str, broker: int) -> None:
        """Forget what an earlier process of a broker said: a new one registers."""
        self._groups.get(group, {}).pop(broker, None)
        self._starts[group, broker] = self._clock()

    def is_starting(self, group: str, broker: int) -> bool:
        """Whether a broker has registered so lately that its first heartbeat may be to come."""
        is_silent = self.find(group, broker) is None
        started = self._starts.get((group, broker), float("-inf"))
        return is_silent and self._clock() - started < self._times.expiry

    def find(self, group: str, broker: int | None) -> LiveBroker | None:
        """A broker that is alive."""
        found = None if broker is None else self._groups.get(group, {}).get(broker)
        return found if found is not None and self._is_fresh(found) else None

    @property
    def groups(self) -> list[str]:
        """Groups of which brokers were heard lately."""
        return list(self._groups)

    def alive(self, group: str) -> list[LiveBroker]:
        return [each for each in self._groups.get(group, {}).values() if self._is_fresh(each)]

    def drop_connection(self, connection: Hashable) -> None:
        """A connection is lost.

        A broker of RocketMQ counts as dead at once, as there. Ours may still hold a lease.
        """
        for members in self._groups.values():
            for id_, each in list(members.items()):
                if each.connection is connection and not each.is_leased:
                    del members[id_]

    def drop_expired(self) -> None:
        """Forget brokers that have been silent for long."""
        for name, members in list(self._groups.items()):
            for id_, each in list(members.items()):
                if not self._is_fresh(each):
                    del members[id_]
            if not members:
                del self._groups[name]
        over = self._clock() - self._times.expiry
        self._starts = {each: at for each, at in self._starts.items() if at > over}

    def _is_fresh(self, broker: LiveBroker) -> bool:
        return self._clock() - broker.seen_at < broker.timeout


class Leases:
    """The leases that this leader granted, by group; a lease of an earlier leader is bounded by
    the time at which this one began."""

    def __init__(self, times: LeaseTimes, clock: Callable[[], float]) -> None:
        self._times = times
        self._clock = clock
        self._granted: dict[str, float] = {}
        self._revoked = Counter[str]()
        self._began = float("-inf")

    def begin(self) -> None:
        """This controller has just become the leader."""
        self._granted.clear()
        self._began = self._clock()

    @property
    def is_settled(self) -> bool:
        """Whether every living broker has had time for a heartbeat since this leader began."""
        return self._clock() - self._began >= self._times.expiry

    def try_grant(self, group: Group, broker: int) -> bool:
        """Grant a lease if the broker is master; it ends no later than counted from now."""
        if group.master != broker or group.name in self._revoked:
            return False
        self._granted[group.name] = self._clock()
        return True

    def revoke(self, group: str) -> None:
        """Grant no more leases in a group until each `revoke` has had its `restore`."""
        self._revoked[group] += 1

    def restore(self, group: str) -> None:
        self._revoked -= Counter([group])

    def wait(self, group: Group, *, is_leased: bool = True) -> float:
        """Seconds until nobody holds a lease in a group any more; 0 if nobody does.

        Args:
            is_leased: False if the master is known to be a broker that has no leases.
        """
        if group.master is None or not is_leased:
            return 0.0
        last = max(self._granted.get(group.name, self._began), self._began)
        return max(0.0, last + self._times.lease_over - self._clock())


def _given(value: int | None, default: int) -> int:
    return default if value is None else value
