"""The same faults under load for our controller mode and RocketMQ's, one after the other.

python -m benchmarks.chaos --rounds 20 --seed 2028 --into docs/fault-report.md
"""

import argparse
import asyncio
import logging
import os
import tempfile
from pathlib import Path

from benchmarks import markdown
from benchmarks.chaos.targets import MEMBERS, NEMESES, SERVERS
from benchmarks.failover.groups import title
from benchmarks.processes import machine
from bolide.chaos.history import Kind
from bolide.chaos.report import commit, kinds_table, nemesis_table, sentence
from bolide.chaos.run import RunOptions, RunResult, run_rounds
from bolide.chaos.workload import WorkloadOptions
from tests.interop import apache

COMMAND = "make chaos-compare"
KINDS = (Kind.PLAIN, Kind.ORDERED, Kind.TRANSACTION, Kind.TIMER, Kind.POP)
"""RocketMQ has no dedup windows."""
_BACK_WITHIN = 90.0
_DRAIN_WITHIN = 180.0
_SETTINGS = f"""\
Both: one NameServer with one controller in it, one broker group of {MEMBERS} members on loopback,
`allAckInSyncStateSet=true` (RocketMQ's default is `false`), log files of 16 MiB, check-backs of
transactions every 2 s. Nothing is cut, and no disk or clock fails: such faults of disks and clocks
cannot be injected into RocketMQ's processes; that their links are not cut either is a choice, for
which loopback is enough. A fault is held for at most 5 s. RocketMQ notices after 10 s that a master
hangs, so its rounds of pauses have no failover. RocketMQ's slaves copy the tables of their master
every second instead of every minute; its JVMs have heaps of at most 512 MiB, the serial collector
and only the first compiler, and take messages on a nearly full disk, too."""


def main() -> None:
    options = _options()
    # The clients would tell of every failed request; what counts is in the tables.
    logging.getLogger("bolide").setLevel(logging.CRITICAL)
    apache.obtain("5.x", apache.PATIENCE_AHEAD)
    load = os.getloadavg()[0]
    where = (
        f"Measured on {machine()}, commit {commit()}, with seed {options.seed}. The load average"
        f" was {load:.1f} on {os.cpu_count()} cores when it began."
    )
    lines = ["", where]
    for server in options.servers:
        with tempfile.TemporaryDirectory(prefix="bolide-chaos-") as directory:
            result = asyncio.run(_run(server, options.rounds, options.seed, Path(directory)))
        lines += ["", *_part(server, result)]
    markdown.publish("\n".join([*lines, "", _SETTINGS, ""]), COMMAND, options.into)


async def _run(server: str, rounds: int, seed: int, directory: Path) -> RunResult:
    options = RunOptions(
        seed=seed, rounds=rounds, nemeses=NEMESES, back_within=_BACK_WITHIN,
        drain_within=_DRAIN_WITHIN, workload=WorkloadOptions(kinds=KINDS),
    )  # fmt: skip
    async with SERVERS[server](directory / server) as target:
        return await run_rounds(target, options, lambda text: print(f"{server} {text}", flush=True))


def _part(server: str, result: RunResult) -> list[str]:
    faults = result.history.faults
    return [
        f"**{title(server)}**: {len(faults)} rounds in {result.seconds:.0f} s. {sentence(result)}",
        "",
        *[f"- {each}" for each in result.verdict.violations],
        "",
        *kinds_table(list(result.verdict.kinds.values())),
        "",
        *nemesis_table(faults),
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=20, help="of each server")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same faults")
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--into", type=Path, help="a page with the markers of this command")
    return parser.parse_args()


if __name__ == "__main__":
    main()
