"""Priority messages: the broker stores them in the queue of their priority."""

from pathlib import Path

import pytest

from bolide.broker.produce.priority import placed_by_priority
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.property_string import decode_properties
from bolide.protocol.refusals import NoPermission
from tests.support.aio import on_loop
from tests.support.broker import send_header
from tests.support.broker_core import BrokerCore
from tests.support.store import record_of

PRIORITY = "_SYS_MSG_PRIORITY_"
TOPIC = TopicConfig(topic_name="T", write_queue_nums=4, read_queue_nums=8)


@pytest.mark.parametrize(
    ("priority", "queue_id"), [("0", 0), ("2", 2), ("+3", 3), ("4", 3), ("2147483647", 3)]
)
def test_the_queue_of_a_message_is_its_priority_or_the_last_one(
    priority: str, queue_id: int
) -> None:
    header = send_header(queue_id=1, properties={PRIORITY: priority, "TAGS": "a"})
    placed = placed_by_priority(header, TOPIC)
    assert placed.queue_id == queue_id
    assert placed.properties == header.properties


@pytest.mark.parametrize("priority", ["-1", "x", "1.0", "2147483648", "99999999999", "٣", ""])
def test_what_is_not_a_priority_changes_nothing(priority: str) -> None:
    header = send_header(queue_id=1, properties={PRIORITY: priority})
    assert placed_by_priority(header, TOPIC) is header


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TRAN_MSG", "true"),
        ("DELAY", "3"),
        ("TIMER_DELIVER_MS", "1"),
        ("TIMER_DELAY_SEC", "1"),
        ("TIMER_DELAY_MS", "1"),
        ("__SHARDINGKEY", "k"),
        ("BOLIDE_CRON", "* * * * *"),
    ],
)
def test_a_message_of_another_kind_loses_its_priority(name: str, value: str) -> None:
    header = send_header(queue_id=1, properties={PRIORITY: "3", name: value})
    placed = placed_by_priority(header, TOPIC)
    assert placed.queue_id == 1
    assert decode_properties(placed.properties) == {name: value}


def test_a_batch_stays_in_its_queue() -> None:
    header = send_header(queue_id=1, properties={PRIORITY: "3"}, batch=True)
    assert placed_by_priority(header, TOPIC) is header


def test_a_topic_without_queues_to_write_is_refused() -> None:
    closed = TopicConfig(topic_name="T", write_queue_nums=0)
    with pytest.raises(NoPermission, match="no queues"):
        placed_by_priority(send_header(properties={PRIORITY: "0"}), closed)


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
@on_loop
async def test_every_send_of_a_client_is_placed_though_its_topic_has_a_plan(
    tmp_path: Path, code: RequestCode
) -> None:
    core = BrokerCore(tmp_path, TOPIC)
    peer = core.connect()
    queues = []
    for number in range(12):
        properties = {"UNIQ_KEY": f"id{number}"}
        if number % 2:  # a plain message between them keeps the plan in use
            properties[PRIORITY] = "2"
        header = send_header(queue_id=number % 2, properties=properties)
        fields = header.to_short() if code == RequestCode.SEND_MESSAGE_V2 else header.to_fields()
        answer = await peer.call(code, fields, b"x")
        assert answer.code == ResponseCode.SUCCESS
        assert answer.fields
        queues.append(int(answer.fields["queueId"]))
    stored = [record_of(data).queue_id for _, data in core.log]
    await core.stop()
    assert queues == stored == [0, 2] * 6


@on_loop
async def test_a_duplicate_meets_the_window_of_the_queue_of_its_priority(tmp_path: Path) -> None:
    topic = TopicConfig(topic_name="D", attributes={"dedup.window": "10"})
    core = BrokerCore(tmp_path, topic)
    for queue_id in (0, 1, 3):
        properties = {PRIORITY: "2", "DEDUP_KEY": "k", "UNIQ_KEY": "id"}
        header = send_header("D", queue_id=queue_id, properties=properties)
        await core.connect().call(RequestCode.SEND_MESSAGE, header, b"x")
    stored = [record_of(data).queue_id for _, data in core.log]
    await core.stop()
    assert stored == [2]
