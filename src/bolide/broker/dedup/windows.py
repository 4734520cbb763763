"""The de-duplication windows of all topics with attribute `dedup.window`.

Windows are in memory, one per queue. A worker thread rebuilds them from the log when the broker
starts and when the attribute of a topic changes.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from bolide.broker.background import DEDUP, Background, on_thread
from bolide.broker.dedup.recovery import (
    EVICTION_DIVISOR,
    DelayedRanges,
    RecoveryStopped,
    WindowReader,
)
from bolide.broker.dedup.window import Window, WindowLength
from bolide.broker.metadata.topic_attributes import DEDUP_WINDOW, has_window
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.refusals import ServiceNotAvailable
from bolide.remoting.tasks import uninterrupted
from bolide.store.contract import Store

log = logging.getLogger(__name__)

_RETRY_DELAY = 1.0
_WARNING_INTERVAL = 60.0


class WindowSpec(NamedTuple):
    """The window that a topic asks for; a change rebuilds its windows."""

    length: WindowLength
    queues: int


class DedupWindows:
    """The windows of all topics; belongs to one event loop.

    Args:
        waiting: returns the undelivered ranges of the delay queues.
    """

    def __init__(
        self,
        *,
        cell: ConfigCell[BrokerConfig],
        store: Store,
        topics: TopicTable,
        background: Background,
        waiting: Callable[[], DelayedRanges],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._cell = cell
        self._store = store
        self._topics = topics
        self._background = background
        self._waiting = waiting
        self._now = now
        self._specs: dict[str, WindowSpec] = {}
        self._windows: dict[str, dict[int, Window]] = {}
        self._recovering: dict[str, asyncio.Task[None]] = {}
        self._recovery_lock = asyncio.Lock()  # one topic at a time may fill the key budget
        self._key_count = 0
        self._warned_at = float("-inf")
        self._started = False
        self._stopped = False

    def start(self) -> None:
        """Start the recovery of windows; call on the event loop."""
        self._started = True
        self.topics_changed([topic.topic_name for topic in self._topics])

    def stop(self) -> None:
        self._stopped = True

    # ---- queries

    def __len__(self) -> int:
        """Number of keys in all windows."""
        return self._key_count

    def covers(self, topic: str) -> bool:
        return topic in self._specs

    def is_reading(self, topic: str) -> bool:
        """Whether keyed messages of a topic must wait for `ready`."""
        return topic in self._recovering

    async def ready(self, topic: str) -> None:
        """Wait until the windows of a topic are recovered, if it has any.

        Raises:
            ServiceNotAvailable: the broker shuts down.
        """
        while recovery := self._recovering.get(topic):
            await asyncio.wait([recovery])
            if self._stopped:
                raise ServiceNotAvailable("service not available now: the broker is shutting down")

    def require(self, topic: str, queue_id: int) -> Window:
        """Return the window of a queue; the topic must have windows and be `ready`."""
        windows = self._windows[topic]
        return windows.setdefault(queue_id, Window(self._specs[topic].length))

    # ---- bounds

    def record_growth(self, count: int) -> None:
        """Account for `count` more keys in a window, or fewer if negative."""
        self._key_count += count
        if self._key_count > self._cell.value.dedup_max_keys:
            self._evict()

    def discard_lost(self, position: int, generation: int) -> None:
        """Discard keys of records that a failed flush lost."""
        for _, _, window in self._all():
            window.discard_lost(position, generation)
        self._recount()

    def _evict(self) -> None:
        """Evict expired keys; if that is not enough, the oldest keys of the largest window."""
        max_keys, now = self._cell.value.dedup_max_keys, self._now()
        for topic, queue_id, window in self._all():
            oldest = window.length.oldest(now, self._store.max_offset(topic, queue_id))
            window.evict_expired(oldest, self._key_count - max_keys)
        self._recount()
        while self._key_count > max_keys:
            topic, queue_id, largest = max(self._all(), key=lambda each: len(each[2]))
            self._warn(topic, queue_id, len(largest))
            largest.evict_oldest(max(self._key_count - max_keys, max_keys // EVICTION_DIVISOR))
            self._recount()

    def _warn(self, topic: str, queue_id: int, count: int) -> None:
        now = self._now()
        if now - self._warned_at >= _WARNING_INTERVAL:
            self._warned_at = now
            log.warning(
                "more than dedupMaxKeys=%s keys are inside their windows: evicting the oldest of %s"
                " in queue %s of topic %s, whose duplicates will be stored; raise it, or make"
                " dedup.window smaller",
                self._cell.value.dedup_max_keys, count, queue_id, topic,
            )  # fmt: skip

    def _recount(self) -> None:
        self._key_count = sum(len(window) for _, _, window in self._all())

    def _all(self) -> Iterator[tuple[str, int, Window]]:
        for topic, windows in self._windows.items():
            for queue_id, window in windows.items():
                yield topic, queue_id, window

    # ---- recovery

    def topics_changed(self, topics: Iterable[str]) -> None:
        """Start recovery for those of the topics whose windows are new or have changed."""
        if not self._started:
            return
        new = []
        for topic in topics:
            found = self._topics.find(topic)
            spec = None if found is None else _window_spec(found)
            before = self._specs.get(topic)
            if before == spec:
                continue
            if before is not None:  # a running recovery stops by itself
                del self._specs[topic]
                self._recovering.pop(topic, None)
                self._windows.pop(topic, None)
                self._recount()
            if spec is not None:
                self._specs[topic] = spec
                new.append(topic)
        for topic in sorted(new, key=self._size):  # few topics wait for the largest
            work = self._recover(topic, self._specs[topic])
            self._recovering[topic] = self._background.start(work, f"broker-dedup-{topic}")

    def _size(self, topic: str) -> int:
        """Approximate number of messages to read."""
        length, queues = self._specs[topic]
        sizes = [self._store.max_offset(topic, each) for each in range(queues)]
        return sum(min(size, length.messages or size) for size in sizes)

    async def _recover(self, topic: str, spec: WindowSpec) -> None:
        me = asyncio.current_task()
        while self._recovering.get(topic) is me and not self._stopped:
            try:
                windows = await uninterrupted(self._recover_once(topic, spec))
            except RecoveryStopped:
                return
            except Exception:
                log.exception("the window of topic %s cannot be recovered; retrying", topic)
                await asyncio.sleep(_RETRY_DELAY)
                continue
            if self._recovering.get(topic) is me:
                del self._recovering[topic]
                self._install(topic, windows)

    async def _recover_once(self, topic: str, spec: WindowSpec) -> Mapping[int, Window]:
        def is_stopped() -> bool:
            return self._stopped or self._specs.get(topic) != spec

        async with self._recovery_lock:
            reader = WindowReader(
                self._store,
                now=self._now(),
                max_keys=self._cell.value.dedup_max_keys,
                is_stopped=is_stopped,
            )
            return await on_thread(
                DEDUP, reader.read, topic, spec.queues, spec.length, self._waiting()
            )

    def _install(self, topic: str, windows: Mapping[int, Window]) -> None:
        self._windows[topic] = dict(windows)
        count = sum(len(window) for window in windows.values())
        log.info("recovered %s keys of the window of topic %s", count, topic)
        self.record_growth(count)


def _window_spec(topic: TopicConfig) -> WindowSpec | None:
    """The window that a topic is to have, if any."""
    if not has_window(topic):
        return None
    try:
        length = WindowLength.parse(topic.attributes[DEDUP_WINDOW])
    except ValueError as exc:  # from a table file written elsewhere
        name = topic.topic_name
        log.warning("topic %s has no window, its %s is malformed: %s", name, DEDUP_WINDOW, exc)
        return None
    return WindowSpec(length, max(topic.read_queue_nums, topic.write_queue_nums))
