"""Tables as a master hands them out in parts, and as its slave puts them together."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.broker.consume.expiry import EXPIRING_TOPICS
from bolide.broker.filters.functions import FILTER_FUNCTIONS
from bolide.broker.pop.ordered import ORDERS
from bolide.broker.replicas import table_copies
from bolide.broker.replicas.table_copies import MAX_PARTS, CopyPart, CopyReader, encode_table
from bolide.broker.server import Broker
from bolide.protocol import fastjson
from bolide.protocol.bodies.offsets import ConsumerOffsets
from bolide.protocol.bodies.replication import CopiedTable, ReplicaState
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.errors import ProtocolError
from bolide.protocol.framing import MAX_FRAME_SIZE
from bolide.protocol.headers.replication import ReplicaStateReply
from bolide.protocol.refusals import ServerError, SystemBusy
from bolide.store import tables as kinds
from bolide.store.tables import Table, TableKind
from tests.support.aio import on_loop
from tests.support.broker import broker_in
from tests.support.struct_strategies import instances
from tests.unit.broker.replicas.test_metadata_sync import pair

KINDS: list[TableKind[Any]] = [
    kinds.TOPICS, kinds.QUEUE_MAPPINGS, kinds.GROUPS, kinds.CONSUMER_OFFSETS, kinds.DELAY_OFFSETS,
    kinds.REQUEST_MODES, FILTER_FUNCTIONS, EXPIRING_TOPICS, ORDERS,
]  # fmt: skip
OFFSETS = kinds.CONSUMER_OFFSETS.file_name


@dataclass
class SlaveConnection:
    is_closed: bool = False


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that are full with a few entries."""
    monkeypatch.setattr(table_copies, "_PART", 1000)
    monkeypatch.setattr(table_copies, "_LINE", 500)


def commit(broker: Broker, count: int, offset: int = 1) -> None:
    for number in range(count):
        broker.parts.offsets.commit("readers", f"Topic{number}", 0, offset)


def crc_of(lines: list[bytes]) -> int:
    crc = 0
    for line in lines:
        crc = crc32(line, crc)
    return crc


def copy_of(lines: list[bytes], count: int | None = None, crc: int | None = None) -> bytes:
    """A copy of consumer offsets in these lines, which may say something else of them."""
    table = CopiedTable(
        name=OFFSETS,
        lines=len(lines) if count is None else count,
        crc=crc_of(lines) if crc is None else crc,
    )
    return b"\n".join([fastjson.encode(ReplicaState(tables=[table])), *lines])


def offset_lines(count: int) -> list[bytes]:
    return list(
        encode_table(ConsumerOffsets(offset_table={f"T{at}@g": {0: at} for at in range(count)}))
    )


def reader() -> CopyReader:
    return CopyReader({OFFSETS: Table(Path("/nowhere"), kinds.CONSUMER_OFFSETS)})


def source_of(master: Broker) -> table_copies.StateSource:
    handlers = master.parts.dispatcher.routes[RequestCode.BOLIDE_GET_REPLICA_STATE].call
    source = handlers.__self__._state  # type: ignore[attr-defined]
    assert isinstance(source, table_copies.StateSource)
    return source


# ---- the text of a copy


