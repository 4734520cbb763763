"""Measure Bolide's broker beside Apache RocketMQ's, on the same disk and with the same clients.

Run as `make bench-compare`. The brokers run at the same time and the load alternates between them.
The rounds of a cell go to a JSON file as soon as the cell is done; the report is Markdown. With
`--baseline` the broker of another checkout takes the place of Apache's. With `--access-control`
(`make bench-access`) both brokers have access control on, and the loads are signed. With
`--replicas` (`make bench-replicas`) brokers with and without a slave are compared.
"""

import argparse
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Protocol, TypeVar

from benchmarks.brokers import BASELINE
from benchmarks.checkouts import Checkout, UnusableCheckout
from benchmarks.compare import access, baseline, code, replicas, report
from benchmarks.compare.cells import BY_NAME, CELLS, LONG_LIVED, STAGES, Cell
from benchmarks.compare.context import measure_context
from benchmarks.compare.footprint import start
from benchmarks.compare.loads import COLD, warm_up
from benchmarks.compare.results import Results
from benchmarks.compare.rounds import Round
from benchmarks.compare.stages import Stage
from benchmarks.generators import PLAIN, SIGNED, compile_generator
from benchmarks.markdown import has_written_part, publish, write
from benchmarks.processes import machine, new_page_us
from tests.interop import apache

COMMAND = "make bench-compare"
T = TypeVar("T")
_NOT_WITH_BASELINE = ("resume", "other_code", "summary", "plot", "context")
_NOT_WITH_PART = (*_NOT_WITH_BASELINE, "baseline")


def main() -> int:
    options = _options()
    if options.list:
        print("\n".join(f"{cell.name:24} {cell.title}" for cell in CELLS))
        return 0
    _allow_many_files()
    if options.baseline:
        return _compare_with_baseline(options)
    if options.access_control:
        return _compare_part(options, access, "access.json")
    if options.replicas:
        return _compare_part(options, replicas, "replicas.json")
    results = _results(options, "compare.json")
    if options.resume:
        results.resume(other_code=options.other_code)
    else:
        results.start_over()
    results.facts |= {"page_us": new_page_us(), "page_again_us": new_page_us()}
    _measure(_wanted(options, results), results, options)
    if options.context:
        measure_context(results, options.seconds)
    publish(report.whole(results), COMMAND, options.into)
    if options.summary:
        write(report.summary(results), COMMAND, options.summary)
    if options.plot:
        report.write_plot(results, options.plot)
    return 0


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("--cells", nargs="+", choices=BY_NAME, metavar="NAME", default=[])
    parser.add_argument("--list", action="store_true", help="list the cells and exit")
    parser.add_argument("--rounds", type=int, help="of each cell and broker")
    parser.add_argument("--seconds", type=float, help="of one round")
    parser.add_argument(
        "--warm-up", type=float,
        help=f"seconds before each cell, {COLD:g} times as many after a broker's start",
    )  # fmt: skip
    parser.add_argument("--millions", type=float, help="messages of the large store")
    parser.add_argument("--json", type=Path, help="file for every round")
    parser.add_argument(
        "--resume", action="store_true",
        help="keep the rounds of that file; measure only cells that it lacks or --cells names",
    )  # fmt: skip
    parser.add_argument(
        "--other-code", action="store_true",
        help="with --resume: also keep rounds that other code measured; the report names them",
    )  # fmt: skip
    parser.add_argument(
        "--into", type=Path,
        help="page whose marked part is replaced; with --baseline, a Markdown or .json file",
    )  # fmt: skip
    parser.add_argument("--summary", type=Path, help="page whose marked part gets the main figures")
    parser.add_argument("--plot", type=Path, help="SVG file for the cost of appends")
    parser.add_argument("--context", action="store_true", help="also measure NATS and RabbitMQ")
    parser.add_argument(
        "--baseline", type=Path, metavar="CHECKOUT",
        help="compare with the broker of this checkout, run by its .venv, instead of Apache's;"
        " exit with 1 if a cell is worse than --limit",
    )  # fmt: skip
    parser.add_argument(
        "--limit", type=float, default=baseline.DEFAULT_LIMIT, metavar="PERCENT",
        help="with --baseline: how much worse a cell may be (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--access-control", action="store_true",
        help="with access control on, and signed loads; exit with 1 if a goal is missed",
    )  # fmt: skip
    parser.add_argument(
        "--replicas", action="store_true",
        help="with and without a slave; exit with 1 if a goal is missed",
    )  # fmt: skip
    parser.set_defaults(**report.DEFAULTS)
    options = parser.parse_args(arguments)
    if options.access_control:
        _check_part_options(parser, options, "--access-control", access.CELLS)
    if options.replicas:
        _check_part_options(parser, options, "--replicas", replicas.CELLS)
    if options.baseline:
        _check_baseline_options(parser, options)
    return options


def _check_part_options(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    option: str,
    cells: Sequence[str],
) -> None:
    for name in _NOT_WITH_PART:
        if getattr(options, name):
            parser.error(f"{option} does not go with --{name.replace('_', '-')}")
    if unfit := set(options.cells) - set(cells):
        parser.error(f"{', '.join(unfit)}: {option} has {', '.join(cells)}")


