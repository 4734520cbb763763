"""What brokers do, ours beside Apache RocketMQ's, on the same disk and by the same clients.

Run as `make bench-compare`. Brokers of both kinds run at the same time and are loaded in turns.
Every round goes to a JSON file as soon as its cell is done; the report is Markdown.
"""

import argparse
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from benchmarks.compare import report
from benchmarks.compare.cells import BY_NAME, CELLS, PAIR, STAGES, Cell
from benchmarks.compare.context import measure_context
from benchmarks.compare.footprint import start
from benchmarks.compare.results import Results
from benchmarks.compare.rounds import Round
from benchmarks.compare.stages import Stage
from benchmarks.generators import compile_generator
from benchmarks.processes import machine
from benchmarks.publishing import publish, write
from tests.interop import apache

COMMAND = "make bench-compare"


def main() -> None:
    options = _options()
    if options.list:
        print("\n".join(f"{cell.name:24} {cell.title}" for cell in CELLS))
        return
    _allow_many_files()
    results = _results(options)
    wanted = _wanted(options, results)
    for name, cells in groupby(wanted, key=lambda cell: cell.stage):
        _measure_stage(name, list(cells), results, options)
    if options.context:
        measure_context(results, options.seconds)
    publish(report.whole(results), COMMAND, options.into)
    if options.summary:
        write(report.summary(results), COMMAND, options.summary)
    if options.plot:
        report.write_plot(results, options.plot)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("--cells", nargs="+", choices=BY_NAME, metavar="NAME", default=[])
    parser.add_argument("--list", action="store_true", help="name the cells and leave")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one round")
    parser.add_argument("--warm-up", type=float, default=5.0, help="seconds for each cell")
    parser.add_argument("--millions", type=float, default=10.0, help="messages of the large store")
    parser.add_argument("--json", type=Path, default=_file("compare.json"), help="every round")
    parser.add_argument(
        "--resume", action="store_true",
        help="keep what that file has; only what is missing, or named by --cells, is measured",
    )  # fmt: skip
    parser.add_argument("--into", type=Path, help="page whose marked part is written anew")
    parser.add_argument("--summary", type=Path, help="page whose marked part has the main figures")
    parser.add_argument("--plot", type=Path, help="SVG file for the cost of appends")
    parser.add_argument("--context", action="store_true", help="also NATS and RabbitMQ")
    return parser.parse_args()


def _file(name: str) -> Path:
    return apache.cache_directory().with_name("bench") / name


def _allow_many_files() -> None:
    """For thousands of connections, ours and those of the brokers that inherit it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _results(options: argparse.Namespace) -> Results:
    names = ("rounds", "seconds", "warm_up", "millions")
    settings = {name: getattr(options, name) for name in names}
    results = Results(options.json, settings, machine())
    if options.resume:
        results.go_on()
    return results


def _wanted(options: argparse.Namespace, results: Results) -> list[Cell]:
    if options.cells:
        return [cell for cell in CELLS if cell.name in options.cells]
    return [cell for cell in CELLS if cell.name not in results.cells]


def _measure_stage(
    name: str, cells: Sequence[Cell], results: Results, options: argparse.Namespace
) -> None:
    generator = compile_generator("brokerload")
    with Stage(generator, results, options.millions, STAGES[name]) as stage:
        for cell in cells:
            begin = time.monotonic()
            try:
                results.add(cell.name, list(_rounds(cell, stage, options)))
                print(f"{report.line(results, cell)}", file=sys.stderr)
            except (Exception, SystemExit) as failed:  # noqa: BLE001
                results.fail(cell.name, f"{type(failed).__name__}: {failed}")
                print(f"{cell.name}: {failed}", file=sys.stderr)
            print(f"  {time.monotonic() - begin:.0f} s", file=sys.stderr)


def _rounds(cell: Cell, stage: Stage, options: argparse.Namespace) -> Iterator[Round]:
    count = cell.rounds or options.rounds
    if cell.load is None:
        for _ in range(count):
            yield from map(start, cell.contenders)
        return
    with stage.brokers(cell.contenders, lasting=PAIR) as brokers:
        for broker in brokers:
            cell.load.prepare(stage, broker)
            if cell.load.warm_up:
                cell.load.round(stage, broker, options.warm_up * stage.coldness(broker))
        for number in range(count):
            for broker in brokers if number % 2 == 0 else reversed(brokers):
                yield cell.load.round(stage, broker, options.seconds)


if __name__ == "__main__":
    main()
