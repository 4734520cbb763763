"""The store by itself, without sockets: appends, group commit, reads, recovery.

Run as `make bench-store`; prints Markdown. Every figure is the median of several rounds, with
minimum and maximum in brackets. Messages have a unique key and tags, as those of Java clients do.
"""

import argparse
import os
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.processes import machine, private_mib, stolen_seconds
from bolide.kernel import COMPILED
from bolide.model.message import Host
from bolide.protocol.hosts import pack_host
from bolide.protocol.record import RecordDraft
from bolide.store.appending import Appended
from bolide.store.config import FlushMode, StoreConfig
from bolide.store.disk import Disk
from bolide.store.flusher import Flushed
from bolide.store.message_store import MessageStore
from bolide.store.reading import ReadLimits

HOST = pack_host(Host("127.0.0.1", 10911))
BODIES = {"128 B": 128, "1 KiB": 1024, "16 KiB": 16 * 1024}
BATCH = 32
SETTLE_EVERY = 32
BYTES_PER_ROUND = 96 * 1024 * 1024
MAX_PER_ROUND = 100_000
RAW_SYNCS = 300
GROUP_SECONDS = 2.0


class Rate(NamedTuple):
    """Messages of one round, and the time that they took."""

    messages: int
    size: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        return self.messages / self.seconds

    @property
    def per_cpu_second(self) -> float:
        return self.messages / self.cpu_seconds

    @property
    def mb_per_second(self) -> float:
        return self.size / self.seconds / 1e6

    @property
    def mb_per_cpu_second(self) -> float:
        return self.size / self.cpu_seconds / 1e6


