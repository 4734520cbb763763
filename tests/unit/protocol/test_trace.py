"""Golden texts as `TraceDataEncoder` of several releases writes them, and our own."""

import pytest

from bolide.protocol.trace import TraceRecord, Unreadable, encode_record, read_records


def text(*fields: object) -> str:
    return "\x01".join(map(str, fields)) + "\x02"


def records(written: str) -> list[TraceRecord]:
    found = list(read_records(written))
    readable = [each for each in found if isinstance(each, TraceRecord)]
    assert len(readable) == len(found)
    return readable


PUB = ("Pub", 1700000000123, "DefaultRegion", "PG", "orders", "7F00000101", "paid", "k1 k2",
       "127.0.0.1:10911", 128, 7, 0)  # fmt: skip
SENT = text(*PUB, "7F0000010000", "true")
BEFORE = text("SubBefore", 1700000000500, "R", "CG", "REQ", "7F00000101", 2, "k1")
AFTER = text("SubAfter", "REQ", "7F00000101", 15, "false", "k1", 2, 1700000000515, "CG")
ENDED = text(
    "EndTransaction", 1, "R", "PG", "orders", "ID", "null", "k", "h:1", 2, "TX",
    "ROLLBACK_MESSAGE", "true",
)  # fmt: skip
RECALLED = text("Recall", 1, "R", "PG", "orders", "ID", "true")


def test_a_send_as_4_4_to_5_x_write_it_has_all_its_fields() -> None:
    [record] = records(SENT)
    assert record == TraceRecord(
        kind="Pub",
        time_ms=1700000000123,
        region="DefaultRegion",
        group="PG",
        topic="orders",
        message_id="7F00000101",
        tags="paid",
        keys="k1 k2",
        store_host="127.0.0.1:10911",
        body_length=128,
        cost_ms=7,
        message_type="Normal",
        offset_message_id="7F0000010000",
        success=True,
    )
    assert list(record.index_keys()) == ["7F00000101", "k1", "k2"]


def test_what_was_read_is_written_as_it_was() -> None:
    written = SENT + BEFORE + AFTER + ENDED + RECALLED
    assert "".join(map(encode_record, records(written))) == written


@pytest.mark.parametrize("odd", ["a\x01b", "a\x02b", "a\ud800b"])
def test_texts_that_would_break_a_record_are_made_harmless(odd: str) -> None:
    record = TraceRecord(
        kind="SubAfter", request_id="REQ", message_id="ID", cost_ms=1, success=True,
        keys=odd, outcome="SUCCESS", time_ms=5, group="CG",
    )  # fmt: skip
    [read] = records(encode_record(record).encode().decode())
    assert (read.keys, read.outcome, read.time_ms, read.group) == ("a?b", "SUCCESS", 5, "CG")
    assert list(record.index_keys()) == ["ID", "a?b"]


def test_texts_of_any_language_stay_as_they_are() -> None:
    keys = "käse 茶\t🧀"
    [read] = records(
        encode_record(TraceRecord(kind="SubBefore", time_ms=1, retry_times=0, keys=keys))
    )
    assert read.keys == keys


def test_a_send_may_lack_the_offset_id_or_name_its_client() -> None:
    short, longest = records(text(*PUB, "false") + text(*PUB, "id", "false", "10.0.0.9"))
    assert short.success is longest.success is False
    assert short.offset_message_id is None
    assert (longest.offset_message_id, longest.client_host) == ("id", "10.0.0.9")


def test_what_java_writes_as_null_is_none() -> None:
    fields = [*PUB[:6], "null", "null", *PUB[8:]]
    [record] = records(text(*fields, "null", "true"))
    assert record.tags is record.keys is record.offset_message_id is None
    assert list(record.index_keys()) == ["7F00000101"]


def test_a_consumption_is_told_before_and_after() -> None:
    before, after, old = records(
        BEFORE + AFTER + text("SubAfter", "REQ", "7F00000101", 15, "true", "k1", 0)
    )
    assert (before.request_id, before.retry_times, before.group) == ("REQ", 2, "CG")
    assert (after.outcome, after.success, after.cost_ms) == ("EXCEPTION", False, 15)
    assert (after.time_ms, after.group) == (1700000000515, "CG")
    assert (old.outcome, old.time_ms) == ("SUCCESS", None)


def test_what_4_9_traces_for_the_cloud_runs_into_the_next_record() -> None:
    cloud = "\x01".join(["SubAfter", "REQ", "A", "3", "true", "null", "0", ""])
    found = records(cloud + cloud.replace("A\x01", "B\x01") + text(*PUB, "id", "true") + cloud)
    assert [record.message_id for record in found] == ["A", "B", "7F00000101", "A"]


def test_the_end_of_a_transaction_and_a_recall_are_read() -> None:
    end, recall = records(ENDED + RECALLED)
    assert (end.transaction_id, end.transaction_state) == ("TX", "ROLLBACK_MESSAGE")
    assert (end.message_type, end.from_check) == ("TransCommit", True)
    assert recall.success is True


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (text("Pub", 1, "R"), "Pub has 2 fields of at least 11"),
        (text("Pub", "soon", *PUB[2:]), "time of Pub is 'soon'"),
        (text(*PUB[:-1], 9), "message_type of Pub is '9'"),
        (text(*PUB[:-1], -1), "message_type of Pub is '-1'"),
        (text("Pub", 10**17, *PUB[2:]), f"time of Pub is '{10**17}'"),
        (text("Pub", -1, *PUB[2:]), "time of Pub is '-1'"),
        (text(*PUB[:9], 2**31, *PUB[10:]), f"body_length of Pub is '{2**31}'"),
        (text("Sub", 1), "no kind of record is called 'Sub'"),
    ],
)
def test_a_bad_record_says_why_and_harms_no_other(record: str, problem: str) -> None:
    bad, good = read_records(record + text(*PUB, "id", "true"))
    assert bad == Unreadable(problem)
    assert isinstance(good, TraceRecord)
    assert good.topic == "orders"
