"""What replication costs: a broker without a slave, with one, and with sends that wait for it."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks import markdown
from benchmarks.brokers import (
    APACHE,
    APACHE_SYNC_SLAVE,
    ASYNC_SLAVE,
    BOLIDE,
    HEAP_GIB,
    SYNC_SLAVE,
)
from benchmarks.compare import figures
from benchmarks.compare.cells import BY_NAME, Cell
from benchmarks.compare.figures import Metric
from benchmarks.compare.goals import Goal, with_failures
from benchmarks.compare.loads import HalfLoad, Load, Replicated
from benchmarks.compare.report import command
from benchmarks.compare.results import Results
from benchmarks.compare.rounds import Round

COMMAND = "make bench-replicas"
CONTENDERS = (BOLIDE, ASYNC_SLAVE, SYNC_SLAVE, APACHE, APACHE_SYNC_SLAVE)
COSTS = ("send-64", "pipelined")
LATENCY = "half-load"
CELLS = (*COSTS, LATENCY)
_ASYNC_GOAL, _SYNC_GOAL = 80.0, 2.0
_MET = "met"
_MANY_CORES = 0.5


def _per_server_cpu_second(found: Round) -> float | None:
    """Messages by the CPU time of the master and its slave together."""
    seconds = found.used.cpu_seconds + found.slave_cpu_seconds
    return found.loaded.messages / seconds if seconds > 0 else None


def _slave_cpu_us(found: Round) -> float | None:
    return found.slave_cpu_seconds / max(found.loaded.messages, 1) * 1e6 or None


def _per_master_cpu_second(found: Round) -> float:
    return found.per_cpu_second


def _other_cores(found: Round) -> float:
    """Cores used by all processes but the generator, the master and its slave."""
    others = found.used.neighbour_cores + found.used.other_cores
    return max(others - found.slave_cpu_seconds / max(found.loaded.seconds, 1e-9), 0.0)


_COLUMNS: tuple[tuple[str, Metric, int, bool], ...] = (
    ("messages/s", lambda each: each.per_second, 0, True),
    ("master CPU s per million", lambda each: each.cpu_us, 2, True),
    ("slave CPU s per million", _slave_cpu_us, 2, True),
    ("messages per master-CPU-second", _per_master_cpu_second, 0, False),
    ("messages per CPU-second of both", _per_server_cpu_second, 0, False),
    ("p50 µs", lambda each: each.loaded.p50_us, 0, True),
    ("p99 µs", lambda each: each.loaded.p99_us, 0, True),
    ("p99.9 µs", lambda each: each.loaded.p999_us, 0, False),
    ("other cores", _other_cores, 2, False),
    ("stolen cores", lambda each: each.used.stolen_cores, 2, False),
)


def select(names: Sequence[str]) -> list[Cell]:
    """The named cells, or all that are measured with replicas."""
    return [_cell(name) for name in CELLS if name in (names or CELLS)]


def _cell(name: str) -> Cell:
    cell = BY_NAME[name]
    load: Load | None = cell.load
    title = cell.title
    if isinstance(load, HalfLoad):
        load = replace(load, server=APACHE_SYNC_SLAVE)
        title = "sends at half of what RocketMQ's SYNC_MASTER takes, 64 connections"
    assert load is not None
    return replace(
        cell, title=title, load=Replicated(load), stage=BY_NAME["send-64"].stage,
        contenders=CONTENDERS,
    )  # fmt: skip


def goals(results: Results) -> list[Goal]:
    return [with_failures(results, each) for each in _goals(results)]


def _goals(results: Results) -> Iterator[Goal]:
    for name in COSTS:
        rounds = results.rounds(name)
        if not rounds:
            continue
        kept = figures.ratio(rounds, ASYNC_SLAVE, BOLIDE, _per_master_cpu_second)
        yield Goal(
            f"`{name}`: messages per master-CPU-second with an ASYNC slave, of those without",
            _ASYNC_GOAL, None if kept is None else 100 * kept, unit="%",
            cell=name, server=ASYNC_SLAVE,
        )  # fmt: skip
        for what, metric in (
            ("CPU-second of master and slave", _per_server_cpu_second),
            ("master-CPU-second", _per_master_cpu_second),
        ):
            yield Goal(
                f"`{name}`: messages per {what}, SYNC_MASTER, relative to RocketMQ 5.x's",
                _SYNC_GOAL, figures.ratio(rounds, SYNC_SLAVE, APACHE_SYNC_SLAVE, metric),
                cell=name, server=SYNC_SLAVE,
            )  # fmt: skip


def is_met(results: Results) -> bool:
    """Whether there are figures and all of them reach the goals."""
    found = goals(results)
    return bool(found) and not results.missing and all(each.verdict == _MET for each in found)


def report(results: Results) -> str:
    """Goals and tables, with the machine, the date and the commit."""
    return "\n".join(_lines(results))


def _lines(results: Results) -> Iterator[str]:
    settings = results.settings
    measured_with = command(COMMAND, settings)
    yield f"Measured with `{measured_with}` on {results.machine}; {results.code}."
    yield ""
    yield (
        f"Medians of {settings['rounds']} rounds of {settings['seconds']:g} s, alternating between"
        f" the brokers, minimum and maximum in brackets. RocketMQ's heap is {HEAP_GIB} GiB."
    )
    yield from _disturbance(results)
    yield from ("", "| figure | goal | measured | |", "| --- | --- | --- | --- |")
    for goal in goals(results):
        verdict = ", ".join(filter(None, (goal.verdict, goal.detail)))
        yield f"| {goal.what} | {goal.target} | {goal.result} | {verdict} |"
    yield from ("", *_added_latency(results), "", *_table(results))
    for name, why in results.missing.items():
        yield f"- `{name}` has no figures: {' '.join(why.split())[:300]}"


def _disturbance(results: Results) -> Iterator[str]:
    """A warning if other programs used much of the machine."""
    cores = [_other_cores(each) for rounds in results.cells.values() for each in rounds]
    if cores and (middle := statistics.median(cores)) > _MANY_CORES:
        yield (
            f"Other programs used {middle:.1f} cores meanwhile, in the median: rates and latencies"
            " are worse than on a machine without other load."
        )


def _added_latency(results: Results) -> Iterator[str]:
    """What waiting for a slave adds at the same rate of sends."""
    rounds = results.rounds(LATENCY)
    if not rounds:
        return
    rate = figures.median(rounds, SYNC_SLAVE, lambda each: each.loaded.extra.get("rate"))
    yield f"| latency of a send, {rate or 0:,.0f} messages/s | p50 µs | p99 µs |"
    yield "| --- | --- | --- |"
    pairs = ((BOLIDE, SYNC_SLAVE), (APACHE, APACHE_SYNC_SLAVE))
    for without, waiting in pairs:
        for server in (without, waiting):
            cells = (markdown.cell(each) for each in _latencies(rounds, server))
            yield f"| {server} | " + " | ".join(cells) + " |"
        added = (figures.median(rounds, waiting, metric) or 0.0 for metric in (_p50_us, _p99_us))
        less = (figures.median(rounds, without, metric) or 0.0 for metric in (_p50_us, _p99_us))
        texts = (f"{more - base:+,.0f}" for more, base in zip(added, less, strict=True))
        yield f"| {without}: added by the slave | " + " | ".join(texts) + " |"


def _latencies(rounds: Sequence[Round], server: str) -> Iterator[list[float]]:
    yield figures.values(rounds, server, _p50_us)
    yield figures.values(rounds, server, _p99_us)


def _p50_us(found: Round) -> float | None:
    return found.loaded.p50_us


def _p99_us(found: Round) -> float | None:
    return found.loaded.p99_us


def _table(results: Results) -> Iterator[str]:
    titles = [*(title for title, *_ in _COLUMNS), "failed, of all rounds"]
    yield "| load | broker | " + " | ".join(titles) + " |"
    yield "|" + " --- |" * (len(titles) + 2)
    for cell in select(()):
        rounds = results.rounds(cell.name)
        title = f"{cell.title} (`{cell.name}`)"
        for server in dict.fromkeys(each.server for each in rounds):
            yield f"| {title} | {server} | " + " | ".join(_row(rounds, server)) + " |"
            title = ""


def _row(rounds: Sequence[Round], server: str) -> Iterator[str]:
    for _, metric, digits, spread in _COLUMNS:
        found = figures.values(rounds, server, metric)
        middle = figures.median(rounds, server, metric)
        if middle is None:
            yield markdown.NO_VALUE
        else:
            yield markdown.cell(found, digits) if spread else f"{middle:,.{digits}f}"
    yield f"{sum(figures.values(rounds, server, lambda each: each.loaded.failures)):,.0f}"
