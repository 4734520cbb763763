"""The state derived from the records of a park queue."""

import time

import pytest

from bolide.client.consumer.parking.parked_keys import ParkedKeys
from bolide.client.consumer.parking.records import (
    Kind,
    ParkRecord,
    error_text,
    origin_of,
    park_queue,
    read_record,
    restored,
)
from bolide.model.message import Host, StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.property_string import decode_properties, encode_properties


def fold(*records: tuple[Kind, str, int]) -> ParkedKeys:
    """Of records of key `a`: their kinds, epochs and offsets."""
    keys = ParkedKeys()
    for park_offset, (kind, epoch, offset) in enumerate(records):
        record = ParkRecord(
            kind=kind,
            topic="T",
            queue_id=0,
            epoch=epoch,
            key="a",
            offset=offset,
            error=f"e{park_offset}",
        )
        keys.apply(record, park_offset, park_offset * 10)
    return keys


def carrier_of(record: ParkRecord, body: bytes) -> StoredMessage:
    properties, body = record.carried(body)
    text = encode_properties(properties)
    assert len(text.encode()) < 0x7FFF
    return StoredMessage("%PARK%g", body, decode_properties(text), flag=7, broker_name="broker-a")


def offsets(keys: ParkedKeys) -> list[int]:
    found = keys.find("a")
    return list(found.entries) if found else []


def test_messages_are_in_the_order_of_their_queue_and_there_once() -> None:
    keys = fold((Kind.PARK, "1", 5), (Kind.PARK, "1", 3), (Kind.PARK, "1", 5))
    assert offsets(keys) == [3, 5]
    found = keys.find("a")
    assert found is not None
    assert (found.error, found.entries[5].park_offset, found.last_offset) == ("e0", 2, 5)


def test_what_a_former_tenure_writes_late_counts_for_nothing() -> None:
    keys = fold(
        (Kind.OPEN, "1", -1),
        (Kind.PARK, "1", 1),
        (Kind.OPEN, "2", -1),
        (Kind.PARK, "1", 2),
        (Kind.DONE, "1", 1),
        (Kind.PARK, "2", 3),
    )
    assert offsets(keys) == [1, 3]


def test_a_log_whose_beginning_is_gone_still_says_what_it_has() -> None:
    assert offsets(fold((Kind.PARK, "1", 1), (Kind.PARK, "0", 2))) == [1]


def test_a_resumed_key_is_gone_when_all_of_it_is_done() -> None:
    keys = fold((Kind.PARK, "1", 1), (Kind.PARK, "1", 2), (Kind.RESUME, "", 1))
    found = keys.find("a")
    assert found is not None
    assert (found.is_resuming, found.dead_through, keys.resuming) == (True, 1, {"a"})
    for offset in (1, 2):
        keys.apply(
            ParkRecord(kind=Kind.DONE, topic="T", queue_id=0, epoch="1", key="a", offset=offset),
            9,
            0,
        )
    assert (len(keys), keys.resuming) == (0, set())


def test_a_key_that_failed_again_is_parked_again() -> None:
    keys = fold((Kind.PARK, "1", 1), (Kind.RESUME, "", 1), (Kind.BLOCK, "1", -1))
    found = keys.find("a")
    assert found is not None
    assert (found.is_resuming, found.dead_through, found.error) == (False, -1, "e2")


def test_nothing_is_resumed_or_done_that_is_not_parked() -> None:
    assert len(fold((Kind.RESUME, "", -1), (Kind.DONE, "1", 9), (Kind.BLOCK, "1", -1))) == 0


def test_a_message_comes_out_as_it_went_in() -> None:
    before = StoredMessage(
        "T",
        b"body",
        {"KEYS": "a", "DELAY": "3", "own": "ü\x01%"},
        flag=7,
        queue_id=3,
        queue_offset=42,
        physical_offset=1000,
        born_timestamp=1,
        born_host=Host("10.0.0.1", 1),
        store_timestamp=2,
        store_host=Host("10.0.0.2", 2),
        broker_name="broker-a",
    )
    record = ParkRecord(
        kind=Kind.PARK, topic="ns%T", queue_id=3, key="a", offset=42, origin=origin_of(before)
    )
    carrier = carrier_of(record, b"body")
    assert carrier.keys == ("a",)
    assert carrier.delay_level == 0, "what a broker would act on is not repeated"
    read = read_record(carrier)
    assert read == record
    after = restored(read, carrier, "T")
    assert str(after) == str(before)
    for name in ("body", "properties", "flag", "physical_offset", "born_timestamp", "born_host"):
        assert getattr(after, name) == getattr(before, name), name
    assert (after.store_timestamp, after.store_host) == (2, Host("10.0.0.2", 2))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind":"dance","topic":"T","queueId":0}'])
def test_what_is_no_record_is_passed_over(text: str) -> None:
    assert read_record(StoredMessage("%PARK%g", b"", {"BOLIDE_PARK": text})) is None


def test_a_control_record_holds_no_message() -> None:
    record = ParkRecord(kind=Kind.OPEN, topic="T", queue_id=0)
    with pytest.raises(ValueError, match="open at 0 holds no message"):
        restored(record, StoredMessage("%PARK%g", b"", {}), "T")


def test_records_of_a_queue_lie_on_its_broker_and_errors_are_short() -> None:
    assert park_queue("g", MessageQueue("T", "b", 21)) == MessageQueue("%PARK%g", "b", 5)
    assert len(error_text(ValueError("x" * 9999))) == 500
    assert error_text(None) == "unknown"


@pytest.mark.parametrize("body", [b"", b"one\ntwo"])
@pytest.mark.parametrize("key", ["a", "k" * 15_000, '"\\' * 7_000])
def test_a_message_is_kept_whatever_its_properties_and_its_body_are(key: str, body: bytes) -> None:
    before = StoredMessage("T", body, {"__SHARDINGKEY": key, "p": "é" * 8_000}, queue_offset=42)
    origin = origin_of(before)
    record = ParkRecord(kind=Kind.PARK, topic="T", queue_id=0, key=key, offset=42, origin=origin)
    carrier = carrier_of(record, body)
    assert read_record(carrier) == record
    after = restored(record, carrier, "T")
    assert (after.body, after.properties) == (before.body, before.properties)


@pytest.mark.parametrize("body", [b"", b"\xff\n", b"{}\n"])
def test_a_body_that_is_no_record_is_passed_over(body: bytes) -> None:
    assert read_record(StoredMessage("%PARK%g", body, {"BOLIDE_PARK": "+"})) is None


class Mute(Exception):
    def __str__(self) -> str:
        raise LookupError


def test_every_error_has_a_text() -> None:
    assert error_text(ValueError("no \udcff")) == "ValueError: no ?"
    assert error_text(Mute()) == "Mute: no text"


def test_the_first_of_many_is_found_as_fast_as_that_of_few() -> None:
    count = 60_000
    keys = fold(*((Kind.PARK, "1", offset) for offset in range(count)))
    found = keys.find("a")
    assert found is not None
    begun = time.process_time()
    for offset in range(count - 1):
        found.drop(offset)
    assert time.process_time() - begun < 2.0
    assert found.first.queue_offset == count - 1
