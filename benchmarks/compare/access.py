"""What access control costs: both brokers with theirs on, the loads signed by one user."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.brokers import HEAP_GIB
from benchmarks.compare.cells import BY_NAME, PAIR, Cell
from benchmarks.compare.goals import Goal, cost_goal
from benchmarks.compare.report import goal_rows, table
from benchmarks.compare.results import Results

COMMAND = "make bench-access"
CELLS = ("send-64", "pipelined", "tail-4")
_GOAL = 2
_MET = "met"


def select(names: Sequence[str]) -> list[Cell]:
    """The named cells, or all that are measured with access control."""
    return [replace(BY_NAME[name], contenders=PAIR) for name in CELLS if name in (names or CELLS)]


def goals(results: Results) -> list[Goal]:
    return [
        cost_goal(results, name, _GOAL, f"`{name}`, with access control")
        for name in CELLS
        if results.rounds(name)
    ]


def is_met(results: Results) -> bool:
    """Whether there are figures and all of them reach the goal."""
    found = goals(results)
    return bool(found) and not results.missing and all(each.verdict == _MET for each in found)


def report(results: Results) -> str:
    """Goals and a table, with the machine, the date and the commit."""
    return "\n".join(_lines(results))


def _lines(results: Results) -> Iterator[str]:
    settings = results.settings
    yield f"Measured with `{COMMAND}` on {results.machine}; {results.code}."
    yield ""
    yield (
        f"Medians of {settings['rounds']} rounds of {settings['seconds']:g} s, alternating between"
        f" the brokers, minimum and maximum in brackets. RocketMQ's heap is {HEAP_GIB} GiB."
    )
    yield from ("", *goal_rows(goals(results)), "")
    yield from table(results, select(()))
    for name, why in results.missing.items():
        yield f"- `{name}` has no figures: {' '.join(why.split())[:300]}"
