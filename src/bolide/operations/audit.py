"""Who changed what: the console's own audit and that of the brokers, as one list.

The console knows its users and what they meant to do; Bolide's brokers know every request that
administered them, whatever tool it came from. RocketMQ's brokers have no audit.
"""

import heapq
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bolide.errors import BolideError
from bolide.operations.access.brokers import Site, ask_each, masters
from bolide.operations.audit_store import AuditQuery, StoredEntry
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import Role, read
from bolide.operations.errors import BadInput
from bolide.operations.servers.missing import missing_brokers
from bolide.operations.views import MAX_PAGE_SIZE, Failure, failure_of, now_ms
from bolide.protocol.bodies.audit import AuditRecord
from bolide.protocol.codes import ResponseCode
from bolide.protocol.refusals import RequestCodeNotSupported

MAX_RECORDS = 5000
"""Records of a broker that are looked at, the newest ones in the time that is asked for."""
MAX_DIFFERENCES = 100
_MAX_TEXT = 2000
_DEPTH = 4
_FRESH_SECONDS = 5.0
_DAY_MS = 86_400_000


class AuditOrigin(StrEnum):
    """Who recorded a change."""

    CONSOLE = "console"
    """The console, its API or MCP."""
    BROKER = "broker"
    """A broker, about requests of any tool. What the console did is there, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One value that a change changed."""

    name: str
    """Such as `config.perm`, with dots between names that contain each other."""
    before: str | None
    """As JSON; None: there was no such value."""
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedChange:
    """A change, or an attempt."""

    id: str
    """Unique in the list; does not change."""
    time_ms: int
    origin: AuditOrigin
    server: str
    """The broker that recorded it; empty for the console."""
    user: str
    """Empty if nobody signed the request."""
    source: str
    """console, api or mcp, with the address, and whether it is a user of the cluster; for brokers
    the address of the peer."""
    operation: str
    """Such as topics.update_topic; for brokers the name of the request."""
    target: str
    succeeded: bool
    error: str
    denied: bool = False
    """Access control refused it; user and target are what the request claimed."""
    count: int = 1
    """More than one for denied requests of a kind, which are counted together."""
    arguments: str = ""
    """As JSON, without secrets."""
    differences: list[Difference] = field(default_factory=list)
    more_differences: int = 0
    """Number of those beyond the first hundred."""
    before: str = ""
    """The whole state as JSON; empty if it was not read."""
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditList:
    """Newest first."""

    items: list[AuditedChange]
    total: int
    page: int
    size: int
    complete: bool = True
    """False: a broker has more records in this time than are looked at; ask for a shorter time."""
    console_recorded: bool
    """Whether the console records what is done through it."""
    without_audit: list[str] = field(default_factory=list)
    """Brokers that keep no audit, as RocketMQ's do not: of what is done there with other tools
    nothing is recorded."""
    failures: list[Failure] = field(default_factory=list)


