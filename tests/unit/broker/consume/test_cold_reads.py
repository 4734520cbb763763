"""Flow control of cold reads: windows, thresholds, and who waits."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.consume.cold_reads import ColdReads
from bolide.protocol import fastjson
from bolide.protocol.bodies.consumers import ColdReadInfo
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.heartbeat import ConsumerGroup, ConsumeType, Heartbeat, Subscription
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.runtime import ReadAheadHeader
from tests.support.aio import on_loop
from tests.support.broker_core import BrokerCore
from tests.unit.broker.consume.test_pull import ColdStore, bodies, pull, store

GROUP = "readers"


async def core_with(directory: Path, consume_type: ConsumeType, **settings: Any) -> BrokerCore:
    core = BrokerCore(directory, store=ColdStore(), **settings)
    cold_reads(core).hold = 0.0
    store(core, b"a", b"b", b"c")
    await core.parts.groups.update(
        GroupConfig(group_name=GROUP, notify_consumer_ids_changed_enable=False)
    )
    group = ConsumerGroup(
        group_name=GROUP,
        consume_type=consume_type,
        subscription_data_set=[Subscription(topic="T", sub_string="*", sub_version=1)],
    )
    beat = Heartbeat(client_id="me", consumer_data_set=[group])
    peer = core.connect()
    await peer.call(RequestCode.HEART_BEAT, NoHeader(), fastjson.encode(beat))
    return core


def cold_reads(core: BrokerCore) -> ColdReads:
    return core.parts.pulls.parts.cold_reads


async def ask(core: BrokerCore, code: RequestCode, body: str = "") -> Frame:
    return await core.connect().call(code, NoHeader(), body.encode())


async def info(core: BrokerCore) -> ColdReadInfo:
    answer = await ask(core, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
    return fastjson.decode(answer.body, ColdReadInfo)


@on_loop
async def test_a_push_consumer_over_its_threshold_is_told_to_come_again(tmp_path: Path) -> None:
    core = await core_with(
        tmp_path, ConsumeType.CONSUME_PASSIVELY,
        cold_data_flow_control_enable=True, cg_cold_read_threshold=1,
    )  # fmt: skip
    assert bodies(await pull(core)) == [b"a", b"b", b"c"]
    refused = await pull(core)
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert "reading cold data" in (refused.remark or "")
    core.clock.advance(5)
    assert bodies(await pull(core)) == [b"a", b"b", b"c"]
    await core.stop()


@on_loop
async def test_a_pull_consumer_over_its_threshold_waits_and_gets_one_message(
    tmp_path: Path,
) -> None:
    core = await core_with(
        tmp_path, ConsumeType.CONSUME_ACTIVELY,
        cold_data_flow_control_enable=True, cg_cold_read_threshold=1,
    )  # fmt: skip
    assert len(bodies(await pull(core))) == 3
    assert bodies(await pull(core)) == [b"a"]
    cold_reads(core).hold = 60.0
    waiting = asyncio.ensure_future(pull(core))
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    waiting.cancel()
    await core.stop()


@on_loop
async def test_the_global_threshold_holds_back_whoever_reads_from_the_disk(tmp_path: Path) -> None:
    core = await core_with(
        tmp_path, ConsumeType.CONSUME_PASSIVELY,
        cold_data_flow_control_enable=True, global_cold_read_threshold=1,
    )  # fmt: skip
    assert (await pull(core)).code == ResponseCode.SUCCESS
    assert (await pull(core)).code == ResponseCode.SYSTEM_BUSY
    await core.stop()


@on_loop
async def test_nothing_is_counted_or_held_back_unless_it_is_enabled(tmp_path: Path) -> None:
    core = await core_with(tmp_path, ConsumeType.CONSUME_PASSIVELY, cg_cold_read_threshold=0)
    for _ in range(3):
        assert (await pull(core)).code == ResponseCode.SUCCESS
    assert (await info(core)).runtime_table == {}
    await core.stop()


@on_loop
async def test_thresholds_are_set_shown_and_removed(tmp_path: Path) -> None:
    core = await core_with(
        tmp_path, ConsumeType.CONSUME_PASSIVELY, cold_data_flow_control_enable=True
    )
    answer = await ask(core, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, f"{GROUP}=1\nother=7\n")
    assert answer.code == ResponseCode.SUCCESS
    await pull(core)
    assert (await pull(core)).code == ResponseCode.SYSTEM_BUSY
    shown = await info(core)
    assert shown.config_table == {GROUP: 1, "other": 7}
    assert shown.runtime_table[GROUP].cold_acc == shown.global_acc > 0
    assert shown.cg_cold_read_threshold == 3 * 1024 * 1024
    await ask(core, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, GROUP)
    assert (await info(core)).config_table == {"other": 7}
    assert (await pull(core)).code == ResponseCode.SUCCESS
    core.clock.advance(61)
    assert (await info(core)).runtime_table == {}
    await core.stop()


@pytest.mark.parametrize("text", ["g=x", "g=-1", "g=", "g=9223372036854775808", "g=٣"])
@on_loop
async def test_a_threshold_that_is_not_a_number_is_refused(tmp_path: Path, text: str) -> None:
    core = await core_with(tmp_path, ConsumeType.CONSUME_PASSIVELY)
    answer = await ask(core, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, text)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "group g" in (answer.remark or "")
    await core.stop()


@on_loop
async def test_the_read_mode_of_the_log_is_a_setting(tmp_path: Path) -> None:
    core = await core_with(tmp_path, ConsumeType.CONSUME_PASSIVELY)
    found = []
    for mode in (1, 0, 2):
        answer = await core.connect().call(
            RequestCode.SET_COMMITLOG_READ_MODE, ReadAheadHeader(mode)
        )
        found.append((answer.code, core.parts.store_cell.value.data_read_ahead_enable))
    await core.stop()
    assert found == [(0, False), (0, True), (29, True)]
