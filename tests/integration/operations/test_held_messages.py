"""Operations on what is held back: dead letters, timers, transactions, parked keys."""

import asyncio
import csv
import io
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from bolide import AdminClient, Message, Producer, PushConsumer, TransactionProducer
from bolide.client.producer.results import TransactionState as Decision
from bolide.model.message import StoredMessage
from bolide.operations.cluster import Cluster
from bolide.operations.dead_letters.export import ExportFormat, export_letters
from bolide.operations.dead_letters.listing import (
    dead_letter_reasons,
    list_dead_letter_groups,
    list_dead_letters,
    show_dead_letter,
    show_dead_letter_group,
)
from bolide.operations.dead_letters.redrives import (
    RedrivePlan,
    draft_of_dead_letter,
    purge_dead_letters,
    redrive_dead_letters,
    resend_edited,
)
from bolide.operations.dead_letters.views import Letters, LetterState, selection_of
from bolide.operations.declaration import Role
from bolide.operations.door import AuditEntry, Caller, Door
from bolide.operations.errors import (
    BadInput,
    ConfirmationNeeded,
    Conflict,
    NotFound,
    NotSupported,
)
from bolide.operations.held.halves import TransactionState
from bolide.operations.held.parked import (
    dead_letter_parked,
    list_parked_keys,
    list_parking_groups,
    plan_parked,
    resume_parked,
)
from bolide.operations.held.timers import count_timers, list_timers, plan_recall, recall_timers
from bolide.operations.held.transactions import (
    ResolutionPlan,
    count_transactions,
    list_transactions,
    resolve_transaction,
    resume_check,
    show_transaction,
)
from bolide.operations.jobs import JOBS, JobState, JobView, cancel_job, job_results, list_jobs
from bolide.operations.messages.sending import BodyFormat
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.own_cluster import OwnCluster, create_topic, own_cluster
from tests.unit.admin.scripted import cast

T = TypeVar("T")
GROUP = "despairing"
CALLER = Caller(name="ann", role=Role.OPERATOR, source="api")


class Book:
    """An audit log in memory."""

    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []

    async def write(self, entry: AuditEntry) -> None:
        self.entries.append(entry)


@asynccontextmanager
async def opened(servers: OwnCluster) -> AsyncIterator[Cluster]:
    async with AdminClient(servers.address) as admin:
        yield Cluster(admin=admin, name_servers=servers.address)
        await JOBS.close()


async def eventually(read: Callable[[], Awaitable[T]], good: Callable[[T], object]) -> T:
    async with asyncio.timeout(PATIENCE):
        while not good(found := await read()):  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0.02)
        return found


async def ended(shown: Cluster, job: JobView) -> JobView:
    async def state() -> JobView:
        return next(each for each in (await list_jobs.function(shown)).items if each.id == job.id)

    return await eventually(state, lambda each: each.state is not JobState.RUNNING)


class Desk:
    """A consumer that fails until it is told otherwise."""

    def __init__(self) -> None:
        self.fails = True
        self.got: list[StoredMessage] = []

    async def take(self, message: StoredMessage) -> None:
        if self.fails:
            raise ValueError("bad")
        self.got.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return sorted(each.body for each in self.got)


@asynccontextmanager
async def despair(servers: OwnCluster, shown: Cluster) -> AsyncIterator[Desk]:
    """Four dead letters of two tries each, one after the other; two have a reason."""
    desk = Desk()
    name_server = servers.address
    async with (
        Producer("shop", name_server=name_server) as producer,
        PushConsumer(
            GROUP, name_server=name_server, consume_from="first", max_reconsume_times=1
        ) as consumer,
    ):
        await create_topic(producer, "Orders", 1)
        await consumer.subscribe("Orders", desk.take)
        for number in range(4):
            reason = {"ERROR": "no stock"} if number < 2 else {"customer": f"nr-{number}"}
            body = b"\xff\x00" if number == 3 else f"=order {number}".encode()
            message = Message(
                "Orders", body, keys=f"k{number}", tags="gold" if number else "", properties=reason
            )
            await producer.send(message)
        await eventually(lambda: dead_letters(shown), lambda count: count == 4)
        desk.fails = False
        yield desk


async def dead_letters(shown: Cluster) -> int | None:
    shown.forget()
    found = await list_dead_letter_groups.function(shown)
    return found.items[0].messages if found.items else 0


