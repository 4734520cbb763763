"""The brokers of the matrix, each with its name server and a store that has a past."""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bolide.model.message import Host
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.hosts import pack_host
from bolide.protocol.record import RecordDraft
from bolide.store.config import StoreConfig
from bolide.store.message_store import MessageStore
from bolide.store.tables import TOPICS, Table
from tests.interop.bench import BROKER_DEFAULTS, Bench
from tests.interop.ours import bolide_broker, bolide_namesrv

OURS = "ours"
BROKERS = (OURS, "4.9", "5.x")
"""Ours, and names in versions.toml."""

LOG_FILE = 1024 * 1024
SETTINGS: Mapping[str, str | int | bool] = {
    **BROKER_DEFAULTS,
    "mappedFileSizeCommitLog": LOG_FILE,
    # Until the first of these intervals is over, Apache's 5.x keeps a core busy.
    "transactionMetricFlushInterval": 500,
    # For each thread that stores messages Apache's 5.x sets as much memory aside.
    "maxMessageSize": 256 * 1024,
    "timerWheelEnable": True,
    "recallMessageEnable": True,
    "enablePropertyFilter": True,
    "transactionTimeOut": 2000,
    "transactionCheckInterval": 1000,
    # Apache's 5.x writes down this late what was committed, and may ask for it meanwhile.
    "transactionOpBatchInterval": 100,
    # The second one differs, and retries begin with the third.
    "messageDelayLevel": " ".join(["1s", "2s", *["1s"] * 16]),
}
KEPT = 2


@dataclass(frozen=True)
class Cluster:
    """One broker and its name server, ready for players."""

    broker: str
    namesrv_address: str
    broker_address: str


@contextmanager
def cluster(
    broker: str,
    directory: Path,
    bench: Bench,
    *,
    aged: Collection[str] = (),
    **properties: str | int | bool,
) -> Iterator[Cluster]:
    """Starts the broker; the first messages of the aged topics are there no more."""
    root = directory / "store"
    if aged:
        age(root, aged)
    settings = {**SETTINGS, "storePathRootDir": str(root), **properties}
    if broker == OURS:
        with (
            bolide_namesrv(directory / "namesrv", orderMessageEnable=True) as namesrv,
            bolide_broker(directory / "broker", namesrv.address, **settings) as server,
        ):
            yield Cluster(broker, namesrv.address, server.address)
    else:
        java = bench.namesrv(broker, orderMessageEnable=True)
        server = bench.broker(broker, java.address, jvm=(), **settings)
        yield Cluster(broker, java.address, server.address)
        server.kill()
        java.kill()


def age(root: Path, topics: Collection[str]) -> None:
    """Fill two log files and take the first away: only then does "last" not mean "first".

    To a new group a broker gives the first message of a queue that was never cut.
    """
    config = StoreConfig(
        root=root,
        commit_log_file_size=LOG_FILE,
        consume_queue_file_size=int(SETTINGS["mappedFileSizeConsumeQueue"]),
        max_hash_slots=int(SETTINGS["maxHashSlotNum"]),
        max_index_entries=int(SETTINGS["maxIndexNum"]),
    )
    table = Table(root / "config", TOPICS)
    for topic in topics:
        table.value.topic_config_table[topic] = TopicConfig(
            topic_name=topic, read_queue_nums=1, write_queue_nums=1
        )
    table.changed()
    table.save()
    with MessageStore(config, background=False) as store:
        for topic in topics:
            store.append(_draft(topic, b"gone"))
        store.append(_draft("Filler", os.urandom(LOG_FILE - 64 * 1024)))
        store.append(_draft("Filler", os.urandom(128 * 1024)))
        for number in range(KEPT):
            for topic in topics:
                store.append(_draft(topic, f"kept {number}".encode()))
    min((root / "commitlog").iterdir()).unlink()


def _draft(topic: str, body: bytes) -> RecordDraft:
    host = pack_host(Host("127.0.0.1", 10911))
    return RecordDraft(topic.encode(), body, b"", 0, 1_700_000_000_000, host, host)
