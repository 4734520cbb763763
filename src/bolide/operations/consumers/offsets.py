"""Move the offsets of consumer groups: reset them, or take those of another group.

Both are planned queue by queue first. What is planned is done to the letter where brokers move
offsets themselves, as those since 5.0 do, also for groups without members; running members go on
from there. Older brokers can move running members to a time only, and members overwrite the rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from bolide.admin.errors import NoOffsets
from bolide.admin.offset_moves import OffsetMove
from bolide.admin.offsets import AT_END, AT_START
from bolide.model.names import is_retry_topic
from bolide.operations.cluster import Cluster
from bolide.operations.consumers.directory import (
    Broker,
    Directory,
    KnownGroup,
    answers,
    forget_directory,
    in_turn,
    read_directory,
)
from bolide.operations.consumers.figures import read_live
from bolide.operations.declaration import change
from bolide.operations.errors import BadInput, Conflict, NotFound
from bolide.operations.views import LIVE, Failure
from bolide.protocol.refusals import ConsumerNotOnline, TopicNotFound


class ResetTo(StrEnum):
    """Where a group goes on."""

    EARLIEST = "earliest"
    """The oldest message."""
    LATEST = "latest"
    """The end: what is not consumed is skipped."""
    TIME = "time"
    """The first message stored at a time or later."""
    OFFSET = "offset"
    """The offsets in `queues`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTarget:
    """A queue to reset."""

    broker: str
    queue_id: int
    offset: int | None = None
    """Needed to reset to an offset; the next message to consume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """Where a group is in a queue."""

    topic: str
    broker: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMove:
    """What happens to the offset of a group in one queue."""

    topic: str
    broker: str
    queue_id: int
    min_offset: int = field(metadata=LIVE)
    """The oldest message."""
    max_offset: int = field(metadata=LIVE)
    """The next message to be stored."""
    before: int | None = field(metadata=LIVE)
    """None if the group has not committed an offset in the queue."""
    after: int = field(metadata=LIVE)
    redelivered: int = field(metadata=LIVE)
    """Messages that are delivered again."""
    skipped: int | None = field(metadata=LIVE)
    """Messages that are never delivered; None if unknown, as for a group without an offset."""
    skipped_at_most: int = field(metadata=LIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetPlan:
    """What a reset or a copy of offsets does, or did."""

    group: str
    moves: list[QueueMove]
    redelivered: int = field(metadata=LIVE)
    """Messages that are delivered again, in all queues."""
    skipped: int | None = field(metadata=LIVE)
    skipped_at_most: int = field(metadata=LIVE)
    members: int | None = field(metadata=LIVE)
    """Connected members."""
    members_follow: bool
    """Whether running members go on from the new offsets. Otherwise stop them first: they would
    overwrite them."""
    failures: list[Failure] = field(default_factory=list)
    """Brokers whose queues are not moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """The moves at each broker."""

    directory: Directory
    group: KnownGroup
    moves: Mapping[str, list[OffsetMove]]
    follows: Mapping[str, bool]
    failures: list[Failure]

    @property
    def brokers(self) -> list[Broker]:
        return [self.directory.brokers[name] for name in self.moves]


async def committed_of(cluster: Cluster, *, group: str, topic: str = "") -> list[CommittedOffset]:
    """The committed offsets of a group, read now; of one topic, or of all."""
    forget_directory(cluster)
    directory = await read_directory(cluster)
    live = await read_live(cluster, directory, directory.group(group))
    return [
        CommittedOffset(
            topic=queue.topic,
            broker=queue.broker_name,
            queue_id=queue.queue_id,
            offset=at.consumer_offset,
        )
        for queue, at in live.progress.items()
        if not topic or queue.topic == topic
    ]


async def plan_reset(  # noqa: PLR0913  the parameters of the reset
    cluster: Cluster,
    *,
    group: str,
    topic: str,
    to: ResetTo,
    time_ms: int | None = None,
    queues: list[QueueTarget] | None = None,
    only_backwards: bool = False,
) -> OffsetPlan:
    """What a reset would do to each queue; takes what `reset_offsets` takes."""
    timestamp = _timestamp(to, time_ms, queues)
    planned = await _plan_reset(
        cluster, (group, topic), timestamp, queues=queues, only_backwards=only_backwards
    )
    return await _view(cluster, planned)


