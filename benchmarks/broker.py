"""What a message costs a broker: sends and pulls, ours beside Apache RocketMQ's.

Run as `make bench-broker`; prints Markdown, and writes it between the marks of a page with
`--into`. Both brokers run during the whole measurement and are loaded in turns by the same
generator, written in C. The CPU time is that of the whole broker process.
"""

import argparse
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import broker_report
from benchmarks.broker_loads import LATENCY_TOPIC, SHAPES, Loads
from benchmarks.broker_report import Start
from benchmarks.brokers import Running, contenders, start_standalone, started
from benchmarks.generators import compile_generator
from benchmarks.processes import machine, private_mib
from benchmarks.publishing import publish


def main() -> None:
    options = _options()
    generator = compile_generator("brokerload")
    names = contenders()
    starts = [_start(name) for _ in range(options.starts) for name in names]
    standalone = [start_standalone() for _ in range(options.starts)]
    with ExitStack() as stack:
        running = [stack.enter_context(started(name)) for name in names]
        loads = Loads(generator, running)
        for each in running:
            loads.prepare(each, options.warm_up)
        rounds = [
            loads.load(each, shape, options.seconds)
            for _ in range(options.rounds)
            for shape in SHAPES
            for each in running
        ]
        after = {each.name: [private_mib(each.pid)] for each in running}
        latencies = {each.name: _latency(each, options) for each in running}
    report = [
        *_head(options),
        *broker_report.loads(rounds, names),
        *broker_report.latencies(latencies, options.rate, options.latency_seconds),
        *broker_report.footprint(starts, standalone, after),
    ]
    publish("\n".join(report), "make bench-broker", options.into)
    if options.json:
        raw = {
            "starts": [asdict(each) for each in starts],
            "standalone": standalone,
            "rounds": [asdict(each) for each in rounds],
            "private_mib_after": after,
            "latencies": latencies,
        }
        options.json.write_text(json.dumps(raw, indent=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one round")
    parser.add_argument("--warm-up", type=float, default=6.0, help="seconds for each kind of load")
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--rate", type=float, default=1000.0, help="messages/s for latencies")
    parser.add_argument("--latency-seconds", type=float, default=30.0)
    parser.add_argument("--into", type=Path, help="page whose marked part is written anew")
    parser.add_argument("--json", type=Path, help="where to write every round")
    return parser.parse_args()


def _start(name: str) -> Start:
    with started(name) as running:
        time.sleep(1.0)
        return Start(name, running.start_seconds, private_mib(running.pid))


def _latency(broker: Running, options: argparse.Namespace) -> Any:
    command = [sys.executable, "-m", "bolide", "bench", "latency", "-n", broker.name_server]
    command += ["-t", LATENCY_TOPIC, "--rate", str(options.rate)]
    command += ["--duration", str(options.latency_seconds), "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def _head(options: argparse.Namespace) -> list[str]:
    rounds = (
        f"Medians of {options.rounds} rounds of {options.seconds:g} s in turns, least and most in"
        f" brackets; each kind of load warmed up for {options.warm_up:g} s."
    )
    return [f"Measured with `make bench-broker` on {machine()}.", "", rounds]


if __name__ == "__main__":
    main()
