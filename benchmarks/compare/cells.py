"""The cells to measure: a reference load, and loads that differ from it in one factor."""

from dataclasses import dataclass

from benchmarks.brokers import (
    APACHE,
    APACHE_4,
    APACHE_SYNC_SLAVE,
    ASYNC_FLUSH,
    ASYNC_SLAVE,
    BASELINE,
    BOLIDE,
    PLAIN,
    SYNC_FLUSH,
    SYNC_SLAVE,
    WORKERS,
)
from benchmarks.compare.footprint import STANDALONE, IdleConnections
from benchmarks.compare.loads import (
    LARGE,
    PULLED,
    QUEUES,
    CatchUp,
    Fill,
    Generated,
    Growth,
    HalfLoad,
    Load,
    Synced,
    Tail,
)
from benchmarks.compare.programs import JavaConsumer, JavaProducer, OurConsumer, OurProducer

# Each stage starts new brokers, so a cell depends only on earlier cells of its stage. The end of a
# stage frees the disk.
MAIN, READING, CLIENTS, QUEUED = "sends", "reads", "clients", "queues"
TRANSACTING, OWN = "transactions", "ours"
DURABLE, MILLIONS, STARTS = "sync", "millions", "starts"
STAGES = {
    MAIN: ASYNC_FLUSH,
    READING: ASYNC_FLUSH,
    CLIENTS: ASYNC_FLUSH,
    TRANSACTING: ASYNC_FLUSH,
    OWN: ASYNC_FLUSH,
    QUEUED: ASYNC_FLUSH,
    DURABLE: SYNC_FLUSH,
    MILLIONS: ASYNC_FLUSH,
    STARTS: ASYNC_FLUSH,
}

PAIR = (BOLIDE, APACHE)
BOTH_RELEASES = (*PAIR, APACHE_4)
LONG_LIVED = (*PAIR, BASELINE, ASYNC_SLAVE, SYNC_SLAVE, APACHE_SYNC_SLAVE)
"""Brokers that run until their stage ends; others run for one cell."""
GROWTH_STEPS = 20


@dataclass(frozen=True)
class Cell:
    """One kind of load, and the brokers that it is applied to."""

    name: str
    group: str
    title: str
    load: Load | None
    """None for starts, which need no running broker."""
    stage: str = MAIN
    contenders: tuple[str, ...] = PAIR
    rounds: int | None = None
    """Set if the load itself fixes the number of rounds."""


_LENGTH = 25_600
# More than are pulled: a send that a busy broker rejects leaves its queue one message short.
_FILLED = _LENGTH * QUEUES * 11 // 10
_LARGE = Fill(topic="bench-pulls", size=LARGE, count=_FILLED)
_MARKED = Fill(topic="bench-marked", count=_FILLED, options={"marked": 1})

SENDS = "Sends"
MANY = "Many topics and queues"
READS = "Consumption"
LATENCY = "Latency"
SYNCED = "SYNC_FLUSH"
JAVA = "RocketMQ's own benchmark programs"
OURS = "bolide bench"
FOOTPRINT = "Starts, memory and idle connections"


def _senders(count: int) -> str:
    return f"{count} synchronous sender{'s' if count > 1 else ''}, 128 B"


def _queues(connections: int, window: int, queues: int) -> Generated:
    """Sends to 100 topics with that number of queues each."""
    topic = f"bench-queues-{queues}"
    return Generated("send", connections, window, topic, queues=queues, topics=100)


def _pulls(fill: Fill, **options: object) -> Generated:
    return Generated(
        "pull", 8, 2, fill.topic, size=PULLED, limit=_LENGTH, options=options, fill=fill
    )


_PIPELINED = "128 B, 8 connections with 64 in flight"

