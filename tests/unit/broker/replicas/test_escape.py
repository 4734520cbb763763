"""Messages that go to other broker groups: to whom, and with which properties."""

import pytest

from bolide.broker.replicas.escape import Target, _rescheduled, targets_of
from bolide.broker.timers.timetable import timer_draft
from bolide.protocol.bodies.routes import BrokerRoute, QueueRoute, TopicRoute
from bolide.protocol.property_string import decode_properties
from tests.support.store import draft


def route(**perms: int) -> TopicRoute:
    return TopicRoute(
        queue_datas=[
            QueueRoute(broker_name=name, read_queue_nums=4, write_queue_nums=4, perm=perm)
            for name, perm in perms.items()
        ],
        broker_datas=[
            BrokerRoute(broker_name=name, cluster="c", broker_addrs={0: f"{name}:1"})
            for name in perms
        ],
    )


def test_a_message_goes_to_groups_of_the_cluster_that_may_be_written() -> None:
    known = route(own=6, b=6, readonly=4)
    known.broker_datas.append(BrokerRoute(broker_name="d", cluster="x", broker_addrs={0: "d:1"}))
    known.queue_datas.append(QueueRoute(broker_name="d", write_queue_nums=4, perm=6))
    assert targets_of(known, "c", "own") == [Target("b:1", 4)]


def test_a_group_without_a_master_takes_nothing() -> None:
    known = route(b=6)
    known.broker_datas[0].broker_addrs = {1: "b:1"}
    assert targets_of(known, "c", "own") == []


@pytest.mark.parametrize("cron", [None, "* * * * *"])
def test_a_timer_is_scheduled_anew_by_the_group_that_takes_it(cron: str | None) -> None:
    given = {"UNIQ_KEY": "1", "TAGS": "a"} | ({"BOLIDE_CRON": cron} if cron else {})
    timer = timer_draft(draft("T", b"x", queue_id=3), given, 1_700_000_000_123)
    moved = _rescheduled(timer, 1000)
    properties = decode_properties(bytes(moved.properties).decode())
    assert (moved.topic, moved.queue_id) == (b"T", 3)
    assert properties == given | ({} if cron else {"TIMER_DELIVER_MS": "1700000000123"})