@read("/audit", role=Role.ADMIN)
async def list_changes(  # noqa: PLR0913  filters and paging of a list
    cluster: Cluster,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    origin: AuditOrigin | None = None,
    user: str = "",
    operation: str = "",
    target: str = "",
    search: str = "",
    failed: bool | None = None,
    page: int = 1,
    size: int = 50,
) -> AuditList:
    """List who changed what, newest first, with what was there before and after.

    Two audits are put together: that of the console, its API and MCP, and those of the brokers,
    which record requests of any tool; what the console did is in both. `since_ms` is a week ago by
    default. `user` matches exactly; `operation`, `target` and `search` match a part of the text.
    """
    if until_ms is not None and since_ms is not None and until_ms < since_ms:
        raise BadInput("until_ms", "it is before since_ms")
    since = since_ms if since_ms is not None else now_ms() - 7 * _DAY_MS
    query = AuditQuery(
        since_ms=since,
        until_ms=until_ms,
        user=user.strip(),
        operation=operation.strip(),
        target=target.strip(),
        search=search.strip(),
        failed=failed,
    )
    size = min(max(size, 1), MAX_PAGE_SIZE)
    page = max(page, 1)
    own, own_total = await _own(cluster, query, origin, page * size)
    records, told = await _of_brokers(cluster, query, origin)
    total = own_total + len(records)
    page = min(page, max(-(-total // size), 1))
    merged = heapq.merge(own, records, key=lambda each: (-each.time_ms, each.id))
    skipped = [each for _, each in zip(range(page * size), merged, strict=False)]
    return AuditList(
        items=skipped[(page - 1) * size :],
        total=total,
        page=page,
        size=size,
        complete=told.complete,
        console_recorded=cluster.own_audit is not None,
        without_audit=told.without_audit,
        failures=told.failures,
    )


# ---- the console's


async def _own(
    cluster: Cluster, query: AuditQuery, origin: AuditOrigin | None, limit: int
) -> tuple[list[AuditedChange], int]:
    if cluster.own_audit is None or origin is AuditOrigin.BROKER:
        return [], 0
    found = await cluster.own_audit.page(query, skip=0, limit=limit)
    return [_own_change(each) for each in found.entries], found.total


def _own_change(stored: StoredEntry) -> AuditedChange:
    entry = stored.entry
    before, after = _known(entry.before), _known(entry.after)
    differences = [] if entry.error else list(_differences("", before, after))
    return AuditedChange(
        id=f"console-{stored.id}",
        time_ms=stored.time_ms,
        origin=AuditOrigin.CONSOLE,
        server="",
        user=entry.caller.name,
        source=entry.caller.source,
        operation=entry.operation,
        target=entry.target,
        succeeded=not entry.error,
        error=entry.error,
        arguments=_text(entry.arguments) if entry.arguments else "",
        differences=differences[:MAX_DIFFERENCES],
        more_differences=max(len(differences) - MAX_DIFFERENCES, 0),
        before=_state_text(before),
        after=_state_text(after),
    )


def _known(state: object) -> object:
    """None for what the door could not read: the object did not exist, before or after."""
    return None if isinstance(state, Mapping) and {*state} == {"unknown"} else state


# ---- the brokers'


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What a broker has recorded, oldest first."""

    changes: list[tuple[AuditedChange, str]]
    """Each with the text that a search looks at."""
    complete: bool
    has_audit: bool = True


@dataclass(frozen=True, slots=True)
class _Told:
    """Which brokers told of their records, and which did not."""

    complete: bool = True
    without_audit: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


async def _of_brokers(
    cluster: Cluster, query: AuditQuery, origin: AuditOrigin | None
) -> tuple[list[AuditedChange], _Told]:
    if origin is AuditOrigin.CONSOLE:
        return [], _Told()
    since = query.since_ms or 0
    # All who look at the same span share one answer; each minute is another span.
    key = f"audit.brokers.{since // 60_000}"

    async def fetch() -> tuple[dict[Site, _Recorded], list[Failure]]:
        sites, failures = await masters(cluster)
        found, more = await ask_each(sites, lambda site: _read_broker(cluster, site, since))
        return found, [*failures, *more, *await missing_brokers(cluster)]

    try:
        known, failures = await cluster.shared(key, fetch, seconds=_FRESH_SECONDS)
    except BolideError as error:  # the console's own is shown all the same
        return [], _Told(failures=[failure_of("NameServer", error)])
    found = [
        change
        for recorded in known.values()
        for change, text in recorded.changes
        if _matches(query, change, text)
    ]
    found.sort(key=lambda each: (-each.time_ms, each.id))
    return found, _Told(
        complete=all(recorded.complete for recorded in known.values()),
        without_audit=[site.broker for site, each in known.items() if not each.has_audit],
        failures=failures,
    )


async def _read_broker(cluster: Cluster, site: Site, since_ms: int) -> _Recorded:
    """The newest records since a time; none of brokers without an audit."""
    audit = cluster.admin.audit
    try:
        page = await audit.page(site.address, since_ms=since_ms)
        end = (await audit.page(site.address, since_ms=now_ms() + _DAY_MS, limit=1)).next_begin
    except RequestCodeNotSupported:
        return _Recorded([], complete=True, has_audit=False)
    complete = not page.entries or end - page.entries[0].offset <= MAX_RECORDS
    if not complete:
        page = await audit.page(site.address, begin=end - MAX_RECORDS)
    changes: list[tuple[AuditedChange, str]] = []
    while True:
        for entry in page.entries:
            change = _broker_change(site, entry.offset, entry.record)
            changes.append((change, _search_text(change)))
        if page.is_last or len(changes) >= 2 * MAX_RECORDS:
            return _Recorded(changes, complete)
        page = await audit.page(site.address, begin=page.next_begin)


def _broker_change(site: Site, offset: int, record: AuditRecord) -> AuditedChange:
    succeeded = record.code == ResponseCode.SUCCESS
    differences = list(_differences("", record.before, record.after)) if succeeded else []
    return AuditedChange(
        id=f"{site.broker}-{offset}",
        time_ms=record.time,
        origin=AuditOrigin.BROKER,
        server=site.broker,
        user=record.user or "",
        source=record.peer,
        operation=record.request,
        target=_target_text(record.target),
        succeeded=succeeded,
        error="" if succeeded else record.remark or f"code {record.code}",
        denied=record.denied,
        count=record.count,
        differences=differences[:MAX_DIFFERENCES],
        more_differences=max(len(differences) - MAX_DIFFERENCES, 0),
        before=_state_text(record.before),
        after=_state_text(record.after),
    )


def _target_text(target: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {' '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in target.items()
    )


def _search_text(change: AuditedChange) -> str:
    states = (change.before, change.after)
    texts = (change.user, change.operation, change.target, *states, change.error)
    return "\n".join(texts).casefold()


def _matches(query: AuditQuery, change: AuditedChange, text: str) -> bool:
    return (
        (query.since_ms is None or change.time_ms >= query.since_ms)
        and (query.until_ms is None or change.time_ms < query.until_ms)
        and query.user in {"", change.user}
        and (query.failed is None or query.failed is not change.succeeded)
        and query.operation.casefold() in change.operation.casefold()
        and query.target.casefold() in change.target.casefold()
        and query.search.casefold() in text
    )


# ---- before and after


def _differences(name: str, before: object, after: object, depth: int = 0) -> Iterator[Difference]:
    """The values that differ, by the names of objects around them."""
    if before == after:
        return
    old_object, new_object = _object(before), _object(after)
    if depth < _DEPTH and old_object is not None and new_object is not None:
        for key in dict.fromkeys([*old_object, *new_object]):
            inner = f"{name}.{key}" if name else str(key)
            yield from _differences(inner, old_object.get(key), new_object.get(key), depth + 1)
        return
    if isinstance(before, list) and isinstance(after, list):
        old, new = [_text(each) for each in before], [_text(each) for each in after]
        for text in old:
            if text not in new:
                yield Difference(name=name, before=text, after=None)
        for text in new:
            if text not in old:
                yield Difference(name=name, before=None, after=text)
        if sorted(old) == sorted(new):
            yield Difference(name=name, before=_text(before), after=_text(after))
        return
    yield Difference(name=name, before=_value(before), after=_value(after))


def _object(value: object) -> Mapping[Any, Any] | None:
    """The members of an object; an absent one has none. None for other values."""
    if value is None:
        return {}
    return value if isinstance(value, Mapping) else None


def _value(value: object) -> str | None:
    return None if value is None else _text(value)


def _state_text(state: object) -> str:
    return "" if state is None or state == {} else _text(state)


def _text(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
