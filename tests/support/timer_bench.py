"""A timer over a real store, on a clock that the test moves: hours pass in a moment."""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bolide.broker.consume.long_polling import LongPolling
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.timers import Timers, Timetable
from bolide.broker.timers.delivery import Continuation
from bolide.broker.timers.timetable import timer_draft
from bolide.config import ConfigCell
from bolide.model.names import TIMER_TOPIC
from bolide.protocol.record import Record, RecordDraft
from bolide.store.disk import Disk
from bolide.store.message_store import MessageStore
from bolide.store.reading import ReadLimits
from bolide.store.tables import TIMER_METRICS, Table
from bolide.store.timers import SLOTS
from tests.support.clock import FakeClock
from tests.support.store import MONDAY_NOON, STORE_HOST, draft, record_of, small_config

_CHUNK = ReadLimits(max_count=10_000, max_size=2**30, max_scanned=10_000)


class HastyDisk(Disk):
    """Waits for nothing: the page cache is what survives here."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass


class TimerBench:
    """Between `start` and `stop` or `crash`; several times on one directory are restarts."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root = root
        self.clock = FakeClock(MONDAY_NOON)
        self._wheel_slots = settings.pop("wheel_slots", SLOTS)
        small: dict[str, Any] = {
            "log_size": 1024 * 1024,
            "queue_units": 10_000,
            "max_index_entries": 10_000,
        }
        timer = {name: settings.pop(name) for name in list(settings) if "timer" in name}
        self.store_config = small_config(root, **(small | settings))
        small_log: dict[str, Any] = {
            "mapped_file_size_timer_log": 64 * 1024,
            "bind_address": "127.0.0.1",
        }
        self.cell = ConfigCell(BrokerConfig(**(small_log | timer)))
        self.sent = 0

    @property
    def now_ms(self) -> int:
        return int(self.clock() * 1000)

    async def start(
        self,
        disk: Disk | None = None,
        *,
        continuations: Sequence[Continuation] = (),
        before: Callable[[Timers], object] = lambda _: None,
    ) -> None:
        """Start; `before` is called with the timer that is about to start."""
        self.store = MessageStore(
            self.store_config, clock=self.clock, background=False, disk=disk or HastyDisk()
        )
        self.store.__enter__()
        self.durability = Durability(self.store, self.store.config)
        self.intake = Intake(self.store, self.durability, LongPolling())
        self.durability.on_progress.add(self.intake.wake_up_to)
        self.durability.start()
        self.intake.start()
        metrics = Table(self.root / "config", TIMER_METRICS)
        metrics.load()
        self.timers = Timers(
            self.store, self.intake, self.durability, metrics,
            cell=self.cell, store_host=STORE_HOST, now=self.clock, disk=disk or HastyDisk(),
            continuations=continuations, wheel_slots=self._wheel_slots,
        )  # fmt: skip
        self.timetable = Timetable(self.cell, self.clock)
        before(self.timers)
        await self.timers.start()

    async def stop(self) -> None:
        await self.timers.stop()
        self._end()
        self.store.close()

    async def crash(self) -> None:
        """Go on with what a process leaves that is killed now."""
        await asyncio.sleep(0)
        left = self.root.with_name(self.root.name + "-left")
        shutil.copytree(self.root, left)
        await self.stop()
        shutil.rmtree(self.root)
        left.rename(self.root)

    def _end(self) -> None:
        self.intake.stop()
        self.durability.stop()

    # ---- messages

    def send(
        self, due_ms: int | None = None, *, topic: str = "T", **properties: str
    ) -> RecordDraft:
        """Take a message that is to come at a time."""
        self.sent += 1
        given = {"UNIQ_KEY": f"ID{self.sent}", **properties}
        if due_ms is not None:
            given["TIMER_DELIVER_MS"] = str(due_ms)
        due = self.timetable.due(given)
        message = draft(topic, str(self.sent).encode(), queue_id=1)
        assert due is not None
        waiting = timer_draft(message, given, due)
        self.intake.append(waiting)
        return waiting

    def delivered(self) -> list[Record]:
        """All that is in the queue the messages belong to."""
        return self.records("T", 1)

    def waiting(self) -> list[Record]:
        return self.records(TIMER_TOPIC, 0)

    def records(self, topic: str, queue_id: int) -> list[Record]:
        records: list[Record] = []
        offset = self.store.min_offset(topic, queue_id)
        while offset < self.store.max_offset(topic, queue_id):
            found = self.store.read(topic, queue_id, offset, _CHUNK)
            records += [record_of(bytes(data)) for data in found.records]
            offset = found.next_offset
        return records

    @property
    def bodies(self) -> list[int]:
        return [int(bytes(record.body)) for record in self.delivered()]

    # ---- time

    async def settle(self) -> float:
        """Do all that is to be done now; returns the seconds until there is more."""
        arrived, sooner = self.timers._feed_wanted, self.timers._earlier_due
        while True:
            arrived.clear()
            until_more = await self.timers.feed()
            sooner.clear()
            seconds = min(until_more, await self.timers.deliver())
            await asyncio.sleep(0)
            if seconds and not arrived.is_set() and not sooner.is_set():
                return seconds

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, as the timer asks to be woken."""
        end = round(self.clock.now + seconds, 3)
        while True:
            pause = await self.settle()
            if self.clock.now >= end:
                return
            # A little more than the millisecond: its fraction would round down to the one before.
            self.clock.now = round(min(self.clock.now + pause, end), 3) + 1e-6
