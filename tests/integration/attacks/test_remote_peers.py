"""What a peer on another machine may do to servers without access control, and what not."""

import json
from pathlib import Path
from typing import Protocol

import pytest

from bolide.auth.request_purposes import PURPOSES, Purpose
from bolide.protocol import fastjson
from bolide.protocol.bodies.registration import RegisterBrokerBody
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.bodies.topics import MappedTopicConfigTable, TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.namesrv import RegisterBrokerHeader, UnregisterBrokerHeader
from bolide.protocol.refusals import NoPermission, Refusal
from tests.support.aio import on_loop
from tests.support.attackers import attacked_broker, attacked_name_server

ADMINISTRATION = [code for code, purpose in PURPOSES.items() if purpose is Purpose.ADMINISTRATION]
REFUSED = "without access control, requests that administer are taken over loopback only"


class Caller(Protocol):
    async def call(self, code: RequestCode, /) -> Frame: ...


async def remark_of(caller: Caller, code: int) -> tuple[int, str]:
    """Code and remark of the answer to an empty request."""
    try:
        answer = await caller.call(RequestCode(code))
    except Refusal as refusal:
        return refusal.code, refusal.remark or ""
    return answer.code, answer.remark or ""


@on_loop
async def test_a_remote_peer_administers_nothing_at_a_broker(tmp_path: Path) -> None:
    async with attacked_broker(tmp_path) as a:
        for code in ADMINISTRATION:
            answered, remark = await remark_of(a.remote, code)
            assert answered == 16
            assert REFUSED in remark
            assert RequestCode(code).name in remark
            assert "allowRemoteAdmin=true" in remark


@on_loop
async def test_a_remote_peer_administers_nothing_at_a_name_server(tmp_path: Path) -> None:
    async with attacked_name_server(tmp_path) as a:
        for code in ADMINISTRATION:
            answered, remark = await remark_of(a.remote, code)
            assert answered == 16
            assert REFUSED in remark


@on_loop
async def test_no_other_request_is_refused_for_its_peer(tmp_path: Path) -> None:
    others = set(PURPOSES) - set(ADMINISTRATION)
    async with attacked_broker(tmp_path) as a:
        for code in others:
            assert REFUSED not in (await remark_of(a.remote, code))[1]
        for code in ADMINISTRATION:
            assert REFUSED not in (await remark_of(a.local, code))[1]


@on_loop
async def test_remote_administration_can_be_allowed_in_the_file(tmp_path: Path) -> None:
    async with attacked_broker(tmp_path, allow_remote_admin=True) as a:
        await a.remote.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=5")
        assert a.broker.store_config.value.file_reserved_hours == 5
        with pytest.raises(NoPermission, match="allowRemoteAdmin"):
            await a.remote.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"allowRemoteAdmin=false")


@on_loop
async def test_nobody_allows_remote_administration_over_the_wire(tmp_path: Path) -> None:
    async with attacked_broker(tmp_path) as a:
        for caller in (a.remote, a.local):
            with pytest.raises(NoPermission):
                await caller.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"allowRemoteAdmin=true")
        assert not a.broker.config.value.allow_remote_admin
    assert not (tmp_path / "store" / "config" / "broker.properties").exists()


@on_loop
async def test_a_remote_client_sends_receives_and_commits(tmp_path: Path) -> None:
    beat = {
        "clientID": "c",
        "producerDataSet": [],
        "consumerDataSet": [
            {
                "groupName": "readers",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [{"topic": "T", "subString": "*"}],
                "unitMode": False,
            }
        ],
    }
    queue = {"topic": "T", "queueId": "0"}
    async with attacked_broker(tmp_path) as a:
        await a.remote.send("T", b"one")  # has the topic created
        await a.remote.call(RequestCode.HEART_BEAT, body=json.dumps(beat).encode())
        assert (await a.remote.pull("T")).bodies == [b"one"]
        commit = {"consumerGroup": "readers", "commitOffset": "1", **queue}
        await a.remote.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        wanted = {"consumerGroup": "readers", **queue}
        found = await a.remote.call(RequestCode.QUERY_CONSUMER_OFFSET, wanted)
        assert found.fields == {"offset": "1"}
        pop = {
            "consumerGroup": "poppers", "maxMsgNums": "1", "invisibleTime": "60000",
            "pollTime": "0", "bornTime": "0", "initMode": "0", **queue,
        }  # fmt: skip
        popped = await a.remote.call(RequestCode.POP_MESSAGE, pop)
        info = (popped.fields or {})["startOffsetInfo"].split()
        assert info
        assert b"one" in popped.body


# ---- brokers speak for themselves


def registration(name: str, address: str) -> tuple[RegisterBrokerHeader, bytes]:
    header = RegisterBrokerHeader(
        broker_name=name, broker_addr=address, cluster_name="c", broker_id=0
    )
    topics = {each: TopicConfig(topic_name=each) for each in ("orders", "bills")}
    wrapper = MappedTopicConfigTable(topic_config_table=topics)
    return header, fastjson.encode(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper))


def removal(name: str, address: str, cluster: str = "c") -> UnregisterBrokerHeader:
    return UnregisterBrokerHeader(
        broker_name=name, broker_addr=address, cluster_name=cluster, broker_id=0
    )


@on_loop
async def test_a_remote_peer_cannot_unregister_the_broker_of_another_host(tmp_path: Path) -> None:
    async with attacked_name_server(tmp_path) as a:
        header, body = registration("broker-a", "10.0.0.1:10911")
        await a.local.call(RequestCode.REGISTER_BROKER, header, body)
        for cluster in ("c", "another"):
            with pytest.raises(NoPermission, match="only its own host may speak for it"):
                gone = removal("broker-a", "10.0.0.1:10911", cluster)
                await a.remote.call(RequestCode.UNREGISTER_BROKER, gone)
        found = await a.remote.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        assert b"10.0.0.1:10911" in found.body


@on_loop
async def test_a_remote_broker_registers_and_unregisters_itself(tmp_path: Path) -> None:
    async with attacked_name_server(tmp_path) as a:
        header, body = registration("broker-a", "10.0.0.1:10911")
        await a.remote.call(RequestCode.REGISTER_BROKER, header, body)
        await a.remote.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        await a.remote.call(RequestCode.UNREGISTER_BROKER, removal("broker-a", "10.0.0.1:10911"))
        assert not a.server.routes.topic_names().topic_list


@on_loop
async def test_a_remote_peer_changes_no_route_of_the_broker_of_another_host(tmp_path: Path) -> None:
    route = {
        "queueDatas": [
            {"brokerName": "broker-a", "readQueueNums": 1, "writeQueueNums": 1, "perm": 0}
        ]
    }
    async with attacked_name_server(tmp_path) as a:
        header, body = registration("broker-a", "10.0.0.1:10911")
        await a.local.call(RequestCode.REGISTER_BROKER, header, body)
        code, fields = RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "orders"}
        with pytest.raises(NoPermission, match="only its own host may speak for it"):
            await a.remote.call(code, fields, json.dumps(route).encode())
        found = await a.remote.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
        [queues] = fastjson.decode(found.body, TopicRoute).queue_datas
        assert queues.perm == 6
        await a.local.call(code, fields, json.dumps(route).encode())
