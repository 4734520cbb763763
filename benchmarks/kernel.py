"""The kernel's loops, compiled beside plain Python, in one process and one run.

Run as `python -m benchmarks.kernel`; prints Markdown. Each figure is the best of several rounds,
alternating between the kernels: noise of the machine only adds time.
"""

import argparse
import mmap
import random
import struct
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

from benchmarks.processes import machine
from bolide.kernel import Check
from bolide.kernel import records as reference
from bolide.model.message import Host
from bolide.protocol.hosts import pack_host
from bolide.protocol.record import RecordDraft

try:
    from bolide.kernel import _index, _records
except ImportError as exc:
    sys.exit(f"the compiled kernel is not available: {exc}")

QUEUES = 8
SLOTS = 5_000_000
PROPERTIES = (
    b"TAGS\x01TagA\x02KEYS\x01order-%07d\x02WAIT\x01true\x02"
    b"UNIQ_KEY\x010A0000051234AABBCCDD0001%08d\x02"
)


class Kernel(NamedTuple):
    name: str
    records: ModuleType
    keys: ModuleType


class Figure(NamedTuple):
    title: str
    work: Callable[[Kernel], float]
    """Return the seconds per unit of the figure."""
    text: Callable[[float], str]


KERNELS = (
    Kernel("compiled", _records, _index),
    Kernel("plain Python", reference, reference),
)


def main() -> None:
    options = _options()
    log = _log(options.megabytes, options.body)
    figures = _figures(log, options)
    best = {(figure.title, kernel): 1e9 for figure in figures for kernel in KERNELS}
    for _ in range(options.rounds):
        for figure in figures:
            for kernel in KERNELS:
                key = figure.title, kernel
                best[key] = min(best[key], figure.work(kernel))
    print(_report(figures, best, options))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernel", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--body", type=int, default=100, help="bytes per body")
    parser.add_argument("--megabytes", type=int, default=64, help="size of the scanned log")
    parser.add_argument("--keys", type=int, default=200_000, help="keys in the index")
    return parser.parse_args()


def _draft(number: int, body: int) -> RecordDraft:
    host = pack_host(Host("10.0.0.1", 10911))
    properties = PROPERTIES % (number, number)
    return RecordDraft(
        b"TopicTest", b"x" * body, properties, number % QUEUES, 1_700_000_000_000, host, host
    )


def _log(megabytes: int, body: int) -> memoryview:
    """A log of records with two keys each, spread over the queues."""
    view = memoryview(mmap.mmap(-1, megabytes * 1_000_000))
    position = number = 0
    while True:
        draft = _draft(number, body)
        if position + _records.record_size(draft) > len(view):
            return view[:position]
        stored_at = 1_700_000_000_000 + number
        position += _records.write_record(
            view, position, draft, number // QUEUES, position, stored_at
        )
        number += 1


def _figures(log: memoryview, options: argparse.Namespace) -> list[Figure]:
    draft = _draft(1, options.body)
    target = memoryview(bytearray(_records.record_size(draft)))
    record = bytes(log[: _records.record_size(draft)])
    keys = _keys(options.keys)
    return [
        Figure("record_size, µs", lambda k: _each(lambda: k.records.record_size(draft)), _us),
        Figure(
            "write_record, µs",
            lambda k: _each(lambda: k.records.write_record(target, 0, draft, 1, 2, 3)),
            _us,
        ),
        Figure(
            "describe, µs",
            lambda k: _each(lambda: k.records.describe(draft.topic, draft.properties)),
            _us,
        ),
        Figure(
            "read_record with its CRC, µs",
            lambda k: _each(lambda: k.records.read_record(record, check_crc=True)),
            _us,
        ),
        *_scans(log),
        Figure("put_keys, µs per key", lambda k: _put(k, keys), _us),
        Figure("find_keys, µs", lambda k: _find(k, keys), _us),
        Figure("rebuild_slots, µs per entry", lambda k: _rebuild(k, keys), _us),
    ]


