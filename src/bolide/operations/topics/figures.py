"""Figures of topics, from the history and from their brokers."""

from collections.abc import Iterable, Mapping

from bolide.admin.servers import gather_by_key
from bolide.errors import BolideError
from bolide.operations.cluster import Cluster
from bolide.operations.errors import NotFound, Unknown
from bolide.operations.history.figures import TopicFigures
from bolide.operations.servers.missing import missing_brokers, names_of
from bolide.operations.views import Failure, failure_of, reason_of
from bolide.operations.visibility import visible_topics
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.bodies.topics import TopicOffset, TopicStats
from bolide.protocol.refusals import TopicNotFound

LIVE_SECONDS = 4.0
"""How long the figures of one topic are shared."""


async def require_route(cluster: Cluster, topic: str) -> TopicRoute:
    """The route of a topic; raises NotFound, or Unknown while brokers are away."""
    try:
        return await cluster.admin.topics.route(topic)
    except TopicNotFound as error:
        if away := await missing_brokers(cluster):
            raise Unknown(
                f"it is unknown whether there is a topic {topic!r}: {names_of(away)} is away"
                f" ({away[0].reason})"
            ) from error
        raise NotFound(f"there is no topic {topic!r}") from error


async def visible_figures(cluster: Cluster, names: Iterable[str]) -> Mapping[str, TopicFigures]:
    if cluster.history is None or not (figures := cluster.history.topic_figures()):
        return {}
    visible = await visible_topics(cluster, [name for name in names if name in figures])
    return {name: figures[name] for name in visible}


async def merged_stats(
    cluster: Cluster, topic: str, addresses: Iterable[str]
) -> tuple[TopicStats, dict[str, BolideError]]:
    """The bounds of the queues at these brokers, and why some of them did not tell theirs."""
    errors: dict[str, BolideError] = {}
    merged = TopicStats()

    async def ask(address: str) -> None:
        try:
            part = await cluster.admin.topics.stats_at(address, topic)
        except BolideError as error:
            errors[address] = error
            return
        merged.offset_table |= part.offset_table
        merged.topic_put_tps += part.topic_put_tps

    await gather_by_key(addresses, ask)
    return merged, errors


def stored(bounds: TopicOffset) -> int:
    return max(bounds.max_offset - bounds.min_offset, 0)


def last_write(ends: Iterable[TopicOffset]) -> int | None:
    return max((each.last_update_timestamp for each in ends), default=0) or None


def named_failure(error: BolideError) -> Failure:
    """The server is part of the reason, or a note of it, as `Servers.call` leaves one."""
    notes = [note.removeprefix("asked of ") for note in getattr(error, "__notes__", ())]
    return Failure(server=notes[0] if notes else "", reason=reason_of(error))


def failures_of(errors: Mapping[str, BolideError]) -> list[Failure]:
    return [failure_of(server, error) for server, error in sorted(errors.items())]


def distinct(failures: Iterable[Failure]) -> list[Failure]:
    return [*dict.fromkeys(failures)]
