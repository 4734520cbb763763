"""The windows of all topics that ask for one by their attribute `dedup.window`.

They are in memory, one a queue, and are read back from the store on a thread when a broker starts
and when a topic begins to ask or asks for another one.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from bolide.broker.background import Background
from bolide.broker.dedup.recovery import DROPPED_AT_ONCE, Stopped, Waiting, WindowReader
from bolide.broker.dedup.window import Span, Window
from bolide.broker.metadata.topic_attributes import DEDUP_WINDOW, has_window
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.protocol.refusals import ServiceNotAvailable
from bolide.remoting.tasks import uninterrupted
from bolide.store.contract import Store

log = logging.getLogger(__name__)

_AFTER_FAILURE = 1.0
_BETWEEN_WARNINGS = 60.0


class Wanted(NamedTuple):
    """What a topic asks for; another one means to read its windows again."""

    span: Span
    queues: int


class DedupWindows:
    """Belongs to one event loop.

    Args:
        waiting: tells which messages wait in the delay queues.
    """

    def __init__(
        self,
        *,
        cell: ConfigCell[BrokerConfig],
        store: Store,
        topics: TopicTable,
        background: Background,
        waiting: Callable[[], Waiting],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._cell = cell
        self._store = store
        self._topics = topics
        self._background = background
        self._waiting = waiting
        self._now = now
        self._wanted: dict[str, Wanted] = {}
        self._windows: dict[str, dict[int, Window]] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()  # one topic at a time: each may fill all the room there is
        self._kept = 0
        self._warned = float("-inf")
        self._stopped = False

    def start(self) -> None:
        """Begin to read the windows; call it on the event loop."""
        self._topics.on_change.add(lambda _: self._follow())
        self._follow()

    def stop(self) -> None:
        self._stopped = True

    # ---- asking

    def __len__(self) -> int:
        """How many keys are kept."""
        return self._kept

    def covers(self, topic: str) -> bool:
        return topic in self._wanted

    def is_reading(self, topic: str) -> bool:
        """Whether keyed messages of a topic must wait for `ready`."""
        return topic in self._reading

    async def ready(self, topic: str) -> None:
        """Wait until the windows of a topic are known, if it has any.

        Raises:
            ServiceNotAvailable: the broker ends first.
        """
        while reading := self._reading.get(topic):
            await asyncio.wait([reading])
            if self._stopped:
                raise ServiceNotAvailable("service not available now: the broker ends")

    def require(self, topic: str, queue_id: int) -> Window:
        """The window of a queue, of a topic that is `ready` and has some."""
        windows = self._windows[topic]
        return windows.setdefault(queue_id, Window(self._wanted[topic].span))

    # ---- bounds

    def grew(self, count: int) -> None:
        """Say that a window has so many keys more, or fewer."""
        self._kept += count
        if self._kept > self._cell.value.dedup_max_keys:
            self._make_room()

    def take_back(self, position: int, generation: int) -> None:
        """The store could not write what lay behind a position: those keys were never taken."""
        for _, _, window in self._all():
            window.take_back(position, generation)
        self._count()

    def _make_room(self) -> None:
        """Forget what is out of date; if that is not enough, the oldest of the largest window."""
        most, now = self._cell.value.dedup_max_keys, self._now()
        for topic, queue_id, window in self._all():
            oldest = window.span.oldest(now, self._store.max_offset(topic, queue_id))
            window.slide(oldest, self._kept - most)
        self._count()
        while self._kept > most:
            topic, queue_id, largest = max(self._all(), key=lambda each: len(each[2]))
            self._warn(topic, queue_id, len(largest))
            largest.drop(max(self._kept - most, most // DROPPED_AT_ONCE))
            self._count()

    def _warn(self, topic: str, queue_id: int, count: int) -> None:
        now = self._now()
        if now - self._warned >= _BETWEEN_WARNINGS:
            self._warned = now
            log.warning(
                "over dedupMaxKeys=%s keys are inside their windows: the oldest of %s in queue %s"
                " of topic %s are forgotten, and their repeats will be stored; raise it, or make"
                " dedup.window smaller",
                self._cell.value.dedup_max_keys, count, queue_id, topic,
            )  # fmt: skip

    def _count(self) -> None:
        self._kept = sum(len(window) for _, _, window in self._all())

    def _all(self) -> Iterator[tuple[str, int, Window]]:
        for topic, windows in self._windows.items():
            for queue_id, window in windows.items():
                yield topic, queue_id, window

    # ---- reading

    def _follow(self) -> None:
        """See which topics ask for windows now, and read those that are new or other ones."""
        before, self._wanted = self._wanted, _wanted(self._topics)
        changed = {topic for topic in before if self._wanted.get(topic) != before[topic]}
        for topic in changed:  # a reading under way sees by itself that it is not wanted any more
            self._reading.pop(topic, None)
            self._windows.pop(topic, None)
        self._count()
        new = self._wanted.keys() - (before.keys() - changed)
        for topic in sorted(new, key=self._size):  # that few wait for the largest ones
            work = self._read(topic, self._wanted[topic])
            self._reading[topic] = self._background.start(work, f"broker-dedup-{topic}")

    def _size(self, topic: str) -> int:
        """About how many messages are to be read."""
        span, queues = self._wanted[topic]
        sizes = [self._store.max_offset(topic, each) for each in range(queues)]
        return sum(min(size, span.messages or size) for size in sizes)

    async def _read(self, topic: str, wanted: Wanted) -> None:
        me = asyncio.current_task()
        while self._reading.get(topic) is me and not self._stopped:
            try:
                windows = await uninterrupted(self._read_once(topic, wanted))
            except Stopped:
                return
            except Exception:
                log.exception("the window of topic %s cannot be read, it is tried again", topic)
                await asyncio.sleep(_AFTER_FAILURE)
                continue
            if self._reading.get(topic) is me:
                del self._reading[topic]
                self._install(topic, windows)

    async def _read_once(self, topic: str, wanted: Wanted) -> Mapping[int, Window]:
        def is_stopped() -> bool:
            return self._stopped or self._wanted.get(topic) != wanted

        async with self._turn:
            reader = WindowReader(
                self._store,
                now=self._now(),
                most=self._cell.value.dedup_max_keys,
                is_stopped=is_stopped,
            )
            return await asyncio.to_thread(
                reader.read, topic, wanted.queues, wanted.span, self._waiting()
            )

    def _install(self, topic: str, windows: Mapping[int, Window]) -> None:
        self._windows[topic] = dict(windows)
        count = sum(len(window) for window in windows.values())
        log.info("topic %s knows %s keys of its window", topic, count)
        self.grew(count)


def _wanted(topics: TopicTable) -> dict[str, Wanted]:
    wanted = {}
    for topic in topics:
        if has_window(topic):
            queues = max(topic.read_queue_nums, topic.write_queue_nums)
            try:
                span = Span.parse(topic.attributes[DEDUP_WINDOW])
            except ValueError as exc:  # from a file that somebody else has written
                name = topic.topic_name
                log.warning("topic %s has no window, set its %s again: %s", name, DEDUP_WINDOW, exc)
                continue
            wanted[topic.topic_name] = Wanted(span, queues)
    return wanted
