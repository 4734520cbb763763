"""The headers of all requests and replies."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from bolide.protocol.header import BadHeader, Header
from bolide.protocol.headers.offsets import Boundary, SearchOffsetHeader
from bolide.protocol.headers.pop import PopHeader
from bolide.protocol.headers.send import SendHeader, SendReply
from bolide.protocol.headers.transactions import EndTransactionHeader
from bolide.protocol.requests import REQUESTS
from tests.support.struct_strategies import instances

HEADERS = sorted(
    {header for kind in REQUESTS.values() for header in (kind.header, kind.reply)},
    key=lambda header: f"{header.__module__}.{header.__name__}",
)
REQUIRED = [
    pytest.param(header, each.encode_name, id=f"{header.__name__}.{each.encode_name}")
    for header in HEADERS
    for each in fields(header)
    if each.required
]
SHORT_SEND = {
    "a": "PG",
    "b": "T",
    "c": "TBW102",
    "d": "4",
    "e": "-1",
    "f": "0",
    "g": "1700000000000",
    "h": "7",
    "i": "TAGS\x01a\x02",
    "j": "3",
    "k": "true",
    "l": "16",
    "m": "true",
    "n": "broker-a",
}


@pytest.mark.parametrize("header", HEADERS)
@given(data=st.data())
@settings(max_examples=20)
def test_fields_give_back_the_header(header: type[Header], data: st.DataObject) -> None:
    made = data.draw(instances(header))
    assert header.from_fields(made.to_fields()) == made


@pytest.mark.parametrize(("header", "wire_name"), REQUIRED)
@given(data=st.data())
@settings(max_examples=1)
def test_missing_required_field_is_refused_and_named(
    header: type[Header], wire_name: str, data: st.DataObject
) -> None:
    given_fields = data.draw(instances(header)).to_fields()
    del given_fields[wire_name]
    with pytest.raises(BadHeader, match=f"{header.__name__}.*`{wire_name}`"):
        header.from_fields(given_fields)


@pytest.mark.parametrize("header", HEADERS)
def test_wire_names_are_unique(header: type[Header]) -> None:
    names = header.__struct_encode_fields__
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("header", HEADERS)
def test_header_says_which_request_it_belongs_to(header: type[Header]) -> None:
    assert header.__doc__


@given(made=instances(SendHeader))
def test_short_names_give_back_the_send_header(made: SendHeader) -> None:
    assert SendHeader.from_short(made.to_short()) == made


def test_short_send_names_mean_what_they_mean_in_java() -> None:
    header = SendHeader.from_short(SHORT_SEND)
    assert header == SendHeader(
        producer_group="PG",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=-1,
        sys_flag=0,
        born_timestamp=1700000000000,
        flag=7,
        properties="TAGS\x01a\x02",
        reconsume_times=3,
        unit_mode=True,
        max_reconsume_times=16,
        batch=True,
        broker_name="broker-a",
    )
    assert header.to_short() == SHORT_SEND
    assert header.to_fields()["bname"] == "broker-a"


def test_short_send_header_names_what_is_missing_by_its_long_name() -> None:
    with pytest.raises(BadHeader, match="`topic`"):
        SendHeader.from_short({key: value for key, value in SHORT_SEND.items() if key != "b"})
    with pytest.raises(BadHeader, match="required field"):
        SendHeader.from_short(None)


def test_send_reply_always_tells_region_and_tracing() -> None:
    sent = SendReply(msg_id="AB", queue_id=1, queue_offset=2).to_fields()
    assert sent == {
        "msgId": "AB",
        "queueId": "1",
        "queueOffset": "2",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_search_goes_to_the_lower_boundary_unless_told() -> None:
    asked = {"topic": "T", "queueId": "0", "timestamp": "5"}
    assert SearchOffsetHeader.from_fields(asked).boundary_type is Boundary.LOWER
    asked["boundaryType"] = "UPPER"
    assert SearchOffsetHeader.from_fields(asked).boundary_type is Boundary.UPPER


def test_number_too_big_for_java_is_refused() -> None:
    sent = SHORT_SEND | {"e": str(2**31)}
    with pytest.raises(BadHeader, match="queueId"):
        SendHeader.from_short(sent)


def test_fields_that_newer_clients_add_are_passed_over() -> None:
    header = {
        "producerGroup": "PG",
        "tranStateTableOffset": "1",
        "commitLogOffset": "2",
        "commitOrRollback": "8",
        "msgId": "AB",
        "nsd": "true",
        "future": "x",
    }
    assert EndTransactionHeader.from_fields(header).commit_or_rollback == 8


def test_pop_header_without_options_is_unordered() -> None:
    required = {each.encode_name for each in fields(PopHeader) if each.required}
    made = PopHeader.from_fields(dict.fromkeys(required, "1"))
    assert not made.order
    assert made.attempt_id is None
