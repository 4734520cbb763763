import pytest

from bolide.broker.transactions.half_messages import Half, Op, half_draft, op_draft
from bolide.model.message import SysFlag, TransactionType
from bolide.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from bolide.protocol.property_string import decode_properties
from bolide.protocol.record import (
    Placement,
    Record,
    RecordDraft,
    encode_record,
    place_record,
    read_record,
)
from bolide.store.appending import Appended
from tests.support.transaction_core import PACKED

BORN = 1_700_000_000_000
SENT = RecordDraft(
    b"T", b"body", b"", 3, BORN, PACKED, PACKED, 7, int(SysFlag.PREPARED | SysFlag.COMPRESSED), 2
)


def stored(draft: RecordDraft, queue_offset: int = 5, timestamp: int = BORN + 40) -> Record:
    data = encode_record(draft)
    place_record(data, 0, Placement(queue_offset, 1000 + queue_offset, timestamp))
    record = read_record(bytes(data))
    assert isinstance(record, Record)
    return record


def half(queue_offset: int = 5, timestamp: int = BORN + 40, **properties: str) -> Half:
    given = {"UNIQ_KEY": "id", "TRAN_MSG": "true", "PGROUP": "g"} | properties
    return Half(stored(half_draft(SENT, given, "header-group"), queue_offset, timestamp))


def test_a_half_lies_in_the_half_topic_and_says_where_it_belongs() -> None:
    found = half()
    record = found.record
    assert (record.topic, record.queue_id, record.sys_flag) == (HALF_TOPIC, 0, 1)
    assert (found.topic, found.queue_id, found.group) == ("T", 3, "g")
    assert found.properties["__transactionId__"] == "id"
    assert (found.check_times, found.origin, found.began) == (0, 5, (BORN + 40) / 1000)


def test_without_a_group_of_its_own_it_has_that_of_the_request() -> None:
    assert Half(stored(half_draft(SENT, {}, "header-group"))).group == "header-group"


def test_what_a_message_says_of_an_earlier_transaction_is_forgotten() -> None:
    found = half(TRANSACTION_CHECK_TIMES="14", TRAN_PREPARED_QUEUE_OFFSET="1")
    assert (found.check_times, found.origin) == (0, 5)


@pytest.mark.parametrize("text", ["", "-1", "soon", "1e3", "٣", "9" * 19])
def test_what_is_no_number_counts_as_not_said(text: str) -> None:
    found = half(CHECK_IMMUNITY_TIME_IN_SECONDS=text)
    assert found.immunity is None


def test_a_committed_message_keeps_all_properties_and_names_its_half() -> None:
    found = half(TAGS="A")
    draft = found.committed_draft(PACKED, 3)
    assert (draft.topic, draft.queue_id, draft.body) == (b"T", 3, b"body")
    assert (draft.flag, draft.reconsume_times, draft.born_timestamp) == (7, 2, BORN)
    assert draft.sys_flag == int(SysFlag.COMMIT | SysFlag.COMPRESSED)
    assert draft.prepared_transaction_offset == 1005
    assert decode_properties(bytes(draft.properties).decode()) == found.properties


def test_a_copy_counts_and_names_the_first_half() -> None:
    draft = half().moved_draft(PACKED, check_times=1)
    copy = Half(stored(draft, queue_offset=9, timestamp=BORN + 90_000))
    again = Half(stored(copy.moved_draft(PACKED, check_times=2), queue_offset=12))
    assert (copy.check_times, copy.origin) == (1, 5)
    assert (again.check_times, again.origin) == (2, 5)
    assert copy.began == BORN / 1000  # the store time of the first half is not known any more
    assert (copy.record.flag, copy.record.reconsume_times) == (7, 2)
    aside = Half(stored(again.set_aside_draft(PACKED)))
    assert (aside.record.topic, aside.is_set_aside) == (TRANS_CHECK_MAX_TIME_TOPIC, True)
    assert (aside.check_times, aside.origin) == (2, 5)


def test_a_producer_is_shown_the_message_as_it_will_be() -> None:
    found = half()
    draft = found.moved_draft(PACKED, check_times=1)
    copy = found.copy_at(draft, Appended(2000, 100, 9, BORN + 50, 0))
    shown = read_record(copy.for_producer())
    assert isinstance(shown, Record)
    assert (shown.topic, shown.queue_id, shown.version) == ("T", 3, 1)
    assert (shown.queue_offset, shown.physical_offset) == (9, 2000)
    assert shown.sys_flag == int(SysFlag.COMPRESSED)
    assert shown.decode_properties() == copy.properties
    assert copy.check_times == 1


def test_other_records_are_no_halves() -> None:
    assert Half.find(None) is None
    assert Half.find(b"\0" * 200) is None
    assert Half.find(bytes(encode_record(SENT))) is None


def test_an_op_message_names_one_half_so_that_every_release_can_read_it() -> None:
    draft = op_draft(half(), TransactionType.ROLLBACK, PACKED, BORN / 1000, by="ann")
    assert (draft.topic, draft.body) == (OP_HALF_TOPIC.encode(), b"5")
    properties = decode_properties(bytes(draft.properties).decode())
    assert (properties["TAGS"], properties["BOLIDE_RESOLVED_BY"]) == ("d", "ann")
    assert Op.read(stored(draft)) == Op((5,), 5, TransactionType.ROLLBACK)


@pytest.mark.parametrize(
    ("tag", "body", "named"),
    [
        ("d", b"12", (12,)),
        ("d", b"12,15,", (12, 15)),
        ("d", b"12,x,-3,,15", (12, 15)),
        ("d", b"\xff\xfe", ()),
        ("d", b"", ()),
        ("x", b"12", ()),
    ],
)
def test_op_messages_of_java_are_read(tag: str, body: bytes, named: tuple[int, ...]) -> None:
    draft = RecordDraft(
        OP_HALF_TOPIC.encode(), body, f"TAGS\x01{tag}".encode(), 0, BORN, PACKED, PACKED
    )
    assert Op.read(stored(draft)) == Op(named)
