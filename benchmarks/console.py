"""The console on a large cluster: how fast pages open, what it costs in memory and in latency.

Run as `make bench-console`; prints Markdown, and with `--into` writes it into the marked part of a
page. Everything is real: `bolide standalone` with its console, and Chromium.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

from benchmarks.markdown import publish
from benchmarks.processes import machine, private_mib, tree
from bolide.admin import AdminClient
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from tests.browser import chromium
from tests.browser.site import Site, in_thread, log_in, serve_site

COMMAND = "make bench-console"
BIG = "BigTopic"
PAGES = (
    "/", "/ops", "/cluster", "/topics", f"/topics/{BIG}", "/topics?sort=messages&order=desc",
    "/consumers", f"/messages?topic={BIG}", "/producers", "/dead-letters", "/audit",
)  # fmt: skip
TABS = ("/", "/topics", "/consumers", f"/messages?topic={BIG}", "/cluster")
GOAL_SECONDS, GOAL_MIB = 2.0, 200


@dataclass
class Measured:
    """What was found."""

    opened: dict[str, list[float]] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    latencies: dict[str, list[dict[str, float]]] = field(default_factory=dict)


def main() -> None:
    options = _options()
    found = Measured()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        site = stack.enter_context(serve_site(home))
        browser = stack.enter_context(_browser())
        _fill(site, options)
        console = _console_process(site)
        found.memory["after the start"] = private_mib(console)
        page = _logged_in(browser, site)
        _measure_pages(page, found, options.rounds)
        found.memory["after opening pages"] = private_mib(console)
        for _ in range(options.rounds):
            _measure_latency(site, found, "no tab", options.seconds)
            with _tabs(page, options.tabs):
                _measure_latency(site, found, f"{options.tabs} tabs", options.seconds)
                found.memory[f"with {options.tabs} tabs"] = private_mib(console)
    publish("\n".join(_lines(found, options)), COMMAND, options.into)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--topics", type=int, default=5000)
    parser.add_argument("--groups", type=int, default=2000)
    parser.add_argument("--messages", type=int, default=5_000_000, help="in one topic")
    parser.add_argument("--tabs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each latency run")
    parser.add_argument("--into", type=Path, help="write the result into this page")
    return parser.parse_args()


@contextmanager
def _browser() -> Iterator[Browser]:
    path = chromium.find()
    if path is None:
        sys.exit(chromium.ADVICE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_nice(path), args=list(chromium.FLAGS))
        yield browser
        browser.close()


def _nice(path: str) -> str:
    """A browser that gets a processor when nobody else wants it: it stands for other machines."""
    script = Path(tempfile.mkdtemp(prefix="bolide-bench-")) / "chromium"
    script.write_text(f'#!/bin/sh\nexec nice -n 19 {shlex.quote(path)} "$@"\n')
    script.chmod(0o755)
    return str(script)


def _fill(site: Site, options: argparse.Namespace) -> None:
    async def create() -> None:
        async with AdminClient(site.name_server, timeout=60.0) as admin:
            topics = [
                TopicConfig(topic_name=f"topic-{n:05}", read_queue_nums=4, write_queue_nums=4)
                for n in range(options.topics)
            ]
            for begin in range(0, len(topics), 500):
                await admin.topics.update_all(site.broker, topics[begin : begin + 500])
            groups = [GroupConfig(group_name=f"group-{n:05}") for n in range(options.groups)]
            for begin in range(0, len(groups), 500):
                await admin.groups.update_all(site.broker, groups[begin : begin + 500])
            big = TopicConfig(topic_name=BIG, read_queue_nums=8, write_queue_nums=8)
            await admin.topics.update(site.broker, big)

    in_thread(create)
    if options.messages:
        _bolide(
            "bench", "batch", "-n", site.name_server, "-t", BIG, "-s", "64", "-w", "16",
            "-b", "64", "-q", str(options.messages),
        )  # fmt: skip


def _bolide(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bolide", *words], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: {done.stderr}")
    return done.stdout


def _console_process(site: Site) -> int:
    """The console is a child of `bolide standalone`."""
    return next(pid for pid in tree(site.running.process.pid) if "console" in _words_of(pid))


def _words_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def _logged_in(browser: Browser, site: Site) -> Page:
    expect.set_options(timeout=60_000)
    context = browser.new_context(base_url=site.url, viewport={"width": 1440, "height": 900})
    page = context.new_page()
    log_in(page, site.url)
    return page


def _measure_pages(page: Page, found: Measured, rounds: int) -> None:
    for _ in range(rounds):
        for path in PAGES:
            begin = time.perf_counter()
            page.goto(path)
            _settle(page)
            found.opened.setdefault(path, []).append(time.perf_counter() - begin)


def _settle(page: Page) -> None:
    """Wait until the page shows what it loads."""
    expect(page.locator("main [role=heading][aria-level='1']")).to_be_visible()
    expect(page.locator(".state-loading")).to_have_count(0)


@contextmanager
def _tabs(page: Page, number: int) -> Iterator[None]:
    tabs = [page.context.new_page() for _ in range(number)]
    for at, tab in enumerate(tabs):
        tab.goto(TABS[at % len(TABS)])
        _settle(tab)
    yield
    for tab in tabs:
        tab.close()


def _measure_latency(site: Site, found: Measured, case: str, seconds: float) -> None:
    printed = _bolide(
        "bench", "latency", "-n", site.name_server, "--duration", str(seconds), "--json"
    )
    found.latencies.setdefault(case, []).append(json.loads(printed))


def _lines(found: Measured, options: argparse.Namespace) -> Iterator[str]:
    yield f"Measured with `{COMMAND}` on {machine()}."
    yield ""
    yield (
        f"{options.topics:,} topics, {options.groups:,} groups, {options.messages:,} messages in"
        f" one topic. Browser (at the lowest priority), console and servers share the machine;"
        f" {options.rounds} rounds."
    )
    yield ""
    yield f"| Page, opened by its URL | median s | slowest s | under {GOAL_SECONDS:g} s |"
    yield "| --- | ---: | ---: | --- |"
    for path, seconds in found.opened.items():
        holds = "yes" if max(seconds) < GOAL_SECONDS else "no"
        yield f"| `{path}` | {median(seconds):.2f} | {max(seconds):.2f} | {holds} |"
    yield ""
    yield f"| Private memory of the console | MiB | under {GOAL_MIB} MiB |"
    yield "| --- | ---: | --- |"
    for when, mib in found.memory.items():
        yield f"| {when} | {mib:.0f} | {'yes' if mib < GOAL_MIB else 'no'} |"
    yield ""
    yield "| 1,000 messages/s from send to listener | p50 ms | p99 ms, each round |"
    yield "| --- | ---: | ---: |"
    for case, runs in found.latencies.items():
        p50 = median(_figure(run, "p50") for run in runs)
        p99 = ", ".join(f"{_figure(run, 'p99'):.2f}" for run in runs)
        yield f"| {case} | {p50:.2f} | {p99} |"


def _figure(run: dict[str, Any], name: str) -> float:
    return float(run["latency_ms"][name])


if __name__ == "__main__":
    main()
