"""drain: empties a broker, and says when it can be stopped."""

import asyncio
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any

import typer

from bolide.admin import AdminClient
from bolide.admin.drain import Plan, Undone
from bolide.admin.errors import BrokerUnknown
from bolide.admin.open_work import Open, Round, Watch
from bolide.cli.admin.confirmation import DryRun, Yes, confirm
from bolide.cli.admin.session import (
    AsDocument,
    BrokerAddress,
    ClusterName,
    NameServer,
    pass_over,
    require_one,
    run,
    targets,
)
from bolide.cli.command_line import FAILED, fail, program_name
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.logs import one_line
from bolide.remoting.errors import RemotingError

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
    accept_unknown: Annotated[
        bool,
        typer.Option("--accept-unknown", help="Take what a broker does not tell for done."),
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Have producers leave a broker, wait until it is empty, and say when it is safe to stop.

    Consumers go on reading. Waits until nobody writes, all groups have consumed everything, nothing
    waits for a later delivery, and the replicas have all of it; ends with 1 at the timeout, and
    says what is open. Ends with 1, too, if nothing is open but the broker does not tell all;
    --accept-unknown takes that for done. A broker that was stopped and started takes messages
    again; --undo has it take them again without.
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
    except (KeyboardInterrupt, asyncio.CancelledError):  # Ctrl-C, SIGTERM
        fail("interrupted" + wait.consequence, FAILED)
    except BaseException:
        if wait.consequence:
            print(f"{program_name()}: the drain has ended{wait.consequence}", file=sys.stderr)
        raise
    if accept_unknown:
        rounds = [replace(each, unknown=(), remarks=each.unknown + each.remarks) for each in rounds]
    _print_result(rounds, as_document=as_document)
    if any(each.open for each in rounds):
        fail("not safe to stop" if check else f"not safe to stop at the timeout; {_UNDO}", FAILED)
    if not all(each.is_safe for each in rounds):
        advice = "--accept-unknown takes what the broker does not tell for done"
        fail(f"not known whether it is safe to stop; {advice}{wait.consequence}", FAILED)


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
        self._began = False

    @property
    def consequence(self) -> str:
        """What is left of a drain that ends before the broker is stopped, to be added to a line."""
        return f": producers stay away from the broker; {_UNDO}" if self._began else ""

    async def run(self, admin: AdminClient, plans: list[Plan]) -> list[Round]:
        began, progress = time.monotonic(), _Progress()
        watches = [
            admin.drain.watch(plan, settle=self._settle, ignored_groups=self._ignored)
            for plan in plans
        ]
        with _cancelled_by_sigterm():
            try:
                while True:
                    rounds = [await self._look(admin, watch) for watch in watches]
                    late = self._timeout is not None and time.monotonic() - began >= self._timeout
                    if late or not any(each.open for each in rounds):
                        return rounds
                    progress.show(rounds)
                    await asyncio.sleep(self._interval)
            finally:
                progress.close()

    async def _look(self, admin: AdminClient, watch: Watch) -> Round:
        if self._only_look:
            return await watch.round()
        self._began = True
        failed = await admin.drain.wipe(watch.broker.broker_name)
        try:
            found = await watch.round()
        except (RemotingError, BrokerUnknown) as exc:
            away = Open(kind="broker", what=f"the broker does not answer: {exc}")
            return Round(watch.broker.address, watch.broker.broker_name, (*failed, away))
        return replace(found, open=(*failed, *found.open))


@contextmanager
def _cancelled_by_sigterm() -> Iterator[None]:
    """Have SIGTERM cancel the current task; Python handles signals in the main thread only."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    if task is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


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
        if self._draws:
            width = shutil.get_terminal_size().columns - 1  # a wrapped line is not overwritten
            print(f"\r\x1b[K{line[:width]}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

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
        for remark in each.remarks:
            print(one_line(f"not known of {each.broker_name}: {remark}"))
    for each in rounds:
        print(one_line(f"{each.broker_name} ({each.address}) {_state(each)}"))


def _state(found: Round) -> str:
    if found.is_safe:
        return "is safe to stop"
    if found.open:
        return "is not safe to stop"
    return "is not known to be safe to stop"


def _round_document(found: Round) -> dict[str, Any]:
    return {
        "brokerName": found.broker_name,
        "brokerAddr": found.address,
        "safe": found.is_safe,
        "open": found.open,
        "unknown": found.unknown,
        "remarks": found.remarks,
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
    async def act(admin: AdminClient) -> dict[str, Undone]:
        return {plan.broker_name: await admin.drain.undo(plan) for plan in plans}

    undone = {plan.broker_name: Undone(()) for plan in plans}
    if not dry_run:
        undone = run(name_server, act)
    for each in undone.values():
        for exc in each.failures:
            pass_over(exc)
    if as_document:
        print_document(
            [{"brokerName": name, "stillClosed": each.closed} for name, each in undone.items()]
        )
        return
    verb = "would return" if dry_run else "return"
    for name, each in undone.items():
        print(one_line(f"producers {verb} to {name}"))
        if each.closed:
            print(one_line(f"not to these topics, which it does not take: {_names(each.closed)}"))
