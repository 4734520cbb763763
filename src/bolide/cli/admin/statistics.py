"""Statistics: brokerConsumeStats, statsAll, startMonitoring."""

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from bolide.admin import AdminClient
from bolide.admin.monitoring import GroupReport
from bolide.admin.traffic import TopicTraffic
from bolide.cli.admin.output import time_text
from bolide.cli.admin.progress import progress_bar
from bolide.cli.admin.session import AsDocument, NameServer, Switch, is_true, pass_over, run
from bolide.cli.admin.times import check_seconds
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.errors import BolideError
from bolide.logs import one_line
from bolide.model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from bolide.protocol.bodies.stats import BrokerConsumeStats
from bolide.protocol.refusals import TopicNotFound

_MAX_CONCURRENT = 16
_ROUND = 60.0
"""RocketMQ's interval between two rounds of the monitor."""

Rounds = Annotated[int | None, typer.Option("--rounds", min=1, help="End after so many rounds.")]


def broker_consume_stats(
    broker: Annotated[
        str, typer.Option("-b", "--brokerAddr", help="Address of one broker, host:port.")
    ],
    order: Annotated[
        Switch, typer.Option("-o", "--order", help="Only topics with a fixed order of queues.")
    ] = "false",
    timeout: Annotated[
        int, typer.Option("-t", "--timeoutMillis", min=1, help="Milliseconds to wait.")
    ] = 50_000,
    level: Annotated[
        int, typer.Option("-l", "--level", help="Only queues with so many messages to consume.")
    ] = 0,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show how far all groups of a broker are behind, by queue.

    Queues of which a group has consumed nothing yet are not shown, but count in the total.
    """
    stats = run(
        name_server,
        lambda admin: admin.brokers.consume_stats(
            broker, ordered=is_true(order), within=timeout / 1000
        ),
    )
    rows = [row for row in _queue_rows(stats) if row["diff"] >= level]
    if as_document:
        print_document({"queues": rows, "totalDiff": stats.total_diff})
        return
    titles = ("#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset")
    table = Table(*titles, "#Diff", "#LastTime")
    for row in rows:
        if row["lastTimestamp"] > 0:
            *cells, last = row.values()
            table.add(*cells, time_text(last, millis=False))
    table.print()
    print(f"\nDiff Total: {stats.total_diff}")


def _queue_rows(stats: BrokerConsumeStats) -> Iterator[dict[str, Any]]:
    for groups in stats.consume_stats_list:
        for group, topics in groups.items():
            for topic in topics:
                for queue, progress in sorted(topic.offset_table.items()):
                    yield {
                        "topic": queue.topic,
                        "group": group,
                        "brokerName": queue.broker_name,
                        "queueId": queue.queue_id,
                        "brokerOffset": progress.broker_offset,
                        "consumerOffset": progress.consumer_offset,
                        "diff": progress.broker_offset - progress.consumer_offset,
                        "lastTimestamp": progress.last_timestamp,
                    }


def stats_all(
    active: Annotated[
        bool, typer.Option("-a", "--activeTopic", help="Only topics with messages today.")
    ] = False,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Only this topic.")] = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the rates of topics and groups, and the messages of the last 24 hours."""

    async def act(admin: AdminClient) -> list[TopicTraffic]:
        return await _traffic(admin, topic)

    rows = [
        row
        for traffic in run(name_server, act)
        for row in _traffic_rows(traffic)
        if not active or row["inMsg24Hour"] or row["outMsg24Hour"]
    ]
    if as_document:
        print_document(rows)
        return
    titles = ("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour")
    table = Table(*titles, "#OutMsg24Hour")
    for row in rows:
        table.add(*_traffic_cells(row))
    table.print()


async def _traffic(admin: AdminClient, topic: str | None) -> list[TopicTraffic]:
    if topic is not None:
        names = [topic]
    else:
        hidden = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
        names = [name for name in sorted(await admin.topics.names()) if not name.startswith(hidden)]
    limit = asyncio.Semaphore(_MAX_CONCURRENT)
    with progress_bar("topics", len(names)) as advance:

        async def one(name: str) -> TopicTraffic | BolideError:
            async with limit:
                try:
                    return await admin.traffic.of(name)
                except BolideError as exc:
                    return exc
                finally:
                    advance(1)

        results = await asyncio.gather(*map(one, names))
    found = []
    for result in results:
        if isinstance(result, TopicTraffic):
            found.append(result)
            for exc in result.failures:
                pass_over(exc)
        elif topic is not None:
            raise result
        elif not isinstance(result, TopicNotFound):  # deleted meanwhile, or without a broker
            pass_over(result)
    return found


def _traffic_rows(traffic: TopicTraffic) -> Iterator[dict[str, Any]]:
    incoming = {"inTps": traffic.incoming.tps, "inMsg24Hour": traffic.incoming.day}
    for group in traffic.groups or ():
        yield {
            "topic": traffic.topic,
            "consumerGroup": group.group,
            "accumulation": group.lag,
            "outTps": group.out.tps,
            "outMsg24Hour": group.out.day,
        } | incoming
    if not traffic.groups:
        nothing = dict.fromkeys(("accumulation", "outTps", "outMsg24Hour"))
        nobody = None if traffic.groups is None else ""
        yield {"topic": traffic.topic, "consumerGroup": nobody} | nothing | incoming


def _traffic_cells(row: dict[str, Any]) -> tuple[object, ...]:
    incoming, day = f"{row['inTps']:.2f}", row["inMsg24Hour"]
    if row["consumerGroup"] is None:  # not known
        return row["topic"], "-", "-", incoming, "-", day, "-"
    if not row["consumerGroup"]:
        return row["topic"], "", 0, incoming, "", day, "NO_CONSUMER"
    lag = "-" if row["accumulation"] is None else row["accumulation"]
    rates = (incoming, f"{row['outTps']:.2f}")
    return row["topic"], row["consumerGroup"], lag, *rates, day, row["outMsg24Hour"]


def start_monitoring(
    interval: Annotated[
        float,
        typer.Option("--interval", callback=check_seconds, help="Seconds between two rounds."),
    ] = _ROUND,
    rounds: Rounds = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Report what consumer groups have not consumed, and what is wrong with them, every minute.

    Looks at all groups that are connected: backlog by topic, members that subscribe differently,
    queues that a member does not get done. Runs until interrupted.
    """

    async def act(admin: AdminClient) -> None:
        done = 0
        while True:
            reports = await admin.monitoring.round()
            if as_document:
                print_document([_report_document(report) for report in reports])
            else:
                _print_round(reports)
            done += 1
            if done == rounds:
                return
            await asyncio.sleep(interval)

    run(name_server, act)


def _print_round(reports: list[GroupReport]) -> None:
    line = "========================================="
    print(f"[MONITOR] {line}beginRound")
    for report in reports:
        for undone in report.backlogs:
            print(
                one_line(
                    f"[MONITOR] reportUndoneMsgs: UndoneMsgs [consumerGroup={undone.group}, "
                    f"topic={undone.topic}, undoneMsgsTotal={undone.total}, "
                    f"undoneMsgsSingleMQ={undone.longest}, "
                    f"undoneMsgsDelayTimeMills={undone.delay}]"
                )
            )
        notify = f"[MONITOR]  [NOTIFY] reportConsumerRunningInfo: ConsumerGroup: {report.group}"
        if report.status.differences():
            print(one_line(f"{notify}, Subscription different"))
        for each in report.status.problems():
            queue = each.queue
            where = f"topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}"
            reason = f"MessageQueue [{where}] {each.text}"
            print(one_line(f"{notify}, ClientId: {each.client_id}, {reason}"))
        if report.failure is not None:
            print(one_line(f"{notify}, not known: {report.failure}"))
    print(f"[MONITOR] {line}endRound", flush=True)


def _report_document(report: GroupReport) -> dict[str, object]:
    return {
        "consumerGroup": report.group,
        "undone": [
            {
                "topic": each.topic,
                "undoneMsgsTotal": each.total,
                "undoneMsgsSingleMQ": each.longest,
                "undoneMsgsDelayTimeMills": each.delay,
            }
            for each in report.backlogs
        ],
        "subscriptionDifferent": bool(report.status.differences()),
        "stuck": [
            {"clientId": each.client_id, "queue": each.queue, "reason": each.text}
            for each in report.status.problems()
        ],
        "failure": None if report.failure is None else str(report.failure),
    }
