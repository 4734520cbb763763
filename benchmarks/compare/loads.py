"""Load by the generator written in C, and the warm-up that precedes every load."""

import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from benchmarks.brokers import APACHE, JAVA, Running, wait_in_sync
from benchmarks.compare import figures
from benchmarks.compare.rounds import LoadResult, Round
from benchmarks.compare.stages import Stage, count_stored, create_topic
from benchmarks.generators import run_generator

QUEUES = 4
SMALL, LARGE = 128, 1024
PULLED = 32
# Upper bounds of a round, so that a fast broker does not fill the disk.
MAX_MESSAGES, MAX_BYTES = 1_500_000, 512 * 2**20
MILLIONS_TOPIC = "bench-millions"
_FILL_SECONDS = 900.0
_SYNCS = 300
# The CPU cost of a JVM under 64 senders falls for 15 to 20 s after its start, and for a few seconds
# after a change of load.
COLD = 4.0
"""Factor of the warm-up time for a broker that has just started."""
_MIN_WARM_UP = 0.5


class Load(Protocol):
    """A kind of load on a running broker."""

    @property
    def warm_up(self) -> bool:
        """Whether the broker needs a warm-up with this load."""

    def prepare(self, stage: Stage, broker: Running) -> None: ...

    def round(self, stage: Stage, broker: Running, seconds: float) -> Round: ...


@dataclass(frozen=True, kw_only=True)
class Fill:
    """Messages that are stored before a load begins."""

    topic: str
    size: int = SMALL
    queues: int = QUEUES
    count: int = 0
    options: Mapping[str, object] = field(default_factory=dict)

    def apply(self, stage: Stage, broker: Running) -> None:
        """Create the topic and store the missing messages."""
        create_topic(broker, self.topic, self.queues)
        while (missing := self.count - count_stored(broker, self.topic)) > 0:
            shape = Generated(
                "send", 8, 8, topic=self.topic, queues=self.queues, size=self.size,
                limit=missing, options=self.options,
            )  # fmt: skip
            if not shape.generate(stage, broker, _FILL_SECONDS)["messages"]:
                raise TimeoutError(f"{broker.name} stored none of {missing} messages")