class Stopwatch:
    """Wall time and CPU time of this process, the store's threads included."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def rate(self, messages: int, size: int) -> Rate:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return Rate(messages, size, wall, cpu)


def main() -> None:
    options = _options()
    if options.part:
        options.directory.mkdir(parents=True, exist_ok=True)
        PARTS[options.part](options)
        return
    print(_head(options))
    stolen = stolen_seconds()
    for part in PARTS:
        for kernel in ("compiled", "python") if part in BOTH_KERNELS else ("compiled",):
            if kernel == "python" or part not in BOTH_KERNELS or COMPILED:
                _run_part(part, kernel, options)
    print(f"Steal time during the run: {stolen_seconds() - stolen:.1f} s of CPU time.")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="log to recover")
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--directory", type=Path, help="directory for the stores, on a real disk")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.directory = options.directory or Path(tempfile.gettempdir())
    return options


def _head(options: argparse.Namespace) -> str:
    return (
        f"Measured with `make bench-store` on {machine()}; {options.rounds} rounds each.\n\n"
        "Without a compiler the kernel is plain Python; each table names its kernel.\n"
    )


def _run_part(part: str, kernel: str, options: argparse.Namespace) -> None:
    """Run a part in a new process, so that its memory and CPU time are its own."""
    environment = os.environ | ({"BOLIDE_KERNEL": "python"} if kernel == "python" else {})
    command = [
        sys.executable, "-m", "benchmarks.store", "--part", part,
        "--rounds", str(options.rounds), "--gigabytes", str(options.gigabytes),
        "--queues", str(options.queues), "--directory", str(options.directory),
    ]  # fmt: skip
    sys.stdout.flush()
    subprocess.run(command, env=environment, check=True)


# ---- appends


def appends(options: argparse.Namespace) -> None:
    _title(f"Appends, ASYNC_FLUSH, {_kernel()}")
    _table("", "messages/s", "per CPU-second", "MB/s", "MB per CPU-second")
    for name, size in BODIES.items():
        rounds = [_append_round(options, size, 1) for _ in range(options.rounds)]
        _rates(f"{name}, one by one", rounds)
        rounds = [_append_round(options, size, BATCH) for _ in range(options.rounds)]
        _rates(f"{name}, batches of {BATCH}", rounds)
    rounds = [_append_round(options, 128, 1, keys=False) for _ in range(options.rounds)]
    _rates("128 B, one by one, no keys", rounds)
    print()


def index(options: argparse.Namespace) -> None:
    _title(f"The key index by itself, {_kernel()}")
    _table("", "keys/s", "per CPU-second", "µs of CPU per key")
    for name, keys in {"a unique key": 0, "a unique key and 3 keys": 3}.items():
        rounds = [_index_round(options, keys) for _ in range(options.rounds)]
        cost = [1e6 / rate.per_cpu_second for rate in rounds]
        _row(name, [r.per_second for r in rounds], [r.per_cpu_second for r in rounds], cost)
    print()


def _append_round(options: argparse.Namespace, body: int, batch: int, *, keys: bool = True) -> Rate:
    count = min(BYTES_PER_ROUND // (body + 200), MAX_PER_ROUND) // batch * batch
    drafts = [draft(number, body=body, keys=keys) for number in range(1000 // batch * batch)]
    groups = [drafts[at : at + batch] for at in range(0, len(drafts), batch)]
    with _store(options) as store:
        for group in groups:  # creates the first file and the index
            store.append_batch(group)
        store.end_burst()
        watch, done, size = Stopwatch(), 0, 0
        while done < count:
            group = groups[done // batch % len(groups)]
            if batch == 1:
                size += store.append(group[0]).size
            else:
                size += sum(each.size for each in store.append_batch(group))
            done += batch
            if done % SETTLE_EVERY == 0:
                store.end_burst()
        return watch.rate(done, size)


def _index_round(options: argparse.Namespace, keys: int) -> Rate:
    count = 50_000
    with _store(options) as store:
        store.append(draft(0))
        store.end_burst()
        words = " ".join(f"order-{word}" for word in range(keys))
        drafts = [draft(number, more=words) for number in range(count)]
        spent = Rate(0, 0, 0.0, 0.0)
        for at in range(0, count, SETTLE_EVERY):
            for each in drafts[at : at + SETTLE_EVERY]:
                store.append(each)
            watch = Stopwatch()
            store.end_burst()
            part = watch.rate(SETTLE_EVERY * (1 + keys), 0)
            spent = Rate(*(a + b for a, b in zip(spent, part, strict=True)))  # type: ignore[arg-type]
        return spent


# ---- append latency


def stalls(options: argparse.Namespace) -> None:
    _title(f"How long one append takes, index entry included, {_kernel()}")
    print(
        "ASYNC_FLUSH, 1 KiB bodies at 20,000 per second for 10 s, files of 64 MiB so that "
        "several are created, with flushes and checkpoints in the background; µs.\n"
    )
    _table("", "p50", "p99", "p99.9", "max")
    rounds = [_stall_round(options) for _ in range(options.rounds)]
    _row("append and settle", *zip(*rounds, strict=True))
    print()


def _stall_round(options: argparse.Namespace) -> tuple[float, ...]:
    drafts = [draft(number, body=1024, queue=number % 8) for number in range(1000)]
    spent = []
    with _directory(options) as root:
        config = StoreConfig(root=root, commit_log_file_size=64 * 1024 * 1024)
        with MessageStore(config) as store:
            begin = time.perf_counter()
            for number in range(200_000):
                due = begin + number / 20_000
                while (now := time.perf_counter()) < due:
                    time.sleep(0.0005)
                store.append(drafts[number % 1000])
                store.end_burst()
                spent.append(time.perf_counter() - now)
    spent.sort()
    places = (len(spent) // 2, -len(spent) // 100, -len(spent) // 1000, -1)
    return tuple(spent[place] * 1e6 for place in places)


# ---- group commit


def group_commit(options: argparse.Namespace) -> None:
    _title(f"SYNC_FLUSH, 128 B, {_kernel()}")
    print(
        "Each waiter sends its next message when the previous one is flushed. The bound for N "
        "waiters is N ÷ (t + N ÷ r): t is the time of a bare write of 300 bytes and fdatasync, "
        "r the rate of the same driver without fdatasync, measured in alternation.\n"
    )
    _table("waiters", "messages/s", "t, µs", "r, messages/s", "bound", "of the bound, %", "CPU µs")
    for waiters in (1, 8, 64):
        rounds, syncs, unsynced, possible = [], [], [], []
        for _ in range(options.rounds):  # alternating, because the disk's speed varies
            syncs.append(_raw_sync(options))
            unsynced.append(_group_round(options, waiters, _NoSync()).per_second)
            rounds.append(_group_round(options, waiters, Disk()))
            possible.append(waiters / (syncs[-1] + waiters / unsynced[-1]))
        reached = [100 * r.per_second / most for r, most in zip(rounds, possible, strict=True)]
        _row(
            str(waiters),
            [each.per_second for each in rounds],
            [each * 1e6 for each in syncs],
            unsynced,
            possible,
            reached,
            [1e6 / each.per_cpu_second for each in rounds],
        )
    print()


class _NoSync(Disk):
    def sync(self, descriptor: int) -> None:
        pass


def _raw_sync(options: argparse.Namespace) -> float:
    """Median seconds of a small append and fdatasync in an allocated file."""
    with tempfile.TemporaryFile(dir=options.directory) as file:
        os.posix_fallocate(file.fileno(), 0, 16 * 1024 * 1024)
        data, spent = bytes(300), []
        for number in range(RAW_SYNCS):
            os.pwrite(file.fileno(), data, number * len(data))
            begin = time.perf_counter()
            os.fdatasync(file.fileno())
            spent.append(time.perf_counter() - begin)
        return statistics.median(spent)


def _group_round(options: argparse.Namespace, waiters: int, disk: Disk) -> Rate:
    """As in a broker: one thread appends, and a waiter sends again after its flush."""
    reached: queue.SimpleQueue[int] = queue.SimpleQueue()

    def tell(flushed: Flushed) -> None:
        reached.put(flushed.position)

    drafts = [draft(number) for number in range(1000)]
    with _store(options, flush_mode=FlushMode.SYNC, disk=disk) as store:
        store.on_flushed(tell)
        waiting: list[Appended] = []
        watch, done = Stopwatch(), 0
        end = time.perf_counter() + GROUP_SECONDS
        while time.perf_counter() < end:
            for _ in range(waiters - len(waiting)):
                waiting.append(store.append(drafts[done % 1000]))
                done += 1
            store.end_burst()
            position = reached.get()
            waiting = [each for each in waiting if each.end > position]
        return watch.rate(done - len(waiting), 0)


# ---- reads


def reads(options: argparse.Namespace) -> None:
    _title(f"Reads, 1 KiB bodies, 32 per read, 4 queues interleaved, {_kernel()}")
    _table("", "messages/s", "per CPU-second", "MB/s", "MB per CPU-second")
    rows: dict[str, list[Rate]] = {"tail, from the mapping": [], "cached files": [], "cold": []}
    for _ in range(options.rounds):
        with _directory(options) as root:
            with MessageStore(_config(root)) as store:
                for number in range(50_000):
                    store.append(draft(number, body=1024, queue=number % 4))
                rows["tail, from the mapping"].append(_read_all(store))
            with MessageStore(
                _config(root)
            ) as store:  # after a restart the old files are not mapped
                rows["cached files"].append(_read_all(store))
            _drop_cache(root)
            with MessageStore(_config(root)) as store:
                rows["cold"].append(_read_all(store))
    for name, rounds in rows.items():
        _rates(name, rounds)
    print("\nCold: the files were evicted from the page cache, so reads go to the disk.\n")


def _read_all(store: MessageStore) -> Rate:
    watch, count, size = Stopwatch(), 0, 0
    for queue_id in range(4):
        at, end = 0, store.max_offset("BenchTopic", queue_id)
        while at < end:
            found = store.read("BenchTopic", queue_id, at, ReadLimits(max_count=32))
            at = found.next_offset
            count, size = count + len(found.records), size + found.size
    return watch.rate(count, size)


def _drop_cache(root: Path) -> None:
    for path in root.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


# ---- many queues


def many_queues(options: argparse.Namespace) -> None:
    _title(f"{options.queues:,} queues, {_kernel()}")
    with _directory(options) as root:
        config = _config(root)
        with MessageStore(config) as store:
            store.append(draft(0))
            before = private_mib(os.getpid())
            drafts = [draft(number, queue=number) for number in range(options.queues)]
            held = private_mib(os.getpid())
            for each in drafts:
                store.append(each)
            empty = private_mib(os.getpid())
            rounds = []
            for _ in range(options.rounds):
                watch, size = Stopwatch(), 0
                for each in drafts:
                    size += store.append(each).size
                store.end_burst()
                rounds.append(watch.rate(len(drafts), size))
            begin = time.perf_counter()
            store.maintenance.run()
            written = time.perf_counter() - begin
            begin = time.perf_counter()
            store.maintenance.checkpoint()
            synced = time.perf_counter() - begin
        begin = time.perf_counter()
        with MessageStore(config):
            opened = time.perf_counter() - begin
    _table("", "messages/s", "per CPU-second", "MB/s", "MB per CPU-second")
    _rates("128 B, round robin", rounds)
    kib = (empty - held) * 1024 / options.queues
    print(
        f"\n- Private memory: {kib:.2f} KiB per queue, {before:.0f} MiB for the process "
        "without queues.\n"
        f"- Writing all units to their files: {written:.2f} s; flushing all to the disk: "
        f"{synced:.2f} s (both on a background thread).\n"
        f"- Reopening the store: {opened:.2f} s.\n"
    )


# ---- recovery


def recovery(options: argparse.Namespace) -> None:
    _title(f"Start after `kill -9`, {_kernel()}")
    _table("after the last checkpoint", "records", "seconds to open", "s per GB")
    total = int(options.gigabytes * 1e9)
    cases = {
        "256 MB of 128 B bodies": (128, 256_000_000),
        "256 MB of 1 KiB bodies": (1024, 256_000_000),
        f"{options.gigabytes:g} GB of 1 KiB bodies": (1024, total),
    }
    # Plain Python takes minutes to write and to recover the others.
    chosen = list(cases.items()) if COMPILED else list(cases.items())[1:2]
    for name, (body, size) in chosen:
        spent, records = [], 0
        for _ in range(options.rounds if COMPILED else 1):
            with _directory(options) as root:
                _write_and_die(root, body, size)
                begin = time.perf_counter()
                with MessageStore(_config(root), background=False) as store:
                    spent.append(time.perf_counter() - begin)
                    records = store.recovery.records
        _row(name, [records], spent, [each / size * 1e9 for each in spent])
    print()


def _write_and_die(root: Path, body: int, size: int) -> None:
    """Leave a store as a killed process does that never wrote a checkpoint."""
    child = os.fork()
    if child == 0:
        try:
            store = MessageStore(_config(root), background=False).__enter__()
            number = 0
            drafts = [draft(each, body=body, queue=each % 8) for each in range(1000)]
            while store.log.end < size:
                store.append(drafts[number % 1000])
                number += 1
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


# ---- shared by all parts


def draft(
    number: int, *, body: int = 128, queue: int = 0, keys: bool = True, more: str = ""
) -> RecordDraft:
    properties = f"TAGS\x01Tag{number % 10}\x02"
    if keys:
        properties += f"UNIQ_KEY\x017F00000100002A9F18B4AAC2{number:08X}\x02"
    if more:
        properties += f"KEYS\x01{more}\x02"
    now = int(time.time() * 1000)
    return RecordDraft(b"BenchTopic", bytes(body), properties.encode(), queue, now, HOST, HOST)


def _config(root: Path, flush_mode: FlushMode = FlushMode.ASYNC) -> StoreConfig:
    return StoreConfig(root=root, flush_mode=flush_mode)


@contextmanager
def _directory(options: argparse.Namespace) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        yield Path(name) / "store"


@contextmanager
def _store(
    options: argparse.Namespace,
    flush_mode: FlushMode = FlushMode.ASYNC,
    disk: Disk | None = None,
) -> Iterator[MessageStore]:
    with _directory(options) as root, MessageStore(_config(root, flush_mode), disk=disk) as store:
        yield store


def _kernel() -> str:
    return "compiled kernel" if COMPILED else "plain Python"


def _title(text: str) -> None:
    print(f"### {text}\n")


def _table(*columns: str) -> None:
    print("| " + " | ".join(columns) + " |")
    print("|" + " --- |" * len(columns))


def _rates(name: str, rounds: Sequence[Rate]) -> None:
    _row(
        name,
        [rate.per_second for rate in rounds],
        [rate.per_cpu_second for rate in rounds],
        [rate.mb_per_second for rate in rounds],
        [rate.mb_per_cpu_second for rate in rounds],
    )


def _row(name: str, *columns: Sequence[float]) -> None:
    print("| " + " | ".join([name, *map(_spread, columns)]) + " |", flush=True)


def _spread(values: Sequence[float]) -> str:
    if len(set(values)) == 1:
        return _number(values[0])
    least, most = min(values), max(values)
    return f"{_number(statistics.median(values))} [{_number(least)} to {_number(most)}]"


def _number(value: float) -> str:
    return f"{value:,.2f}" if value < 10 else f"{value:,.0f}"


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "appends": appends,
    "index": index,
    "stalls": stalls,
    "group-commit": group_commit,
    "reads": reads,
    "many-queues": many_queues,
    "recovery": recovery,
}
BOTH_KERNELS = {"appends", "index", "recovery"}


if __name__ == "__main__":
    main()
