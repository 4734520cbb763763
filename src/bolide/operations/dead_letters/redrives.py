"""Sends dead letters again: unchanged as a job, or one of them edited as a new message.

A dead letter whose copy is in the topic already is not sent once more: the key index of the brokers
finds copies, and those of the last minutes are remembered here, because the index is a moment
behind. Dead letters stay where they are; `purge_dead_letters` deletes them.
"""

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from itertools import islice

from bolide.admin import AdminClient
from bolide.admin.dead_letters import Extent, NoTarget, Outcome, Redriven, Selection
from bolide.admin.servers import gather_answers
from bolide.errors import BolideError
from bolide.model.names import dead_letter_topic, is_reserved
from bolide.model.properties import REPLAYED_FROM, RESERVED_NAMES
from bolide.operations.cluster import Cluster
from bolide.operations.dead_letters.listing import extent_of, letter_at, show_dead_letter_group
from bolide.operations.dead_letters.views import body_text, selection_of
from bolide.operations.declaration import change, read
from bolide.operations.errors import BadInput, NotFound, OperationError
from bolide.operations.jobs import JOBS, Job, JobResult, JobView
from bolide.operations.messages.sending import (
    Draft,
    Sending,
    message_of,
    producer_of,
    send_one,
    writable_route,
)
from bolide.operations.views import Failure, failure_of, reason_of
from bolide.protocol.refusals import TopicNotFound

