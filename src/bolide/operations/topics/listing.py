"""What there is to know of topics: the list, and one topic with its queues and groups."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from bolide.admin.servers import (
    address_of,
    ask_failed_no_more,
    gather_by_key,
)
from bolide.errors import BolideError
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import read
from bolide.operations.errors import NotFound
from bolide.operations.history.figures import TopicFigures
from bolide.operations.topics.figures import (
    LIVE_SECONDS,
    distinct,
    failures_of,
    last_write,
    merged_stats,
    named_failure,
    stored,
    visible_figures,
)
from bolide.operations.topics.table import (
    TopicEntry,
    TopicKind,
    TopicPermission,
    topic_table,
)
from bolide.operations.views import Failure, Page, page_of, unknown_last
from bolide.operations.visibility import sees_all
from bolide.protocol.bodies.topics import TopicStats
from bolide.protocol.refusals import NoPermission


class TopicSort(StrEnum):
    """By what the list of topics is sorted; unknown figures come last."""

    TOPIC = "topic"
    KIND = "kind"
    QUEUES = "queues"
    RATE = "rate"
    MESSAGES = "messages"
    SIZE = "size"
    LAST_WRITE = "last_write"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """A topic in the list."""

    topic: str
    kind: TopicKind
    brokers: list[str]
    """Names of the brokers that have the topic; empty if none told of it."""
    read_queues: int | None
    """On all brokers together."""
    write_queues: int | None
    permission: TopicPermission | None
    is_ordered: bool | None
    """Whether the number of queues is fixed for ordered messages (`order`)."""
    rate_in: float | None = None
    """Messages stored per second."""
    messages: int | None = None
    """Messages stored now."""
    bytes: int | None = None
    """Estimated from the mean size of a day's messages; None without one in the history."""
    last_write_ms: int | None = None
    """Milliseconds since 1970; None if unknown, or nothing is stored."""
    sampled_ms: int | None = None
    """When the figures were taken; None if they are unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCounts:
    """How many topics of each kind there are."""

    total: int
    kinds: dict[TopicKind, int]
    failures: list[Failure] = field(default_factory=list)


@read("/topics")
async def list_topics(  # noqa: PLR0913  filters, order and page
    cluster: Cluster,
    *,
    search: str = "",
    kinds: list[TopicKind] | None = None,
    broker: str = "",
    sort: TopicSort = TopicSort.TOPIC,
    descending: bool = False,
    page: int = 1,
    size: int = 50,
) -> Page[TopicRow]:
    """List topics, with settings and figures.

    `search` is a part of the name, in any case. Without `kinds`, topics of all kinds are listed,
    those of brokers and groups too. Figures come from the history, which knows none of a topic
    right after its start, and for the rows of the page from the brokers.
    """
    table = await topic_table(cluster)
    is_all_visible = await sees_all(cluster)  # others ask for the names of the page only
    figures = await visible_figures(cluster, table.topics) if is_all_visible else {}
    wanted = set(kinds or TopicKind)
    text = search.strip().lower()
    rows = [
        _row(entry, figures.get(entry.name))
        for entry in table.topics.values()
        if entry.kind in wanted
        and text in entry.name.lower()
        and (not broker or broker in entry.configs)
    ]
    if sort is not TopicSort.TOPIC or descending:
        key = unknown_last(_SORT_KEYS[sort], descending=descending)
        rows = sorted(rows, key=key, reverse=descending)
    shown = page_of(rows, page=page, size=size, failures=table.gaps)
    by_topic = {row.topic: row for row in shown.items}
    if not is_all_visible:
        figures = await visible_figures(cluster, by_topic)
        entries = (table.topics[name] for name in by_topic)
        by_topic = {each.name: _row(each, figures.get(each.name)) for each in entries}
    with ask_failed_no_more():
        live = await gather_by_key(
            by_topic,
            lambda name: _with_live_figures(cluster, by_topic[name], is_whole=not table.failures),
        )
    failures = [*shown.failures, *(each for _, missing in live.values() for each in missing)]
    rows = [row for row, _ in live.values()]
    if table.missing:  # what is stored there is not known: the rest may be nothing, but it is not 0
        rows = [_without_zeros(row) for row in rows]
    return replace(shown, items=rows, failures=distinct(failures))


@read("/topic-counts")
async def count_topics(cluster: Cluster) -> TopicCounts:
    """Count the topics of each kind."""
    table = await topic_table(cluster)
    counts = dict.fromkeys(TopicKind, 0)
    for entry in table.topics.values():
        counts[entry.kind] += 1
    return TopicCounts(
        total=len(table.topics),
        kinds={kind: count for kind, count in counts.items() if count},
        failures=table.gaps,
    )


# The list


_SORT_KEYS = {
    TopicSort.TOPIC: lambda row: row.topic,
    TopicSort.KIND: lambda row: row.kind,
    TopicSort.QUEUES: lambda row: row.write_queues,
    TopicSort.RATE: lambda row: row.rate_in,
    TopicSort.MESSAGES: lambda row: row.messages,
    TopicSort.SIZE: lambda row: row.bytes,
    TopicSort.LAST_WRITE: lambda row: row.last_write_ms,
}


def _row(entry: TopicEntry, figures: TopicFigures | None) -> TopicRow:
    orders = {each.order for each in entry.configs.values()}
    row = TopicRow(
        topic=entry.name,
        kind=entry.kind,
        brokers=[*entry.configs],
        read_queues=entry.read_queues,
        write_queues=entry.write_queues,
        permission=entry.permission,
        is_ordered=any(orders) if orders else None,
    )
    if figures is None or not figures.is_whole:
        return row
    return replace(
        row,
        rate_in=figures.rate_in,
        messages=figures.messages,
        bytes=figures.bytes,
        last_write_ms=figures.last_write_ms,
        sampled_ms=int(figures.sampled * 1000),
    )


def _without_zeros(row: TopicRow) -> TopicRow:
    return replace(
        row, messages=row.messages or None, bytes=row.bytes or None, rate_in=row.rate_in or None
    )


_FRESH_SECONDS = 30.0
"""Age of a sample up to which the rows of a page are not asked live."""


async def _with_live_figures(
    cluster: Cluster, row: TopicRow, *, is_whole: bool
) -> tuple[TopicRow, list[Failure]]:
    """The row with figures of now, if those of the history are missing or old.

    Without `is_whole`, brokers that did not tell their topics may have it, too.
    """
    if not is_whole or not row.brokers:
        row = await _with_route(cluster, row)
    now = time.time() * 1000
    if row.sampled_ms is not None and now - row.sampled_ms < _FRESH_SECONDS * 1000:
        return row, []
    try:
        stats, errors = await cluster.shared(
            f"topic stats {row.topic}",
            lambda: _row_stats(cluster, row.topic, row.brokers),
            seconds=_FRESH_SECONDS / 3,
        )
    except NoPermission:  # the user may not look at this topic
        return row, []
    except BolideError as error:
        return row, [named_failure(error)]
    if errors:
        refusals = {at for at, error in errors.items() if isinstance(error, NoPermission)}
        return row, failures_of({at: e for at, e in errors.items() if at not in refusals})
    ends = stats.offset_table.values()
    return replace(
        row,
        messages=sum(map(stored, ends)),
        last_write_ms=last_write(ends),
        rate_in=row.rate_in if row.rate_in is not None else stats.topic_put_tps or None,
        sampled_ms=int(now),
    ), []


async def _row_stats(
    cluster: Cluster, topic: str, brokers: Iterable[str]
) -> tuple[TopicStats, dict[str, BolideError]]:
    info = await cluster.shared("cluster info", cluster.admin.clusters.info, seconds=LIVE_SECONDS)
    known = info.broker_addr_table
    addresses = [address_of(known[name]) for name in brokers if name in known]
    if not addresses:
        raise NotFound(f"no broker of topic {topic!r} is registered now")
    return await merged_stats(cluster, topic, addresses)


async def _with_route(cluster: Cluster, row: TopicRow) -> TopicRow:
    """The row with what the NameServer tells, where brokers did not tell their settings."""
    try:
        datas = (await cluster.admin.topics.route(row.topic)).queue_datas
    except BolideError:
        return row
    permissions = {TopicPermission.of(each.perm) for each in datas}
    return replace(
        row,
        brokers=sorted(each.broker_name for each in datas),
        read_queues=sum(each.read_queue_nums for each in datas),
        write_queues=sum(each.write_queue_nums for each in datas),
        permission=permissions.pop() if len(permissions) == 1 else TopicPermission.DIFFERS,
    )
