"""The report: goals, tables and the plot."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from benchmarks import markdown
from benchmarks.brokers import APACHE, BOLIDE, HEAP_GIB
from benchmarks.compare import code, figures, plot
from benchmarks.compare.cells import BY_NAME, CELLS, FOOTPRINT, GROWTH_STEPS, Cell
from benchmarks.compare.figures import Metric
from benchmarks.compare.goals import Goal, goals
from benchmarks.compare.loads import COLD
from benchmarks.compare.results import Results
from benchmarks.compare.rounds import Round

_SUMMARY = ("send-64", "pipelined", "batch-16", "tail-4", "catch-up", "sync-64", "java-sync")
DEFAULTS = {"rounds": 5, "seconds": 3.0, "warm_up": 5.0, "millions": 10.0}

_COLUMNS: tuple[tuple[str, Metric, int, bool], ...] = (
    ("messages/s", lambda each: each.per_second, 0, True),
    ("server CPU s per million", lambda each: each.cpu_us, 2, True),
    ("messages per CPU-second", lambda each: each.per_cpu_second, 0, False),
    ("p50 µs", lambda each: each.loaded.p50_us, 0, False),
    ("p99 µs", lambda each: each.loaded.p99_us, 0, False),
    ("p99.9 µs", lambda each: each.loaded.p999_us, 0, False),
    ("RssAnon MiB", lambda each: each.used.private_mib, 0, False),
    ("RSS MiB", lambda each: each.used.resident_mib, 0, False),
    ("bytes written per message", lambda each: each.written_per_message, 0, False),
    ("client CPU µs", lambda each: each.client_cpu_us, 2, False),
    ("CPU after the load, %", lambda each: 100 * each.later_part, 0, False),
    ("other cores", lambda each: each.used.neighbour_cores + each.used.other_cores, 2, False),
    ("stolen cores", lambda each: each.used.stolen_cores, 2, False),
)


def whole(results: Results) -> str:
    return "\n".join((*_head(results), *_goals(results), *_groups(results), *_rest(results)))


def line(results: Results, cell: Cell) -> str:
    """The medians of a cell, as progress output."""
    rounds = results.rounds(cell.name)
    found = []
    for server in dict.fromkeys(each.server for each in rounds):
        rate = figures.median(rounds, server, lambda each: each.per_second)
        cost = figures.median(rounds, server, lambda each: each.cpu_us)
        found.append(f"{server} {rate:,.0f}/s at {cost:.2f} µs")
    return f"{cell.name}: " + "; ".join(found)


def summary(results: Results) -> str:
    """The main loads and the number of goals met, for the README."""
    rows = [f"Measured on {results.machine}.", ""]
    rows += ["| load | Bolide | RocketMQ 5.x | messages per server-CPU-second |"]
    rows += ["| --- | --- | --- | --- |"]
    for name in _SUMMARY:
        rounds = results.rounds(name)
        if rounds:
            rows.append(_summary_row(BY_NAME[name], rounds))
    verdicts = [goal.verdict for goal in goals(results)]
    missed, unknown = verdicts.count("**missed**"), verdicts.count("")
    counts = f"{verdicts.count('met')} of {len(verdicts)} goals are met, {missed} missed"
    rows += ["", f"{counts}, {unknown} not measured." if unknown else f"{counts}."]
    return "\n".join(rows)


def _summary_row(cell: Cell, rounds: Sequence[Round]) -> str:
    ours, theirs = (
        figures.median(rounds, server, lambda each: each.per_second) for server in (BOLIDE, APACHE)
    )
    times = figures.ratio(rounds, BOLIDE, APACHE, lambda each: each.per_cpu_second)
    rates = (markdown.NO_VALUE if each is None else f"{each:,.0f}/s" for each in (ours, theirs))
    last = markdown.NO_VALUE if times is None else f"{times:.1f} times RocketMQ's"
    return f"| {cell.title} | " + " | ".join((*rates, last)) + " |"


def write_plot(results: Results, file: Path) -> None:
    """Plot the cost of an append by the number of stored messages, if it was measured."""
    rounds = results.rounds("ten-million")
    if not rounds:
        return
    rows = {
        server: [(each.loaded.extra["stored"] / 1e6, each.cpu_us) for each in rounds
                 if each.server == server]
        for server in (BOLIDE, APACHE)
    }  # fmt: skip
    file.write_text(plot.lines(rows, "million messages stored", "µs of CPU per append"))


def _head(results: Results) -> Iterator[str]:
    settings = results.settings
    measured_with = command("make bench-compare", settings)
    yield f"Measured with `{measured_with}` on {results.machine}; {results.code}."
    yield from _other_code(results)
    yield ""
    yield (
        f"Medians of {settings['rounds']} rounds of {settings['seconds']:g} s, alternating between"
        " the brokers, minimum and maximum in brackets. The warm-up takes"
        f" {settings['warm_up']:g} s before each cell and {COLD * settings['warm_up']:g} s after a"
        " broker's start; RocketMQ's programs run for 9 s after 10 s. RocketMQ's heap is"
        f" {HEAP_GIB} GiB."
    )
    yield from _facts(results.facts)


def command(name: str, settings: Mapping[str, float]) -> str:
    """The command with the options that differ from their defaults."""
    options = [
        f"--{name.replace('_', '-')} {value:g}"
        for name, value in settings.items()
        if value != DEFAULTS[name]
    ]
    return f'{name} COMPARE="{" ".join(options)}"' if options else name


def _other_code(results: Results) -> Iterator[str]:
    codes = results.codes.items()
    others = {cell: each for cell, each in codes if not code.same(each, results.code)}
    for other in dict.fromkeys(others.values()):
        cells = ", ".join(f"`{cell}`" for cell, each in others.items() if each == other)
        yield f"Measured with {other}: {cells}."


def _facts(facts: Mapping[str, float]) -> Iterator[str]:
    if "page_us" in facts:
        yield (
            "The first write to a page of a new file"
            f" took {facts['page_us']:.1f} µs of CPU time at the start,"
            f" and {facts['page_again_us']:.1f} µs in memory that had just been used."
        )
    if "disk_gb" in facts:
        yield f"The stores used up to {facts['disk_gb']:.0f} GB of disk."


def _goals(results: Results) -> Iterator[str]:
    yield from ("", "### Goals", "", *goal_rows(goals(results)))


def goal_rows(found: Iterable[Goal]) -> Iterator[str]:
    """A table of goals."""
    yield "| figure, relative to RocketMQ 5.x | goal | measured | |"
    yield "| --- | --- | --- | --- |"
    for goal in found:
        verdict = ", ".join(filter(None, (goal.verdict, goal.detail)))
        yield f"| {goal.what} | {goal.target} | {goal.result} | {verdict} |"


def _groups(results: Results) -> Iterator[str]:
    cells = sorted(
        (cell for cell in CELLS if cell.group != FOOTPRINT and results.rounds(cell.name)),
        key=lambda cell: _order(cell.group),
    )
    for group, members in groupby(cells, key=lambda cell: cell.group):
        yield from ("", f"### {group}", "", *table(results, list(members)))


def _order(group: str) -> int:
    return list(dict.fromkeys(cell.group for cell in CELLS)).index(group)


def table(results: Results, cells: Sequence[Cell]) -> Iterator[str]:
    titles = [*(title for title, *_ in _COLUMNS), "failed, of all rounds"]
    titles[3:3] = ["of RocketMQ 5.x's"]
    yield "| load | broker | " + " | ".join(titles) + " |"
    yield "|" + " --- |" * (len(titles) + 2)
    for cell in cells:
        rounds = results.rounds(cell.name)
        title = f"{cell.title} (`{cell.name}`)"
        for server in dict.fromkeys(each.server for each in rounds):
            yield f"| {title} | {server} | " + " | ".join(_row(rounds, server)) + " |"
            title = ""


def _row(rounds: Sequence[Round], server: str) -> Iterator[str]:
    for number, (_, metric, digits, spread) in enumerate(_COLUMNS):
        if number == 3:
            times = figures.ratio(rounds, server, APACHE, lambda each: each.per_cpu_second)
            yield markdown.NO_VALUE if times is None or server == APACHE else f"{times:.2f}"
        found = figures.values(rounds, server, metric)
        middle = figures.median(rounds, server, metric)
        if middle is None:
            yield markdown.NO_VALUE
        else:
            yield markdown.cell(found, digits) if spread else f"{middle:,.{digits}f}"
    yield f"{sum(figures.values(rounds, server, lambda each: each.loaded.failures)):,.0f}"


def _rest(results: Results) -> Iterator[str]:
    yield from _starts(results)
    yield from _idle(results)
    yield from _memory(results)
    yield from _context(results)
    yield from _missing(results)


def _starts(results: Results) -> Iterator[str]:
    rounds = results.rounds("start")
    if not rounds:
        return
    rows: dict[str, Metric] = {
        "start-up with an empty store, s": lambda each: each.loaded.extra["start_s"],
        "to the first accepted send, s": lambda each: each.loaded.extra.get("first_send_s"),
        "shutdown, s": lambda each: each.loaded.extra.get("stop_s"),
        "private memory (RssAnon), idle, MiB": lambda each: each.used.private_mib or None,
        "resident memory (RSS), idle, MiB": lambda each: each.used.resident_mib or None,
    }
    yield from ("", "### Starts and memory at rest", "", *_plain_table(rounds, rows, 2))


def _idle(results: Results) -> Iterator[str]:
    rounds = results.rounds("idle-5000")
    if not rounds:
        return
    rows: dict[str, Metric] = {
        "KiB of private memory per connection": lambda each: each.loaded.extra["kib_each"],
        "cores used by the broker": lambda each: each.loaded.extra["cores"],
        "private memory, MiB": lambda each: each.used.private_mib,
    }
    yield from ("", f"### {BY_NAME['idle-5000'].title}", "", *_plain_table(rounds, rows, 2))


def _memory(results: Results) -> Iterator[str]:
    rounds = results.rounds("ten-million")
    if not rounds:
        return
    last = list({each.server: each for each in rounds}.values())
    rows: dict[str, Metric] = {
        "private memory (RssAnon), MiB": lambda each: each.used.private_mib,
        "resident memory (RSS), MiB": lambda each: each.used.resident_mib,
        "messages stored": lambda each: each.loaded.extra["stored"],
    }
    yield from ("", "### After the last of 10 million messages", "")
    yield from _plain_table(last, rows, 0)
    yield from ("", f"The cost of an append in each of {GROWTH_STEPS} steps, as the store grows:")
    yield from ("", "![CPU time for an append by messages stored](benchmarks-growth.svg)")


def _plain_table(rounds: Sequence[Round], rows: dict[str, Metric], digits: int) -> Iterator[str]:
    servers = list(dict.fromkeys(each.server for each in rounds))
    yield "| | " + " | ".join(servers) + " |"
    yield "|" + " --- |" * (len(servers) + 1)
    for title, metric in rows.items():
        cells = (
            markdown.cell(figures.values(rounds, server, metric), digits) for server in servers
        )
        yield f"| {title} | " + " | ".join(cells) + " |"


def _context(results: Results) -> Iterator[str]:
    if not results.context:
        return
    yield from ("", "### Other brokers on the same machine", "")
    yield from (
        "| broker | tool | load | messages/s | server CPU s per million |",
        "|" + " --- |" * 5,
    )
    for row in results.context:
        cost = row["server_cpu_us"]
        yield (
            f"| {row['broker']} | {row['tool']} | {row['load']} |"
            f" {markdown.cell(row['rates'])} | {markdown.cell(cost, 2)} |"
        )


def _missing(results: Results) -> Iterator[str]:
    if results.missing:
        yield ""
    for name, why in results.missing.items():
        yield f"- `{name}` has no figures: {' '.join(why.split())[:300]}"
