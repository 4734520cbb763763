"""Transactions: half messages whose producers have not said yet whether they commit.

Bolide's brokers list them, and let an administrator decide. RocketMQ offers neither; what is known
there is how many half messages its check has not settled yet.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from bolide.admin.servers import gather_by_key
from bolide.errors import BolideError
from bolide.model.names import HALF_TOPIC, TRANSACTION_GROUP
from bolide.model.properties import PropertyName, parse_number
from bolide.operations.cluster import Cluster
from bolide.operations.dead_letters.views import body_text
from bolide.operations.declaration import change, read
from bolide.operations.errors import BadInput, Conflict, NotFound, NotSupported
from bolide.operations.held.halves import FoundHalf, TransactionState, find_half
from bolide.operations.held.timers import master_of, masters_of
from bolide.operations.messages.sending import BodyFormat
from bolide.operations.servers.missing import NO_BROKER, missing_brokers
from bolide.operations.views import LIVE, Failure, failure_of, reason_of
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.transactions import OpenTransaction, Transactions
from bolide.protocol.refusals import (
    InvalidParameter,
    QueryNotFound,
    RequestCodeNotSupported,
    TopicNotFound,
    TransactionFailed,
)

_MAX_SIZE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTransactions:
    """The transactions of a broker, by number."""

    broker: str
    lists: bool | None
    """Whether the broker can list them, as Bolide's do; None if it does not answer."""
    open: int | None
    """At RocketMQ: half messages that its check has not settled, which takes up to a minute."""
    set_aside: int | None
    """Half messages that were ever set aside and are still stored; None if unknown."""
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionCounts:
    """The transactions of all brokers, by number."""

    brokers: list[BrokerTransactions]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A half message; times are milliseconds since 1970."""

    message_id: str
    """The offset message id of its latest copy, which is another one after each check."""
    broker: str
    transaction_id: str | None
    """Names it in other operations, together with the broker; None if it has none."""
    producer_group: str
    topic: str
    keys: list[str]
    tags: str | None
    producer: str
    """The address it came from."""
    began_ms: int
    checks: int
    """How often its producers were asked."""
    next_check_ms: int | None
    """When they are asked next, at the earliest; None for never."""
    size: int
    """Bytes of the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionList:
    """A part of the list of transactions, oldest first."""

    items: list[Transaction]
    next: str
    """Cursor of the next part; empty after the last."""
    not_listing: list[str]
    """Brokers that do not list transactions: those of RocketMQ."""
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfCopy:
    """The latest copy of a half message: each check of its producer appends a new one."""

    message_id: str
    """Its offset message id."""
    checks: int
    """How often the producers were asked."""
    properties: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDetail:
    """A half message with its content."""

    message_id: str
    """The transaction id, which stays; the offset message id if it has none."""
    state: TransactionState | None
    """None if the broker does not tell."""
    latest: HalfCopy = field(metadata=LIVE)
    topic: str
    """The topic that it goes to if it is committed."""
    producer_group: str
    born_ms: int
    body: str
    body_format: BodyFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionPlan:
    """What a decision would do."""

    transaction: TransactionDetail
    effect: str
    readers: list[str] | None
    """Groups that would get the message; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A decision that was made."""

    message_id: str
    committed: bool
    by: str


@read("/transactions/counts")
async def count_transactions(cluster: Cluster) -> TransactionCounts:
    """Count the open transactions of each broker, and those set aside."""
    masters = await masters_of(cluster)
    found = await gather_by_key(masters, lambda name: _counts(cluster, name, masters[name]))
    away = [
        BrokerTransactions(
            broker=each.server, lists=None, open=None, set_aside=None, failure=each.reason
        )
        for each in await missing_brokers(cluster, masters=True)
        if each.reason != NO_BROKER
    ]
    return TransactionCounts(brokers=[*found.values(), *away])


