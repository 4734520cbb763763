"""What the audit log of a broker says of each request that administers it."""

import inspect
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bolide.auth.access import OpenAccess
from bolide.auth.audit import AUDITED
from bolide.broker.assembly import HANDLERS
from bolide.broker.audit.subjects import EXEMPT, Subjects
from bolide.broker.gate import Gate
from bolide.broker.settings.live import Settings
from bolide.protocol.bodies.audit import AuditPage, AuditRecord, State
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.protocol.headers.access import (
    AccessKeyHeader,
    DeleteAclHeader,
    PlainAclHeader,
    SubjectHeader,
    UserHeader,
    WhiteAddressesHeader,
)
from bolide.remoting.dispatch import Request, handled_codes
from tests.support.aio import on_loop
from tests.support.broker import send_header
from tests.support.broker_core import BrokerCore, Peer

HANDLED = sorted(AUDITED & set().union(*map(handled_codes, HANDLERS)))
TOPIC = {
    "topic": "Orders", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4",
    "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
}  # fmt: skip


@asynccontextmanager
async def core_in(directory: Path, **settings: Any) -> AsyncIterator[tuple[BrokerCore, Peer]]:
    core = BrokerCore(directory, **settings)
    await core.transactions.queue.load()
    try:
        yield core, core.connect(fast=False)
    finally:
        await core.stop()


async def audit(peer: Peer) -> list[AuditRecord]:
    reply = await peer.call(Code.BOLIDE_READ_AUDIT, {})
    return [each.record for each in msgspec.json.decode(reply.body, type=AuditPage).entries]


async def last(peer: Peer) -> AuditRecord:
    return (await audit(peer))[-1]


def describers(core: BrokerCore) -> dict[int, Any]:
    return Subjects(core.parts, Settings(core.cell, core.store_cell)).describers()


@on_loop
async def test_every_request_that_administers_is_described_or_exempt(tmp_path: Path) -> None:
    async with core_in(tmp_path) as (core, _):
        described = describers(core).keys()
    assert described | EXEMPT.keys() >= set(HANDLED)
    assert not described & EXEMPT.keys()
    assert described | EXEMPT.keys() <= AUDITED
    assert all(len(reason) > 10 for reason in EXEMPT.values())


@pytest.mark.parametrize("code", [code for code in HANDLED if code not in EXEMPT])
@on_loop
async def test_a_malformed_request_still_gets_its_own_answer(
    tmp_path: Path, code: Code, caplog: pytest.LogCaptureFixture
) -> None:
    async with core_in(tmp_path) as (_, peer):
        fields = dict.fromkeys(("topic", "group", "groupName", "name", "key", "msgId"), "X")
        numbers = dict.fromkeys(("timestamp", "mode"), "1")
        await peer.call(code, TOPIC | fields | numbers, b"\xff{")
        if code != Code.DELETE_EXPIRED_COMMITLOG:  # the memory store has no files to delete
            assert [each for each in caplog.records if each.levelname == "ERROR"] == []
        found = await audit(peer)
        assert [each.request for each in found] in ([code.name], [])  # or a header was missing


@on_loop
async def test_a_topic_is_shown_before_and_after(tmp_path: Path) -> None:
    async with core_in(tmp_path) as (_, peer):
        await peer.call(Code.UPDATE_AND_CREATE_TOPIC, TOPIC)
        created = await last(peer)
        await peer.call(Code.UPDATE_AND_CREATE_TOPIC, TOPIC | {"perm": "4"})
        changed = await last(peer)

    assert (created.request, created.target) == ("UPDATE_AND_CREATE_TOPIC", {"topic": "Orders"})
    assert created.before == {"Orders": None}
    assert created.after["Orders"]["readQueueNums"] == 4
    assert (changed.before, changed.after) == ({"Orders": {"perm": 6}}, {"Orders": {"perm": 4}})
    assert (changed.server, changed.user, changed.code) == ("broker-a", None, 0)


