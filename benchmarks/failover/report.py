"""The table of the comparison, and where and how it was measured."""

import os
from collections.abc import Sequence
from statistics import median

from benchmarks.failover.clients import CLIENTS
from benchmarks.failover.groups import title
from benchmarks.failover.rounds import Outcome
from benchmarks.markdown import NO_VALUE
from benchmarks.processes import machine
from bolide.chaos.report import commit, table_lines

_FAULTS = {"kill": "killed (SIGKILL)", "pause": "paused (SIGSTOP)"}
_SETTINGS = """\
Both: one NameServer with one controller in it, one broker group of two members, all on loopback,
first all rounds of one, then of the other. Each client sends a message every 20 ms. A time is from
just before the fault to the first send that another member than the old master acknowledged with
`SEND_OK`, on one monotonic clock. Before each fault both members are in the sync-state set and all
clients are served. The old master is back, and in sync, before the next round.

Java's client finds the new master when it asks the NameServer for routes, by default every 30 s.
Until then its sends go to the old one. So with the default its time mostly says when the fault was
between two polls, and does not tell the servers apart: a round begins when the client is served
again, which is just after a poll.

Bolide: default settings; the brokers run below `bolide.chaos.member`, with no fault set.

Apache RocketMQ: `allAckInSyncStateSet=true`, because with its default, `false`, the master
acknowledges alone and a failover can lose messages; small files (log of 16 MiB), no timer wheel,
slaves that copy the tables of their master every second instead of every minute, brokers that
register as soon as they have started, no TLS, and messages taken on a nearly full disk, too;
otherwise default settings. Its JVMs have a heap of at most 512 MiB (NameServer: 256 MiB), the
serial collector, and only the first compiler.

A master that is cut off from the others is not compared here: RocketMQ's processes have no networks
of their own in this bench.

Lost are messages that were acknowledged with `SEND_OK` and are not in the topic at the end."""


def spread(seconds: Sequence[float | None]) -> str:
    """Median and worst, with the number of rounds and of those that failed."""
    if not seconds:
        return NO_VALUE
    found = [each for each in seconds if each is not None]
    failed = len(seconds) - len(found)
    notes = f"{len(seconds)} round{'s' * (len(seconds) > 1)}"
    if failed:
        notes += f", {failed} without service within a minute"
    if not found:
        return f"never ({notes})"
    return f"{median(found):.2f} s, worst {max(found):.2f} s ({notes})"


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Servers side by side: a row for each fault and client."""
    rows: list[list[str]] = []
    for fault, what in _FAULTS.items():
        for client, name in CLIENTS.items():
            cells = [_cell(outcome, fault, client) for outcome in outcomes]
            if any(cell != NO_VALUE for cell in cells):
                rows.append([f"Master {what}: {name}", *cells])
    rows.append(["Acknowledged messages", *(f"{each.acknowledged:,}" for each in outcomes)])
    rows.append(["Acknowledged and lost", *(f"{each.lost:,}" for each in outcomes)])
    return table_lines(
        ["Median time until served again", *(title(o.server) for o in outcomes)], rows
    )


def _cell(outcome: Outcome, fault: str, client: str) -> str:
    rounds = [each for each in outcome.rounds if each.fault == fault]
    return spread([each.seconds[client] for each in rounds if client in each.seconds])


def report(outcomes: Sequence[Outcome], load: float, command: str) -> str:
    """The part of the page that the command writes."""
    where = (
        f"Measured with `{command}` on {machine()}, commit {commit()}. The load average was"
        f" {load:.1f} on {os.cpu_count()} cores when it began."
    )
    return "\n".join(["", where, "", *table(outcomes), "", _SETTINGS, ""])
