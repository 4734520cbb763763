"""The connected members of a consumer group, and what they report about themselves.

A member is asked through the broker that it is connected to, and may take seconds to answer, or
never do; its report is then unknown.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bolide.admin.consumer_status import GroupStatus
from bolide.errors import BolideError
from bolide.model.message_queue import MessageQueue
from bolide.model.names import is_retry_topic
from bolide.operations.cluster import Cluster
from bolide.operations.consumers.directory import Broker, Directory, KnownGroup, read_directory
from bolide.operations.consumers.figures import ConsumerKind, read_live
from bolide.operations.declaration import read
from bolide.operations.errors import NotFound, NotSupported
from bolide.operations.views import Failure, reason_of
from bolide.protocol.bodies.consumers import Connection, RunningConsumer
from bolide.protocol.bodies.heartbeat import Subscription
from bolide.protocol.refusals import ConsumerTimedOut, ServerError
from bolide.remoting.errors import RemotingError
from bolide.version import version_name

_SECONDS = 10.0
"""How long the reports of members are shared."""
_ANSWER = 4.0
"""Seconds for the report of a member."""
_MAX_REPORTS = 200
"""Members that are asked; of larger groups the others are shown without a report."""
_MAX_CONCURRENT = 16
_NOT_ASKED = f"not asked: the group has more than {_MAX_REPORTS} members"

_REPORTED_KINDS = {
    "CONSUME_PASSIVELY": ConsumerKind.PUSH,
    "CONSUME_ACTIVELY": ConsumerKind.PULL,
    "CONSUME_POP": ConsumerKind.POP,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """What a member wants of a topic."""

    topic: str
    expression: str
    expression_type: str
    """TAG or SQL92."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTraffic:
    """What a member says of its work in one topic; times are means in milliseconds."""

    topic: str
    pull_ms: float
    pull_per_second: float
    consume_ms: float
    consumed_per_second: float
    failed_per_second: float
    failed: int
    """Failed deliveries, in the last hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A connected client of a group."""

    client_id: str
    address: str | None
    language: str | None
    version: str
    kind: ConsumerKind | None = None
    is_ordered: bool | None = None
    started_ms: int | None = None
    threads: int | None = None
    """Threads that run its handler; not all clients have any."""
    subscriptions: list[MemberSubscription] | None = None
    """Without the retry topic; None if it did not report."""
    queues: int | None = None
    """Queues that it has now, without those of the retry topic."""
    buffered: int | None = None
    """Messages that it has fetched, but not consumed."""
    traffic: list[MemberTraffic] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    """Settings as the client tells them."""
    silence: str = ""
    """Why it did not report; empty if it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferingTopic:
    """A topic that members of a group subscribe to differently: messages are lost."""

    topic: str
    expressions: dict[str, str | None]
    """By client id; None for a member without a subscription to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberProblem:
    """A queue that a member has, but does not consume."""

    client_id: str
    topic: str
    broker: str
    queue_id: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The members of a group."""

    members: list[Member]
    differences: list[DifferingTopic]
    problems: list[MemberProblem]
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStack:
    """The threads or tasks of a member."""

    client_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The member that has a queue."""

    client_id: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberReports:
    """What the members of a group reported."""

    connections: list[Connection]
    reports: Mapping[str, RunningConsumer]
    """By client id."""
    silences: Mapping[str, str]
    """Why others did not report, by client id."""
    owners: Mapping[MessageQueue, Owner]
    failures: list[Failure]
    """Of brokers, and one for each member without a report."""

    @property
    def status(self) -> GroupStatus:
        return GroupStatus(self.connections, self.reports)

    @property
    def is_ordered(self) -> bool | None:
        """Whether members consume in order; None if none reported."""
        told = [_is_ordered(each) for each in self.reports.values()]
        return any(told) if told else None

    @property
    def topics(self) -> set[str]:
        """The topics that members subscribe to, without retry topics."""
        return {
            each.topic
            for report in self.reports.values()
            for each in report.subscription_set
            if not is_retry_topic(each.topic)
        }


@read("/groups/{group}/clients")
async def list_members(cluster: Cluster, *, group: str) -> Members:
    """List the connected members of a group with what each reports about itself.

    Members that subscribe differently are among the `differences`: the brokers keep one
    subscription per group and share the queues among all members, so messages get lost.
    """
    directory = await read_directory(cluster)
    reports = await read_reports(cluster, directory, directory.group(group))
    return Members(
        members=[_member(each, reports) for each in reports.connections],
        differences=[
            DifferingTopic(topic=each.topic, expressions=dict(each.expressions))
            for each in reports.status.differences()
        ],
        problems=[
            MemberProblem(
                client_id=each.client_id,
                topic=each.queue.topic,
                broker=each.queue.broker_name,
                queue_id=each.queue.queue_id,
                text=each.text,
            )
            for each in reports.status.problems()
        ],
        failures=reports.failures,
    )


@read("/groups/{group}/clients/{client_id}/stack")
async def show_stack(cluster: Cluster, *, group: str, client_id: str) -> MemberStack:
    """Show what the threads or tasks of a member do right now.

    The broker passes the question on to the client. Not all clients answer it.
    """
    directory = await read_directory(cluster)
    known = directory.group(group)
    live = await read_live(cluster, directory, known)
    if live.members_known and all(each.client_id != client_id for each in live.members):
        raise NotFound(f"no client {client_id!r} of group {group!r} is connected")
    report = await _report(cluster, directory.brokers_of(known), (group, client_id), stacks=True)
    if not report.jstack:
        raise NotSupported(f"the client {client_id!r} does not tell its stack")
    return MemberStack(client_id=client_id, text=report.jstack)


