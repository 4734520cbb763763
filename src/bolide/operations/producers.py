"""Connected producers: all of them, so that nobody has to type a topic and a group."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bolide.admin.servers import address_of, gather_by_key
from bolide.errors import BolideError
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import read
from bolide.operations.errors import BadInput, NotSupported
from bolide.operations.servers.missing import missing_from
from bolide.operations.views import Failure, Page, failure_of, page_of, unknown_last
from bolide.protocol.bodies.consumers import ProducerTable
from bolide.protocol.refusals import RequestCodeNotSupported
from bolide.version import version_name

_SECONDS = 3.0
"""How long the tables of the brokers count; they may be long."""
_NOT_LISTED = "this version of RocketMQ does not list its producers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRow:
    """A client that is connected as a member of a producer group."""

    group: str
    client_id: str
    address: str
    """Of its most recent connection."""
    language: str
    version: str
    """The version of RocketMQ that it is, or speaks as."""
    last_seen_ms: int | None
    """Its last heartbeat."""
    brokers: list[str]
    """Masters to which it is connected."""


_SORTS: Mapping[str, Callable[[ProducerRow], Any]] = {
    "group": lambda row: (row.group, row.client_id),
    "client_id": lambda row: row.client_id,
    "address": lambda row: row.address,
    "language": lambda row: row.language,
    "version": lambda row: row.version,
    "last_seen": lambda row: row.last_seen_ms,
}


@read("/producers")
async def list_producers(
    cluster: Cluster,
    *,
    search: str = "",
    sort: str = "group",
    descending: bool = False,
    page: int = 1,
    size: int = 50,
) -> Page[ProducerRow]:
    """All connected producers of all brokers.

    A client that is connected to several brokers is listed once per group. Producers connect to
    the brokers of the topics that they send to, when they send for the first time.

    Args:
        cluster: the cluster.
        search: text in the group, client id, address or language; upper and lower case are alike.
        sort: group, client_id, address, language, version or last_seen.
        descending: turn the order around.
        page: from 1.
        size: rows per page.

    Raises:
        NotSupported: none of the brokers can list its producers.
    """
    key = _SORTS.get(sort)
    if key is None:
        raise BadInput("sort", f"must be one of {', '.join(_SORTS)}")
    rows, failures = await cluster.shared("producers", lambda: _fetch(cluster), seconds=_SECONDS)
    words = search.casefold().split()
    found = [row for row in rows if all(word in _text(row) for word in words)]
    found.sort(key=unknown_last(key, descending=descending), reverse=descending)
    return page_of(found, page=page, size=size, failures=failures)


async def _fetch(cluster: Cluster) -> tuple[list[ProducerRow], list[Failure]]:
    info = await cluster.admin.clusters.info()
    addresses = {
        name: address_of(broker)
        for name, broker in sorted(info.broker_addr_table.items())
        if broker.broker_addrs
    }

    async def ask(name: str) -> ProducerTable | BolideError:
        try:
            return await cluster.admin.brokers.producers(addresses[name])
        except BolideError as exc:
            return exc

    answers = await gather_by_key(addresses, ask)
    unable = [n for n, each in answers.items() if isinstance(each, RequestCodeNotSupported)]
    if unable and len(unable) == len(answers):
        raise NotSupported(
            f"{_NOT_LISTED}: name a topic and a group with mqadmin producerConnection"
        )
    failures = [
        Failure(server=name, reason=_NOT_LISTED) if name in unable else failure_of(name, each)
        for name, each in answers.items()
        if isinstance(each, BolideError)
    ]
    tables = {name: each for name, each in answers.items() if isinstance(each, ProducerTable)}
    return _merged(tables), [*failures, *missing_from(cluster, info)]


def _merged(tables: Mapping[str, ProducerTable]) -> list[ProducerRow]:
    """One row per group and client id, with what its latest heartbeat told."""
    rows: dict[tuple[str, str], ProducerRow] = {}
    for broker, table in tables.items():
        for group, members in table.data.items():
            for each in members:
                known = rows.get((group, each.client_id or ""))
                brokers = [*(known.brokers if known else []), broker]
                row = ProducerRow(
                    group=group,
                    client_id=each.client_id or "",
                    address=(each.remote_ip or "").removeprefix("/"),
                    language=each.language or "",
                    version=version_name(each.version).removeprefix("V").replace("_", "."),
                    last_seen_ms=each.last_update_timestamp or None,
                    brokers=list(dict.fromkeys(brokers)),
                )
                if known is not None and (known.last_seen_ms or 0) > (row.last_seen_ms or 0):
                    known.brokers[:] = row.brokers
                    continue
                rows[group, row.client_id] = row
    return [*rows.values()]


def _text(row: ProducerRow) -> str:
    return f"{row.group}\n{row.client_id}\n{row.address}\n{row.language}".casefold()