MAX_SENT = 100_000
"""Dead letters that one job sends at most."""
_EXAMINED = 500
"""Dead letters that a preview shows the outcome of; with filters it reads more to find them."""
_READ_FOR_PLAN = 5_000
_SHOWN = 50
_FAILURES_IN_A_ROW = 5
_MAX_REMEMBERED = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveTarget:
    """A topic that dead letters would be sent to."""

    topic: str
    messages: int
    readers: list[str] | None
    """Groups that consume it, and would get the messages, too; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveLetter:
    """A dead letter, and what would become of it."""

    position: str
    message_id: str
    outcome: Outcome
    target: str | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivePlan:
    """What a re-drive would do."""

    group: str
    in_range: int
    """Dead letters that would be read."""
    examined: int
    """How many of these were read for this plan: 5,000 at most, or until 500 matched."""
    matching: int
    """How many of the examined ones the filters choose."""
    outcomes: dict[str, int]
    """What would become of those: PLANNED ones would be sent."""
    targets: list[RedriveTarget]
    letters: list[RedriveLetter]
    """The first 50."""
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditableLetter:
    """A dead letter as a draft to change and send."""

    position: str
    topic: str | None
    """The topic that it was sent to."""
    message: Draft


async def plan_redrive(  # noqa: PLR0913  filters
    cluster: Cluster,
    *,
    group: str,
    positions: list[str] | None = None,
    topic: str = "",
    key: str = "",
    message_id: str = "",
    tags: str = "",
    reason: str = "",
    text: str = "",
    begin_ms: int | None = None,
    end_ms: int | None = None,
    to: str = "",
    to_group: bool = False,
    limit: int = MAX_SENT,
) -> RedrivePlan:
    """What `redrive_dead_letters` would do: a dry run over the first messages."""
    selection = selection_of(
        group, topic=topic, key=key, message_id=message_id, tags=tags, reason=reason, text=text,
        begin_ms=begin_ms, end_ms=end_ms, positions=positions or (),
    )  # fmt: skip
    target = _Target(to, to_group)
    work, failures = await _prepare(cluster, selection, target, min(limit, _EXAMINED))
    found, examined = await work.dry_run()
    planned = Counter(each.target for each in found if each.outcome is Outcome.PLANNED)
    targets, unanswered = await _targets(cluster, planned, group if to_group else None)
    return RedrivePlan(
        group=group,
        in_range=work.extent.messages,
        examined=examined,
        matching=len(found),
        outcomes=dict(Counter(each.outcome.value for each in found)),
        targets=targets,
        letters=[_plan_row(each) for each in found[:_SHOWN]],
        failures=[*failures, *unanswered],
    )


@change(
    "POST",
    "/dead-letters/{group}/redrive",
    target="dead letters of {group}",
    preview=plan_redrive,
)
async def redrive_dead_letters(  # noqa: PLR0913  filters
    cluster: Cluster,
    *,
    group: str,
    positions: list[str] | None = None,
    topic: str = "",
    key: str = "",
    message_id: str = "",
    tags: str = "",
    reason: str = "",
    text: str = "",
    begin_ms: int | None = None,
    end_ms: int | None = None,
    to: str = "",
    to_group: bool = False,
    limit: int = MAX_SENT,
) -> JobView:
    """Send the dead letters of a group that match again, in a job.

    The filters are those of `list_dead_letters`; `positions` chooses single ones. Each goes to the
    topic that it was first sent to, or all to the topic `to`, or with `to_group` to the group's own
    retry topic, which no other group reads. They stay dead letters, too. One that was sent before
    is not sent again: its outcome is SENT_BEFORE. The job stops after 5 failures in a row; start
    another one to go on. Give `end_ms` if dead letters arrive meanwhile and the effect has to be
    confirmed.
    """
    selection = selection_of(
        group, topic=topic, key=key, message_id=message_id, tags=tags, reason=reason, text=text,
        begin_ms=begin_ms, end_ms=end_ms, positions=positions or (),
    )  # fmt: skip
    if not 1 <= limit <= MAX_SENT:
        raise BadInput("limit", f"{limit} is not from 1 to {MAX_SENT}")
    work, failures = await _prepare(cluster, selection, _Target(to, to_group), limit)
    job = JOBS.start(
        cluster,
        work.run,
        kind="redrive_dead_letters",
        target=group,
        lane=f"redrive {cluster.name_servers} {group}",
        to_scan=work.extent.messages,
    )
    if failures:
        servers = ", ".join(sorted({each.server for each in failures}))
        job.note = f"left out the dead letters at {servers}, which did not answer"
    return job.view


@read("/dead-letters/{group}/draft")
async def draft_of_dead_letter(cluster: Cluster, *, group: str, position: str) -> EditableLetter:
    """A dead letter as a draft for `resend_edited`, with what its sender had set."""
    letter, message = await letter_at(cluster, group, position)
    body, body_format = body_text(message.body)
    own = {
        name: value
        for name, value in message.properties.items()
        if name not in RESERVED_NAMES and name != REPLAYED_FROM and value
    }
    return EditableLetter(
        position=position,
        topic=letter.origin_topic,
        message=Draft(
            body=body,
            body_format=body_format,
            tags=letter.tags or "",
            keys=list(letter.keys),
            properties=own,
            sharding_key=message.sharding_key or "",
        ),
    )


@change(
    "POST",
    "/dead-letters/{group}/resend-edited",
    target="dead letter {position} of {group}",
    secret=frozenset({"message"}),
)
async def resend_edited(
    cluster: Cluster, *, group: str, position: str, topic: str, message: Draft
) -> Sending:
    """Send a dead letter as a new message, as it was edited.

    The message gets an id of its own, and the property REPLAYED_FROM with the position of the dead
    letter, which stays. A later re-drive does not take it for a copy.
    """
    await letter_at(cluster, group, position)
    if is_reserved(topic):
        raise BadInput("topic", f"{topic!r} is a topic of the brokers or of one group")
    await writable_route(cluster, topic)
    built = message_of(topic, message).with_properties({REPLAYED_FROM: position})
    async with producer_of(cluster) as producer:
        return Sending(messages=[await send_one(producer, built)])


@change(
    "POST",
    "/dead-letters/{group}/purge",
    target="dead letters of {group}",
    preview=show_dead_letter_group.function,
)
async def purge_dead_letters(cluster: Cluster, *, group: str) -> list[str]:
    """Delete all dead letters of a group for good; returns the clusters where they were.

    Their topic is deleted, and created again for the next dead letter.
    """
    topic = dead_letter_topic(group)
    try:
        clusters = await cluster.admin.topics.clusters(topic)
    except TopicNotFound as error:
        raise NotFound(f"group {group!r} has no dead letters") from error
    for each in clusters:
        await cluster.admin.topics.delete(topic, each)
    return clusters


@dataclass(frozen=True, slots=True)
class _Target:
    """Where dead letters go; by default each to the topic that it was first sent to."""

    topic: str
    is_retry_topic: bool


@dataclass(frozen=True, slots=True)
class _Redrive:
    """The work of a job: it has connections of its own, for its cluster may be closed before."""

    cluster: Cluster
    selection: Selection
    extent: Extent
    target: _Target
    limit: int

    async def run(self, job: Job) -> None:
        cluster, remembered = self.cluster, _remembered(self.cluster)
        in_a_row = 0

        def note_cut() -> None:
            job.note = f"stopped after {self.limit} messages: start another job for the rest"

        async with connect(cluster) as admin, producer_of(cluster) as producer:
            async for each in admin.dead_letters.redrive(
                self.selection,
                producer,
                to=self.target.topic or None,
                to_group=self.target.is_retry_topic,
                extent=self.extent,
                on_scanned=job.advance,
                limit=self.limit,
                on_cut=note_cut,
                known_copies=remembered,
            ):
                job.record(_result(each))
                if each.outcome is Outcome.SENT:
                    remembered[each.letter.offset_message_id, each.target or ""] = each.detail
                    if len(remembered) > _MAX_REMEMBERED:
                        remembered.popitem(last=False)
                in_a_row = in_a_row + 1 if each.outcome is Outcome.FAILED else 0
                if in_a_row == _FAILURES_IN_A_ROW:
                    raise OperationError(
                        f"stopped after {in_a_row} failures in a row, the last one: {each.detail}"
                    )

    async def dry_run(self) -> tuple[list[Redriven], int]:
        """What would become of the first ones, and how many were read for that."""
        extent, scanned = _beginning(self.extent, _READ_FOR_PLAN), 0

        def count(messages: int) -> None:
            nonlocal scanned
            scanned += messages

        found: list[Redriven] = []
        async for each in self.cluster.admin.dead_letters.redrive(
            self.selection,
            None,
            to=self.target.topic or None,
            to_group=self.target.is_retry_topic,
            extent=extent,
            on_scanned=count,
            limit=self.limit,
            known_copies=_remembered(self.cluster),
        ):
            found.append(each)
            if len(found) >= _EXAMINED:
                break
        return found, max(scanned, len(found))


async def _prepare(
    cluster: Cluster, selection: Selection, target: _Target, limit: int
) -> tuple[_Redrive, list[Failure]]:
    """What a plan and a job begin with; raises BadInput or NotFound."""
    if target.topic and target.is_retry_topic:
        raise BadInput("to", "it excludes to_group")
    if target.topic:
        if is_reserved(target.topic):
            raise BadInput("to", reason_of(NoTarget(target.topic)))
        await writable_route(cluster, target.topic)
    failures: list[Failure] = []
    extent = await extent_of(cluster, selection, failures)
    return _Redrive(cluster, selection, extent, target, limit), failures


def _beginning(extent: Extent, messages: int) -> Extent:
    """The part of an extent that is read first, up to so many messages."""
    spans = {}
    for queue, (begin, end) in extent.spans.items():
        spans[queue] = (begin, min(end, begin + messages))
        messages -= spans[queue][1] - begin
    return Extent(spans)


def connect(cluster: Cluster) -> AdminClient:
    """Connections of one's own to a cluster, to be opened with `async with`."""
    identity = cluster.identity
    return AdminClient(
        cluster.name_servers,
        access_key=identity.access_key,
        secret_key=identity.secret_key,
        tls=cluster.tls,
    )


