"""What was measured of brokers, as Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import tables
from benchmarks.broker_loads import SHAPES, Round
from benchmarks.brokers import BOLIDE

_ROWS = {
    "cpu_us": ("server CPU per message, µs", 2),
    "messages_per_second": ("messages per second", 0),
    "p50_us": ("p50 of a request, µs", 0),
    "p99_us": ("p99 of a request, µs", 0),
    "failures": ("failed requests", 0),
    "generator_cores": ("cores used by the generator", 2),
    "neighbour_cores": ("cores used by the other broker", 2),
    "other_cores": ("cores used by anything else", 2),
    "stolen_cores": ("cores the host gave to others", 2),
}


@dataclass(frozen=True)
class Start:
    """One start of a broker with an empty store."""

    server: str
    seconds: float
    idle_mib: float


def loads(rounds: Sequence[Round], names: Sequence[str]) -> Iterator[str]:
    for shape in SHAPES:
        found = [each for each in rounds if each.shape == shape.title]
        yield from ("", f"### {shape.title}", "", *tables.head(names))
        for field, (title, digits) in _ROWS.items():
            compare = not field.endswith("_cores")
            yield tables.row(title, _by_server(found, names, field), digits, compare=compare)


def latencies(found: Mapping[str, Any], rate: float, seconds: float) -> Iterator[str]:
    """Of what `bolide bench latency --json` printed for each broker."""
    yield from ("", f"### From send to listener at {rate:g} messages/s", "")
    yield (
        f"`bolide bench latency --rate {rate:g} --duration {seconds:g}`: our client sends and"
        " listens in one process; ms."
    )
    yield from ("", "| | " + " | ".join(found) + " |", "| --- |" + " --- |" * len(found))
    for name in ("p50", "p90", "p99", "p99.9", "max"):
        cells = (f"{each['latency_ms'][name]:.2f}" for each in found.values())
        yield f"| {name} | " + " | ".join(cells) + " |"
    counts = (f"{each['received']:,} of {each['sent']:,}" for each in found.values())
    yield "| received | " + " | ".join(counts) + " |"


def footprint(
    starts: Sequence[Start], standalone: Sequence[float], after: Mapping[str, Sequence[float]]
) -> Iterator[str]:
    """Of starts, and of the private memory in MiB when all the load was over."""
    names = list(after)
    alone = {name: standalone if name == BOLIDE else [] for name in names}
    yield from ("", "### Start-up and memory", "", *tables.head(names))
    seconds = _by_server(starts, names, "seconds")
    yield tables.row("start-up of a broker with an empty store, s", seconds, 2)
    yield tables.row("start-up of `bolide standalone`, s", alone, 2)
    yield tables.row("private memory, idle, MiB", _by_server(starts, names, "idle_mib"), 1)
    yield tables.row("private memory after the load, MiB", after, 1)


def _by_server(
    samples: Sequence[Round] | Sequence[Start], names: Sequence[str], field: str
) -> dict[str, list[float]]:
    return {
        name: [getattr(each, field) for each in samples if each.server == name] for name in names
    }
