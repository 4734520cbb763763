"""Delivery times requested by messages."""

import pytest

from bolide.broker.settings.config import BrokerConfig
from bolide.broker.timers.timetable import (
    Timetable,
    due_of,
    refuse_foreign_recall,
    refuse_in_batch,
    timer_draft,
)
from bolide.config import ConfigCell
from bolide.model.names import TIMER_TOPIC
from bolide.protocol.recall_handle import BadRecallHandle, RecallHandle
from bolide.protocol.refusals import MessageIllegal, ServerError
from tests.support.store import draft

NOW = 1_700_000_000.25
NOW_MS = 1_700_000_000_250


def timetable(*, lenient: bool = False, **settings: object) -> Timetable:
    config = BrokerConfig(**settings)  # type: ignore[arg-type]
    return Timetable(ConfigCell(config), lambda: NOW, lenient=lenient)


@pytest.mark.parametrize(
    ("properties", "due"),
    [
        ({}, None),
        ({"TIMER_DELAY_SEC": "5"}, NOW_MS + 5000),
        ({"TIMER_DELAY_MS": "5"}, NOW_MS + 5),
        ({"TIMER_DELIVER_MS": str(NOW_MS + 7)}, NOW_MS + 7),
        ({"__STARTDELIVERTIME": str(NOW_MS + 8)}, NOW_MS + 8),
        ({"TIMER_DELIVER_MS": "1700000001000"}, 1_700_000_001_000),
        (
            {"TIMER_DELAY_MS": "750"},
            1_700_000_001_001,
        ),  # a whole second would mean a truncated time
        ({"TIMER_DELAY_SEC": "0"}, None),
        ({"TIMER_DELAY_SEC": "-5"}, None),
        ({"TIMER_DELIVER_MS": str(NOW_MS)}, None),
        ({"TIMER_DELIVER_MS": "5"}, None),
        ({"TIMER_DELIVER_MS": "5", "BOLIDE_CRON": "* * * * *"}, 5),  # the timer continues it
        ({"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "9", "TIMER_DELIVER_MS": "x"}, NOW_MS + 1000),
        ({"TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "1"}, None),  # already delivered by a timer
    ],
)
def test_a_time_is_found_or_is_now(properties: dict[str, str], due: int | None) -> None:
    assert timetable().due(properties) == due


@pytest.mark.parametrize("text", ["", "soon", "1.5", "1e3", "٣", " 5", "9" * 17])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(MessageIllegal, match=r"TIMER_DELAY_MS=.* is no time"):
        timetable().due({"TIMER_DELAY_MS": text})


def test_what_is_too_far_away_is_refused_with_the_limit() -> None:
    assert timetable().due({"TIMER_DELAY_SEC": str(365 * 86400)}) is not None
    with pytest.raises(MessageIllegal, match="timerMaxDelaySec=31536000 allows"):
        timetable().due({"TIMER_DELAY_SEC": str(365 * 86400 + 1)})
    with pytest.raises(MessageIllegal, match="timerMaxDelaySec=10"):
        timetable(timer_max_delay_sec=10).due({"TIMER_DELIVER_MS": str(NOW_MS + 10_001)})


def test_a_broker_without_a_timer_says_so() -> None:
    off = timetable(timer_wheel_enable=False)
    with pytest.raises(ServerError, match="timerWheelEnable is false"):
        off.due({"TIMER_DELAY_SEC": "5"})
    assert off.due({"KEYS": "k"}) is None


def test_a_recall_that_comes_too_late_is_refused() -> None:
    late = {"TIMER_DELIVER_MS": str(NOW_MS - 1), "TIMER_DEL_UNIQKEY": "T+ID"}
    with pytest.raises(MessageIllegal, match="too late"):
        timetable().due(late)


def test_what_was_admitted_is_never_refused() -> None:
    lenient = timetable(lenient=True, timer_wheel_enable=False, timer_max_delay_sec=1)
    assert lenient.due({"TIMER_DELAY_SEC": "5"}) == NOW_MS + 5000
    assert lenient.due({"TIMER_DELAY_SEC": "soon"}) is None
    assert lenient.due({"TIMER_DELIVER_MS": "5"}) is None


@pytest.mark.parametrize(
    ("properties", "due"),
    [
        ({}, None),
        ({"TIMER_OUT_MS": "x"}, None),
        ({"TIMER_OUT_MS": "1500"}, 1500),
        ({"TIMER_OUT_MS": "1000", "TIMER_DELIVER_MS": "1000"}, 1000),
        ({"TIMER_OUT_MS": "1000", "TIMER_DELIVER_MS": "1999"}, 1999),
        ({"TIMER_OUT_MS": "1000", "TIMER_DELIVER_MS": "2000"}, 2000),
        ({"TIMER_OUT_MS": "1000", "TIMER_DELIVER_MS": "2001"}, 2000),
        ({"TIMER_OUT_MS": "1000", "TIMER_DELAY_MS": "10"}, 2000),
        ({"TIMER_OUT_MS": "1000", "TIMER_DELAY_MS": "10", "TIMER_DELIVER_MS": "1000"}, 2000),
        ({"TIMER_OUT_MS": "1000", "__STARTDELIVERTIME": "1600"}, 1600),
    ],
)
def test_what_rocketmq_cut_off_to_its_slot_is_known_by_it(
    properties: dict[str, str], due: int | None
) -> None:
    assert due_of(properties, 1000) == due


@pytest.mark.parametrize("due", [NOW_MS + 1, 1_700_000_007_000])
def test_a_handle_leads_to_the_message_that_waits(due: int) -> None:
    waiting = timer_draft(draft("T", queue_id=3), {"UNIQ_KEY": "ID"}, due)
    assert waiting.topic == TIMER_TOPIC.encode()
    text = timetable(broker_name="b").recall_handle(waiting)
    assert text is not None
    assert RecallHandle.decode(text) == RecallHandle("T", "b", due + 1, "ID")
    assert timetable().recall_handle(draft("T")) is None
    retry = timer_draft(draft("%RETRY%g"), {"UNIQ_KEY": "ID"}, due)
    assert timetable().recall_handle(retry) is None


def test_handles_are_as_rocketmq_writes_them() -> None:
    handle = RecallHandle("TopicTest", "broker-a", 1_700_000_005_001, "7F000001ABCD")
    assert handle.encode() == ("djEgVG9waWNUZXN0IGJyb2tlci1hIDE3MDAwMDAwMDUwMDEgN0YwMDAwMDFBQkNE")


@pytest.mark.parametrize(
    "text", ["", "x", "%%%", "djEgVCBiIHggSUQ=", "djIgVCBiIDEgSUQ=", "djEgVA=="]
)
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(BadRecallHandle, match="no recall handle"):
        RecallHandle.decode(text)


def test_messages_of_a_batch_cannot_wait() -> None:
    plain = draft("T", properties={"TIMER_OUT_MS": "5", "TIMER_DELAY_MS": "5"})
    refuse_in_batch([draft("T"), plain])
    with pytest.raises(MessageIllegal, match="a batch with TIMER_DELAY_SEC"):
        refuse_in_batch([draft("T"), draft("T", properties={"TIMER_DELAY_SEC": "5"})])


def test_a_message_that_would_recall_one_of_another_topic_is_refused() -> None:
    for key in ("T+ID", "ID"):
        refuse_foreign_recall({"TIMER_DEL_UNIQKEY": key}, "T")
    refuse_foreign_recall({"UNIQ_KEY": "U+ID"}, "T")
    for key in ("U+ID", "TT+ID", "+ID"):
        with pytest.raises(MessageIllegal, match="TIMER_DEL_UNIQKEY"):
            refuse_foreign_recall({"TIMER_DEL_UNIQKEY": key}, "T")
