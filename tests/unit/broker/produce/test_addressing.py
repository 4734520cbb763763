"""Topic and queue in which a new message is stored."""

import pytest

from bolide.broker.produce.addressing import address, delay_level, is_half, without_transaction
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.timers import Timetable
from bolide.config import ConfigCell
from bolide.model.message import SysFlag, TransactionType
from bolide.protocol.property_string import decode_properties
from bolide.protocol.record import RecordDraft
from bolide.protocol.refusals import NoPermission
from tests.support.store import draft

MOST = 18
NOW = 1_700_000_000.123
TIMERS = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "__STARTDELIVERTIME")


def addressed(properties: dict[str, str], **given: int) -> RecordDraft:
    timetable = Timetable(ConfigCell(BrokerConfig()), lambda: NOW)
    return address(draft("T", queue_id=3, **given), properties, MOST, timetable)  # type: ignore[arg-type]


def properties_of(found: RecordDraft) -> dict[str, str]:
    return decode_properties(bytes(found.properties).decode())


@pytest.mark.parametrize("properties", [{}, {"DELAY": "0"}, {"DELAY": "-1"}, {"DELAY": "soon"}])
def test_a_message_without_a_delay_keeps_its_topic_and_queue(properties: dict[str, str]) -> None:
    found = addressed({"TAGS": "a"} | properties)
    assert (found.topic, found.queue_id) == (b"T", 3)
    assert properties_of(found) == {"TAGS": "a"} | properties


@pytest.mark.parametrize(("asked", "level"), [("1", 1), ("18", 18), ("19", 18), ("999999999", 18)])
def test_a_message_with_a_delay_waits_in_the_queue_of_its_level(asked: str, level: int) -> None:
    found = addressed({"TAGS": "a", "DELAY": asked})
    assert (found.topic, found.queue_id) == (b"SCHEDULE_TOPIC_XXXX", level - 1)
    assert properties_of(found) == {
        "TAGS": "a", "DELAY": str(level), "REAL_TOPIC": "T", "REAL_QID": "3",
    }  # fmt: skip


def test_a_client_cannot_say_where_a_delayed_message_comes_out() -> None:
    found = addressed({"DELAY": "1", "REAL_TOPIC": "Other", "REAL_QID": "77"})
    assert properties_of(found)["REAL_TOPIC"] == "T"
    assert properties_of(found)["REAL_QID"] == "3"


@pytest.mark.parametrize("timer", TIMERS)
def test_a_delay_level_takes_precedence_over_a_timer(timer: str) -> None:
    assert timer not in properties_of(addressed({"DELAY": "1", timer: "5"}))


def test_a_message_with_a_time_waits_in_the_queue_of_the_timer() -> None:
    found = addressed({"TIMER_DELAY_SEC": "5", "REAL_TOPIC": "Other"})
    assert (found.topic, found.queue_id) == (b"rmq_sys_wheel_timer", 0)
    assert properties_of(found) == {
        "TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "1700000005123",
        "REAL_TOPIC": "T", "REAL_QID": "3",
    }  # fmt: skip


def test_a_timer_message_that_has_come_out_is_an_ordinary_one() -> None:
    found = addressed({"TIMER_DELIVER_MS": "5", "TIMER_OUT_MS": "5"})
    assert (found.topic, found.queue_id) == (b"T", 3)


def test_committed_messages_are_delayed() -> None:
    assert addressed({"DELAY": "1"}, sys_flag=int(SysFlag.COMMIT)).topic == b"SCHEDULE_TOPIC_XXXX"


@pytest.mark.parametrize("text", ["", "x", "1.5", "٣", "1 ", "+1", "--1", "1234567890"])
def test_an_invalid_delay_level_means_no_delay(text: str) -> None:
    assert delay_level({"DELAY": text}) == 0


@pytest.mark.parametrize("mark", ["true", "TRUE"])
@pytest.mark.parametrize("times", [0, 1])
def test_a_message_of_a_transaction_is_a_half_and_no_plain_one(mark: str, times: int) -> None:
    message = draft("T")._replace(reconsume_times=times)
    assert is_half(message, {"TRAN_MSG": mark})
    with pytest.raises(NoPermission, match="must be sent singly"):
        without_transaction(message, {"TRAN_MSG": mark})


@pytest.mark.parametrize("kind", [TransactionType.PREPARED, TransactionType.ROLLBACK])
def test_a_transactional_message_that_is_not_a_half_message_is_refused(
    kind: TransactionType,
) -> None:
    with pytest.raises(NoPermission):
        without_transaction(draft("T", sys_flag=kind.value), {})


def test_a_retry_of_an_old_client_is_stored_as_a_plain_message() -> None:
    flag = TransactionType.PREPARED.value | 1
    marked = draft("T", sys_flag=flag)._replace(reconsume_times=1)
    assert not is_half(marked, {"TRAN_MSG": "true", "DELAY": "3"})
    taken = without_transaction(marked, {"TRAN_MSG": "true", "DELAY": "3"})
    assert taken == marked._replace(sys_flag=1)


@pytest.mark.parametrize("kind", [TransactionType.NONE, TransactionType.COMMIT])
def test_other_messages_stay_as_they_are(kind: TransactionType) -> None:
    message = draft("T", sys_flag=kind.value)
    assert not is_half(message, {"TRAN_MSG": "false"})
    assert without_transaction(message, {"TRAN_MSG": "false"}) is message
