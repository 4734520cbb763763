"""Statistics: brokerConsumeStats, statsAll, startMonitoring."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from bolide.admin import AdminClient
from bolide.admin.monitoring import GroupReport
from bolide.admin.servers import ask_failed_no_more
from bolide.admin.traffic import Flow, GroupTraffic, TopicTraffic
from bolide.cli.admin.output import UNKNOWN, time_text, total_text
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
        if not active or row.is_active
    ]
    if as_document:
        print_document([row.document() for row in rows])
        return
    titles = ("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour")
    table = Table(*titles, "#OutMsg24Hour")
    for row in rows:
        table.add(*row.cells())
    table.print()


async def _traffic(admin: AdminClient, topic: str | None) -> list[TopicTraffic]:
    if topic is not None:
        names = [topic]
    else:
        hidden = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
        names = [name for name in sorted(await admin.topics.names()) if not name.startswith(hidden)]
    limit = asyncio.Semaphore(_MAX_CONCURRENT)
    with progress_bar("topics", len(names)) as advance, ask_failed_no_more():

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


@dataclass(frozen=True)
class _TrafficRow:
    """A topic and one of its groups; `group` is None if there is none."""

    topic: str
    incoming: Flow
    knows_groups: bool
    group: GroupTraffic | None

    @property
    def is_active(self) -> bool:
        """Whether there are messages of today, or may be."""
        flows = [self.incoming, *([self.group.out] if self.group else [])]
        return any(flow.day or not flow.is_whole for flow in flows)

    def document(self) -> dict[str, Any]:
        """Figures that are not known, or not of all brokers, are None."""
        group, nobody = self.group, "" if self.knows_groups else None
        out = group.out if group and group.out.is_whole else None
        incoming = self.incoming if self.incoming.is_whole else None
        return {
            "topic": self.topic,
            "consumerGroup": group.group if group else nobody,
            "accumulation": group.lag if group else None,
            "outTps": out.tps if out else None,
            "outMsg24Hour": out.day if out else None,
            "inTps": incoming.tps if incoming else None,
            "inMsg24Hour": incoming.day if incoming else None,
        }

    def cells(self) -> tuple[object, ...]:
        rate, day = _flow_cells(self.incoming)
        group = self.group
        if not self.knows_groups:
            return self.topic, "-", "-", rate, "-", day, "-"
        if group is None:
            return self.topic, "", 0, rate, "", day, "NO_CONSUMER"
        out_rate, out_day = _flow_cells(group.out)
        lag = total_text(group.lag, group.least_lag)
        return self.topic, group.group, lag, rate, out_rate, day, out_day


def _traffic_rows(traffic: TopicTraffic) -> Iterator[_TrafficRow]:
    knows_groups = traffic.groups is not None
    for group in traffic.groups or (None,):
        yield _TrafficRow(traffic.topic, traffic.incoming, knows_groups, group)


def _flow_cells(flow: Flow) -> tuple[str, str]:
    """The rate and the messages; marked if they are without those of a broker."""
    if flow.is_whole:
        return f"{flow.tps:.2f}", str(flow.day)
    if not flow.told:
        return UNKNOWN, UNKNOWN
    return f">={flow.tps:.2f}", f">={flow.day}"


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
            for exc in (exc for report in reports for exc in report.failures):
                pass_over(exc)
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
        if report.status is not None and report.status.differences():
            print(one_line(f"{notify}, Subscription different"))
        for each in report.status.problems() if report.status is not None else ():
            queue = each.queue
            where = f"topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}"
            reason = f"MessageQueue [{where}] {each.text}"
            print(one_line(f"{notify}, ClientId: {each.client_id}, {reason}"))
        for exc in report.failures:
            print(one_line(f"{notify}, not known: {exc}"))
    print(f"[MONITOR] {line}endRound", flush=True)


def _report_document(report: GroupReport) -> dict[str, object]:
    status = report.status
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
        "subscriptionDifferent": None if status is None else bool(status.differences()),
        "stuck": None
        if status is None
        else [
            {"clientId": each.client_id, "queue": each.queue, "reason": each.text}
            for each in status.problems()
        ],
        "failure": "; ".join(map(str, report.failures)) or None,
    }