@given(st.data())
def test_a_table_of_any_kind_is_the_same_behind_a_copy(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    value = data.draw(instances(kind.shape))
    try:
        lines = list(encode_table(value))
    except (UnicodeEncodeError, OverflowError):  # nor can its file be written
        return
    told = CopiedTable(name=kind.file_name, lines=len(lines), crc=crc_of(lines))
    copy = CopyReader({kind.file_name: Table(Path("/nowhere"), kind)})
    copy.add(b"\n".join([fastjson.encode(ReplicaState(tables=[told])), *lines]))
    copy.finish()
    assert copy.values == {kind.file_name: value}


def test_a_large_table_has_lines_of_limited_size() -> None:
    offsets = {f"T{topic}@g": dict.fromkeys(range(1000), 7) for topic in range(100)}
    _, first, *lines = encode_table(ConsumerOffsets(offset_table=offsets))
    assert len(first) > table_copies._LINE  # before the size of an entry was known
    assert max(map(len, lines)) <= table_copies._LINE + len(first) // 64
    assert len(list(encode_table(ConsumerOffsets()))) == 1


def test_entries_that_are_removed_while_a_table_is_encoded_are_left_out() -> None:
    table = ConsumerOffsets(offset_table={f"T{at}@g": {0: at} for at in range(200)})
    lines: Iterator[bytes] = encode_table(table)
    next(lines)
    next(lines)
    del table.offset_table["T199@g"]
    table.offset_table["New@g"] = {0: 1}
    assert b"T199@g" not in b"".join(lines)


def test_a_damaged_copy_is_refused() -> None:
    lines = offset_lines(100)
    copy = reader()
    with pytest.raises(ProtocolError, match="is damaged"):
        copy.add(copy_of(lines, crc=1))
    with pytest.raises(ProtocolError, match="more lines"):
        reader().add(copy_of(lines, count=1, crc=crc32(lines[0])))
    with pytest.raises(fastjson.BadJson):
        reader().add(b"no copy")


def test_a_copy_without_its_last_lines_is_refused() -> None:
    copy = reader()
    copy.add(copy_of(offset_lines(100)).rpartition(b"\n")[0])
    with pytest.raises(ProtocolError, match="before its last line"):
        copy.finish()
    with pytest.raises(ProtocolError, match="before its last line"):
        reader().finish()


def test_a_table_that_a_slave_does_not_have_is_skipped() -> None:
    copy = CopyReader({})
    copy.add(copy_of(offset_lines(3)))
    assert [table.name for table in copy.finish().tables] == [OFFSETS]
    assert copy.values == {}


# ---- copies in parts


@on_loop
async def test_tables_over_the_limit_of_a_reply_are_copied(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave, sync):
        note = {"note": "x" * (MAX_FRAME_SIZE // 16_000)}
        await master.parts.topics.update_all(
            [TopicConfig(topic_name=f"Topic{at}", attributes=note) for at in range(17_000)]
        )
        await sync.copy(master.address)
        assert sync._adopted_on == 1
        assert len(slave.parts.topics) == len(master.parts.topics)
        assert slave.parts.topics.require("Topic16999").attributes == note


@pytest.mark.usefixtures("small_parts")
@on_loop
async def test_a_table_that_changes_between_two_parts_is_copied_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as (master, slave, sync):
        commit(master, 400, offset=1)
        parts: list[int] = []
        add = CopyReader.add

        def add_and_change(copy: CopyReader, part: bytes) -> None:
            add(copy, part)
            parts.append(len(part))
            master.parts.offsets.commit("readers", "Topic399", 0, 1 + len(parts))

        with monkeypatch.context() as patch:
            patch.setattr(CopyReader, "add", add_and_change)
            await sync.copy(master.address)
        assert len(parts) > 5
        assert max(parts) < 5000
        assert slave.parts.offsets.of("readers", "Topic399") == {0: 1}
        await sync.copy(master.address)
        assert slave.parts.offsets.of("readers", "Topic399") == {0: 1 + len(parts)}
        assert source_of(master)._kept == {}


@pytest.mark.usefixtures("small_parts")
@on_loop
async def test_nothing_of_a_copy_that_ends_early_is_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as (master, slave, sync):
        commit(master, 200)
        source = source_of(master)
        part = source.part

        def lose(copy_id: int, number: int) -> CopyPart:
            if number == 2:
                source._drop(copy_id)
            return part(copy_id, number)

        with monkeypatch.context() as patch:
            patch.setattr(source, "part", lose)
            with pytest.raises(ServerError, match="ask for the tables again"):
                await sync.copy(master.address)
        assert slave.parts.offsets.groups_of("Topic0") == set()
        assert sync._known == {}
        await sync.copy(master.address)
        assert slave.parts.offsets.of("readers", "Topic199") == {0: 1}


@on_loop
async def test_a_copy_of_too_many_parts_is_refused(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, _, sync):
        source = source_of(master)

        async def boast(*_: object) -> CopyPart:
            return CopyPart(ReplicaStateReply(7, MAX_PARTS + 1), b"x")

        source.changes = boast  # type: ignore[assignment, method-assign]
        with pytest.raises(ProtocolError, match=f"at most {MAX_PARTS}"):
            await sync.copy(master.address)


@pytest.mark.usefixtures("small_parts")
@on_loop
async def test_a_master_keeps_few_copies_one_for_each_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_in(tmp_path) as master:
        commit(master, 100)
        source = source_of(master)
        slaves = [SlaveConnection() for _ in range(5)]
        copies = [(await source.changes("", slave)).header for slave in slaves[:4]]
        assert all(copy.parts > 1 for copy in copies)
        with pytest.raises(SystemBusy, match="ask again later"):
            await source.changes("", slaves[4])

        again = (await source.changes("", slaves[0])).header  # in place of its first copy
        with pytest.raises(ServerError, match="no part 1"):
            source.part(copies[0].copy_id, 1)
        assert source.part(again.copy_id, 1).header == again
        slaves[1].is_closed = True
        await source.changes("", slaves[4])

        monkeypatch.setattr(table_copies, "_KEPT_TIME", 0.01)
        source.part(again.copy_id, 1)
        await asyncio.sleep(0.1)
        with pytest.raises(ServerError, match="no part 1"):
            source.part(again.copy_id, 1)


# ---- where the work is done


@pytest.mark.usefixtures("small_parts")
@on_loop
async def test_tables_are_encoded_and_read_on_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()
    decode, encode = Table.decode, msgspec.json.encode

    def note_decode(table: Table[Any], data: bytes) -> Any:
        threads.add(threading.current_thread().name)
        return decode(table, data)

    def note_encode(value: Any, **how: Any) -> bytes:
        threads.add(threading.current_thread().name)
        return encode(value, **how)

    async with pair(tmp_path) as (master, _, sync):
        commit(master, 100)
        with monkeypatch.context() as patch:
            patch.setattr(Table, "decode", note_decode)
            patch.setattr(msgspec.json, "encode", note_encode)
            await sync.copy(master.address)
    assert threads
    assert all(name.startswith(("bolide-admin", "bolide-tables")) for name in threads)


@on_loop
async def test_a_table_that_has_not_changed_is_not_encoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[type] = []

    def note(value: msgspec.Struct) -> Iterator[bytes]:
        encoded.append(type(value))
        return encode_table(value)

    monkeypatch.setattr(table_copies, "encode_table", note)
    async with pair(tmp_path) as (master, _, sync):
        await sync.copy(master.address)
        assert kinds.TOPICS.shape in encoded
        encoded.clear()
        await sync.copy(master.address)
        assert encoded == [kinds.DELAY_OFFSETS.shape]
        await master.parts.topics.update(TopicConfig(topic_name="T"))
        master.parts.groups.require("readers")
        commit(master, 1)
        encoded.clear()
        await sync.copy(master.address)
        assert set(encoded) == {
            kinds.TOPICS.shape, kinds.GROUPS.shape, ConsumerOffsets, kinds.DELAY_OFFSETS.shape,
        }  # fmt: skip