def _check_baseline_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    for name in _NOT_WITH_BASELINE:
        if getattr(options, name):
            parser.error(f"--baseline does not go with --{name.replace('_', '-')}")
    if options.into and has_written_part(options.into):
        parser.error(f"{options.into} is a page of this project: --baseline does not write there")
    try:
        baseline.select(options.cells)
    except ValueError as unfit:
        parser.error(str(unfit))


def _allow_many_files() -> None:
    """Raise the limit on descriptors, here and for the brokers, which inherit it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _results(options: argparse.Namespace, default_file: str) -> Results:
    names = ("rounds", "seconds", "warm_up", "millions")
    settings = {name: getattr(options, name) for name in names}
    file = options.json or apache.cache_directory().with_name("bench") / default_file
    return Results(file, settings, machine(), code.version())


def _wanted(options: argparse.Namespace, results: Results) -> list[Cell]:
    if options.cells:
        return [cell for cell in CELLS if cell.name in options.cells]
    return [cell for cell in CELLS if cell.name not in results.cells]


def _compare_with_baseline(options: argparse.Namespace) -> int:
    try:
        old = Checkout.at(options.baseline)
        old.require_same_runtime(Checkout.current())
    except UnusableCheckout as unusable:
        sys.exit(str(unusable))
    results, old_code = _results(options, "baseline.json"), code.version(old)
    print(f"old: {old_code}\nnew: {results.code}", file=sys.stderr)
    results.start_over()
    cells = baseline.select(options.cells)
    _measure(cells, results, options, {BASELINE: old})
    comparisons = baseline.compare(results, cells, options.limit)
    text = baseline.report(results, old_code, comparisons)
    print(text)
    if options.into:
        baseline.write(options.into, text, baseline.document(results, old_code, comparisons))
    return 1 if any(each.problem for each in comparisons) else 0


class _Part(Protocol):
    """A module with a comparison of its own: its cells, its report and its verdict."""

    COMMAND: str

    def select(self, names: Sequence[str]) -> list[Cell]: ...
    def report(self, results: Results) -> str: ...
    def is_met(self, results: Results) -> bool: ...


def _compare_part(options: argparse.Namespace, part: _Part, default_file: str) -> int:
    results = _results(options, default_file)
    results.start_over()
    _measure(part.select(options.cells), results, options)
    publish(part.report(results), part.COMMAND, options.into)
    return 0 if part.is_met(results) else 1


def _measure(
    cells: Sequence[Cell],
    results: Results,
    options: argparse.Namespace,
    checkouts: Mapping[str, Checkout] | None = None,
) -> None:
    """Measure the cells stage by stage; a stage that fails does not end the run."""
    for name, members in groupby(cells, key=lambda cell: cell.stage):
        try:
            _measure_stage(name, list(members), results, options, checkouts)
        except Exception as failed:  # noqa: BLE001
            print(f"stage {name!r} failed: {failed}", file=sys.stderr)


def _measure_stage(
    name: str,
    cells: Sequence[Cell],
    results: Results,
    options: argparse.Namespace,
    checkouts: Mapping[str, Checkout] | None = None,
) -> None:
    is_signed = options.access_control
    generator = compile_generator("brokerload", SIGNED if is_signed else PLAIN)
    used_before = _disk_used()
    with Stage(
        generator, results, options.millions, STAGES[name], checkouts or {}, is_signed
    ) as stage:
        for cell in cells:
            begin = time.monotonic()
            try:
                results.add(cell.name, list(_rounds(cell, stage, options)))
                print(f"{report.line(results, cell)}", file=sys.stderr)
            except (Exception, SystemExit) as failed:  # noqa: BLE001
                results.fail(cell.name, f"{type(failed).__name__}: {failed}")
                print(f"{cell.name}: {failed}", file=sys.stderr)
                stage.stop_all()  # the broker may hang: the next cell starts new ones
            results.record_maximum("disk_gb", (_disk_used() - used_before) / 1e9)
            print(f"  {time.monotonic() - begin:.0f} s", file=sys.stderr)


def _disk_used() -> int:
    return shutil.disk_usage(tempfile.gettempdir()).used


def _rounds(cell: Cell, stage: Stage, options: argparse.Namespace) -> Iterator[Round]:
    count = cell.rounds or options.rounds
    if cell.load is None:
        for number in range(count):
            yield from map(start, _in_turn(cell.contenders, number))
        return
    with stage.brokers(cell.contenders, lasting=LONG_LIVED) as brokers:
        for broker in brokers:
            warm_up(cell.load, stage, broker, options.warm_up)
        for number in range(count):
            for broker in _in_turn(brokers, number):
                yield cell.load.round(stage, broker, options.seconds)


def _in_turn(contenders: Sequence[T], number: int) -> Iterable[T]:
    """Reverse the order in every second round, so that each comes first as often as last."""
    return contenders if number % 2 == 0 else reversed(contenders)


if __name__ == "__main__":
    sys.exit(main())
