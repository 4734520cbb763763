"""How long clients are not served when a master fails, beside RocketMQ's controller mode.

python -m benchmarks.failover --rounds 5 --fault kill pause --into docs/failover-report.md
"""

import argparse
import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import markdown
from benchmarks.failover.clients import CLIENTS
from benchmarks.failover.groups import SERVERS
from benchmarks.failover.report import report
from benchmarks.failover.rounds import FAULTS, measure
from tests.interop import apache

COMMAND = "make bench-failover"


def main() -> None:
    options = parse()
    load = os.getloadavg()[0]
    apache.obtain("5.x", apache.PATIENCE_AHEAD)
    outcomes = []
    for server in options.servers:
        rounds = options.apache_rounds if server == "apache" else None
        faults = [fault for fault in options.fault for _ in range(rounds or options.rounds)]
        with tempfile.TemporaryDirectory(prefix="bolide-failover-") as directory:
            outcomes.append(asyncio.run(measure(server, options.client, faults, Path(directory))))
    markdown.publish(report(outcomes, load, command_line(options)), COMMAND, options.into)


def command_line(options: argparse.Namespace) -> str:
    """The command that measures this, with the rounds and faults also if they are the default."""
    words = [f"--rounds {options.rounds}", f"--fault {' '.join(options.fault)}"]
    if options.apache_rounds is not None:
        words.append(f"--apache-rounds {options.apache_rounds}")
    if options.servers != list(SERVERS):
        words.append(f"--servers {' '.join(options.servers)}")
    if options.client != list(CLIENTS):
        words.append(f"--client {' '.join(options.client)}")
    return f'{COMMAND} FAILOVER="{" ".join(words)}"'


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.failover",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5, help="of each fault and server")
    parser.add_argument("--apache-rounds", type=int, help="if not as many")
    parser.add_argument("--fault", nargs="+", choices=FAULTS, default=["kill"])
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--client", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--into", type=Path, help="a page with the markers of this command")
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