def _scans(log: memoryview) -> list[Figure]:
    """Plain Python scans a tenth of the log, because it is so much slower."""
    count = _records.scan(log, 0, len(log), 0).count

    def walk(kernel: Kernel, *, keys: bool) -> float:
        end = len(log) if kernel.records is _records else len(log) // 10
        began = time.perf_counter()
        found = kernel.records.scan(log, 0, end, 0, check=Check.BODY, keys=keys)
        return (time.perf_counter() - began) / int(found.count)

    size = len(log) / count

    def rate(seconds: float) -> str:
        return f"{size / seconds / 1e6:,.0f} MB/s, {1 / seconds / 1e3:,.0f} k records/s"

    return [
        Figure("scan with CRC, queue entries and two keys", lambda k: walk(k, keys=True), rate),
        Figure("scan with CRC and queue entries", lambda k: walk(k, keys=False), rate),
    ]


def _keys(count: int) -> bytes:
    chosen = random.Random(1)  # noqa: S311  the same keys each time
    return b"".join(
        struct.pack(">Iqq", chosen.getrandbits(31), n * 250, 1_700_000_000_000 + n)
        for n in range(count)
    )


def _index_file(count: int) -> memoryview:
    return memoryview(mmap.mmap(-1, 40 + SLOTS * 4 + (count + 1) * 20))


def _put(kernel: Kernel, keys: bytes) -> float:
    """Seconds per key, in a file with as many slots as RocketMQ's, 256 keys per call."""
    count, batch = len(keys) // 20, 256
    view = _index_file(count)
    view[:] = bytes(len(view))  # touch all pages, as in an allocated file in use
    began = time.perf_counter()
    for first in range(0, count, batch):
        part = keys[first * 20 : (first + batch) * 20]
        kernel.keys.put_keys(view, SLOTS, count + 1, first + 1, 1_700_000_000_000, part)
    return (time.perf_counter() - began) / count


def _find(kernel: Kernel, keys: bytes) -> float:
    count = len(keys) // 20
    view = _index_file(count)
    _index.put_keys(view, SLOTS, count + 1, 1, 1_700_000_000_000, keys)
    hashes = [each[0] for each in struct.iter_unpack(">Iqq", keys[:200_000])]
    began = time.perf_counter()
    for key_hash in hashes:
        kernel.keys.find_keys(view, SLOTS, count + 1, key_hash, (0, 1 << 31), 32)
    return (time.perf_counter() - began) / len(hashes)


def _rebuild(kernel: Kernel, keys: bytes) -> float:
    count = len(keys) // 20
    view = _index_file(count)
    _index.put_keys(view, SLOTS, count + 1, 1, 1_700_000_000_000, keys)
    began = time.perf_counter()
    kernel.keys.rebuild_slots(view, SLOTS, count + 1)
    return (time.perf_counter() - began) / count


def _each(call: Callable[[], object], times: int = 20_000) -> float:
    began = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - began) / times


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.2f}"


def _report(
    figures: list[Figure], best: dict[tuple[str, Kernel], float], options: argparse.Namespace
) -> str:
    sizes = f"{options.body} bytes per body, {options.megabytes} MB of log, {options.keys:,} keys"
    lines = [
        f"Measured with `python -m benchmarks.kernel` on {machine()}.",
        "",
        f"{sizes}; best of {options.rounds} alternating rounds.",
        "",
        "| | " + " | ".join(kernel.name for kernel in KERNELS) + " | ratio |",
        "| --- |" + " --- |" * (len(KERNELS) + 1),
    ]
    for figure in figures:
        seconds = [best[figure.title, kernel] for kernel in KERNELS]
        cells = " | ".join(figure.text(each) for each in seconds)
        lines.append(f"| {figure.title} | {cells} | {seconds[1] / seconds[0]:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