@read("/transactions")
async def list_transactions(  # noqa: PLR0913  filters
    cluster: Cluster,
    *,
    broker: str = "",
    set_aside: bool = False,
    group: str = "",
    topic: str = "",
    cursor: str = "",
    size: int = 50,
) -> TransactionList:
    """List open transactions, oldest first; with `set_aside` those asked about too often.

    `broker`, `group` (of the producer) and `topic` are filters. `next` is the `cursor` of the next
    part, which there may be even after a part without items.
    """
    masters = await masters_of(cluster)
    away = await missing_brokers(cluster, masters=True)
    if broker in {each.server for each in away}:
        masters = {}
    elif broker:
        name, address = await master_of(cluster, broker)
        masters = {name: address}
    begins = _decode_cursor(cursor) if cursor else dict.fromkeys(masters, 0)
    size = min(max(size, 1), _MAX_SIZE)
    failures = [each for each in away if broker in {"", each.server}]
    not_listing: list[str] = []

    async def page(name: str) -> Transactions | None:
        try:
            return await cluster.admin.transactions.page(
                masters[name],
                set_aside=set_aside,
                group=group or None,
                topic=topic or None,
                begin=begins[name],
                limit=size,
            )
        except RequestCodeNotSupported:
            not_listing.append(name)
        except BolideError as error:
            failures.append(failure_of(name, error))
        return None

    pages = await gather_by_key([name for name in begins if name in masters], page)
    if not_listing and len(not_listing) == len(pages):
        raise NotSupported(
            "the brokers do not list transactions: only Bolide's do. RocketMQ settles them by"
            " asking their producers"
        )
    answered = {name: found for name, found in pages.items() if found is not None}
    merged = sorted(
        (
            (each.began, name, each)
            for name, found in answered.items()
            for each in found.transactions
        ),
        key=lambda entry: entry[:2],
    )
    shown = merged[:size]
    return TransactionList(
        items=[_view(name, each) for _, name, each in shown],
        next=_next_cursor(answered, begins, [(name, each) for _, name, each in shown]),
        not_listing=sorted(not_listing),
        failures=failures,
    )


@read("/transactions/{message_id}")
async def show_transaction(
    cluster: Cluster, *, message_id: str, broker: str = ""
) -> TransactionDetail:
    """Show a half message with its body and properties, and whether it is still open.

    `message_id` is the transaction id, which is the unique id of the message, or the offset message
    id of any copy of the half message. `broker` is needed only if a producer has begun transactions
    with the same id at several brokers.
    """
    found = await find_half(cluster, message_id, broker)
    half = found.message
    body, body_format = body_text(half.body)
    checks = parse_number(half.properties.get(PropertyName.TRANSACTION_CHECK_TIMES)) or 0
    return TransactionDetail(
        message_id=half.unique_id or half.offset_message_id,
        state=found.state,
        latest=HalfCopy(
            message_id=half.offset_message_id, checks=checks, properties=dict(half.properties)
        ),
        topic=half.properties.get(PropertyName.REAL_TOPIC, ""),
        producer_group=half.properties.get(PropertyName.PRODUCER_GROUP, ""),
        born_ms=half.born_timestamp,
        body=body,
        body_format=body_format,
    )


async def plan_resolution(
    cluster: Cluster, *, message_id: str, commit: bool, broker: str = ""
) -> ResolutionPlan:
    """What `resolve_transaction` would do."""
    detail = await show_transaction.function(cluster, message_id=message_id, broker=broker)
    readers: list[str] | None = []
    effect = "the message is discarded: no consumer gets it"
    if commit:
        effect = f"the message is delivered to topic {detail.topic}"
        try:
            readers = await cluster.admin.topics.groups(detail.topic)
        except TopicNotFound:
            effect = f"topic {detail.topic} was deleted: the commit will fail"
        except BolideError:
            readers = None
    return ResolutionPlan(transaction=detail, effect=effect, readers=readers)


@change(
    "POST",
    "/transactions/{message_id}/resolve",
    target="transaction {message_id}",
    preview=plan_resolution,
)
async def resolve_transaction(
    cluster: Cluster, *, message_id: str, commit: bool, broker: str = "", by: str = ""
) -> Resolved:
    """Commit or roll back a transaction in place of its producer.

    `commit` true delivers the message, false discards it; neither can be undone. `by` is recorded
    by the broker as the one who decided. `message_id` and `broker` are as in `show_transaction`. A
    transaction that has ended already is a conflict, however it ended.
    """
    who = by or cluster.identity.access_key or "console"
    found = await find_half(cluster, message_id, broker)
    if found.state is TransactionState.ENDED:
        raise Conflict(f"transaction {message_id} had ended already: nothing was done")
    half_id, address = await _place(cluster, found, broker)
    try:
        await cluster.admin.transactions.resolve(half_id, commit=commit, by=who, address=address)
    except RequestCodeNotSupported as error:
        raise NotSupported(
            "the broker does not let administrators decide: only Bolide's brokers do"
        ) from error
    except QueryNotFound as error:
        raise NotFound(reason_of(error)) from error
    except TransactionFailed as error:  # it has ended since, in the other way
        raise Conflict(reason_of(error)) from error
    return Resolved(message_id=message_id, committed=commit, by=who)


