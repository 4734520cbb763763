"""Conversion of records into Arrow record batches, compiled beside plain Python, on one core.

Run as `python -m benchmarks.columns`; prints Markdown. Each figure is the best of several rounds by
CPU time, alternating between the kernels: noise of the machine only adds time.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from unittest.mock import patch

from benchmarks.processes import machine
from bolide.arrow import batches
from bolide.arrow.batches import BatchBuilder
from bolide.kernel import COMPILED, Columns, columns, record_size, write_record
from bolide.model.message import Host
from bolide.protocol.hosts import pack_host
from bolide.protocol.record import RecordDraft

PROPERTIES = (
    b"TAGS\x01TagA\x02KEYS\x01order-%07d\x02WAIT\x01true\x02"
    b"UNIQ_KEY\x010A0000051234AABBCCDD0001%08d\x02"
)
HOST = pack_host(Host("10.0.0.1", 10911))
KERNELS = {"compiled": Columns if COMPILED else None, "plain Python": columns.Columns}


@dataclass(frozen=True)
class Figure:
    title: str
    body: int
    include_properties: bool = True
    check_crc: bool = False


FIGURES = (
    Figure("128 B bodies, 4 properties", 128),
    Figure("the same, with the bodies' CRC checked", 128, check_crc=True),
    Figure("the same, without the column of properties", 128, include_properties=False),
    Figure("1 KiB bodies, 4 properties", 1024),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.columns", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args()
    print(f"Measured with `python -m benchmarks.columns` on {machine()}; one core.\n")
    print("| Records into batches, rows/s | compiled | plain Python |\n| --- | --- | --- |")
    for figure in FIGURES:
        rates = best_rates(figure, options.rows, options.rounds)
        texts = (f"{rates[name] / 1000:,.0f} k" if name in rates else "none" for name in KERNELS)
        print(f"| {figure.title} | {' | '.join(texts)} |")


def best_rates(figure: Figure, rows: int, rounds: int) -> dict[str, float]:
    log = b"".join(records(rows, figure.body))
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, kind in KERNELS.items():
            if kind is not None:
                with patch.object(batches, "Columns", kind):
                    best[name] = max(rate(figure, log, rows), best.get(name, 0.0))
    return best


def rate(figure: Figure, log: bytes, rows: int) -> float:
    """Rows per CPU-second."""
    target = BatchBuilder(broker="broker-a", include_properties=figure.include_properties)
    began, found, position = time.process_time(), 0, 0
    while position < len(log):
        position = target.columns.add(log, position, check_crc=figure.check_crc).end
        found += target.build().num_rows
    assert found == rows
    return rows / (time.process_time() - began)


def records(rows: int, body: int) -> Iterator[bytes]:
    place = 0
    for number in range(rows):
        text = PROPERTIES % (number, number)
        draft = RecordDraft(
            b"TopicTest", b"x" * body, text, number % 8, 1_700_000_000_000, HOST, HOST
        )
        record = bytearray(record_size(draft))
        write_record(record, 0, draft, number // 8, place, 1_700_000_000_000 + number)
        place += len(record)
        yield bytes(record)


if __name__ == "__main__":
    main()