@change(
    "POST",
    "/groups/{group}/offsets/reset",
    target="offsets of group {group} in topic {topic}",
    preview=plan_reset,
    state=committed_of,
)
async def reset_offsets(  # noqa: PLR0913  the parameters of a reset
    cluster: Cluster,
    *,
    group: str,
    topic: str,
    to: ResetTo,
    time_ms: int | None = None,
    queues: list[QueueTarget] | None = None,
    only_backwards: bool = False,
) -> OffsetPlan:
    """Move a consumer group to another place in a topic.

    The group need not have members; running ones go on from there (`members_follow`). Messages are
    delivered again when it goes back, and never delivered when it goes forward. `time_ms` is
    milliseconds since 1970. `queues` leaves out all others, and has the offsets of `to=offset`.
    `only_backwards` leaves queues where they are that would go forward.
    """
    timestamp = _timestamp(to, time_ms, queues)
    planned = await _plan_reset(
        cluster, (group, topic), timestamp, queues=queues, only_backwards=only_backwards
    )
    view = await _view(cluster, planned)
    by_time = timestamp is not None and queues is None
    if not view.members_follow and view.members != 0 and not by_time:
        raise Conflict(
            f"the brokers cannot move running members of group {group!r} in single queues:"
            " stop them first, or reset the whole topic to a time"
        )

    async def move(broker: Broker) -> None:
        moves = planned.moves[broker.name]
        if timestamp is None or planned.follows[broker.name]:
            await cluster.admin.offsets.move(broker.address, group, moves)
            return
        time = 0 if timestamp == AT_START else timestamp
        try:
            await cluster.admin.offsets.reset_at(
                broker.address, group, topic, time, force=not only_backwards
            )
        except ConsumerNotOnline:
            await cluster.admin.offsets.commit_moves(broker.address, group, moves)

    return _done(planned, view, await in_turn(planned.brokers, move))


async def plan_clone(cluster: Cluster, *, group: str, source: str, topic: str = "") -> OffsetPlan:
    """What a group would get from another one; takes what `clone_offsets` takes."""
    return await _view(cluster, await _plan_clone(cluster, group, source, topic))


@change(
    "POST",
    "/groups/{group}/offsets/clone",
    target="offsets of group {group}",
    preview=plan_clone,
    state=committed_of,
)
async def clone_offsets(
    cluster: Cluster, *, group: str, source: str, topic: str = ""
) -> OffsetPlan:
    """Give a group the offsets of another one, in one topic or in all that the other consumes.

    Queues in which `source` has no offset stay as they are.
    """
    planned = await _plan_clone(cluster, group, source, topic)
    view = await _view(cluster, planned)
    if not view.members_follow and view.members != 0:
        raise Conflict(f"running members would overwrite the offsets of {group!r}: stop them first")

    async def move(broker: Broker) -> None:
        await cluster.admin.offsets.move(broker.address, group, planned.moves[broker.name])

    return _done(planned, view, await in_turn(planned.brokers, move))


def _timestamp(
    to: ResetTo, time_ms: int | None, queues: Sequence[QueueTarget] | None
) -> int | None:
    """The time to reset to; None for offsets. Raises BadInput."""
    if queues is not None and not queues:
        raise BadInput("queues", "choose at least one queue, or leave it out for all")
    places = [(each.broker, each.queue_id) for each in queues or ()]
    if len(places) > len({*places}):
        raise BadInput("queues", "name each queue once")
    if to is ResetTo.OFFSET:
        if not queues or any(each.offset is None for each in queues):
            raise BadInput("queues", "a reset to an offset needs queues, each with its offset")
        return None
    if any(each.offset is not None for each in queues or ()):
        raise BadInput("queues", f"a reset to {to.value} takes no offsets")
    if to is ResetTo.TIME:
        if time_ms is None or time_ms < 0:
            raise BadInput("time_ms", "give the time in milliseconds since 1970")
        return time_ms
    if time_ms is not None:
        raise BadInput("time_ms", f"a reset to {to.value} takes no time")
    return AT_END if to is ResetTo.LATEST else AT_START


async def _plan_reset(
    cluster: Cluster,
    where: tuple[str, str],
    timestamp: int | None,
    *,
    queues: Sequence[QueueTarget] | None,
    only_backwards: bool,
) -> _Planned:
    group, topic = where
    forget_directory(cluster)
    directory = await read_directory(cluster)
    known = directory.group(group)
    brokers = await _brokers_of_topic(cluster, directory, topic)
    targets = {(each.broker, each.queue_id): each.offset for each in queues or ()}
    if queues is not None:
        brokers = [each for each in brokers if any(each.name == name for name, _ in targets)]

    async def plan(broker: Broker) -> list[OffsetMove]:
        time = AT_START if timestamp is None else timestamp
        force = timestamp is None or not only_backwards
        return await cluster.admin.offsets.plan_at(broker.address, group, topic, time, force=force)

    moves, failures = await answers(brokers, plan)
    if queues is not None:
        moves = {
            name: [
                _to_offset(each, targets[name, each.queue.queue_id], only_backwards)
                for each in part
                if (name, each.queue.queue_id) in targets
            ]
            for name, part in moves.items()
        }
    planned = await _planned(cluster, directory, known, (moves, failures))
    found = {(name, move.queue.queue_id) for name, part in planned.moves.items() for move in part}
    silent = {each.server for each in planned.failures}
    for broker, queue_id in targets:
        if (broker, queue_id) not in found and broker not in silent:
            raise BadInput("queues", f"topic {topic!r} has no queue {queue_id} on {broker!r}")
    return planned


