"""How many messages come into a topic and go to its groups, from the statistics of its brokers."""

from dataclasses import dataclass

from bolide.admin.brokers import Brokers
from bolide.admin.consumer_lag import lag_of, real_failures
from bolide.admin.offsets import Offsets
from bolide.admin.servers import MASTER, Servers
from bolide.admin.topics import Topics
from bolide.errors import BolideError
from bolide.protocol.bodies.stats import BrokerStats
from bolide.protocol.refusals import ServerError, TopicNotFound

IN, OUT = "TOPIC_PUT_NUMS", "GROUP_GET_NUMS"
"""Names of RocketMQ's statistics, of a topic and of `topic@group`."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A rate over the last minute, and the messages of the last day.

    Attributes:
        told: how many brokers told theirs; if none did, nothing is known.
        is_whole: whether all brokers did; otherwise the figures are without those of the others.
    """

    tps: float = 0.0
    day: int = 0
    told: int = 0
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class GroupTraffic:
    """What goes to one group.

    Attributes:
        lag: None if a broker did not tell it, or the group has none.
        least_lag: the sum of what the others told, if a broker did not.
    """

    group: str
    out: Flow
    lag: int | None
    least_lag: int | None = None


@dataclass(frozen=True, slots=True)
class TopicTraffic:
    """What came into a topic, and what went to each group that has consumed it.

    `groups` is None if they are not known. `failures` are brokers that did not answer: the figures
    are without theirs.
    """

    topic: str
    incoming: Flow
    groups: tuple[GroupTraffic, ...] | None
    failures: tuple[BolideError, ...] = ()


class Traffic:
    """The traffic of topics. A broker counts from its start on."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._brokers = Brokers(servers)
        self._topics = Topics(servers)
        self._offsets = Offsets(servers)

    async def of(self, topic: str) -> TopicTraffic:
        """Raises TopicNotFound if no broker serves the topic."""
        route = await self._servers.route(topic)
        masters = [each.broker_addrs.get(MASTER) for each in route.broker_datas]
        failures: list[BolideError] = []
        incoming = await self._sum(masters, IN, topic, failures)
        groups = None
        try:
            names, unlisted = await self._topics.groups_and_failures(topic)
        except BolideError as exc:
            failures.append(exc)
        else:
            failures += unlisted
            if names or not unlisted:
                groups = [await self._of_group(masters, topic, name, failures) for name in names]
        return TopicTraffic(
            topic, incoming, None if groups is None else tuple(groups), tuple(failures)
        )

    async def _of_group(
        self, masters: list[str | None], topic: str, group: str, failures: list[BolideError]
    ) -> GroupTraffic:
        out = await self._sum(masters, OUT, f"{topic}@{group}", failures)
        try:
            stats, lag_failures = await self._offsets.progress_and_failures(group, topic)
        except TopicNotFound:  # deleted meanwhile
            return GroupTraffic(group, out, None)
        except BolideError as exc:
            failures.append(exc)
            return GroupTraffic(group, out, None)
        lag = None if stats is None else max(lag_of(stats), 0)
        if lag_failures := real_failures(lag_failures):
            failures += lag_failures
            return GroupTraffic(group, out, None, least_lag=lag)
        return GroupTraffic(group, out, lag)

    async def _sum(
        self, masters: list[str | None], name: str, key: str, failures: list[BolideError]
    ) -> Flow:
        tps, day, told = 0.0, 0, 0
        for address in masters:
            if address is None:  # only slaves are left, which count nothing
                continue
            try:
                stats = await self._brokers.stats(address, name, key)
            except BolideError as exc:
                if isinstance(exc, ServerError) and "not exist" in exc.remark:
                    told += 1  # nothing was counted under this key
                else:
                    failures.append(exc)
                continue
            told += 1
            tps += stats.stats_minute.tps if stats.stats_minute else 0.0
            day += messages_of_day(stats)
        return Flow(tps, day, told, is_whole=told == len(masters))


def messages_of_day(stats: BrokerStats) -> int:
    """The sum of the last day; of the hour or minute if the broker is younger, as RocketMQ does."""
    windows = (stats.stats_day, stats.stats_hour, stats.stats_minute)
    return next((each.sum for each in windows if each is not None and each.sum), 0)
