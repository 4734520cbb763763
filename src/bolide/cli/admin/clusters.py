"""Clusters: clusterList."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from bolide.admin import AdminClient, ClusterNotFound
from bolide.cli.admin.each_server import ask_each
from bolide.cli.admin.output import UNKNOWN, java_text
from bolide.cli.admin.session import AsDocument, NameServer, run
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.protocol.bodies.routes import ClusterInfo

BrokerEntry = tuple[str, str, int, str]
"""Cluster, broker name, broker id and address."""

Figures = Mapping[str, str]


def cluster_list(
    more: Annotated[
        bool, typer.Option("-m", "--moreStats", help="Show message counts of yesterday and today.")
    ] = False,
    interval: Annotated[
        int | None, typer.Option("-i", "--interval", min=1, help="Repeat every so many seconds.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("-c", "--clusterName", help="Only this cluster.")
    ] = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """List all brokers with their load."""

    async def act(admin: AdminClient) -> None:
        await _show(admin, cluster, more, as_document)
        while interval is not None:
            await asyncio.sleep(interval)
            await _show(admin, cluster, more, as_document)

    run(name_server, act)


async def _show(admin: AdminClient, cluster: str | None, more: bool, as_document: bool) -> None:
    """Print all brokers, also those that do not answer."""
    entries = list(_entries(await admin.clusters.info(), cluster))
    figures = await ask_each((address for *_, address in entries), admin.brokers.runtime)
    found = {entry: figures[entry[3]] for entry in entries}
    if as_document:
        print_document([_document(entry, figures) for entry, figures in found.items()])
    elif more:
        _print_totals(found)
    else:
        _print_load(found)


def _entries(info: ClusterInfo, wanted: str | None) -> Iterator[BrokerEntry]:
    if wanted is not None and wanted not in info.cluster_addr_table:
        raise ClusterNotFound(wanted, info.cluster_addr_table)
    for cluster in sorted(info.cluster_addr_table):
        if wanted in {None, cluster}:
            for name in sorted(info.cluster_addr_table[cluster]):
                broker = info.broker_addr_table.get(name)
                for broker_id, address in sorted(broker.broker_addrs.items() if broker else ()):
                    yield cluster, name, broker_id, address


def _document(entry: BrokerEntry, figures: Figures | None) -> dict[str, object]:
    cluster, name, broker_id, address = entry
    return {
        "cluster": cluster,
        "brokerName": name,
        "brokerId": broker_id,
        "address": address,
        "runtime": figures,
    }


def _print_load(found: Mapping[BrokerEntry, Figures | None]) -> None:
    table = Table(
        "#Cluster Name",
        "#Broker Name",
        "#BID",
        "#Addr",
        "#Version",
        "#InTPS(LOAD)",
        "#OutTPS(LOAD)",
        "#Timer(Progress)",
        "#PCWait(ms)",
        "#Hour",
        "#SPACE",
        "#ACTIVATED",
    )
    for entry, figures in found.items():
        table.add(*entry, *([UNKNOWN] * 8 if figures is None else _load(figures)))
    table.print()


def _load(figures: Figures) -> list[str]:
    sends = f"{_rate(figures, 'putTps'):.2f}({_queue(figures, 'send')})"
    waiting = f"{_queue(figures, 'pull')}|{_queue(figures, 'ack')}"
    # RocketMQ 4.9 misspells the name with one r.
    transferred = max(_rate(figures, "getTransferredTps"), _rate(figures, "getTransferedTps"))
    pulls = f"{transferred:.2f}({waiting})"
    oldest = _number(figures, "earliestMessageTimeStamp")
    hours = (time.time() - oldest / 1000) / 3600 if oldest > 0 else 0
    return [
        figures.get("brokerVersionDesc", ""),
        sends,
        pulls,
        _timer(figures),
        figures.get("pageCacheLockTimeMills", ""),
        f"{hours:.2f}",
        f"{_number(figures, 'commitLogDiskRatio'):.4f}",
        java_text(figures.get("brokerActive", "").lower() == "true"),
    ]


def _queue(figures: Figures, kind: str) -> str:
    size = figures.get(f"{kind}ThreadPoolQueueSize", "N")
    return f"{size},{figures.get(f'{kind}ThreadPoolQueueHeadWaitTimeMills', 'N')}ms"


def _timer(figures: Figures) -> str:
    lag = f"{_number(figures, 'timerReadBehind'):.0f}-{_number(figures, 'timerOffsetBehind'):.0f}"
    rates = f"{_number(figures, 'timerEnqueueTps'):.1f}, {_number(figures, 'timerDequeueTps'):.1f}"
    return f"{lag}({_number(figures, 'timerCongestNum') / 10_000:.1f}w, {rates})"


def _rate(figures: Figures, name: str) -> float:
    """The 10-second rate, first of the rates over 10, 60 and 600 seconds."""
    return _float((figures.get(name, "").split() or [""])[0])


def _number(figures: Figures, name: str) -> float:
    return _float(figures.get(name, ""))


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _print_totals(found: Mapping[BrokerEntry, Figures | None]) -> None:
    titles = ("#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday")
    table = Table("#Cluster Name", "#Broker Name", *titles)
    for (cluster, name, _, _), figures in found.items():
        table.add(cluster, name, *([UNKNOWN] * 4 if figures is None else _totals(figures)))
    table.print()


def _totals(figures: Figures) -> list[int]:
    def between(kind: str, begin: str, end: str) -> int:
        return int(
            _number(figures, f"msg{kind}Total{end}") - _number(figures, f"msg{kind}Total{begin}")
        )

    yesterday, today = ("YesterdayMorning", "TodayMorning"), ("TodayMorning", "TodayNow")
    return [between(kind, *day) for day in (yesterday, today) for kind in ("Put", "Get")]