async def read_reports(cluster: Cluster, directory: Directory, group: KnownGroup) -> MemberReports:
    """Ask the members of a group, the first ones of a very large group."""
    return await cluster.shared(
        f"consumers:reports:{group.name}",
        lambda: _read_reports(cluster, directory, group),
        seconds=_SECONDS,
    )


async def _read_reports(cluster: Cluster, directory: Directory, group: KnownGroup) -> MemberReports:
    live = await read_live(cluster, directory, group)
    members = live.members
    limit = asyncio.Semaphore(_MAX_CONCURRENT)
    brokers = {each.name: each for each in live.asked}
    at: dict[str, list[Broker]] = {}
    for name, part in live.connections.items():
        for each in part.connection_set:
            at.setdefault(each.client_id or "", []).append(brokers[name])

    async def ask(client_id: str) -> RunningConsumer | str:
        async with limit:
            try:
                async with asyncio.timeout(_ANSWER):
                    return await _report(cluster, at[client_id], (group.name, client_id))
            except TimeoutError:
                return f"no answer within {_ANSWER:g} s"
            except BolideError as error:
                return reason_of(error)

    ids = [each.client_id or "" for each in members]
    answers = dict(zip(ids, await asyncio.gather(*map(ask, ids[:_MAX_REPORTS])), strict=False))
    reports = {n: each for n, each in answers.items() if isinstance(each, RunningConsumer)}
    silences = {n: each for n, each in answers.items() if isinstance(each, str)}
    silences |= dict.fromkeys(ids[_MAX_REPORTS:], _NOT_ASKED)
    return MemberReports(
        connections=members,
        reports=reports,
        silences=silences,
        owners=_owners(members, reports),
        failures=[
            *live.failures,
            *(Failure(server=client, reason=why) for client, why in silences.items()),
        ],
    )


async def _report(
    cluster: Cluster, brokers: Iterable[Broker], whom: tuple[str, str], *, stacks: bool = False
) -> RunningConsumer:
    """The report of a member, through the first broker that reaches it."""
    group, client_id = whom
    error: BolideError = NotFound(f"no client {client_id!r} of group {group!r} is connected")
    for broker in brokers:
        try:
            return await cluster.admin.clients.running(
                group, client_id, stacks=stacks, address=broker.address
            )
        except ConsumerTimedOut:
            raise
        except (RemotingError, ServerError) as exc:
            error = exc
    raise error


def _owners(
    members: Iterable[Connection], reports: Mapping[str, RunningConsumer]
) -> dict[MessageQueue, Owner]:
    """The member of each queue; of a shared one (POP) the first, of a moving one either."""
    found: dict[MessageQueue, Owner] = {}
    for member in members:
        report = reports.get(member.client_id or "")
        if report is None:
            continue
        owner = Owner(client_id=member.client_id or "", address=member.client_addr or "")
        for queue in _held(report):
            found.setdefault(queue, owner)
    return found


def _member(connection: Connection, reports: MemberReports) -> Member:
    client_id = connection.client_id or ""
    report = reports.reports.get(client_id)
    known = Member(
        client_id=client_id,
        address=connection.client_addr,
        language=connection.language,
        version=version_name(connection.version),
        silence=reports.silences.get(client_id, ""),
    )
    if report is None:
        return known
    properties = report.properties
    return Member(
        client_id=known.client_id,
        address=known.address,
        language=known.language,
        version=known.version,
        kind=_REPORTED_KINDS.get(properties.get("PROP_CONSUME_TYPE", "")),
        is_ordered=_is_ordered(report),
        started_ms=_number(properties.get("PROP_CONSUMER_START_TIMESTAMP")),
        threads=_number(properties.get("PROP_THREADPOOL_CORE_SIZE")),
        subscriptions=[
            _subscription(each)
            for each in sorted(report.subscription_set, key=lambda each: each.topic)
            if not is_retry_topic(each.topic)
        ],
        queues=sum(not is_retry_topic(queue.topic) for queue in _held(report)),
        buffered=sum(each.cached_msg_count for each in report.mq_table.values()),
        traffic=_traffic(report),
        properties=dict(sorted(properties.items())),
    )


def _traffic(report: RunningConsumer) -> list[MemberTraffic]:
    return [
        MemberTraffic(
            topic=topic,
            pull_ms=each.pull_rt,
            pull_per_second=each.pull_tps,
            consume_ms=each.consume_rt,
            consumed_per_second=each.consume_ok_tps,
            failed_per_second=each.consume_failed_tps,
            failed=each.consume_failed_msgs,
        )
        for topic, each in sorted(report.status_table.items())
    ]


def _held(report: RunningConsumer) -> set[MessageQueue]:
    """The queues that a member has and keeps."""
    held = {queue for queue, state in report.mq_table.items() if not state.droped}
    return held | {queue for queue, state in report.mq_pop_table.items() if not state.droped}


def _subscription(given: Subscription) -> MemberSubscription:
    return MemberSubscription(
        topic=given.topic,
        expression=given.sub_string or "*",
        expression_type=given.expression_type or "TAG",
    )


def _is_ordered(report: RunningConsumer) -> bool:
    return report.properties.get("PROP_CONSUMEORDERLY", "").lower() == "true"


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
