"""Rounds and results with given figures."""

from pathlib import Path

from benchmarks.compare.results import Results
from benchmarks.compare.rounds import LoadResult, ResourceUsage, Round


def sample_round(
    server: str,
    *,
    per_second: float = 1000.0,
    cpu_us: float = 10.0,
    client_us: float = 5.0,
    private_mib: float = 0.0,
    p99_us: float | None = None,
    failures: int = 0,
    **extra: float,
) -> Round:
    """One second of load."""
    messages = round(per_second)
    client = client_us * messages / 1e6
    loaded = LoadResult(messages, 1.0, client, failures, p99_us=p99_us, extra=extra)
    return Round(server, loaded, ResourceUsage(cpu_us * messages / 1e6, private_mib=private_mib))


def sample_results(file: Path, **cells: list[Round]) -> Results:
    """Results with the given cells; underscores in their names stand for hyphens."""
    settings = {"rounds": 1, "seconds": 1.0, "warm_up": 0.0, "millions": 0.1}
    named = {name.replace("_", "-"): rounds for name, rounds in cells.items()}
    return Results(file, settings, "a machine", cells=named)
