"""Profile our broker under the load of a cell of the comparison.

`python -m benchmarks.profile send-64 batch-16` samples the broker with Linux `perf`, one round per
cell. The times are shares of the broker's CPU time of that round, per message.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.brokers import BOLIDE, Running
from benchmarks.compare.cells import BY_NAME, STAGES, Cell
from benchmarks.compare.loads import warm_up
from benchmarks.compare.results import Results
from benchmarks.compare.stages import Stage
from benchmarks.generators import compile_generator
from benchmarks.markdown import publish
from benchmarks.processes import machine

COMMAND = "python -m benchmarks.profile"
_WARM_UP = 3.0

# Time below these symbols is attributed to them; the kernel's remaining time is "other".
_CALLS = {
    "__x64_sys_write": "write", "ksys_write": "write", "__x64_sys_writev": "write",
    "ksys_read": "read", "__x64_sys_read": "read",
    "__x64_sys_fdatasync": "fdatasync", "__x64_sys_madvise": "pages ahead (madvise)",
    "asm_exc_page_fault": "page faults", "__x64_sys_epoll_pwait": "epoll",
}  # fmt: skip
_PARTS = (
    (re.compile(r"\[kernel"), "system: other"),
    (re.compile(r"libpython|^python"), "interpreter"),
    (re.compile(r"^_\w+\.cpython"), "compiled kernels"),
    (re.compile(r"^loop\."), "uvloop"),
    (re.compile(r"^lib|^ld-|vdso"), "C library"),
)
_LINE = re.compile(r"^\s*([\d.]+)%\s+(?:[\d.]+%\s+)?(?:\[[.k]\]\s+)?(\S+)")


def main() -> None:
    options = _options()
    if shutil.which("perf") is None:
        sys.exit("`perf` is not installed: install the package linux-perf or linux-tools")
    found = {name: _profile(BY_NAME[name], options.seconds) for name in options.cells}
    publish(_table(found), COMMAND, options.into)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("cells", nargs="+", choices=[*BY_NAME], metavar="CELL")
    parser.add_argument("--seconds", type=float, default=5.0, help="of one round")
    parser.add_argument("--into", type=Path, help="page whose marked part is replaced")
    return parser.parse_args()


def _profile(cell: Cell, seconds: float) -> dict[str, float]:
    """µs of each part per message."""
    if cell.load is None:
        sys.exit(f"{cell.name} does not load a running broker: choose another cell")
    with tempfile.TemporaryDirectory() as home:
        results = Results(Path(home) / "results.json", {}, machine(), "")
        samples = Path(home) / "perf.data"
        generator = compile_generator("brokerload")
        with (
            Stage(generator, results, 1.0, STAGES[cell.stage]) as stage,
            stage.brokers([BOLIDE], lasting=()) as (broker,),
        ):
            warm_up(cell.load, stage, broker, _WARM_UP)
            with _sampled(broker, samples):
                whole = cell.load.round(stage, broker, seconds).cpu_us
        shares = _shares(samples)
        print(f"{cell.name}: {whole:.2f} µs", file=sys.stderr)
        return {"whole": whole} | {part: share * whole for part, share in shares.items()}


@contextmanager
def _sampled(broker: Running, into: Path) -> Iterator[None]:
    pids = ",".join(map(str, broker.pids))
    command = ["perf", "record", "-q", "-g", "-F", "997", "-o", str(into), "-p", pids]
    perf = subprocess.Popen(command)
    try:
        yield
    finally:
        perf.terminate()
        perf.wait()


def _shares(samples: Path) -> dict[str, float]:
    """The share of each part, as fractions of 1."""
    shares: dict[str, float] = defaultdict(float)
    for name, share in _report(samples, "--no-children", "dso"):
        part = next((part for pattern, part in _PARTS if pattern.search(name)), "other")
        shares[part] += share
    calls: dict[str, float] = {}
    for name, share in _report(samples, "--children", "symbol"):
        if call := _CALLS.get(name):  # of two symbols for one call the outer one counts
            calls[call] = max(calls.get(call, 0.0), share)
    for call, share in calls.items():
        shares[f"system: {call}"] = share
        shares["system: other"] -= share
    return shares


def _report(samples: Path, children: str, key: str) -> Iterator[tuple[str, float]]:
    for line in _text(samples, children, key).splitlines():
        if match := _LINE.match(line):
            yield match[2], float(match[1]) / 100


def _text(samples: Path, children: str, key: str) -> str:
    command = ["perf", "report", "-i", str(samples), children, "--stdio", "-g", "none"]
    command += ["--sort", key]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _table(found: Mapping[str, Mapping[str, float]]) -> str:
    parts = _by_weight(found)
    names = " | ".join(f"`{name}`" for name in found)
    rows = [f"| broker CPU µs per message | {names} |", "| --- |" + " --- |" * len(found)]
    for part in parts:
        cells = [f"{max(times.get(part, 0.0), 0.0):.2f}" for times in found.values()]
        rows.append(f"| {part} | " + " | ".join(cells) + " |")
    return "\n".join(["Measured with `perf` on " + machine() + ".", "", *rows])


def _by_weight(found: Mapping[str, Mapping[str, float]]) -> Sequence[str]:
    sums: dict[str, float] = defaultdict(float)
    for times in found.values():
        for part, time_us in times.items():
            sums[part] += time_us / times["whole"]
    return sorted(sums, key=lambda part: -sums[part])


if __name__ == "__main__":
    main()
