"""Periodic work of a running broker: save tables, sample counters, expire clients and locks."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from bolide.broker.background import on_saving_thread
from bolide.broker.delay import DelayScheduler
from bolide.broker.filters.filters import Filters
from bolide.broker.metadata.clients import ClientTable
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.queue_locks import QueueLocks
from bolide.broker.pop.pop import Pop
from bolide.broker.statistics import Statistics
from bolide.broker.timers import Timers
from bolide.config import ConfigCell
from bolide.remoting.tasks import uninterrupted
from bolide.store.config import StoreConfig

log = logging.getLogger(__name__)

_PERIOD = 1.0
_SAMPLE_PERIOD = 10.0


@dataclass(slots=True, kw_only=True)
class Maintenance:
    """Runs the periodic jobs of one broker; `run` is the task."""

    offsets: OffsetTable
    groups: GroupTable
    pop: Pop
    delay: DelayScheduler
    timers: Timers
    filters: Filters
    statistics: Statistics
    clients: ClientTable
    locks: QueueLocks
    store_config: ConfigCell[StoreConfig]
    is_master: bool = True
    """Whether this broker delivers messages itself; a slave stores the progress of its master."""
    _next_sample: float = 0.0
    _next_delay_save: float = 0.0

    async def run(self) -> None:
        self._next_sample = time.monotonic() + _SAMPLE_PERIOD
        while True:
            await asyncio.sleep(_PERIOD)
            await uninterrupted(on_saving_thread(self._save_due))
            if time.monotonic() >= self._next_sample:
                self._next_sample += _SAMPLE_PERIOD
                await self._sample()
                for job in (
                    self.clients.expire,
                    self.locks.expire,
                    self.filters.sweep,
                ):
                    _attempt(job)

    async def _sample(self) -> None:
        """Sample the statistics, and let other tasks run meanwhile."""
        try:
            for _ in self.statistics.sample_in_slices():
                await asyncio.sleep(0)
        except Exception:
            log.exception("a maintenance job failed")

    def save(self) -> None:
        """Write all changed tables. Blocks."""
        if self.is_master:
            _attempt(self.pop.save)
        for save in (self.offsets.save, self.groups.save, self.filters.save):
            _attempt(save)
        _attempt(self.delay.save if self.is_master else self.delay.save_adopted)

    def _save_due(self) -> None:
        now = time.monotonic()
        _attempt(lambda: self.offsets.save_due(now))
        _attempt(lambda: self.groups.save_due(now))
        _attempt(lambda: self.filters.save_due(now))
        if not self.is_master:
            _attempt(self.delay.save_adopted)
            return
        _attempt(lambda: self.pop.save_due(now))
        if now >= self._next_delay_save:
            self._next_delay_save = now + self.store_config.value.delay_offsets_interval
            _attempt(self.delay.save)
        _attempt(self.timers.save)


def _attempt(job: Callable[[], object]) -> None:
    """Run a job and log its failure: the other jobs still run, and the next period retries."""
    try:
        job()
    except OSError as exc:
        log.warning("a table cannot be saved: %s", exc)
    except Exception:
        log.exception("a maintenance job failed")
