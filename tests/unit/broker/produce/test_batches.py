"""Batches that become one record, and single messages found in it again."""

import zlib

import pytest

from bolide.broker.produce.addressing import BrokerProperties
from bolide.broker.produce.batches import (
    check_inner_batch,
    inner_draft,
    message_of,
    split_batch,
)
from bolide.broker.settings.config import BrokerConfig
from bolide.model.message import SysFlag
from bolide.protocol.batch import encode_batch
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.inner_batch import INNER_FLAGS
from bolide.protocol.property_string import decode_properties
from bolide.protocol.record import Placement, Record, RecordDraft, encode_record, place_record
from bolide.protocol.refusals import MessageIllegal
from tests.support.batches import BATCH_ID, batch_draft, items
from tests.support.broker import send_header
from tests.support.store import draft, record_of

OWN = BrokerProperties.of(BrokerConfig())
BULK = TopicConfig(topic_name="Bulk", attributes={"queue.type": "BatchCQ"})
PLAIN = TopicConfig(topic_name="Bulk")
LIMIT = 1024 * 1024


def stored(given: RecordDraft) -> Record:
    data = encode_record(given)
    place_record(data, 0, Placement(4, 1000, 1))
    return record_of(bytes(data))


def test_a_batch_with_an_id_becomes_one_draft() -> None:
    header = send_header("Bulk", properties={"UNIQ_KEY": BATCH_ID, "TAGS": "A", "INNER_BASE": "9"})
    found = inner_draft(header, draft("Bulk", encode_batch(items(0, 3))), 3, BULK, OWN)
    assert found is not None
    made, batch_id = found
    properties = decode_properties(bytes(made.properties).decode())
    assert (batch_id, made.sys_flag) == (BATCH_ID, INNER_FLAGS)
    assert (properties["INNER_NUM"], properties["TAGS"]) == ("3", "A")
    assert properties["CLUSTER"] == "DefaultCluster"
    assert "INNER_BASE" not in properties  # the store sets it


def test_a_batch_without_an_id_or_for_a_plain_topic_stays_a_list_of_messages() -> None:
    body = encode_batch(items(0, 3))
    assert inner_draft(send_header("Bulk"), draft("Bulk", body), 3, BULK, OWN) is None
    named = send_header("Bulk", properties={"UNIQ_KEY": BATCH_ID})
    assert inner_draft(named, draft("Bulk", body), 3, PLAIN, OWN) is None


def test_a_batch_of_more_messages_than_a_unit_can_count_is_refused() -> None:
    header = send_header("Bulk", properties={"UNIQ_KEY": BATCH_ID})
    with pytest.raises(MessageIllegal, match="32767"):
        inner_draft(header, draft("Bulk"), 40_000, BULK, OWN)


def test_a_single_message_is_not_looked_at() -> None:
    check_inner_batch(draft("T", b"anything"), {"TAGS": "A"}, PLAIN, LIMIT)
    check_inner_batch(batch_draft(items(0, 2)), {"INNER_NUM": "2"}, BULK, LIMIT)


@pytest.mark.parametrize("count", ["3", "0", "-2", "99999", "x"])
def test_a_single_message_must_have_as_many_as_it_says(count: str) -> None:
    with pytest.raises(MessageIllegal):
        check_inner_batch(batch_draft(items(0, 2)), {"INNER_NUM": count}, BULK, LIMIT)


def test_a_body_is_not_inflated_for_a_topic_that_takes_no_batches() -> None:
    bomb = draft("T", zlib.compress(bytes(10 * LIMIT)), sys_flag=INNER_FLAGS | SysFlag.COMPRESSED)
    with pytest.raises(MessageIllegal, match=r"queue\.type=BatchCQ"):
        check_inner_batch(bomb, {"INNER_NUM": "2"}, PLAIN, LIMIT)
    with pytest.raises(MessageIllegal, match="no batch"):
        check_inner_batch(bomb, {"INNER_NUM": "2"}, BULK, LIMIT)


@pytest.mark.parametrize("name", ["INNER_NUM", "INNER_BASE"])
def test_a_message_of_a_batch_cannot_claim_to_be_a_batch(name: str) -> None:
    body = encode_batch([*items(0, 1), *items(1, 1, **{name: "5"})])
    with pytest.raises(MessageIllegal, match="cannot be a batch itself"):
        split_batch(send_header("Bulk"), draft("Bulk", body), OWN, max_size=LIMIT, max_count=9)


def test_the_messages_of_a_batch_have_no_flags_of_inner_batches() -> None:
    given = draft("Bulk", encode_batch(items(0, 1)), sys_flag=INNER_FLAGS)
    found = split_batch(send_header("Bulk"), given, OWN, max_size=LIMIT, max_count=9)
    assert [each.sys_flag for each in found] == [0]


def test_a_message_of_a_batch_is_found_by_its_own_id() -> None:
    batch = stored(batch_draft(items(4, 3)))
    found = message_of(batch, "ID5")
    assert found is not None
    assert (found.queue_offset, bytes(found.body)) == (5, b"5")
    assert message_of(batch, "unknown") is None
    assert message_of(batch, None) is None


def test_the_only_message_of_a_batch_needs_no_id_and_a_plain_record_is_the_message() -> None:
    alone = message_of(stored(batch_draft(items(4, 1))), None)
    assert alone is not None
    assert bytes(alone.body) == b"4"
    plain = stored(draft("T"))
    assert message_of(plain, "whatever") is plain


def test_a_batch_that_cannot_be_read_has_no_messages() -> None:
    broken = batch_draft(items(4, 2))
    assert message_of(stored(broken._replace(body=bytes(broken.body)[:-1])), "ID4") is None