def _to_offset(move: OffsetMove, offset: int | None, only_backwards: bool) -> OffsetMove:
    if offset is None:
        return move
    if not move.min_offset <= offset <= move.max_offset:
        queue = move.queue
        raise BadInput(
            "queues",
            f"queue {queue.queue_id} on {queue.broker_name} is from {move.min_offset} to"
            f" {move.max_offset}: {offset} is not in it",
        )
    if only_backwards and move.before is not None:
        offset = min(offset, move.before)
    return OffsetMove(move.queue, move.min_offset, move.max_offset, move.before, offset)


async def _plan_clone(cluster: Cluster, group: str, source: str, topic: str) -> _Planned:
    if group == source:
        raise BadInput("source", "choose another group")
    forget_directory(cluster)
    directory = await read_directory(cluster)
    known, other = directory.group(group), directory.group(source)
    live = await read_live(cluster, directory, other)
    consumed = sorted({q.topic for q in live.progress if not is_retry_topic(q.topic)})
    topics = [topic] if topic else consumed
    if not topics:
        raise NotFound(f"group {source!r} has no offsets")
    moves: dict[str, list[OffsetMove]] = {}
    names = {each.address: each.name for each in directory.brokers.values()}
    for each in topics:
        try:
            plan = await cluster.admin.offsets.plan_copy(source, group, each)
        except NoOffsets as error:
            raise NotFound(str(error)) from error
        for address, part in plan.items():
            moves.setdefault(names[address], []).extend(part)
    return await _planned(cluster, directory, known, (moves, []))


async def _planned(
    cluster: Cluster,
    directory: Directory,
    group: KnownGroup,
    found: tuple[Mapping[str, list[OffsetMove]], list[Failure]],
) -> _Planned:
    moves = {name: part for name, part in found[0].items() if part}
    follows, failures = await answers(
        [directory.brokers[name] for name in moves],
        lambda at: cluster.admin.offsets.moves_members(at.address),
    )
    return _Planned(
        directory=directory,
        group=group,
        moves={name: moves[name] for name in follows},
        follows=follows,
        failures=[*found[1], *failures],
    )


async def _brokers_of_topic(cluster: Cluster, directory: Directory, topic: str) -> list[Broker]:
    try:
        names = await cluster.admin.topics.addresses(topic)
    except TopicNotFound as error:
        raise NotFound(f"there is no topic {topic!r}") from error
    return [directory.brokers[name] for name in names if name in directory.brokers]


async def _view(cluster: Cluster, planned: _Planned) -> OffsetPlan:
    moves = [move for part in planned.moves.values() for move in part]
    live = await read_live(cluster, planned.directory, planned.group)
    skipped = [each.skipped for each in moves]
    known = [each for each in skipped if each is not None]
    return OffsetPlan(
        group=planned.group.name,
        moves=_moves(planned.moves),
        redelivered=sum(each.redelivered for each in moves),
        skipped=sum(known) if len(known) == len(skipped) else None,
        skipped_at_most=sum(each.skipped_at_most for each in moves),
        members=live.client_count,
        members_follow=all(planned.follows.values()),
        failures=planned.failures,
    )


def _moves(planned: Mapping[str, Iterable[OffsetMove]]) -> list[QueueMove]:
    return [
        QueueMove(
            topic=each.queue.topic,
            broker=name,
            queue_id=each.queue.queue_id,
            min_offset=each.min_offset,
            max_offset=each.max_offset,
            before=each.before,
            after=each.after,
            redelivered=each.redelivered,
            skipped=each.skipped,
            skipped_at_most=each.skipped_at_most,
        )
        for name, moves in sorted(planned.items())
        for each in moves
    ]


def _done(
    planned: _Planned, view: OffsetPlan, outcome: tuple[list[str], list[Failure]]
) -> OffsetPlan:
    """The plan as far as it was carried out."""
    done, failures = outcome
    moved = {name: planned.moves[name] for name in done}
    flat = [move for part in moved.values() for move in part]
    whole = not failures
    return OffsetPlan(
        group=view.group,
        moves=_moves(moved),
        redelivered=sum(each.redelivered for each in flat),
        skipped=view.skipped if whole else None,
        skipped_at_most=sum(each.skipped_at_most for each in flat),
        members=view.members,
        members_follow=view.members_follow,
        failures=[*planned.failures, *failures],
    )
