"""`History`: the latest figures, and series of them over time."""

import asyncio
import logging
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from bolide.admin import AdminClient
from bolide.logs import ThrottledLog
from bolide.model.names import is_reserved
from bolide.operations.history.brokers import BrokerSampler
from bolide.operations.history.figures import (
    BrokerFigures,
    GroupFigures,
    Measure,
    Point,
    Range,
    Series,
    TopicFigures,
    Total,
    sum_of_known,
)
from bolide.operations.history.rotation import RATE, ROUND, Rotation
from bolide.operations.history.store import Family, HistoryStore, Key, Tier
from bolide.operations.views import Failure

T = TypeVar("T")

log = logging.getLogger(__name__)

CLUSTER = Family("cluster", (Tier(5, 7200), Tier(60, 90_000), Tier(600, 605_400)))
"""Series of brokers and of the whole."""
OBJECTS = Family("objects", (Tier(30, 7200), Tier(120, 90_000), Tier(600, 605_400)))
"""Series of topics and groups."""
_OF_OBJECTS = frozenset({
    Measure.TOPIC_RATE_IN, Measure.GROUP_RATE_OUT, Measure.GROUP_LAG, Measure.GROUP_DELAY,
    Measure.GROUP_DEAD_LETTERS,
})  # fmt: skip
MAX_POINTS = 400
"""Of one series."""
_TICK = 2.0
"""Seconds between two requests to a broker for its figures."""
_MEMBERS_EVERY = 6.0
_PRUNE_EVERY = 1800.0
_LATEST_EVERY = 60.0
"""Seconds between two writes of the latest figures, with which the next start begins."""
_STALE = 3600.0
"""Seconds after which the latest figures of an earlier run no longer stand for all there is."""
_CACHED = 24
"""Answers of `series` that are kept until the next step, for all who ask the same."""
_FRESH = 120.0
"""Seconds that a figure of a topic or group counts at least as the value of now."""
_LATEST = "latest"
_AFTER_FAILURE = 5.0


class _Latest(msgspec.Struct):
    """The latest figures, as they are kept over a restart."""

    topics: dict[str, TopicFigures]
    groups: dict[str, GroupFigures]
    brokers: list[BrokerFigures]
    system_topics: list[str]