@on_loop
async def test_dead_letters_are_found_explained_and_sent_again(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as servers, opened(servers) as shown:
        assert (await list_dead_letter_groups.function(shown)).items == []
        with pytest.raises(NotFound, match="ever became a dead letter"):
            await show_dead_letter_group.function(shown, group=GROUP)
        async with despair(servers, shown) as desk:
            await listed(shown)
            await explained(shown)
            await exported(shown)
            await sent_again(shown, desk)
            await edited(shown, desk)
            await purged(shown)


async def listed(shown: Cluster) -> None:
    group = await show_dead_letter_group.function(shown, group=GROUP)
    assert (group.messages, group.topic, group.is_partial) == (4, f"%DLQ%{GROUP}", False)
    assert group.oldest_ms is not None
    assert group.newest_ms is not None
    assert group.oldest_ms <= group.newest_ms
    nothing = await list_dead_letter_groups.function(shown, search="other")
    assert nothing.total == 0

    async def find(**filters: object) -> Letters:
        return await list_dead_letters.function(shown, group=GROUP, **filters)  # type: ignore[arg-type]

    everything = await find(state=True)
    assert everything.total == 4
    assert everything.next == ""
    assert [each.died_ms for each in everything.items] == sorted(
        (each.died_ms for each in everything.items), reverse=True
    )
    assert {each.state for each in everything.items} == {LetterState.NEW}
    assert {each.origin_topic for each in everything.items} == {"Orders"}
    assert {each.tries for each in everything.items} == {2}
    oldest = await find(oldest_first=True, size=3)
    rest = await find(oldest_first=True, size=3, cursor=oldest.next)
    assert [each.position for each in [*oldest.items, *rest.items]] == [
        each.position for each in reversed(everything.items)
    ]
    assert rest.total == 4
    for filters, count in (
        ({"reason": "NO STOCK"}, 2),
        ({"text": "order 2"}, 1),
        ({"text": "NR-3"}, 1),
        ({"key": "k3"}, 1),
        ({"tags": "gold"}, 3),
        ({"topic": "Orders", "tags": "gold", "reason": "stock"}, 1),
        ({"message_id": everything.items[0].message_id}, 1),
        ({"end_ms": everything.items[-1].died_ms}, 0),
        ({"begin_ms": everything.items[-1].died_ms}, 4),
    ):
        assert len((await find(**filters)).items) == count, filters
    for wrong in ({"cursor": "x"}, {"begin_ms": 5, "end_ms": 5}):
        with pytest.raises(BadInput):
            await find(**wrong)


async def explained(shown: Cluster) -> None:
    reasons = await dead_letter_reasons.function(shown, group=GROUP)
    assert {each.reason: each.messages for each in reasons.items} == {
        "no stock": 2,
        "given up after 2 tries": 2,
    }
    assert (reasons.scanned, reasons.total) == (4, 4)
    found = await list_dead_letters.function(shown, group=GROUP, key="k3")
    detail = await show_dead_letter.function(shown, group=GROUP, position=found.items[0].position)
    assert (detail.body, detail.body_format) == ("ff00", BodyFormat.HEX)
    assert detail.properties["customer"] == "nr-3"
    assert [(each.topic, each.tries_before) for each in detail.history] == [
        ("Orders", 0),
        (f"%RETRY%{GROUP}", 1),
    ]
    assert detail.history[0].stored_ms < detail.history[1].stored_ms
    for position, error in ((f"%DLQ%{GROUP}/broker-a/0@99", NotFound), ("Orders/b/0@0", BadInput)):
        with pytest.raises(error):
            await show_dead_letter.function(shown, group=GROUP, position=position)


async def exported(shown: Cluster) -> None:
    async def export(to: ExportFormat) -> str:
        selection = selection_of(GROUP)
        return "".join([piece async for piece in export_letters(shown, selection, to)])

    rows = json.loads(await export(ExportFormat.JSON))
    assert sorted(row["body"] for row in rows) == ["=order 0", "=order 1", "=order 2", "hex:ff00"]
    table = list(csv.DictReader(io.StringIO(await export(ExportFormat.CSV), newline="")))
    assert [row["position"] for row in table] == [row["position"] for row in rows]
    assert "'=order 0" in {row["body"] for row in table}, "a spreadsheet would calculate it"


async def sent_again(shown: Cluster, desk: Desk) -> None:
    book = Book()
    door = Door(book)
    arguments = {"group": GROUP, "reason": "stock"}
    with pytest.raises(ConfirmationNeeded) as asked:
        await door.run(redrive_dead_letters, shown, CALLER, arguments)
    plan = asked.value.effect
    assert isinstance(plan, RedrivePlan)
    assert (plan.in_range, plan.examined, plan.matching, plan.outcomes) == (4, 4, 2, {"PLANNED": 2})
    assert [(each.topic, each.messages, each.readers) for each in plan.targets] == [
        ("Orders", 2, [GROUP])
    ]
    assert desk.got == []
    job = await door.run(
        redrive_dead_letters, shown, CALLER, arguments, confirmation=asked.value.token
    )
    done = await ended(shown, job)
    assert (done.state, done.outcomes, done.scanned, done.error) == (
        JobState.DONE,
        {"SENT": 2},
        4,
        "",
    )
    results = await job_results.function(shown, job=job.id, outcome="SENT", size=1)
    assert (results.total, results.items[0].target) == (2, "Orders")
    await until(lambda: desk.bodies == [b"=order 0", b"=order 1"])
    assert desk.got[0].properties["REPLAYED_FROM"].startswith(f"%DLQ%{GROUP}/broker-a/0@")
    assert book.entries[0].target == f"dead letters of {GROUP}"

    again = await redrive_dead_letters.function(shown, group=GROUP)  # at once
    assert (await ended(shown, again)).outcomes == {"SENT": 2, "SENT_BEFORE": 2}
    await until(lambda: len(desk.got) == 4)
    letters = await eventually(
        lambda: list_dead_letters.function(shown, group=GROUP, state=True),
        lambda found: {each.state for each in found.items} == {LetterState.RESENT},
    )
    one = letters.items[0].position
    chosen = await redrive_dead_letters.function(shown, group=GROUP, positions=[one], to_group=True)
    assert (await ended(shown, chosen)).outcomes == {"SENT": 1}
    await until(lambda: len(desk.got) == 5)
    for wrong in ({"to": "%RETRY%x"}, {"to": "Orders", "to_group": True}, {"limit": 0}):
        with pytest.raises(BadInput):
            await redrive_dead_letters.function(shown, group=GROUP, **wrong)
    with pytest.raises(NotFound, match="'Nowhere'"):
        await redrive_dead_letters.function(shown, group=GROUP, to="Nowhere")


async def edited(shown: Cluster, desk: Desk) -> None:
    found = await list_dead_letters.function(shown, group=GROUP, key="k2")
    position = found.items[0].position
    draft = await draft_of_dead_letter.function(shown, group=GROUP, position=position)
    assert (draft.topic, draft.message.body, draft.message.keys) == ("Orders", "=order 2", ["k2"])
    assert draft.message.properties == {"customer": "nr-2"}
    await resend_edited.function(
        shown,
        group=GROUP,
        position=position,
        topic="Orders",
        message=replace(draft.message, body="order 2, corrected"),
    )
    await until(lambda: b"order 2, corrected" in desk.bodies)
    new = next(each for each in desk.got if each.body.endswith(b"corrected"))
    assert new.message_id != found.items[0].message_id
    assert new.properties["REPLAYED_FROM"] == position
    with pytest.raises(BadInput, match="topic"):
        await resend_edited.function(
            shown, group=GROUP, position=position, topic="%DLQ%x", message=draft.message
        )


async def purged(shown: Cluster) -> None:
    assert await purge_dead_letters.function(shown, group=GROUP) == ["DefaultCluster"]
    shown.forget()
    assert (await list_dead_letter_groups.function(shown)).items == []
    with pytest.raises(NotFound):
        await purge_dead_letters.function(shown, group=GROUP)


@on_loop
async def test_a_job_runs_on_until_it_is_cancelled(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as servers, opened(servers) as shown:
        begun = asyncio.Event()

        async def wait(_: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        job = JOBS.start(shown, wait, kind="test", target="g", lane="g")
        await begun.wait()
        with pytest.raises(Conflict, match="a job for g is running"):
            JOBS.start(shown, wait, kind="test", target="g", lane="g")
        async with opened(servers) as other:
            other.identity = replace(other.identity, access_key="bob", secret_key="s")
            assert (await list_jobs.function(other)).items == []
            with pytest.raises(NotFound):
                await cancel_job.function(other, job=job.id)
        assert (await cancel_job.function(shown, job=job.id)).state is JobState.CANCELLED


@on_loop
async def test_timers_are_listed_and_recalled(tmp_path: Path) -> None:
    levels = {"message_delay_level": "1s 1h 2h"}
    async with own_cluster(tmp_path, **levels) as servers, opened(servers) as shown:
        async with Producer("shop", name_server=servers.address) as producer:
            await create_topic(producer, "Later", 1)
            for number in range(3):
                message = Message("Later", b"x", keys=f"k{number}", delay=3600 + 60 * number)
                await producer.send(message)
            for level in (2, 2, 3):
                await producer.send(Message("Later", b"x", delay_level=level))
        first = await list_timers.function(shown, size=2)
        rest = await list_timers.function(shown, broker="broker-a", size=2, cursor=first.next)
        found = [*first.items, *rest.items]
        assert [each.keys for each in found] == [["k0"], ["k1"], ["k2"]]
        assert 3500_000 < found[0].due_ms - time.time() * 1000 < 3700_000
        (counts,) = (await count_timers.function(shown)).brokers
        assert (counts.broker, counts.lists, counts.timers) == ("broker-a", True, 3)
        assert [(each.level, each.delay, each.waiting) for each in counts.levels or ()] == [
            (2, "1h", 2),
            (3, "2h", 1),
        ]

        which = {"broker": "broker-a", "topic": "Later", "key": "k1"}
        plan = await plan_recall(shown, **which)
        assert ([each.keys for each in plan.items], plan.is_complete) == ([["k1"]], True)
        recalled = await recall_timers.function(shown, **which)
        assert [each.message_id for each in recalled.items] == [found[1].message_id]
        await eventually(
            lambda: list_timers.function(shown),
            lambda left: [each.keys for each in left.items] == [["k0"], ["k2"]],
        )
        with pytest.raises(NotFound, match="k9"):
            await recall_timers.function(shown, **(which | {"key": "k9"}))
        with pytest.raises(BadInput, match="none of broker-a"):
            await list_timers.function(shown, broker="broker-z")


@on_loop
async def test_rocketmq_says_what_it_does_not_offer() -> None:
    async with cast() as stage:
        shown = Cluster(admin=stage.admin, name_servers=stage.name_server.address)
        with pytest.raises(NotSupported, match="only Bolide's"):
            await list_timers.function(shown)
        with pytest.raises(NotSupported, match="only Bolide's"):
            await list_transactions.function(shown)
        (timers,) = (await count_timers.function(shown)).brokers
        assert (timers.lists, timers.timers) == (False, None)
        (transactions,) = (await count_transactions.function(shown)).brokers
        assert (transactions.lists, transactions.open) == (False, None)


@on_loop
async def test_open_transactions_are_listed_and_decided(tmp_path: Path) -> None:
    settings = {"transaction_timeout": 0.2, "transaction_check_interval": 0.1}
    async with (
        own_cluster(tmp_path, transaction_check_max=1, **settings) as servers,
        opened(servers) as shown,
        TransactionProducer(
            "payers", check=lambda _: Decision.UNKNOWN, name_server=servers.address
        ) as producer,
    ):
        await create_topic(producer, "Paid", 1)
        for number in range(3):
            await producer.begin(Message("Paid", b"%d" % number, keys=f"k{number}"))
        first = await list_transactions.function(shown, set_aside=False, size=2)
        assert [each.producer_group for each in first.items] == ["payers"] * 2
        aside = await eventually(
            lambda: list_transactions.function(shown, set_aside=True, size=2),
            lambda found: len(found.items) == 2,
        )
        rest = await eventually(
            lambda: list_transactions.function(
                shown, set_aside=True, size=2, cursor=aside.next, group="payers", topic="Paid"
            ),
            lambda found: len(found.items) == 1,
        )
        one, two, three = [*aside.items, *rest.items]
        assert [each.keys for each in (one, two, three)] == [["k0"], ["k1"], ["k2"]]
        detail = await show_transaction.function(shown, message_id=one.message_id)
        assert (detail.state, detail.topic, detail.body) == (
            TransactionState.SET_ASIDE,
            "Paid",
            "0",
        )

        by_transaction_id = await show_transaction.function(
            shown, message_id=str(one.transaction_id), broker="broker-a"
        )
        assert by_transaction_id == detail
        door = Door(Book())
        arguments = {"message_id": one.message_id, "commit": True, "by": "ann"}
        effect, token = await door.preview(resolve_transaction, shown, CALLER, arguments)
        assert effect is not None
        await door.run(resolve_transaction, shown, CALLER, arguments, confirmation=token)
        await resolve_transaction.function(shown, message_id=two.message_id, commit=False)
        (queue,) = await shown.admin.topics.queues("Paid")
        pulled = await eventually(
            lambda: shown.admin.messages.pull(queue, 0), lambda found: found.messages
        )
        assert [each.body for each in pulled.messages] == [b"0"]
        left = await list_transactions.function(shown, set_aside=True)
        assert [each.message_id for each in left.items] == [three.message_id]
        await resume_check.function(shown, message_id=three.message_id)
        ended_one = await show_transaction.function(shown, message_id=one.message_id)
        assert ended_one.state is TransactionState.ENDED
        resumed = await show_transaction.function(shown, message_id=three.message_id)
        assert resumed.state is not TransactionState.ENDED
        (counts,) = (await count_transactions.function(shown)).brokers
        assert counts.lists
        with pytest.raises(NotFound):
            await show_transaction.function(shown, message_id=pulled.messages[0].offset_message_id)
        with pytest.raises(BadInput):
            await resolve_transaction.function(shown, message_id="x", commit=True)


@on_loop
async def test_a_transaction_stays_the_same_while_its_producer_is_asked(tmp_path: Path) -> None:
    """Each check writes the half message anew, with another offset message id."""
    settings = {"transaction_timeout": 0.2, "transaction_check_interval": 0.1}
    async with (
        own_cluster(tmp_path, transaction_check_max=1000, **settings) as servers,
        opened(servers) as shown,
        TransactionProducer(
            "payers", check=lambda _: Decision.UNKNOWN, name_server=servers.address
        ) as producer,
    ):
        await create_topic(producer, "Paid", 1)
        await producer.begin(Message("Paid", b"1", keys="k1"))
        (began,) = (await list_transactions.function(shown)).items
        name = str(began.transaction_id)
        door, arguments = Door(Book()), {"message_id": name, "commit": True}
        effect, token = await door.preview(resolve_transaction, shown, CALLER, arguments)
        assert isinstance(effect, ResolutionPlan)

        async def checks() -> int:
            found = await show_transaction.function(shown, message_id=began.message_id)
            assert found.state is TransactionState.OPEN, "it is not decided"
            assert found.message_id == effect.transaction.message_id == name
            return found.latest.checks

        await eventually(checks, lambda found: found > effect.transaction.latest.checks + 3)
        await door.run(resolve_transaction, shown, CALLER, arguments, confirmation=token)
        for which in (name, began.message_id):
            found = await show_transaction.function(shown, message_id=which)
            assert found.state is TransactionState.ENDED
            with pytest.raises(Conflict, match="had ended already"):
                await resolve_transaction.function(shown, message_id=which, commit=True)


@on_loop
async def test_parked_keys_are_listed_and_resumed(tmp_path: Path) -> None:
    poison, got = {"a", "b"}, list[str]()

    async def take(message: StoredMessage) -> None:
        if message.sharding_key in poison:
            raise ValueError(f"{message.sharding_key} is bad")
        got.append(message.body.decode())

    async with own_cluster(tmp_path) as servers, opened(servers) as shown:
        assert (await list_parking_groups.function(shown)).items == []
        async with (
            Producer("shop", name_server=servers.address) as producer,
            PushConsumer(
                "parkers",
                name_server=servers.address,
                consume_from="first",
                max_reconsume_times=0,
                ordered_suspend=0.01,
            ) as consumer,
        ):
            await create_topic(producer, "T", 1)
            for text in ("a1", "b1", "c1", "a2"):
                await producer.send(Message("T", text.encode(), sharding_key=text[0]))
            await consumer.subscribe("T", take, ordered=True, order_by="keys", on_poison="park")

            async def keys() -> dict[str, int]:
                shown.forget()
                found = await list_parked_keys.function(shown, group="parkers")
                return {each.key: each.messages for each in found.items}

            await eventually(keys, lambda found: found == {"a": 2, "b": 1})
            (row,) = (await list_parking_groups.function(shown, search="park")).items
            assert (row.group, row.keys, row.messages) == ("parkers", 2, 3)
            (one,) = (await list_parked_keys.function(shown, group="parkers", search="A is")).items
            assert (one.key, one.error, one.is_resuming) == ("a", "ValueError: a is bad", False)
            plan = await plan_parked(shown, group="parkers", every=True)
            assert (plan.keys, plan.messages) == (2, 3)

            poison.clear()
            await resume_parked.function(shown, group="parkers", key="a")
            await dead_letter_parked.function(shown, group="parkers", key="b")
            await until(lambda: got == ["c1", "a1", "a2"])
            await eventually(keys, lambda found: found == {})
            for choice, error in (
                ({"key": "a"}, NotFound),
                ({}, BadInput),
                ({"key": "a", "every": True}, BadInput),
            ):
                with pytest.raises(error):
                    await resume_parked.function(shown, group="parkers", **choice)
