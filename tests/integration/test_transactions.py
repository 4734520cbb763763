"""Transactions with a cluster of ours: what is committed is delivered, and nothing else."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bolide import AdminClient, Message, TransactionProducer, TransactionState, sync
from bolide.broker.transactions.ending import EndRequest, TransactionEnder
from bolide.cli import app
from bolide.client.errors import SendFailed, WrongState
from bolide.client.producer.hooks import EndTransactionContext
from bolide.client.producer.transactions import Transaction
from bolide.model.message import StoredMessage, TransactionType
from bolide.model.message_checks import InvalidMessage
from bolide.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.send import SendHeader
from bolide.protocol.headers.transactions import EndTransactionHeader
from bolide.protocol.hosts import unpack_host
from bolide.protocol.message_id import OffsetId
from bolide.protocol.record import Record, read_record
from bolide.protocol.refusals import (
    IllegalOperation,
    InvalidParameter,
    QueryNotFound,
    ServerError,
    TopicNotFound,
    TransactionFailed,
)
from bolide.remoting.dispatch import Reply
from bolide.store.appending import Appended
from bolide.store.config import FlushMode
from bolide.store.message_store import MessageStore
from bolide.store.reading import ReadLimits
from tests.support.aio import on_loop, until
from tests.support.own_cluster import OwnCluster, create_topic, own_cluster

COMMIT, ROLLBACK, UNKNOWN = (
    TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN,
)  # fmt: skip
NEVER = 86_400.0
_SHORT = 0.01
ASKED_OFTEN = {"transaction_timeout": 0.05, "transaction_check_interval": 0.1}
NEVER_ASKED = {"transaction_timeout": NEVER, "transaction_check_interval": NEVER}


class Scene:
    """A cluster with a topic T of one queue, a producer, and what its check answers."""

    def __init__(self, cluster: OwnCluster) -> None:
        self.cluster = cluster
        self.producer: TransactionProducer
        self.asked: list[StoredMessage] = []
        self.answer: Callable[[StoredMessage], TransactionState | None] = lambda _: UNKNOWN

    def new_producer(self, **settings: Any) -> TransactionProducer:
        return TransactionProducer(
            "writers", check=self.check, name_server=self.cluster.address, **settings
        )

    def check(self, message: StoredMessage) -> TransactionState | None:
        self.asked.append(message)
        return self.answer(message)

    async def begin(self, body: str, **said: Any) -> Transaction:
        return await self.producer.begin(Message("T", body.encode(), **said))

    @property
    def delivered(self) -> list[str]:
        return [bytes(record.body).decode() for record in self.records("T")]

    def records(self, topic: str) -> list[Record]:
        limits = ReadLimits(max_count=1000, max_size=2**24, max_scanned=1000)
        found = self.cluster.broker.store.read(topic, 0, 0, limits)
        read = [read_record(bytes(data)) for data in found.records]
        return [record for record in read if isinstance(record, Record)]

    @property
    def open(self) -> int:
        queue = self.cluster.broker.parts.transactions.queue
        return queue.open.count(self.cluster.broker.store.max_offset(HALF_TOPIC, 0))

    async def run_round(self) -> int:
        timeout = self.cluster.broker.config.value.transaction_timeout
        if timeout < _SHORT:
            await asyncio.sleep(timeout + 0.001)  # the last half is old enough by then, too
        await self.cluster.broker.parts.transactions.queue.loaded()
        return await self.cluster.broker.parts.transactions.check_back.run_round()

    async def restart(self) -> None:
        await self.cluster.stop_broker()
        await self.cluster.start_broker()
        await self.cluster.broker.parts.transactions.queue.loaded()

    async def end(self, half: Transaction, state: TransactionState, **other: Any) -> None:
        """As a producer would, and with an answer."""
        given: dict[str, Any] = {
            "producer_group": "writers",
            "tran_state_table_offset": half.half.queue_offset,
            "commit_log_offset": OffsetId.decode(half.half.offset_message_id).physical_offset,
            "commit_or_rollback": int(state),
            "msg_id": half.id,
        }
        await self.producer._instance.call(
            self.cluster.broker.address,
            RequestCode.END_TRANSACTION,
            EndTransactionHeader(**given | other),
        )


@asynccontextmanager
async def scene(directory: Path, **settings: Any) -> AsyncIterator[Scene]:
    async with own_cluster(directory, **NEVER_ASKED | settings) as cluster:
        made = Scene(cluster)
        async with made.new_producer() as made.producer:
            await create_topic(made.producer, "T", 1)
            yield made


# ---- how transactions end


@on_loop
async def test_what_is_committed_is_delivered_and_what_is_rolled_back_is_not(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as it:
        seen: list[EndTransactionContext] = []
        it.producer.add_end_transaction_hook(_Seen(seen))

        async def local(
            message: Message, state: TransactionState | None
        ) -> TransactionState | None:
            assert message.unique_id
            return state

        message = Message("T", b"yes", tags="A", keys="k", properties={"of": "me"})
        done = await it.producer.send_in_transaction(message, local, COMMIT)
        undone = await it.producer.send_in_transaction(Message("T", b"no"), local, ROLLBACK)
        left = await it.producer.send_in_transaction(Message("T", b"?"), local, None)
        assert (done.state, done.is_confirmed) == (COMMIT, True)
        assert (undone.state, undone.is_confirmed) == (ROLLBACK, True)
        assert (left.state, left.is_confirmed) == (UNKNOWN, False)
        assert it.delivered == ["yes"]
        assert it.open == 1
        (record,) = it.records("T")
        properties = record.decode_properties()
        half = it.records(HALF_TOPIC)[0]
        assert record.sys_flag == int(TransactionType.COMMIT)
        assert record.prepared_transaction_offset == half.physical_offset
        assert properties == half.decode_properties()
        assert properties[PropertyName.TRANSACTION_ID] == done.message_id
        assert (properties["of"], properties[PropertyName.TAGS]) == ("me", "A")
        assert [(each.state, each.from_check, each.error) for each in seen] == [
            (COMMIT, False, None), (ROLLBACK, False, None), (UNKNOWN, False, None),
        ]  # fmt: skip


class _Seen:
    def __init__(self, seen: list[EndTransactionContext]) -> None:
        self._seen = seen

    def ended(self, context: EndTransactionContext) -> None:
        self._seen.append(context)
        raise RuntimeError("which is logged, and hurts nobody")


@on_loop
async def test_a_block_commits_at_its_end_and_rolls_back_if_it_raises(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        async with it.producer.transaction(Message("T", b"a")) as first:
            assert it.delivered == []
        with pytest.raises(KeyError):
            async with it.producer.transaction(Message("T", b"b")):
                raise KeyError
        async with it.producer.transaction(Message("T", b"c")) as third:
            await third.leave_open()
        assert (it.delivered, it.open) == (["a"], 1)
        with pytest.raises(WrongState):
            await first.commit()
        with pytest.raises(InvalidMessage, match="delay_level"):
            await it.producer.begin(Message("T", b"d", delay_level=3))


@on_loop
async def test_a_local_transaction_that_raises_is_left_to_the_check(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:

        def local(_: Message) -> TransactionState:
            raise OSError("the database does not answer")

        with pytest.raises(OSError, match="database"):
            await it.producer.send_in_transaction(Message("T", b"x"), local)
        assert (it.delivered, it.open) == ([], 1)


@on_loop
async def test_the_first_end_counts_and_a_repeat_of_it_is_fine(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        one, two = await it.begin("1"), await it.begin("2")
        for _ in range(2):
            await it.end(one, COMMIT)
            await it.end(two, ROLLBACK)
        with pytest.raises(TransactionFailed, match="committed before"):
            await it.end(one, ROLLBACK)
        await it.restart()
        await it.end(one, COMMIT)
        with pytest.raises(TransactionFailed, match="rolled back before"):
            await it.end(two, COMMIT)
        assert (it.delivered, it.open) == (["1"], 0)


@on_loop
async def test_handlers_end_the_first_transaction_of_a_sender_and_unusual_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_handler: list[EndRequest] = []
    end_now = TransactionEnder.end_now

    def watched(endings: TransactionEnder, ending: EndRequest) -> Appended | None:
        by_handler.append(ending)
        return end_now(endings, ending)

    monkeypatch.setattr(TransactionEnder, "end_now", watched)
    async with scene(tmp_path) as it:
        begun = {name: await it.begin(name) for name in "abc"}
        await begun["c"].commit()
        await begun["b"].rollback()
        await begun["a"].commit()
        assert (it.delivered, it.open) == (["c", "a"], 0)
        assert [each.queue_offset for each in by_handler] == [2], "the first prepares the others"
        await it.end(begun["a"], COMMIT)
        with pytest.raises(TransactionFailed, match="rolled back before"):
            await it.end(begun["b"], COMMIT)
        assert len(by_handler) == 3
        await it.restart()
        assert (it.delivered, it.open, len(it.records(OP_HALF_TOPIC))) == (["c", "a"], 0, 3)


@on_loop
async def test_halves_in_older_files_of_the_log_end_too(tmp_path: Path) -> None:
    async with scene(tmp_path, commit_log_file_size=2048) as it:
        begun = [await it.begin(str(number) * 300) for number in range(9)]
        for half in begun:
            await half.commit()
        assert [text[0] for text in it.delivered] == list("012345678")
        await it.restart()
        assert (len(it.delivered), it.open) == (9, 0)


@on_loop
async def test_an_end_that_does_not_fit_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        half = await it.begin("1")
        plain = await it.producer.send(Message("T", b"plain"))
        at = OffsetId.decode(plain.offset_message_id).physical_offset
        wrong: list[dict[str, Any]] = [
            {"producer_group": "others"},
            {"tran_state_table_offset": 7},
            {"commit_log_offset": 3},
            {"commit_log_offset": at},
            {"commit_log_offset": 10**15},
        ]
        for each in wrong:
            with pytest.raises(ServerError):
                await it.end(half, COMMIT, **each)
        with pytest.raises(InvalidParameter):
            await it.end(half, COMMIT, commit_or_rollback=4)
        assert (it.delivered, it.open) == (["plain"], 1)
        await it.end(half, COMMIT)
        assert it.delivered == ["plain", "1"]


@on_loop
async def test_a_broker_may_be_told_to_take_none(tmp_path: Path) -> None:
    async with scene(tmp_path, reject_transaction_message=True) as it:
        with pytest.raises(SendFailed, match="transaction message is forbidden"):
            await it.begin("x")
        await it.producer.send(Message("T", b"plain"))
        assert it.delivered == ["plain"]


# ---- asking


@on_loop
async def test_producers_are_asked_until_they_know(tmp_path: Path) -> None:
    async with scene(tmp_path, **ASKED_OFTEN) as it:
        answers: dict[str, list[TransactionState | None]] = {
            "a": [None, UNKNOWN, COMMIT],
            "b": [UNKNOWN, ROLLBACK],
        }
        it.answer = lambda message: answers[message.body.decode()].pop(0)
        first = await it.begin("a", keys="k", properties={"p": "v"})
        await (await it.begin("b")).leave_open()
        await until(lambda: it.open == 0)
        assert it.delivered == ["a"]
        asked = next(message for message in it.asked if message.body == b"a")
        assert (asked.topic, asked.queue_id, asked.unique_id) == ("T", 0, first.half.message_id)
        assert (asked.properties["p"], asked.properties["KEYS"]) == ("v", "k")
        times = [
            int(message.properties[PropertyName.TRANSACTION_CHECK_TIMES])
            for message in it.asked
            if message.body == b"a"
        ]
        assert times == [1, 2, 3]


@on_loop
async def test_answers_count_though_the_disk_is_slower_than_the_producer(tmp_path: Path) -> None:
    settings = {"transaction_timeout": 0.001, "flush_mode": FlushMode.SYNC}
    async with scene(tmp_path, **settings) as it:
        one, *_ = [await it.begin(str(number)) for number in range(3)]
        queue = it.cluster.broker.parts.transactions.queue
        with _slow_disk(it.cluster.broker.store, 0.05):
            it.answer = lambda message: UNKNOWN if message.body == b"0" else COMMIT
            assert await it.run_round() == 3
            await until(lambda: len(it.asked) == 3 and it.open == 1)
            moved = queue._last_copy
            looking = asyncio.create_task(it.run_round())
            await until(lambda: queue._last_copy is not moved)
            await it.end(one, COMMIT)  # by its first half, when nobody can read the last yet
            await looking
        assert sorted(it.delivered) == ["0", "1", "2"]


@contextmanager
def _slow_disk(store: MessageStore, seconds: float) -> Iterator[None]:
    disk = store.flusher._disk
    sync = disk.sync

    def slow(descriptor: int) -> None:
        time.sleep(seconds)
        sync(descriptor)

    disk.sync = slow  # type: ignore[method-assign]
    try:
        yield
    finally:
        disk.sync = sync  # type: ignore[method-assign]


@on_loop
async def test_another_producer_of_the_group_answers_for_one_that_is_gone(tmp_path: Path) -> None:
    async with scene(tmp_path, **ASKED_OFTEN) as it:
        await it.begin("x")
        await it.producer.close()
        it.asked.clear()
        it.answer = lambda _: COMMIT
        async with it.new_producer(topics=["T"]):
            await until(lambda: it.delivered == ["x"])
        assert it.asked


@on_loop
async def test_a_message_may_say_itself_when_its_producer_is_asked(tmp_path: Path) -> None:
    async with scene(tmp_path, transaction_timeout=0.001) as it:
        immune = {PropertyName.CHECK_IMMUNITY_SECONDS: "60"}
        kept = await it.begin("kept", properties=immune)
        at_once = await it.begin("late", properties={PropertyName.CHECK_IMMUNITY_SECONDS: "0"})
        plain = await it.begin("plain")
        await asyncio.sleep(0.01)
        assert await it.run_round() == 2  # the one behind the immune one too
        await until(lambda: {each.body for each in it.asked} == {b"late", b"plain"})
        with pytest.raises(IllegalOperation):
            await it.end(at_once, COMMIT)
        await it.end(kept, COMMIT)
        await it.restart()
        assert it.open == 2
        await it.end(plain, COMMIT)
        assert it.delivered == ["kept", "plain"]


@on_loop
async def test_an_end_that_names_the_first_half_counts_when_others_were_put_in_its_place(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path, transaction_timeout=0.001) as it:
        one, two = await it.begin("1"), await it.begin("2")
        for _ in range(3):
            await asyncio.sleep(0.01)
            assert await it.run_round() == 2
        await it.end(one, COMMIT)
        await it.restart()
        await it.end(one, COMMIT)
        await it.end(two, ROLLBACK)
        assert (it.delivered, it.open) == (["1"], 0)
        assert await it.run_round() == 0


@on_loop
async def test_what_is_never_answered_is_set_aside_and_can_be_resolved_by_hand(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path, transaction_timeout=0.001, transaction_check_max=2) as it:
        halves = [await it.begin(str(number)) for number in range(4)]
        for _ in range(3):
            await asyncio.sleep(0.01)
            await it.run_round()
        assert it.open == 0
        aside = it.records(TRANS_CHECK_MAX_TIME_TOPIC)
        assert [bytes(record.body) for record in aside] == [b"0", b"1", b"2", b"3"]
        await it.end(halves[0], COMMIT)  # its producer comes back after all
        assert (it.delivered, it.open) == (["0"], 0)


# ---- what else may happen


@on_loop
@pytest.mark.parametrize("mode", [FlushMode.ASYNC, FlushMode.SYNC])
async def test_a_restart_at_any_step_loses_nothing_and_repeats_nothing(
    tmp_path: Path, mode: FlushMode
) -> None:
    async with scene(tmp_path, transaction_timeout=0.001, flush_mode=mode) as it:
        steps = {name: await it.begin(name) for name in ("stored", "asked", "done", "undone")}
        await it.restart()
        await it.end(steps["undone"], ROLLBACK)
        await it.end(steps["stored"], COMMIT)
        await asyncio.sleep(0.01)
        assert await it.run_round() == 2
        await it.restart()
        assert it.open == 2
        await it.end(steps["done"], COMMIT)
        await it.restart()
        await it.run_round()
        await it.restart()
        await it.end(steps["asked"], COMMIT)
        await it.restart()
        assert (it.delivered, it.open) == (["stored", "done", "asked"], 0)


class _NoFastPath:
    """A hook, with which every request takes the ordinary way."""

    def before_send(self, peer: str, header: SendHeader, body: bytes) -> None: ...

    def after_send(self, peer: str, header: SendHeader, reply: Reply) -> None: ...


@on_loop
async def test_a_crash_right_after_a_commit_does_not_deliver_it_again(tmp_path: Path) -> None:
    async with scene(tmp_path, transaction_timeout=0.001) as it:
        half = await it.begin("x")
        parts = it.cluster.broker.parts
        parts.transactions.queue.close = lambda *_, **__: None  # type: ignore[method-assign]
        parts.gate.hooks.send = (_NoFastPath(),)  # the flow writes both records at once
        await it.end(half, COMMIT)
        assert it.records(OP_HALF_TOPIC) == []
        await it.restart()
        assert (it.delivered, it.open) == (["x"], 0)
        assert len(it.records(OP_HALF_TOPIC)) == 1
        await it.end(half, COMMIT)
        assert it.delivered == ["x"]


@on_loop
async def test_a_crash_right_after_a_half_was_moved_leaves_one_of_it(tmp_path: Path) -> None:
    async with scene(tmp_path, transaction_timeout=0.001) as it:
        half = await it.begin("x")
        await asyncio.sleep(0.01)
        assert await it.run_round() == 1
        queue = it.cluster.broker.parts.transactions.queue
        queue.close = lambda *_, **__: None  # type: ignore[method-assign]
        await asyncio.sleep(0.01)
        assert await it.run_round() == 1
        await it.restart()
        assert it.open == 1
        await it.end(half, COMMIT)
        assert (it.delivered, it.open) == (["x"], 0)


@on_loop
async def test_the_message_of_a_topic_that_is_gone_waits_for_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        half = await it.begin("x")
        topics = it.cluster.broker.parts.topics
        config = topics.require("T")
        await topics.delete("T")
        with pytest.raises(TopicNotFound, match="create it again"):
            await it.end(half, COMMIT)
        assert it.open == 1
        await topics.update(config)
        await it.end(half, COMMIT)
        assert (it.delivered, it.open) == (["x"], 0)


@on_loop
async def test_two_halves_with_one_dedup_key_are_delivered_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await it.producer.create_topic("T", 1, attributes={"+dedup.window": "1h"})
        await until(lambda: it.cluster.broker.parts.duplicates.windows.covers("T"))
        one, two = await it.begin("x", dedup_key="k"), await it.begin("x", dedup_key="k")
        await it.end(one, COMMIT)
        await it.end(two, COMMIT)
        assert (it.delivered, it.open) == (["x"], 0)


# ---- by hand, and without await


@on_loop
async def test_open_ones_are_listed_with_age_and_producer_and_ended_by_hand(tmp_path: Path) -> None:
    async with scene(tmp_path, transaction_timeout=0.001, transaction_check_max=1) as it:
        broker = it.cluster.broker.address
        for number in range(3):
            await it.begin(f"{number}", keys=f"key-{number}", tags="A")
        async with AdminClient(it.cluster.address) as admin:
            page = await admin.transactions.page(broker, limit=2)
            assert (page.total, len(page.transactions), page.next_begin) == (3, 2, 2)
            found = [each async for each in admin.transactions.each(broker, group="writers")]
            assert [each.keys for each in found] == ["key-0", "key-1", "key-2"]
            first = found[0]
            assert (first.producer_group, first.topic, first.tags) == ("writers", "T", "A")
            assert abs(first.began / 1000 - time.time()) < 60
            assert first.next_check > first.began
            assert [each async for each in admin.transactions.each(broker, group="other")] == []
            await admin.transactions.resolve(first.msg_id, commit=True, by="ann")
            await asyncio.sleep(0.01)
            await it.run_round()
            assert [each.check_times async for each in admin.transactions.each(broker)] == [1, 1]
            await admin.transactions.resolve(found[1].msg_id, commit=False, by="ann")
            await it.run_round()
            aside = [each async for each in admin.transactions.each(broker, set_aside=True)]
            assert [(each.keys, each.next_check) for each in aside] == [("key-2", 0)]
            await admin.transactions.resume(aside[0].msg_id)
            assert [each.keys async for each in admin.transactions.each(broker)] == ["key-2"]
            assert [each async for each in admin.transactions.each(broker, set_aside=True)] == []
            await admin.transactions.resolve(aside[0].msg_id, commit=True, by="ann")
            with pytest.raises(TransactionFailed, match="committed before"):
                await admin.transactions.resolve(first.msg_id, commit=False, by="ann")
            with pytest.raises(InvalidParameter):
                await admin.transactions.resume(first.msg_id)
            plain = it.records("T")[0]
            with pytest.raises(QueryNotFound):
                where = OffsetId(unpack_host(plain.store_host), plain.physical_offset)
                await admin.transactions.resolve(where.encode(), commit=True, by="ann")
        assert it.delivered == ["0", "2"]
        ops = [record.decode_properties() for record in it.records(OP_HALF_TOPIC)]
        assert ops[0]["BOLIDE_RESOLVED_BY"].startswith("ann at 127.0.0.1:")


@on_loop
async def test_commands_show_open_ones_and_end_them(tmp_path: Path) -> None:
    async with scene(tmp_path, transaction_timeout=0.001, transaction_check_max=1) as it:
        for number in range(2):
            await it.begin(f"{number}", keys=f"key-{number}")

        async def run(*words: str) -> str:
            address = ("-n", it.cluster.address)
            done = await asyncio.to_thread(CliRunner().invoke, app, ["admin", *words, *address])
            assert done.exit_code == 0, done.output
            return done.output

        where = ("-b", it.cluster.broker.address)
        shown = (await run("openTransactions", *where)).splitlines()
        assert shown[0].split() == [
            "#Age", "s", "Producer", "Group", "Topic", "Keys", "Asked", "Asked", "Next", "Id",
        ]  # fmt: skip
        assert shown[1].split()[1:5] == ["writers", "T", "key-0", "0"]
        found = (await run("openTransactions", *where, "-t", "T", "--json")).splitlines()
        first = json.loads(found[0])["msgId"]
        assert "committed" in await run("resolveTransaction", "-i", first, "--commit", "--yes")
        for _ in range(2):
            await asyncio.sleep(0.01)
            await it.run_round()
        aside = json.loads(await run("discardedTransactions", *where, "--json"))
        assert aside["keys"] == "key-1"
        assert "key-1" in await run("discardedTransactions", *where)
        assert "asked again" in await run("resumeTransaction", "-i", aside["msgId"])
        told = await run(
            "resolveTransaction", "-i", aside["msgId"], "--rollback", "--json", "--yes"
        )
        assert json.loads(told)["committed"] is False
        assert (it.delivered, it.open) == (["0"], 0)


@on_loop
async def test_the_blocking_front_runs_local_transactions_in_the_thread_that_sends(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path, **ASKED_OFTEN) as it:
        it.answer = lambda message: COMMIT if message.body == b"asked" else UNKNOWN

        def use() -> None:
            here = threading.current_thread()

            def local(_: Message, state: TransactionState | None) -> TransactionState | None:
                assert threading.current_thread() is here
                return state

            producer = sync.TransactionProducer(
                "others", check=it.check, name_server=it.cluster.address
            )
            with producer:
                done = producer.send_in_transaction(Message("T", b"sent"), local, COMMIT)
                assert done.is_confirmed
                producer.send_in_transaction(Message("T", b"asked"), local, None)
                with producer.transaction(Message("T", b"block")) as block:
                    assert block.message.unique_id == block.id
                with pytest.raises(KeyError), producer.transaction(Message("T", b"failed")):
                    raise KeyError
                deadline = time.monotonic() + 10
                while "asked" not in it.delivered and time.monotonic() < deadline:
                    time.sleep(0.01)

        await asyncio.to_thread(use)
        assert sorted(it.delivered) == ["asked", "block", "sent"]
