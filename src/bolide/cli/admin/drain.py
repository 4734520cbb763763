"""drain: empties a broker, and says when it can be stopped."""

import asyncio
import sys
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

import typer

from bolide.admin import AdminClient
from bolide.admin.drain import Plan
from bolide.admin.open_work import Open, Round, Watch
from bolide.cli.admin.confirmation import DryRun, Yes, confirm
from bolide.cli.admin.session import (
    AsDocument,
    BrokerAddress,
    ClusterName,
    NameServer,
    require_one,
    run,
    targets,
)
from bolide.cli.command_line import FAILED, fail
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.logs import one_line

_SETTLE = 35.0
"""Seconds; clients ask for routes every 30 s."""
_SHOWN_NAMES = 10
_REPEAT_AFTER = 10.0
"""Seconds after which the progress is printed again where lines stay."""


def drain(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Have producers return to the broker, and exit.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only look at what is open, change nothing, and exit.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, help="Give up after so many seconds.")
    ] = None,
    settle: Annotated[
        float,
        typer.Option("--settle", min=0, help="Seconds without a write after which nobody writes."),
    ] = _SETTLE,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")
    ] = 2,
    ignored_groups: Annotated[
        list[str] | None,
        typer.Option("--ignore-group", help="A group that need not consume the rest; repeatable."),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Have producers leave a broker, wait until it is empty, and say when it is safe to stop.

    Consumers go on reading. Waits until nobody writes, all groups have consumed everything, nothing
    waits for a later delivery, and the replicas have all of it; ends with 1 at the timeout, and
    says what is open. A broker that was stopped and started takes messages again; --undo has it
    take them again without.
    """
    require_one(broker, cluster)
    plans = run(name_server, lambda admin: _plans(admin, broker, cluster))
    if undo:
        _undo(name_server, plans, dry_run=dry_run, as_document=as_document)
        return
    if not check:
        confirm(
            f"Have producers leave {_names(plan.broker_name for plan in plans)}?",
            "\n".join(map(_plan_text, plans)),
            [_plan_document(plan) for plan in plans],
            yes=yes,
            dry_run=dry_run,
            as_document=as_document,
        )
    wait = _Wait(settle, interval, frozenset(ignored_groups or ()), 0 if check else timeout, check)
    try:
        rounds = run(name_server, lambda admin: wait.run(admin, plans))
    except KeyboardInterrupt:
        fail(f"interrupted: producers stay away from the broker; {_UNDO}", FAILED)
    _print_result(rounds, as_document=as_document)
    if not all(each.is_safe for each in rounds):
        fail("not safe to stop" if check else f"not safe to stop at the timeout; {_UNDO}", FAILED)


_UNDO = "`drain --undo` has them return"


async def _plans(admin: AdminClient, broker: str | None, cluster: str | None) -> list[Plan]:
    addresses = await targets(admin, broker, cluster)
    return [await admin.drain.plan(address, also=addresses) for address in addresses]


class _Wait:
    """Takes the write permission away and looks, until all brokers are safe or time is up."""

    def __init__(
        self,
        settle: float,
        interval: float,
        ignored_groups: frozenset[str],
        timeout: float | None,
        only_look: bool,
    ) -> None:
        self._settle = 0 if only_look else settle
        self._interval = interval
        self._ignored = ignored_groups
        self._timeout = timeout
        self._only_look = only_look

    async def run(self, admin: AdminClient, plans: list[Plan]) -> list[Round]:
        began, progress = time.monotonic(), _Progress()
        watches = [
            admin.drain.watch(plan, settle=self._settle, ignored_groups=self._ignored)
            for plan in plans
        ]
        try:
            while True:
                rounds = [await self._look(admin, watch) for watch in watches]
                late = self._timeout is not None and time.monotonic() - began >= self._timeout
                if late or all(each.is_safe for each in rounds):
                    return rounds
                progress.show(rounds)
                await asyncio.sleep(self._interval)
        finally:
            progress.close()

    async def _look(self, admin: AdminClient, watch: Watch) -> Round:
        failed: list[Open] = []
        if not self._only_look:
            failed = await admin.drain.wipe(watch.broker.broker_name)
        found = await watch.round()
        return Round(found.address, found.broker_name, (*failed, *found.open), found.unknown)


class _Progress:
    """What is open, on standard error: one line on a terminal, else lines now and then."""

    def __init__(self) -> None:
        self._draws = sys.stderr.isatty()
        self._shown = ""
        self._next = 0.0

    def show(self, rounds: list[Round]) -> None:
        text = "; ".join(
            f"{each.broker_name}: {_summary(each.open)}" for each in rounds if each.open
        )
        kinds = ",".join(item.kind for each in rounds for item in each.open)
        now = time.monotonic()
        if not self._draws and kinds == self._shown and now < self._next:
            return
        self._shown, self._next = kinds, now + _REPEAT_AFTER
        line = one_line(f"{datetime.now().astimezone():%H:%M:%S} {text}")
        start, end = ("\r\x1b[K", "") if self._draws else ("", "\n")
        print(f"{start}{line}", end=end, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._draws and self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _summary(items: Iterable[Open]) -> str:
    """The first item of each kind, and how much there is of the kind."""
    by_kind: dict[str, list[Open]] = {}
    for item in items:
        by_kind.setdefault(item.kind, []).append(item)
    parts = []
    for found in by_kind.values():
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        total = sum(item.count for item in found)
        parts.append(f"{found[0].what}{more}" + (f" ({total})" if total else ""))
    return ", ".join(parts)


def _print_result(rounds: list[Round], *, as_document: bool) -> None:
    if as_document:
        print_document([_round_document(each) for each in rounds])
        return
    table = Table("#Broker Name", "#Open", "#Count", "#Advice")
    for each in rounds:
        for item in each.open:
            table.add(each.broker_name, item.what, item.count or "", item.advice)
    if any(each.open for each in rounds):
        table.print()
    for each in rounds:
        for reason in each.unknown:
            print(one_line(f"not known of {each.broker_name}: {reason}"))
    for each in rounds:
        state = "is safe to stop" if each.is_safe else "is not safe to stop"
        print(one_line(f"{each.broker_name} ({each.address}) {state}"))


def _round_document(found: Round) -> dict[str, Any]:
    return {
        "brokerName": found.broker_name,
        "brokerAddr": found.address,
        "safe": found.is_safe,
        "open": found.open,
        "unknown": found.unknown,
    }


def _plan_text(plan: Plan) -> str:
    where = f"{plan.broker_name} ({plan.address})"
    lines = [f"{where}: producers leave, consumers go on reading; topics: {plan.topics}"]
    if plan.sole_topics:
        lines.append(
            f"no other broker has {len(plan.sole_topics)} of them, so that their producers fail:"
            f" {_names(plan.sole_topics)}"
        )
    if plan.producers:
        lines.append(f"connected producer groups: {_names(plan.producers)}")
    if not plan.slaves:
        lines.append("it has no replica: what it has stored cannot be read while it is stopped")
    return "\n".join(map(one_line, lines))


def _plan_document(plan: Plan) -> dict[str, Any]:
    return {
        "brokerName": plan.broker_name,
        "brokerAddr": plan.address,
        "clusterName": plan.cluster,
        "topics": plan.topics,
        "soleTopics": plan.sole_topics,
        "slaves": plan.slaves,
        "producers": plan.producers,
    }


def _names(names: Iterable[str]) -> str:
    found = [*names]
    more = f" and {len(found) - _SHOWN_NAMES} more" if len(found) > _SHOWN_NAMES else ""
    return ", ".join(found[:_SHOWN_NAMES]) + more


def _undo(name_server: str | None, plans: list[Plan], *, dry_run: bool, as_document: bool) -> None:
    async def act(admin: AdminClient) -> dict[str, list[str]]:
        return {plan.broker_name: await admin.drain.undo(plan) for plan in plans}

    closed = {plan.broker_name: list[str]() for plan in plans}
    if not dry_run:
        closed = run(name_server, act)
    if as_document:
        print_document(
            [{"brokerName": name, "stillClosed": topics} for name, topics in closed.items()]
        )
        return
    verb = "would return" if dry_run else "return"
    for name, topics in closed.items():
        print(one_line(f"producers {verb} to {name}"))
        if topics:
            print(one_line(f"not to these topics, which it does not take: {_names(topics)}"))
