"""Messages for random times, sent and heard: how late they come, and whether any comes early."""

import asyncio
import random
import time
from dataclasses import dataclass

from bolide.bench.counters import Histogram, SendCounters
from bolide.bench.producer import Senders
from bolide.bench.report import Say, SendProgress, Summary, send_figures
from bolide.bench.round_trip import round_trip
from bolide.bench.runner import Bounds, Run
from bolide.bench.workload import Stamps, Workload
from bolide.client.instance.settings import ClientArguments
from bolide.model.message import Message, StoredMessage
from bolide.model.properties import PropertyName

_EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000)
"""Milliseconds between which errors are counted."""
_STRAGGLERS = 15.0
_LOOK_EVERY = 0.05
_BAR = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to send: all are due between `ahead` seconds after the start and `over` seconds
    later."""

    topic: str
    group: str
    size: int = 128
    senders: int = 64
    ahead: float = 5.0
    over: float = 10.0


class Errors:
    """How much later than asked for messages were stored in their topic, and heard."""

    def __init__(self) -> None:
        self.stored = Histogram()
        self.heard = Histogram()
        self.early = 0
        self.repeated = 0
        self.sent_late = 0
        """Those that were sent when their time was over: they tell nothing."""
        self._ids: set[str] = set()
        self._counts = [0] * (len(_EDGES) + 1)

    @property
    def received(self) -> int:
        return len(self._ids)

    def add(self, message: StoredMessage, now: float) -> None:
        due = int(message.properties.get(PropertyName.TIMER_DELIVER_MS, 0))
        if message.message_id in self._ids:
            self.repeated += 1
            return
        self._ids.add(message.message_id)
        if PropertyName.TIMER_OUT_MS not in message.properties:
            self.sent_late += 1
            return
        error = message.store_timestamp - due
        self.early += error < 0
        self.stored.record(error / 1000)
        self.heard.record(now - due / 1000)
        self._counts[sum(error >= edge for edge in _EDGES)] += 1

    def lines(self) -> list[str]:
        """The histogram, for people."""
        names = [f"< {edge} ms" for edge in _EDGES] + [f">= {_EDGES[-1]} ms"]
        most = max(*self._counts, 1)
        return [
            f"{name:>10}  {count:>9,}  {'#' * (count * _BAR // most)}"
            for name, count in zip(names, self._counts, strict=True)
        ]

    def figures(self, sent: int) -> dict[str, float]:
        return {
            "received": self.received,
            "lost": max(sent - self.received, 0),
            "early": self.early,
            "repeated": self.repeated,
            "sent_late": self.sent_late,
        }


async def measure_timers(plan: Plan, bounds: Bounds, say: Say, client: ClientArguments) -> Summary:
    """Send messages for random times and wait for all of them.

    Raises:
        NothingArrives: messages are not heard.
        NoNameServer: there is nobody to ask for routes.
    """
    sends, errors, stamps = SendCounters(), Errors(), Stamps(plan.topic, plan.size)

    def heard(message: StoredMessage, _: float) -> None:
        errors.add(message, time.time())

    async with round_trip(stamps, plan.topic, plan.group, heard, client) as producer:
        run = Run(bounds)
        progress = SendProgress(sends, lambda text: say(f"{text} | Received: {errors.received}"))
        begin = time.time() + plan.ahead
        load = Workload(topic=plan.topic, senders=plan.senders, size=plan.size)

        def make() -> Message:
            due = begin + random.random() * plan.over  # noqa: S311  any will do
            return Message(plan.topic, stamps.message().body, deliver_at=due)

        senders = Senders(producer, load, sends, make=make)
        took = await run.until_done(senders.work(run), progress)
        progress.complete(took.seconds)
        await _all_heard(errors, sends, begin + plan.over, run)
    for line in errors.lines():
        say(line)
    return Summary(
        command="timer",
        figures=send_figures(sends, took) | errors.figures(sends.messages),
        times={"error": errors.stored, "heard_after": errors.heard, "send": sends.times},
        last_failure=sends.last_failure,
    )


async def _all_heard(errors: Errors, sends: SendCounters, last: float, run: Run) -> None:
    """Wait until all is there, or nothing has come for a while after the last one was due."""
    seen, since = -1, time.time()
    while errors.received < sends.messages and not run.is_interrupted:
        if errors.received != seen:
            seen, since = errors.received, time.time()
        if time.time() > max(last, since) + _STRAGGLERS:
            return
        await asyncio.sleep(_LOOK_EVERY)
