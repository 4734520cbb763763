"""Measure the costs, compare them with the stored ratios, and exit with 1 on a regression.

    python -m benchmarks.smoke                  compare
    python -m benchmarks.smoke --store          measure several times and store the ratios
    python -m benchmarks.smoke --slow-down 30   check that a slow-down of 30 % is detected

A ratio is the CPU time per request, or per message in the client, by that of the reference, in
alternating rounds. A cell past its limit is measured again with as many rounds, and all of its
rounds count.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence

from benchmarks.processes import machine
from benchmarks.smoke import verdict
from benchmarks.smoke.cells import MAX_ROUNDS, Bench, bench
from benchmarks.smoke.verdict import Record
from bolide.kernel import COMPILED

KERNEL = "compiled" if COMPILED else "python"

Ratios = dict[str, list[float]]


def main() -> int:
    options = _options()
    print(f"{machine()}; kernel: {KERNEL}", flush=True)
    if options.store:
        return _store(options.runs, options.rounds)
    record = Record.read()
    if record.kernel != KERNEL:
        sys.exit(f"the stored ratios are for the {record.kernel} kernel, this kernel is {KERNEL}")
    with bench(options.slow_down) as running:
        measured = _measure(running, running.cells, options.rounds)
        if suspects := verdict.worse(record.cells, measured):
            print(f"measuring again: {'; '.join(suspects)}", flush=True)
            for name, ratios in _measure(running, suspects, options.rounds).items():
                measured[name] += ratios
    return _report(record, measured)


def _report(record: Record, measured: Ratios) -> int:
    print(f"stored on {record.machine}\n\n{verdict.HEAD}")
    for name, ratios in measured.items():
        print(verdict.row(name, record.cells[name], ratios))
    worse = verdict.worse(record.cells, measured)
    for name in worse:
        stored, now = record.cells[name], statistics.median(measured[name])
        print(
            f"{name}: the ratio was {stored.ratio:.2f} and is {now:.2f}, past the limit of"
            f" {stored.limit:.2f}",
            file=sys.stderr,
        )
    return 1 if worse else 0


def _store(runs: int, rounds: int) -> int:
    """Each run starts new servers, because their memory layout affects the result."""
    medians: Ratios = {}
    for number in range(runs):
        with bench() as running:
            for name, ratios in _measure(running, running.cells, rounds).items():
                medians.setdefault(name, []).append(statistics.median(ratios))
        found = "; ".join(f"{name} {each[-1]:.2f}" for name, each in medians.items())
        print(f"run {number + 1} of {runs}: {found}", flush=True)
    cells = {name: verdict.of_runs(each) for name, each in medians.items()}
    for name, stored in cells.items():
        print(f"{name:<18}{stored.ratio:>9.2f}, spread {stored.spread:.1%}")
    Record(machine(), KERNEL, cells).write()
    return 0


def _measure(running: Bench, cells: Sequence[str], rounds: int) -> Ratios:
    found = running.measure(cells, rounds)
    return {name: [cost / by for cost, by in pairs] for name, pairs in found.items()}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.smoke", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=9, choices=range(1, MAX_ROUNDS + 1), metavar="N"
    )
    parser.add_argument("--store", action="store_true", help="measure and store the ratios")
    parser.add_argument("--runs", type=int, default=5, help="for --store")
    parser.add_argument(
        "--slow-down", type=float, default=0.0, metavar="PERCENT",
        help="make our code burn this much additional CPU time",
    )  # fmt: skip
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
