"""Look-up by id and key: the index has hashes only, and both kinds of ids have one form."""

from zlib import compress

import pytest

from bolide.admin import MessageNotFound
from bolide.model.message import CompressionType, Host
from bolide.model.message_queue import MessageQueue
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.pull import PullReply
from bolide.protocol.hosts import pack_host
from bolide.protocol.message_id import OffsetId
from bolide.protocol.record import Placement, RecordDraft, encode_record, place_record
from bolide.protocol.refusals import QueryNotFound, ServerError
from bolide.remoting.address import split_address
from bolide.remoting.dispatch import Reply
from tests.support.aio import on_loop
from tests.unit.admin.scripted import Scripted, cast

UNIQUE = "C00002023C80E848E23C4B3D1CC30000"
QUERY, VIEW = RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID


def record(
    topic: str = "Orders",
    keys: str = "k1",
    *,
    body: bytes = b"text",
    sys_flag: int = 0,
    at: int = 0,
) -> bytes:
    host = pack_host(Host("127.0.0.1", 10911))
    properties = f"KEYS\1{keys}\2UNIQ_KEY\1{UNIQUE}\2".encode()
    draft = RecordDraft(topic.encode(), body, properties, 0, 1, host, host, 0, sys_flag)
    made = encode_record(draft)
    place_record(made, 0, Placement(at, at * 100, 1_000 - at))
    return bytes(made)


def nothing(_fields: dict[str, str]) -> Reply:
    raise QueryNotFound("can not find message")


def id_at(broker: Scripted, offset: int = 0) -> str:
    return OffsetId(Host(*split_address(broker.address)), offset).encode()


@on_loop
async def test_other_keys_and_topics_of_the_same_hash_are_left_out() -> None:
    async with cast() as stage:
        found = record(keys="k1 k2") + record(keys="k10") + record(topic="Bills")
        stage.first.answers(QUERY, found)

        (message,) = await stage.admin.messages.by_key("Orders", "k1")

        assert message.keys == ("k1", "k2")
        assert message.broker_name == "broker-a"
        (fields,) = stage.first.fields_of(QUERY)
        assert fields["endTimestamp"] == str(2**63 - 1)
        assert fields["_UNIQUE_KEY_QUERY"] == "false"


@on_loop
async def test_a_broker_that_finds_nothing_does_not_hide_what_another_finds() -> None:
    async with cast("broker-a", "broker-b") as stage:
        one, other = stage.brokers.values()
        one.answers(QUERY, nothing)
        other.answers(QUERY, record())

        (message,) = await stage.admin.messages.by_key("Orders", "k1")

        assert message.broker_name == "broker-b"


@on_loop
async def test_a_message_that_is_nowhere_is_told_by_its_key() -> None:
    async with cast() as stage:
        stage.first.answers(QUERY, nothing)

        with pytest.raises(MessageNotFound, match="'Orders' is found by key 'k1'"):
            await stage.admin.messages.by_key("Orders", "k1")


@on_loop
async def test_the_oldest_message_of_an_id_comes_first() -> None:
    async with cast() as stage:
        stage.first.answers(QUERY, record(at=1) + record(at=2))

        found = await stage.admin.messages.by_unique_id("Orders", UNIQUE)

        assert [each.queue_offset for each in found] == [
            2,
            1,
        ]  # by store time


@on_loop
async def test_bodies_are_plain_whatever_they_were_sent_as() -> None:
    async with cast() as stage:
        packed = record(body=compress(b"long text"), sys_flag=CompressionType.ZLIB.flags)
        stage.first.answers(VIEW, packed)

        message = await stage.admin.messages.view(id_at(stage.first))

        assert message.body == b"long text"
        assert not message.sys_flag & 1


@on_loop
async def test_a_body_that_does_not_inflate_does_not_hide_the_others() -> None:
    async with cast() as stage:
        broken = record("%RETRY%g", body=b"junk", sys_flag=CompressionType.ZLIB.flags)
        stage.first.answers(QUERY, broken + record())

        found = await stage.admin.messages.by_unique_id("Orders", UNIQUE)

        assert [(each.topic, each.body) for each in found] == [
            ("%RETRY%g", b"junk"),
            ("Orders", b"text"),
        ]


@on_loop
async def test_an_id_that_names_a_broker_is_looked_up_there() -> None:
    async with cast() as stage:
        stage.first.answers(VIEW, record())

        await stage.admin.messages.find("Orders", id_at(stage.first, 500))

        (fields,) = stage.first.fields_of(VIEW)
        assert fields["offset"] == "500"
        assert not stage.first.fields_of(QUERY)


@on_loop
async def test_any_other_id_is_taken_for_the_senders() -> None:
    async with cast() as stage:
        stage.first.answers(QUERY, record())

        message = await stage.admin.messages.find("Orders", UNIQUE)

        assert message.message_id == UNIQUE
        assert not stage.first.fields_of(VIEW)


@on_loop
async def test_what_a_broker_does_not_have_is_looked_for_by_the_senders_id() -> None:
    def missing(_fields: dict[str, str]) -> Reply:
        raise ServerError("can not find message by the offset, 0")

    async with cast() as stage:
        stage.first.answers(VIEW, missing)
        stage.first.answers(QUERY, nothing)

        with pytest.raises(MessageNotFound, match=f"id {id_at(stage.first)}"):
            await stage.admin.messages.find("Orders", id_at(stage.first))
        assert stage.first.fields_of(QUERY)


@on_loop
async def test_a_place_without_message_is_told() -> None:
    def moved(_fields: dict[str, str]) -> Reply:
        told = PullReply(suggest_which_broker_id=0, next_begin_offset=3, min_offset=3, max_offset=9)
        return Reply(code=ResponseCode.PULL_OFFSET_MOVED, header=told)

    async with cast() as stage:
        stage.first.answers(RequestCode.PULL_MESSAGE, moved)
        queue = MessageQueue("Orders", "broker-a", 0)

        with pytest.raises(MessageNotFound, match="offset 1 of queue 0 on broker-a"):
            await stage.admin.messages.at(queue, 1)
        pulled = await stage.admin.messages.pull(queue, 1)
        assert (pulled.messages, pulled.next_offset, pulled.max_offset) == ([], 3, 9)