@change("POST", "/transactions/{message_id}/resume-check", target="transaction {message_id}")
async def resume_check(cluster: Cluster, *, message_id: str, broker: str = "") -> str:
    """Have the producers of a transaction that was set aside asked again; returns its id.

    It is open again then. RocketMQ's brokers offer this, too. `message_id` and `broker` are as in
    `show_transaction`.
    """
    found = await find_half(cluster, message_id, broker)
    half_id, address = await _place(cluster, found, broker)
    try:
        await cluster.admin.transactions.resume(half_id, address=address)
    except (QueryNotFound, InvalidParameter) as error:
        raise NotFound(reason_of(error)) from error
    return message_id


async def _counts(cluster: Cluster, name: str, address: str) -> BrokerTransactions:
    transactions = cluster.admin.transactions
    try:
        found = await cluster.shared(
            f"open transactions {address}", lambda: transactions.page(address, limit=1), seconds=3
        )
        aside = await cluster.shared(
            f"transactions set aside {address}",
            lambda: transactions.page(address, set_aside=True, limit=1),
            seconds=3,
        )
    except RequestCodeNotSupported:
        return await _unsettled(cluster, name, address)
    except BolideError as error:
        failed = reason_of(error)
        return BrokerTransactions(
            broker=name, lists=None, open=None, set_aside=None, failure=failed
        )
    return BrokerTransactions(broker=name, lists=True, open=found.total, set_aside=aside.total)


async def _unsettled(cluster: Cluster, name: str, address: str) -> BrokerTransactions:
    """What RocketMQ tells: how far the check of a broker is in the topic of half messages."""
    admin = cluster.admin
    try:
        stats = await admin.topics.stats_at(address, HALF_TOPIC)
        behind = 0
        for queue, bounds in stats.offset_table.items():
            here = MessageQueue(HALF_TOPIC, name, queue.queue_id)
            position = await admin.offsets.find_committed(TRANSACTION_GROUP, here)
            behind += max(bounds.max_offset - max(position or 0, bounds.min_offset), 0)
    except TopicNotFound:  # RocketMQ 4.9 makes the topic at its first check, a minute after a start
        failed = "the broker has not looked for open transactions yet"
        return BrokerTransactions(
            broker=name, lists=False, open=None, set_aside=None, failure=failed
        )
    except BolideError as error:
        failed = reason_of(error)
        return BrokerTransactions(
            broker=name, lists=False, open=None, set_aside=None, failure=failed
        )
    return BrokerTransactions(broker=name, lists=False, open=behind, set_aside=None)


def _view(broker: str, each: OpenTransaction) -> Transaction:
    return Transaction(
        message_id=each.msg_id,
        broker=broker,
        transaction_id=each.transaction_id,
        producer_group=each.producer_group,
        topic=each.topic,
        keys=(each.keys or "").split(),
        tags=each.tags,
        producer=each.born_host,
        began_ms=each.began,
        checks=each.check_times,
        next_check_ms=each.next_check or None,
        size=each.size,
    )


def _next_cursor(
    pages: Mapping[str, Transactions],
    begins: Mapping[str, int],
    shown: list[tuple[str, OpenTransaction]],
) -> str:
    """Where each broker's list goes on; empty if all are at their ends."""
    rest = {}
    for name, page in pages.items():
        taken = [each for at, each in shown if at == name]
        if len(taken) == len(page.transactions):
            rest[name] = page.next_begin
        else:
            rest[name] = taken[-1].half_offset + 1 if taken else begins[name]
    rest = {name: begin for name, begin in rest.items() if begin >= 0}
    return base64.urlsafe_b64encode(json.dumps(rest).encode()).decode() if rest else ""


def _decode_cursor(cursor: str) -> dict[str, int]:
    try:
        found = json.loads(base64.urlsafe_b64decode(cursor))
        return {str(name): max(int(begin), 0) for name, begin in found.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise BadInput("cursor", "it is not the `next` of a list") from error


async def _place(cluster: Cluster, found: FoundHalf, broker: str) -> tuple[str, str | None]:
    """The offset message id of a half message, and the address to send it to, if it is given."""
    address = (await master_of(cluster, broker))[1] if broker else None
    return found.message.offset_message_id, address
