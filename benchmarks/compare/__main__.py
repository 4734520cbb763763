"""What brokers do, ours beside Apache RocketMQ's, on the same disk and by the same clients.

Run as `make bench-compare`. Brokers of both kinds run at the same time and are loaded in turns.
Every round goes to a JSON file as soon as its cell is done; the report is Markdown.
"""

import argparse
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from benchmarks.compare import code, report
from benchmarks.compare.cells import BY_NAME, CELLS, PAIR, STAGES, Cell
from benchmarks.compare.context import measure_context
from benchmarks.compare.footprint import start
from benchmarks.compare.results import Results
from benchmarks.compare.rounds import Round
from benchmarks.compare.stages import Stage
from benchmarks.compare.warming import COLD, warm_up
from benchmarks.generators import compile_generator
from benchmarks.memory import new_page_us
from benchmarks.processes import machine
from benchmarks.publishing import publish, write
from tests.interop import apache

COMMAND = "make bench-compare"
T = TypeVar("T")


def main() -> None:
    options = _options()
    if options.list:
        print("\n".join(f"{cell.name:24} {cell.title}" for cell in CELLS))
        return
    _allow_many_files()
    results = _results(options)
    wanted = _wanted(options, results)
    for name, cells in groupby(wanted, key=lambda cell: cell.stage):
        try:
            _measure_stage(name, list(cells), results, options)
        except Exception as failed:  # noqa: BLE001
            print(f"brokers of {name!r} did not end well: {failed}", file=sys.stderr)
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
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of one round")
    parser.add_argument(
        "--warm-up", type=float,
        help=f"seconds for each cell, {COLD:g} times as many after a start",
    )  # fmt: skip
    parser.add_argument("--millions", type=float, help="messages of the large store")
    parser.add_argument("--json", type=Path, default=_file("compare.json"), help="every round")
    parser.add_argument(
        "--resume", action="store_true",
        help="keep what that file has; only what is missing, or named by --cells, is measured",
    )  # fmt: skip
    parser.add_argument(
        "--other-code", action="store_true",
        help="with --resume: also what other code measured; the report names it",
    )  # fmt: skip
    parser.add_argument("--into", type=Path, help="page whose marked part is written anew")
    parser.add_argument("--summary", type=Path, help="page whose marked part has the main figures")
    parser.add_argument("--plot", type=Path, help="SVG file for the cost of appends")
    parser.add_argument("--context", action="store_true", help="also NATS and RabbitMQ")
    parser.set_defaults(**report.DEFAULTS)
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
    results = Results(options.json, settings, machine(), code.version())
    if options.resume:
        results.go_on(other_code=options.other_code)
    else:
        results.begin_anew()
    results.facts |= {"page_us": new_page_us(), "page_again_us": new_page_us()}
    return results


def _wanted(options: argparse.Namespace, results: Results) -> list[Cell]:
    if options.cells:
        return [cell for cell in CELLS if cell.name in options.cells]
    return [cell for cell in CELLS if cell.name not in results.cells]


def _measure_stage(
    name: str, cells: Sequence[Cell], results: Results, options: argparse.Namespace
) -> None:
    generator = compile_generator("brokerload")
    used_before = _disk_used()
    with Stage(generator, results, options.millions, STAGES[name]) as stage:
        for cell in cells:
            begin = time.monotonic()
            try:
                results.add(cell.name, list(_rounds(cell, stage, options)))
                print(f"{report.line(results, cell)}", file=sys.stderr)
            except (Exception, SystemExit) as failed:  # noqa: BLE001
                results.fail(cell.name, f"{type(failed).__name__}: {failed}")
                print(f"{cell.name}: {failed}", file=sys.stderr)
                stage.stop_all()  # the next cell shall not meet a broker that hangs
            results.note_most("disk_gb", (_disk_used() - used_before) / 1e9)
            print(f"  {time.monotonic() - begin:.0f} s", file=sys.stderr)


def _disk_used() -> int:
    return shutil.disk_usage(tempfile.gettempdir()).used


def _rounds(cell: Cell, stage: Stage, options: argparse.Namespace) -> Iterator[Round]:
    count = cell.rounds or options.rounds
    if cell.load is None:
        for number in range(count):
            yield from map(start, _in_turn(cell.contenders, number))
        return
    with stage.brokers(cell.contenders, lasting=PAIR) as brokers:
        for broker in brokers:
            warm_up(cell.load, stage, broker, options.warm_up)
        for number in range(count):
            for broker in _in_turn(brokers, number):
                yield cell.load.round(stage, broker, options.seconds)


def _in_turn(contenders: Sequence[T], number: int) -> Iterable[T]:
    """Each comes as often first as last."""
    return contenders if number % 2 == 0 else reversed(contenders)


if __name__ == "__main__":
    main()
