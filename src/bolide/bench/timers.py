"""`bench timer`: send messages with random delivery times and measure the delivery error."""

import asyncio
import random
import time
from dataclasses import dataclass

from bolide.bench.counters import Histogram, SendCounters
from bolide.bench.producer import Senders
from bolide.bench.report import Emit, SendProgress, Summary, send_figures
from bolide.bench.round_trip import round_trip
from bolide.bench.runner import Bounds, Run
from bolide.bench.workload import Stamps, Workload
from bolide.client.instance.settings import ClientArguments
from bolide.model.message import Message, StoredMessage
from bolide.model.properties import PropertyName

_EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000)
"""Bucket boundaries of the error histogram, in milliseconds."""
_IDLE_LIMIT = 15.0
"""Seconds without a message, after the last due time, after which the wait ends."""
_POLL_INTERVAL = 0.05
_BAR_WIDTH = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerLoad:
    """Timer messages, due between `ahead` and `ahead + over` seconds after the start."""

    topic: str
    group: str
    size: int = 128
    senders: int = 64
    ahead: float = 5.0
    over: float = 10.0


class TimerErrors:
    """Delay of messages behind their due time, when stored in their topic and when received."""

    def __init__(self) -> None:
        self.stored = Histogram()
        self.received_after = Histogram()
        self.early = 0
        self.repeated = 0
        self.sent_late = 0
        """Messages sent after their due time; they are not measured."""
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
        self.received_after.record(now - due / 1000)
        self._counts[sum(error >= edge for edge in _EDGES)] += 1

    def lines(self) -> list[str]:
        """The histogram, for people."""
        names = [f"< {edge} ms" for edge in _EDGES] + [f">= {_EDGES[-1]} ms"]
        most = max(*self._counts, 1)
        return [
            f"{name:>10}  {count:>9,}  {'#' * (count * _BAR_WIDTH // most)}"
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


async def measure_timers(
    load: TimerLoad, bounds: Bounds, emit: Emit, client: ClientArguments
) -> Summary:
    """Send messages with random delivery times and wait for all of them.

    Raises:
        ProbesNotReceived: the consumer does not receive the probe messages.
        NoNameServer: no NameServer is configured.
    """
    sends, errors, stamps = SendCounters(), TimerErrors(), Stamps(load.topic, load.size)

    def on_message(message: StoredMessage, _: float) -> None:
        errors.add(message, time.time())

    async with round_trip(stamps, load.topic, load.group, on_message, client) as producer:
        run = Run(bounds)
        progress = SendProgress(sends, lambda text: emit(f"{text} | Received: {errors.received}"))
        begin = time.time() + load.ahead
        workload = Workload(topic=load.topic, senders=load.senders, size=load.size)

        def make() -> Message:
            due = begin + random.random() * load.over  # noqa: S311  not for cryptography
            return Message(load.topic, stamps.message().body, deliver_at=due)

        senders = Senders(producer, workload, sends, make=make)
        run_time = await run.until_done(senders.work(run), progress)
        progress.complete(run_time.seconds)
        await _wait_for_timers(errors, sends, begin + load.over, run)
    for line in errors.lines():
        emit(line)
    return Summary(
        command="timer",
        figures=send_figures(sends, run_time) | errors.figures(sends.messages),
        times={"error": errors.stored, "heard_after": errors.received_after, "send": sends.times},
        last_failure=sends.last_failure,
    )


async def _wait_for_timers(errors: TimerErrors, sends: SendCounters, last: float, run: Run) -> None:
    """Wait for all messages, or until none arrives for a while after the last due time."""
    seen, since = -1, time.time()
    while errors.received < sends.messages and not run.is_interrupted:
        if errors.received != seen:
            seen, since = errors.received, time.time()
        if time.time() > max(last, since) + _IDLE_LIMIT:
            return
        await asyncio.sleep(_POLL_INTERVAL)