@on_loop
async def test_a_list_of_topics_is_shown_one_by_one(tmp_path: Path) -> None:
    body = b'{"topicConfigList":[{"topicName":"A","perm":6},{"topicName":"T","perm":2}]}'
    async with core_in(tmp_path) as (_, peer):
        await peer.call(Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)
        record = await last(peer)
    assert record.target == {"topics": ["A", "T"]}
    assert record.before["A"] is None
    assert record.after["T"]["perm"] == 2


@on_loop
async def test_a_deleted_topic_is_shown_with_what_it_had(tmp_path: Path) -> None:
    async with core_in(tmp_path) as (core, peer):
        for _ in range(3):
            await peer.call(Code.SEND_MESSAGE, send_header(), b"text")
        core.parts.offsets.commit("readers", "T", 0, 2)
        await peer.call(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        record = await last(peer)
    assert record.before["T"]["writeQueueNums"] == 4
    assert (record.before["messages"], record.before["groups"]) == (3, ["readers"])
    assert record.after == {"T": None, "messages": 0, "groups": []}


@on_loop
async def test_unused_topics_are_looked_for_once_and_not_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with core_in(tmp_path) as (core, peer):
        await peer.call(Code.SEND_MESSAGE, send_header(), b"text")
        await peer.call(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        topics = core.parts.store.topics
        threads = []

        def recorded() -> set[str]:
            threads.append(threading.current_thread())
            return topics() | {"Orphan"}

        monkeypatch.setattr(core.parts.store, "topics", recorded)
        subject = await describers(core)[Code.CLEAN_UNUSED_TOPIC](None)
        state = subject.state()
    assert (subject.target, state) == ({"unused": ["Orphan"]}, {})
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


@on_loop
async def test_a_group_and_its_deletion_are_shown(tmp_path: Path) -> None:
    async with core_in(tmp_path) as (core, peer):
        code = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await peer.call(code, {}, b'{"groupName":"billing","retryMaxTimes":3}')
        await peer.call(code, {}, b'{"groupName":"billing","retryMaxTimes":5}')
        changed = await last(peer)
        core.parts.offsets.commit("billing", "T", 1, 7)
        fields = {"groupName": "billing", "cleanOffset": "true"}
        await peer.call(Code.DELETE_SUBSCRIPTIONGROUP, fields)
        deleted = await last(peer)
    assert changed.before == {"billing": {"retryMaxTimes": 3}}
    assert changed.after == {"billing": {"retryMaxTimes": 5}}
    assert deleted.target == {"group": "billing", "cleanOffset": True}
    assert deleted.before["offsets of T"] == {"1": 7}
    assert deleted.after["billing"] is None


@on_loop
async def test_a_reset_shows_the_offsets_that_moved(tmp_path: Path) -> None:
    async with core_in(tmp_path) as (core, peer):
        core.tables.groups.require("readers")
        core.parts.offsets.commit("readers", "T", 0, 9)
        core.parts.offsets.commit("readers", "T", 1, 0)
        fields = {"topic": "T", "group": "readers", "timestamp": "0", "isForce": "true"}
        answer = await peer.call(Code.INVOKE_BROKER_TO_RESET_OFFSET, fields)
        record = await last(peer)
    assert answer.code == record.code == 0
    assert (record.target["topic"], record.target["group"]) == ("T", "readers")
    assert record.before["offsets of T"]["0"] == 9
    assert record.after["offsets of T"]["0"] == 0
    assert "1" not in record.before["offsets of T"]


@on_loop
async def test_settings_show_only_what_changed_and_no_secret(tmp_path: Path) -> None:
    async with core_in(tmp_path) as (_, peer):
        body = b"brokerPermission=4\nfileReservedTime=72\ntls.server.keyPassword=hush\n"
        await peer.call(Code.UPDATE_BROKER_CONFIG, {}, body)
        records = await audit(peer)
    text = msgspec.json.encode(records).decode()
    assert "hush" not in text
    assert "brokerPermission" in text


@on_loop
async def test_a_setting_is_shown_before_and_after(tmp_path: Path) -> None:
    async with core_in(tmp_path) as (_, peer):
        await peer.call(Code.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4\nfileReservedTime=72\n")
        record = await last(peer)
    assert sorted(record.target["keys"]) == ["brokerPermission", "fileReservedTime"]
    assert (record.before, record.after) == (
        {"brokerPermission": "6"}, {"brokerPermission": "4"},
    )  # fmt: skip


@on_loop
async def test_a_refused_setting_is_recorded_with_its_reason(tmp_path: Path) -> None:
    async with core_in(tmp_path) as (_, peer):
        answer = await peer.call(Code.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=many\n")
        record = await last(peer)
    assert (record.code, record.remark) == (answer.code, answer.remark)
    assert not record.before


@on_loop
async def test_an_account_is_recorded_without_its_secret(tmp_path: Path) -> None:
    async with core_in(tmp_path) as (core, peer):
        header = PlainAclHeader(access_key="shop", secret_key="hush", admin=True)
        request = Request(header, None, peer.connection)  # type: ignore[arg-type]
        subject = describers(core)[Code.UPDATE_AND_CREATE_ACL_CONFIG](request)
    assert subject.target == {"accessKey": "shop", "admin": True, "newSecretKey": True}


@on_loop
async def test_a_user_is_recorded_without_the_password(tmp_path: Path) -> None:
    async with core_in(tmp_path) as (core, peer):
        body = b'{"username":"shop","password":"hush","userType":"Normal"}'
        request = Request(UserHeader("shop"), Frame(code=3001, body=body), peer.connection)
        subject = await describers(core)[Code.AUTH_CREATE_USER](request)
    assert subject.target == {"username": "shop", "userType": "Normal", "newPassword": True}


class Accounts(OpenAccess):
    """Shows the name that it is asked for."""

    def account_states(self, name: str) -> State:
        return {"account": name}


@pytest.mark.parametrize(
    ("code", "header", "account"),
    [
        (Code.AUTH_UPDATE_USER, UserHeader("shop"), "shop"),
        (Code.AUTH_DELETE_USER, UserHeader("team:shop"), "team:shop"),
        (Code.AUTH_UPDATE_ACL, SubjectHeader("User:shop"), "shop"),
        (Code.AUTH_DELETE_ACL, DeleteAclHeader(subject="User:shop"), "shop"),
        (Code.DELETE_ACL_CONFIG, AccessKeyHeader("shop"), "shop"),
        (Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, WhiteAddressesHeader(global_white_addrs="x"), ""),
    ],
)
@on_loop
async def test_the_account_is_the_one_that_the_handler_changes(
    tmp_path: Path, code: Code, header: Header, account: str
) -> None:
    others = {"username": "other", "subject": "User:other", "accessKey": "other"}
    fields = others | {name: str(value) for name, value in header.to_fields().items()}
    async with core_in(tmp_path, gate=Gate(access=Accounts())) as (core, peer):
        frame = Frame(code=code, fields=fields, body=b"{}")
        described = describers(core)[code](Request(header, frame, peer.connection))
        subject = await described if inspect.isawaitable(described) else described
    assert subject.state() == {"account": account}


@on_loop
async def test_offsets_cloned_and_modes_and_thresholds_are_shown(tmp_path: Path) -> None:
    async with core_in(tmp_path) as (core, peer):
        core.parts.offsets.commit("readers", "T", 0, 9)
        fields = {"srcGroup": "readers", "destGroup": "copy", "offline": "true"}
        await peer.call(Code.CLONE_GROUP_OFFSET, fields)
        cloned = await last(peer)
        body = b'{"topic":"T","consumerGroup":"readers","mode":"POP","popShareQueueNum":1}'
        await peer.call(Code.SET_MESSAGE_REQUEST_MODE, {}, body)
        mode = await last(peer)
        await peer.call(Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, {}, b"readers=100\n")
        cold = await last(peer)
        await peer.call(Code.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": "1"})
        await peer.call(Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
                        {"group": "readers", "topic": "T", "readable": "false"})  # fmt: skip
        forbidden = await last(peer)
    assert cloned.after == {"offsets of T": {"0": 9}}
    assert mode.after["mode"]["mode"] == "POP"
    assert cold.after == {"threshold of readers": 100}
    assert (forbidden.before, forbidden.after) == ({"readable": True}, {"readable": False})
