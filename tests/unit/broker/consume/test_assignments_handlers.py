"""Requests for queue assignment, over a real connection."""

from pathlib import Path

import pytest

from bolide.protocol import fastjson
from bolide.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat
from bolide.protocol.bodies.pop import (
    AssignmentQuery,
    Assignments,
    RequestMode,
    RequestModeSetting,
    RequestModeTable,
)
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import GroupNotFound, NoPermission, TopicNotFound
from tests.support.aio import on_loop
from tests.support.broker import BrokerClient, broker_in


async def set_mode(client: BrokerClient, topic: str = "T", group: str = "g") -> None:
    wanted = RequestModeSetting(topic=topic, consumer_group=group, mode=RequestMode.POP)
    await client.call(RequestCode.SET_MESSAGE_REQUEST_MODE, body=fastjson.encode(wanted))


async def assigned(client: BrokerClient, topic: str = "T") -> Assignments:
    query = AssignmentQuery(topic=topic, consumer_group="g", client_id="me", strategy_name="AVG")
    answer = await client.call(RequestCode.QUERY_ASSIGNMENT, body=fastjson.encode(query))
    return fastjson.decode(answer.body, Assignments)


@on_loop
async def test_a_mode_is_set_kept_over_a_restart_and_followed(tmp_path: Path) -> None:
    async with broker_in(tmp_path) as broker, BrokerClient(broker.address) as client:
        await client.send()
        await set_mode(client)
    async with broker_in(tmp_path) as broker, BrokerClient(broker.address) as client:
        answer = await client.call(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        table = fastjson.decode(answer.body, RequestModeTable).message_request_mode_map
        assert table["T"]["g"].mode is RequestMode.POP
        beat = Heartbeat(client_id="me", consumer_data_set=[ConsumerGroup(group_name="g")])
        await client.call(RequestCode.HEART_BEAT, body=fastjson.encode(beat))
        found = (await assigned(client)).message_queue_assignments or []
        assert [(each.message_queue.queue_id, each.mode) for each in found] == [
            (-1, RequestMode.POP)
        ]
        assert (await assigned(client, "missing")).message_queue_assignments is None


@on_loop
async def test_modes_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    closed = broker_in(tmp_path, auto_create_subscription_group=False)
    async with closed as broker, BrokerClient(broker.address) as client:
        with pytest.raises(NoPermission, match="%RETRY%g is pulled"):
            await set_mode(client, "%RETRY%g")
        with pytest.raises(TopicNotFound, match="missing"):
            await set_mode(client, "missing")
        await client.send()
        with pytest.raises(GroupNotFound, match="nobody"):
            await set_mode(client, group="nobody")
