"""The audit topic: who may write and read it, and what happens if the store takes no record."""

import logging
from pathlib import Path

import msgspec
import pytest

from bolide.model.names import AUDIT_TOPIC
from bolide.protocol.bodies.audit import AuditPage, AuditRecord
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.codes import ResponseCode
from bolide.store.errors import StoreUnwritable
from tests.support.aio import on_loop
from tests.support.broker import SUBSCRIBED, pull_header, send_header
from tests.support.broker_core import Peer
from tests.unit.broker.audit.test_subjects import TOPIC, core_in


async def page(peer: Peer, **fields: str) -> AuditPage:
    reply = await peer.call(Code.BOLIDE_READ_AUDIT, fields)
    return msgspec.json.decode(reply.body, type=AuditPage)


async def change(peer: Peer, count: int) -> None:
    for number in range(count):
        await peer.call(Code.UPDATE_AND_CREATE_TOPIC, TOPIC | {"topic": f"Topic-{number}"})


@on_loop
async def test_the_log_is_read_page_by_page_and_reading_leaves_no_record(tmp_path: Path) -> None:
    async with core_in(tmp_path) as (_, peer):
        await change(peer, 5)
        first = await page(peer, maxNum="3")
        rest = await page(peer, begin=str(first.next_begin), maxNum="3")
        none = await page(peer, begin=str(rest.next_begin))

    assert [each.offset for each in (*first.entries, *rest.entries)] == [0, 1, 2, 3, 4]
    assert (first.is_last, rest.is_last, none.is_last) == (False, True, True)
    assert not none.entries
    assert none.next_begin == 5


@on_loop
async def test_the_log_is_read_from_a_time_on(tmp_path: Path) -> None:
    async with core_in(tmp_path) as (core, peer):
        await change(peer, 2)
        core.clock.now += 60
        await change(peer, 1)
        found = await page(peer, since=str(int(core.clock.now * 1000)))
    assert [each.offset for each in found.entries] == [2]


@pytest.mark.parametrize("count", ["0", "501"])
@on_loop
async def test_a_page_has_a_limit(tmp_path: Path, count: str) -> None:
    async with core_in(tmp_path) as (_, peer):
        answer = await peer.call(Code.BOLIDE_READ_AUDIT, {"maxNum": count})
    assert answer.code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize("fast", [False, True])
@on_loop
async def test_clients_can_neither_send_to_it_nor_read_it(tmp_path: Path, fast: bool) -> None:
    async with core_in(tmp_path) as (core, admin):
        core.topics.create_system_topics()
        core.tables.groups.require("readers")
        await change(admin, 1)
        peer = core.connect(fast=fast)
        sent = await peer.call(Code.SEND_MESSAGE, send_header(topic=AUDIT_TOPIC), b"forged")
        pulled = await peer.call(
            Code.PULL_MESSAGE, pull_header(topic=AUDIT_TOPIC, sys_flag=SUBSCRIBED)
        )
        viewed = await peer.call(Code.VIEW_MESSAGE_BY_ID, {"offset": str(core.log[0][0])})
        back = await peer.call(
            Code.CONSUMER_SEND_MSG_BACK,
            {"offset": str(core.log[0][0]), "group": "readers", "delayLevel": "0"},
        )
        changed = await admin.call(
            Code.UPDATE_AND_CREATE_TOPIC, TOPIC | {"topic": AUDIT_TOPIC, "perm": "6"}
        )
        deleted = await admin.call(Code.DELETE_TOPIC_IN_BROKER, {"topic": AUDIT_TOPIC})
        stored = len(core.log)

    refused = (sent, pulled, viewed, back, changed, deleted)
    assert all(answer.code != ResponseCode.SUCCESS for answer in refused)
    assert pulled.code == ResponseCode.NO_PERMISSION
    assert stored == 3  # three requests that administer


@on_loop
async def test_a_record_that_the_store_does_not_take_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreUnwritable("the disk is full")

    async with core_in(tmp_path) as (core, peer):
        monkeypatch.setattr(core.intake, "append", refuse)
        with caplog.at_level(logging.ERROR, "bolide.audit"):
            answer = await peer.call(Code.UPDATE_AND_CREATE_TOPIC, TOPIC)
    assert answer.code == ResponseCode.SUCCESS
    (line,) = caplog.messages
    assert "the disk is full" in line
    logged = msgspec.json.decode(line[line.index("{") :], type=AuditRecord)
    assert logged.target == {"topic": "Orders"}


@on_loop
async def test_a_huge_change_is_cut(tmp_path: Path) -> None:
    configs = [{"topicName": f"T{number}"} for number in range(2000)]
    body = msgspec.json.encode({"topicConfigList": configs})
    async with core_in(tmp_path) as (_, peer):
        await peer.call(Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)
        (entry,) = (await page(peer)).entries
    assert len(entry.record.target["topics"]) == 65
    assert entry.record.after["…"] == "1936 more"


@on_loop
async def test_the_limit_of_messages_is_none_of_the_audit(tmp_path: Path) -> None:
    async with core_in(tmp_path) as (_, peer):
        reply = await peer.call(Code.UPDATE_BROKER_CONFIG, {}, b"maxMessageSize=1")
        assert reply.code == ResponseCode.SUCCESS
        await change(peer, 1)
        found = await page(peer)
    assert [each.record.request for each in found.entries] == [
        "UPDATE_BROKER_CONFIG",
        "UPDATE_AND_CREATE_TOPIC",
    ]
