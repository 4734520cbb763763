"""What a broker counts for metrics: types of messages, and limits."""

import pytest

from bolide.broker.metrics import traffic as module
from bolide.broker.metrics.traffic import Delivered, Traffic, message_type
from bolide.protocol.property_string import encode_properties
from bolide.remoting.latencies import MAX_OUTCOMES, OTHER, RpcLatencies, RpcOutcome


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, "normal"),
        ({"note": "DELAY\x03"}, "normal"),
        ({"__SHARDINGKEY": "k", "DELAY": "3"}, "fifo"),
        ({"DELAY": "3"}, "delay"),
        ({"TIMER_DELIVER_MS": "1"}, "delay"),
        ({"__STARTDELIVERTIME": "1"}, "delay"),
        ({"TRAN_MSG": "true", "__SHARDINGKEY": "k"}, "transaction"),
        ({"TRAN_MSG": "false"}, "normal"),
    ],
)
def test_the_type_of_a_message_is_in_its_properties(properties: dict[str, str], kind: str) -> None:
    assert message_type(encode_properties(properties)) == kind


def test_retries_and_dead_letters_are_no_new_messages() -> None:
    traffic = Traffic()
    for topic in ("%RETRY%g", "%DLQ%g"):
        traffic.message_in(topic, "normal", [1])
        traffic.batch_in(topic, "normal", 2, 10)
        traffic.pulled("g", topic, 1, 1)
    assert not traffic.sent
    assert not traffic.delivered
    traffic.popped("g", "%RETRY%g+T", 2, 20)
    assert traffic.delivered == {Delivered("g", "T", True): [2, 20]}


def test_names_are_bounded_and_go_with_their_topic_or_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_KEYS", 3)
    traffic = Traffic()
    for number in range(10):
        traffic.message_in(f"T{number}", "normal", [100])
        traffic.pulled(f"g{number}", "T0", 1, 100)
        traffic.dead_lettered("g0", f"T{number}" + "x" * 10_000, 1)
        traffic.transaction_committed(f"T{number}", 1.0)
    tables = (traffic.sent, traffic.delivered, traffic.dead, traffic.committed)
    assert [len(table) for table in tables] == [3] * 4
    assert max(len(topic) for _, topic in traffic.dead) == module.MAX_TOPIC
    traffic.forget_topic("T1")
    assert [topic for topic, _ in traffic.sent] == ["T0", "T2"]
    assert set(traffic.committed) == {"T0", "T2"}
    traffic.forget_group("g1")
    assert {key.group for key in traffic.delivered} == {"g0", "g2"}


def test_request_codes_are_bounded() -> None:
    latencies = RpcLatencies()
    for code in range(MAX_OUTCOMES + 50):
        latencies.add(RpcOutcome(code, 0), 0.002)
    found = dict(latencies.snapshot())
    assert len(found) == MAX_OUTCOMES + 1
    assert sum(found[OTHER].counts) == 50
    assert found[RpcOutcome(1, 0)].counts[1] == 1  # more than one millisecond, at most three