CELLS = (
    Cell("send-64", SENDS, f"{_senders(64)} (baseline)", Generated("send", 64, 1),
         contenders=(*BOTH_RELEASES, PLAIN)),
    Cell("send-1", SENDS, _senders(1), Generated("send", 1, 1)),
    Cell("send-8", SENDS, _senders(8), Generated("send", 8, 1)),
    Cell("send-256", SENDS, _senders(256), Generated("send", 256, 1)),
    Cell("send-64-1k", SENDS, "64 senders, 1 KiB", Generated("send", 64, 1, size=1024)),
    Cell("send-64-16k", SENDS, "64 senders, 16 KiB", Generated("send", 64, 1, size=16 * 1024)),
    Cell("pipelined", SENDS, f"asynchronous, {_PIPELINED}", Generated("send", 8, 64),
         contenders=BOTH_RELEASES),
    Cell("one-way", SENDS, "one-way, 128 B, 8 connections",
         Generated("send", 8, 4, topic="bench-one-way", options={"oneway": 15},
                   counts_stored=True)),
    Cell("batch-16", SENDS, "batches of 16, 128 B each, 8 connections with 4 in flight",
         Generated("send", 8, 4, options={"batch": 16})),
    Cell("batch-128", SENDS, "batches of 128, 128 B each, 8 connections with 4 in flight",
         Generated("send", 8, 4, options={"batch": 128})),
    Cell("send-64-workers", SENDS, f"{_senders(64)}, `--workers 2`", Generated("send", 64, 1),
         contenders=(WORKERS, APACHE)),
    Cell("pipelined-workers", SENDS, f"asynchronous, {_PIPELINED}, `--workers 2`",
         Generated("send", 8, 64), contenders=(WORKERS, APACHE)),
    Cell("tail-1", READS, "tail, 1 consumer, 128 B", Tail(1), stage=READING),
    Cell("tail-4", READS, "tail, 4 consumers", Tail(4), stage=READING),
    Cell("tail-16", READS, "tail, 16 consumers", Tail(16), stage=READING),
    Cell("both", READS, "64 synchronous senders and 4 consumers together, 128 B",
         Generated("live", 64, 1, "bench-both", queues=16, limit=0, options={"consumers": 4}),
         stage=READING),
    Cell("pull-1k", READS, "pulls of 32, 1 KiB each from memory", _pulls(_LARGE),
         contenders=BOTH_RELEASES, stage=READING),
    Cell("pull-tag", READS, "the same of 128 B, 1 in 10 by tag", _pulls(_MARKED, filter="TagB"),
         stage=READING),
    Cell("pull-sql", READS, "the same, 1 in 10 by SQL92",
         _pulls(_MARKED, filter="n = 3", type="SQL92"), stage=READING),
    Cell("half-load", LATENCY, "sends at half of RocketMQ's most, 64 connections",
         HalfLoad("send-64"), stage=READING),
    Cell("wake-up", LATENCY, "a long poll that waits, from send to receipt, 200 messages/s",
         Generated("live", 1, 16, "bench-wake", queues=1, limit=0,
                   options={"consumers": 1, "rate": 200}), stage=READING),
    Cell("idle-5000", FOOTPRINT, "5,000 idle connections", IdleConnections(5_000),
         stage=READING),
    Cell("java-sync", JAVA, "`Producer`: 64 threads, 128 B", JavaProducer("Producer"),
         stage=CLIENTS),
    Cell("java-batch", JAVA, "`BatchProducer`: 64 threads, batches of 16, 128 B each",
         JavaProducer("BatchProducer"), stage=CLIENTS),
    Cell("java-transaction", JAVA, "`TransactionProducer`: 32 threads, 2 KiB",
         JavaProducer("TransactionProducer", alone=True), stage=TRANSACTING),
    Cell("ours-latency", OURS, "`latency --rate 1000`: from send to listener",
         OurProducer("latency", ("--rate", "1000", "--warm-up", "0.5")), stage=OWN),
    Cell("ours-async", OURS, "`producer -y true`: asynchronous, 128 B",
         OurProducer("producer", ("-y", "true")), stage=OWN),
    Cell("ours-batch", OURS, "`batch`: 64 senders, batches of 16, 128 B each",
         OurProducer("batch"), stage=OWN),
    Cell("topics-100", MANY, "64 senders to 100 topics", _queues(64, 1, QUEUES),
         stage=QUEUED),
    Cell("queues-10000", MANY, "64 senders to 10,000 queues", _queues(64, 1, 100),
         stage=QUEUED),
    Cell("queues-10000-pipelined", MANY, "asynchronous to 10,000 queues",
         _queues(8, 64, 100), stage=QUEUED),
    Cell("sync-8", SYNCED, f"{_senders(8)}, SYNC_FLUSH", Synced(8), stage=DURABLE),
    Cell("sync-64", SYNCED, f"{_senders(64)}, SYNC_FLUSH", Synced(64), stage=DURABLE,
         contenders=BOTH_RELEASES),
    Cell("ten-million", MANY, "10 million messages, one step", Growth(GROWTH_STEPS),
         stage=MILLIONS, rounds=GROWTH_STEPS),
    Cell("catch-up", READS, "catch-up: the oldest 5 of 10 million, 128 B", CatchUp(),
         stage=MILLIONS),
    Cell("java-consumer", JAVA, "`Consumer` of 10 million messages", JavaConsumer(),
         stage=MILLIONS),
    Cell("ours-consumer", OURS, "`consumer` of 10 million messages", OurConsumer(),
         stage=MILLIONS),
    Cell("start", FOOTPRINT, "start with an empty store", None, stage=STARTS,
         contenders=(*BOTH_RELEASES, STANDALONE)),
)  # fmt: skip

BY_NAME = {cell.name: cell for cell in CELLS}