class History:
    """Figures of one cluster, sampled in the background inside its `async with` block.

    It samples with the rights of its own identity. Show to others only names that they may see:
    `operations.visibility`.
    """

    def __init__(
        self,
        admin: AdminClient,
        path: Path,
        *,
        access_key: str | None = None,
        rate: float = RATE,
        round_time: float = ROUND,
    ) -> None:
        """Configure it.

        Args:
            admin: with which it asks; open as long as the history is.
            path: the SQLite file.
            access_key: whose rights `admin` has.
            rate: requests per second at most for all topics and groups.
            round_time: seconds between two samples of a topic or group in a small cluster.
        """
        self.access_key = access_key
        self._path = path
        self._rotation = Rotation(admin, rate=rate, round_time=round_time)
        self._brokers = BrokerSampler(admin, self._rotation.consumers_at)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._store: HistoryStore | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_restored = False
        self._cache: OrderedDict[object, tuple[float, list[Series]]] = OrderedDict()
        self._sums: dict[Key, tuple[float, int]] = {}
        self._failures = ThrottledLog(log)

    async def __aenter__(self) -> Self:
        await self._on_thread(self._open)
        jobs = (self._rotation.run, self._sample_cluster, self._sample_objects, self._maintain)
        self._tasks = [asyncio.create_task(_for_ever(job)) for job in jobs]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._brokers.close()
        await self._keep_latest()
        if self._store is not None:
            await self._on_thread(self._store.close)
        self._thread.shutdown()

    # ---- what there is to see

    def topic_figures(self) -> Mapping[str, TopicFigures]:
        """The latest figures by topic; topics that were not asked about yet are missing."""
        return self._rotation.topics

    def topic_count(self) -> int:
        """Topics of users, also those that were not asked about yet."""
        return sum(map(self.is_of_users, self._rotation.topic_names))

    def group_count(self) -> int:
        """Groups of users, also those that were not asked about yet."""
        return len(self._rotation.group_names)

    def is_of_users(self, topic: str) -> bool:
        """Whether a topic is neither the servers' own nor one of retries or dead letters."""
        return not is_reserved(topic) and topic not in self._rotation.system_topics

    def group_figures(self) -> Mapping[str, GroupFigures]:
        """The latest figures by group; groups that were not asked about yet are missing."""
        return self._rotation.groups

    def broker_figures(self) -> Sequence[BrokerFigures]:
        """What the brokers told in the last seconds, and which of them did not answer."""
        return self._brokers.in_order()

    def forget_broker(self, address: str) -> None:
        """Know a broker no more that is not registered and does not come back."""
        self._brokers.forget(address)

    @property
    def is_sampled(self) -> bool:
        """Whether all topics and groups were asked about, now or before a restart."""
        return self._is_restored or self._rotation.rounds > 0

    def clients(self) -> int | None:
        """Distinct connected clients of all masters; None if none of them tells its clients."""
        told = {
            address: producers
            for address, producers in self._brokers.producers.items()
            if producers is not None
        }
        if not told:
            return None
        return len(
            {
                each
                for address, producers in told.items()
                for each in producers | self._rotation.consumers_at(address)
            }
        )

    def failures(self) -> list[Failure]:
        """Servers that do not tell what they should."""
        failures = self._brokers.failures(self._rotation.failures)
        if self._rotation.failure and not self._brokers.failure:
            failures.insert(0, Failure(server="NameServer", reason=self._rotation.failure))
        return failures

    def backlog(self) -> Total:
        """The lag of all groups."""
        return Total.of(
            each.lag if self._is_fresh(each) else None for each in self._rotation.groups.values()
        )

    def dead_letters(self) -> Total:
        """The dead letters of all groups."""
        return Total.of(
            each.dead_letters if self._is_fresh(each) else None
            for each in self._rotation.groups.values()
        )

    async def series(
        self, measure: Measure, names: Sequence[str] = ("",), *, over: Range = Range.HOUR
    ) -> list[Series]:
        """One series per name, in the order of the names; without samples all points are None."""
        family = OBJECTS if measure in _OF_OBJECTS else CLUSTER
        tier = family.tier_for(over.seconds)
        step = tier.step * -(-over.seconds // (tier.step * MAX_POINTS))
        end = int(time.time()) // tier.step * tier.step
        begin = (end - over.seconds) // step * step
        question = (measure, *names, over, end)
        if (cached := self._cache.get(question)) is not None and cached[0] > time.monotonic():
            return cached[1]
        keys = [Key(measure, name) for name in names]

        def read(store: HistoryStore) -> list[list[float | None]]:
            return store.read(family, keys, begin=begin, end=end, step=step, tier=tier)

        values = await self._with_store(read)
        found = [
            Series(
                measure=measure,
                name=name,
                step=step,
                points=[
                    Point(time_ms=(begin + at * step) * 1000, value=value)
                    for at, value in enumerate(of_name)
                ],
            )
            for name, of_name in zip(names, values or [[] for _ in names], strict=True)
        ]
        self._cache[question] = (time.monotonic() + tier.step / 2, found)
        while len(self._cache) > _CACHED:
            self._cache.popitem(last=False)
        return found

    # ---- sampling

    async def _sample_cluster(self) -> None:
        """Ask the brokers, and write the means of each step."""
        members_read, step = 0.0, CLUSTER.finest.step
        while True:
            if time.monotonic() - members_read >= _MEMBERS_EVERY:
                members_read = time.monotonic()
                await self._brokers.refresh_members()
            self._brokers.ask_all()
            begun = int(time.time()) // step * step
            await asyncio.sleep(_TICK)
            for key, value in self._cluster_values():
                total, count = self._sums.get(key, (0.0, 0))
                self._sums[key] = (total + value, count + 1)
            if time.time() >= begun + step:
                means = {key: total / count for key, (total, count) in self._sums.items()}
                self._sums = {}
                await self._write(CLUSTER, begun, means)

    async def _sample_objects(self) -> None:
        step = OBJECTS.finest.step
        while True:
            await asyncio.sleep(step - time.time() % step)
            now = int(time.time()) // step * step
            await self._write(OBJECTS, now - step, dict(self._object_values()))

    def _cluster_values(self) -> Iterator[tuple[Key, float]]:
        oldest = time.time() - 3 * _TICK
        brokers = [each for each in self.broker_figures() if each.sampled >= oldest]
        masters = [each for each in brokers if each.broker_id == 0]
        for each in brokers:
            for measure, value in (
                (Measure.RATE_IN, each.rate_in),
                (Measure.RATE_OUT, each.rate_out),
                (Measure.DISK, each.disk),
                (Measure.CLIENTS, each.clients),
            ):
                if value is not None:
                    yield Key(measure, each.key), value
        totals = (
            (Measure.RATE_IN, sum_of_known(each.rate_in for each in masters)),
            (Measure.RATE_OUT, sum_of_known(each.rate_out for each in brokers)),
            (Measure.CLIENTS, self.clients()),
            (Measure.BACKLOG, self._whole(self.backlog())),
            (Measure.DEAD_LETTERS, self._whole(self.dead_letters())),
        )
        for measure, value in totals:
            if value is not None:
                yield Key(measure, ""), value

    def _whole(self, sum_of_groups: Total) -> int | None:
        """A sum without some of the groups would look like a drop."""
        is_whole = self.is_sampled and not sum_of_groups.unknown
        return int(sum_of_groups.known or 0) if is_whole else None

    def _object_values(self) -> Iterator[tuple[Key, float]]:
        for topic, told in self._rotation.topics.items():
            if self._is_fresh(told) and told.rate_in is not None:
                yield Key(Measure.TOPIC_RATE_IN, topic), told.rate_in
        for group, each in self._rotation.groups.items():
            if not self._is_fresh(each):
                continue
            for measure, value in (
                (Measure.GROUP_LAG, each.lag),
                (Measure.GROUP_RATE_OUT, each.rate_out),
                (Measure.GROUP_DELAY, each.delay),
                (Measure.GROUP_DEAD_LETTERS, each.dead_letters),
            ):
                if value is not None:
                    yield Key(measure, group), value

    def _is_fresh(self, figures: TopicFigures | GroupFigures) -> bool:
        """Whether a figure still tells of now: it is not older than two rounds."""
        return time.time() - figures.sampled <= max(_FRESH, 2 * self._rotation.round_time)

    # ---- the file

    def _open(self) -> None:
        """Open the file, and begin with what was known last."""
        try:
            self._store = HistoryStore(self._path, (CLUSTER, OBJECTS))
            found = self._store.find_document(_LATEST)
        except (OSError, sqlite3.Error) as exc:
            log.warning("no history is kept: %s cannot be used: %s", self._path, exc)
            return
        if found is None:
            return
        try:
            latest = msgspec.msgpack.decode(found[1], type=_Latest)
        except msgspec.MsgspecError:  # of another version
            return
        self._is_restored = time.time() - found[0] < _STALE
        self._rotation.remember(latest.topics, latest.groups, latest.system_topics)
        self._brokers.remember(latest.brokers)

    async def _maintain(self) -> None:
        """Delete what is past its time, and keep the latest figures."""
        pruned = -_PRUNE_EVERY
        while True:
            await asyncio.sleep(_LATEST_EVERY)
            await self._keep_latest()
            if time.monotonic() - pruned >= _PRUNE_EVERY:
                pruned = time.monotonic()
                await self._with_store(lambda store: store.prune(time.time()))

    async def _keep_latest(self) -> None:
        topics, groups = dict(self._rotation.topics), dict(self._rotation.groups)
        brokers = [*self._brokers.figures.values()]
        system = [*self._rotation.system_topics]

        def keep(store: HistoryStore) -> None:
            document = msgspec.msgpack.encode(_Latest(topics, groups, brokers, system))
            store.keep_document(_LATEST, document, int(time.time()))

        await self._with_store(keep)

    async def _write(self, family: Family, begun: int, values: Mapping[Key, float]) -> None:
        if values:
            await self._with_store(lambda store: store.write(family, begun, values))

    async def _with_store(self, work: Callable[[HistoryStore], T]) -> T | None:
        """Work on the file; None if there is none, or if that fails, as on a full disk."""
        store = self._store
        if store is None:
            return None
        try:
            return await self._on_thread(lambda: work(store))
        except (OSError, sqlite3.Error) as exc:
            self._failures.warning("store", "the history %s is not kept: %s", self._path, exc)
            return None

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


async def _for_ever(job: Callable[[], Awaitable[None]]) -> None:
    """Run an endless job again if it fails: what one server answered must not end the sampling."""
    while True:
        try:
            await job()
        except Exception:
            log.exception("sampling failed, and goes on")
            await asyncio.sleep(_AFTER_FAILURE)