_copies: dict[str, OrderedDict[tuple[str, str], str]] = {}
"""The copies that were sent last, by NameServers: the index may not have them yet."""


def _remembered(cluster: Cluster) -> OrderedDict[tuple[str, str], str]:
    return _copies.setdefault(cluster.name_servers, OrderedDict())


async def _targets(
    cluster: Cluster, planned: Counter[str | None], only: str | None
) -> tuple[list[RedriveTarget], list[Failure]]:
    topics = [topic for topic in planned if topic is not None]
    readers: dict[str, list[str]] = {topic: [only] for topic in topics if only is not None}
    failures: list[BolideError] = []
    if only is None:
        readers, failures = await gather_answers(topics, cluster.admin.topics.groups)
    targets = [
        RedriveTarget(topic=topic, messages=planned[topic], readers=readers.get(topic))
        for topic in sorted(topics)
    ]
    return targets, [failure_of("?", each) for each in islice(failures, 5)]


def _plan_row(each: Redriven) -> RedriveLetter:
    return RedriveLetter(
        position=each.letter.position,
        message_id=each.letter.message_id,
        outcome=each.outcome,
        target=each.target,
        detail=each.detail,
    )


def _result(each: Redriven) -> JobResult:
    return JobResult(
        subject=each.letter.message_id,
        outcome=each.outcome.value,
        detail=each.detail,
        target=each.target or "",
        position=each.letter.position,
    )