@dataclass(frozen=True)
class Generated:
    """Arguments of the generator; brokerload.c explains them."""

    kind: str
    connections: int
    window: int
    topic: str = "bench-sends"
    queues: int = QUEUES
    size: int = SMALL
    limit: int | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    fill: Fill | None = None
    topics: int = 0
    counts_stored: bool = False
    """Whether messages are counted in the store, because one-way sends have no response."""
    warm_up: bool = True

    def prepare(self, stage: Stage, broker: Running) -> None:
        if self.fill:
            self.fill.apply(stage, broker)
        else:
            create_topic(broker, self.topic, self.queues, self.topics)
        if self.topics:  # the first message of a queue creates its files
            every = replace(self, limit=self.topics * self.queues)
            every.generate(stage, broker, _FILL_SECONDS)

    def round(self, stage: Stage, broker: Running, seconds: float) -> Round:
        before = count_stored(broker, self.topic) if self.counts_stored else 0
        with stage.meter(broker) as meter:
            found = self.generate(stage, broker, seconds)
        if self.counts_stored:
            found["messages"] = count_stored(broker, self.topic) - before
        return meter.round(_loaded(found))

    def generate(self, stage: Stage, broker: Running, seconds: float) -> Any:
        maximum = min(MAX_MESSAGES, MAX_BYTES // self.size)
        options = [f"{name}={value}" for name, value in self.options.items()]
        if self.topics:
            options.append(f"topics={self.topics}")
        if broker.credentials:
            options += (f"{name}={text}" for name, text in broker.credentials._asdict().items())
        return run_generator(
            stage.generator, self.kind, "127.0.0.1", ",".join(map(str, broker.ports)),
            self.connections, self.window, seconds, self.topic, self.queues, self.size,
            maximum if self.limit is None else self.limit, *options,
        )  # fmt: skip


@dataclass(frozen=True)
class Tail:
    """Consumers at the ends of the queues, while batches are sent at a steady rate.

    The cost of the same sends without consumers is measured just before and subtracted.
    """

    consumers: int
    rate: int = 100_000
    batch: int = 32
    queues: int = 16
    topic: str = "bench-tail"
    warm_up: bool = True

    def prepare(self, stage: Stage, broker: Running) -> None:
        create_topic(broker, self.topic, self.queues)

    def round(self, stage: Stage, broker: Running, seconds: float) -> Round:
        options = {"batch": self.batch, "rate": self.rate}
        sends = Generated("send", 4, 64, self.topic, self.queues, limit=0, options=options)
        with stage.meter(broker) as alone:
            sent_alone = sends.generate(stage, broker, seconds)["sent"]
        live = replace(sends, kind="live", options=options | {"consumers": self.consumers})
        with stage.meter(broker) as meter:
            found = live.generate(stage, broker, seconds)
        whole = meter.round(_loaded(found))
        scale = found["sent"] / max(sent_alone, 1)
        sending = alone.used()
        own = figures.without(whole.used.cpu_seconds, scale * sending.cpu_seconds)
        later = max(whole.used.later_cpu_seconds - scale * sending.later_cpu_seconds, 0.0)
        extra = whole.loaded.extra | {"whole_cpu_us": whole.cpu_us}
        loaded = replace(whole.loaded, extra=extra)
        used = replace(whole.used, cpu_seconds=own, later_cpu_seconds=min(later, own))
        return Round(broker.name, loaded, used)


@dataclass(frozen=True)
class Synced:
    """Sends that are acknowledged after a flush; each round also times a bare fdatasync."""

    senders: int
    topic: str = "bench-synced"
    warm_up: bool = True

    def prepare(self, stage: Stage, broker: Running) -> None:
        create_topic(broker, self.topic, QUEUES)

    def round(self, stage: Stage, broker: Running, seconds: float) -> Round:
        sync_s = sync_seconds()
        shape = Generated("send", self.senders, 1, self.topic)
        with stage.meter(broker) as meter:
            found = shape.generate(stage, broker, seconds)
        return meter.round(_loaded(found, sync_s=sync_s))


def sync_seconds() -> float:
    """Median time of a small append and fdatasync in an allocated file on the brokers' disk."""
    spent = []
    with tempfile.TemporaryFile() as file:
        os.posix_fallocate(file.fileno(), 0, 16 * 2**20)
        for number in range(_SYNCS):
            begin = time.perf_counter()
            os.pwrite(file.fileno(), bytes(300), number * 300)
            os.fdatasync(file.fileno())
            spent.append(time.perf_counter() - begin)
    return statistics.median(spent)


@dataclass(frozen=True)
class HalfLoad:
    """Sends at half the maximum rate of Apache's broker with as many senders, in this run."""

    cell: str
    """The cell that measured the maximum rate."""
    server: str = APACHE
    """The broker whose rate counts."""
    connections: int = 64
    topic: str = "bench-sends"
    warm_up: bool = True

    def prepare(self, stage: Stage, broker: Running) -> None:
        create_topic(broker, self.topic, QUEUES)

    def round(self, stage: Stage, broker: Running, seconds: float) -> Round:
        rate = self._maximum_rate(stage, seconds) / 2
        shape = Generated(
            "send", self.connections, 64, self.topic, limit=0, options={"rate": f"{rate:.0f}"}
        )
        with stage.meter(broker) as meter:
            found = shape.generate(stage, broker, seconds)
        return meter.round(_loaded(found, rate=rate))

    def _maximum_rate(self, stage: Stage, seconds: float) -> float:
        rate = stage.median_rate(self.cell, self.server) or stage.results.facts.get("apache_most")
        if rate is None:
            shape = Generated("send", self.connections, 1, self.topic)
            shape.generate(stage, stage.running[self.server], seconds)
            found = shape.generate(stage, stage.running[self.server], seconds)
            rate = found["messages"] / found["seconds"]
            stage.results.facts["apache_most"] = rate
        return rate


@dataclass(frozen=True)
class Replicated:
    """A load on a broker that may have a slave, whose CPU time is measured too."""

    load: Load
    warm_up: bool = True

    def prepare(self, stage: Stage, broker: Running) -> None:
        self.load.prepare(stage, broker)

    def round(self, stage: Stage, broker: Running, seconds: float) -> Round:
        if broker.slave is None:
            return self.load.round(stage, broker, seconds)
        with stage.meter(broker.slave) as meter:
            found = self.load.round(stage, broker, seconds)
            wait_in_sync(broker)
        extra = found.loaded.extra | {"slave_cpu_seconds": meter.used().cpu_seconds}
        return replace(found, loaded=replace(found.loaded, extra=extra))


@dataclass(frozen=True)
class Growth:
    """A growing store: each round adds one step of messages."""

    steps: int
    warm_up: bool = False

    def prepare(self, stage: Stage, broker: Running) -> None:
        create_topic(broker, MILLIONS_TOPIC, QUEUES)

    def round(self, stage: Stage, broker: Running, seconds: float) -> Round:
        step = round(stage.millions * 1e6 / self.steps)
        shape = Generated("send", 8, 64, MILLIONS_TOPIC, limit=step)
        with stage.meter(broker) as meter:
            found = shape.generate(stage, broker, _FILL_SECONDS)
        return meter.round(_loaded(found, stored=count_stored(broker, MILLIONS_TOPIC)))


@dataclass(frozen=True)
class CatchUp:
    """Reads the older half of what `Growth` stored, with a connection for each queue."""

    warm_up: bool = True

    def prepare(self, stage: Stage, broker: Running) -> None:
        fill_millions(stage, broker)

    def round(self, stage: Stage, broker: Running, seconds: float) -> Round:
        length = round(stage.millions * 1e6 / 2 / QUEUES)
        shape = Generated(
            "pull", QUEUES, 1, MILLIONS_TOPIC, size=PULLED, limit=length, options={"once": 1}
        )
        with stage.meter(broker) as meter:
            found = shape.generate(stage, broker, _FILL_SECONDS)
        return meter.round(_loaded(found))


def fill_millions(stage: Stage, broker: Running) -> None:
    count = round(stage.millions * 1e6)
    Fill(topic=MILLIONS_TOPIC, count=count, options={"batch": 16}).apply(stage, broker)


_START_WARM_UP = Generated("send", 64, 1, "bench-warm-up")


def warm_up(load: Load, stage: Stage, broker: Running, seconds: float) -> None:
    """Load a broker without measuring: with 64 senders after its start, then with the load."""
    if stage.claim_start_warm_up(broker):
        _START_WARM_UP.prepare(stage, broker)
        _apply(_START_WARM_UP, stage, broker, COLD * seconds)
    load.prepare(stage, broker)
    if load.warm_up:
        _apply(load, stage, broker, seconds)


def _apply(load: Load, stage: Stage, broker: Running, seconds: float) -> None:
    """Apply the load for that time; repeat rounds that end early if the broker is a JVM."""
    end = time.monotonic() + seconds
    load.round(stage, broker, seconds)
    while broker.name in JAVA and (left := end - time.monotonic()) > _MIN_WARM_UP:
        load.round(stage, broker, left)


def _loaded(found: Mapping[str, Any], **extra: float) -> LoadResult:
    late = {"late_p99_us": found["late_p99_us"]} if found["late_p99_us"] else {}
    p50, p99, p999 = (
        found[name] if found["messages"] else None for name in ("p50_us", "p99_us", "p999_us")
    )
    return LoadResult(
        messages=found["messages"],
        seconds=found["seconds"],
        client_cpu_seconds=found["generator_cpu_seconds"],
        failures=found["failures"] + found["unsent"],
        p50_us=p50,
        p99_us=p99,
        p999_us=p999,
        extra=late | extra,
    )
