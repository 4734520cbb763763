"""Registrations of brokers, plain and compressed, and data versions."""

import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.protocol import fastjson
from bolide.protocol.bodies import registration
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.queues import QueueMapping
from bolide.protocol.bodies.registration import RegisterBrokerBody, compress, decompress
from bolide.protocol.bodies.topics import MappedTopicConfigTable, TopicConfig
from bolide.protocol.errors import ProtocolError

BODY = RegisterBrokerBody(
    topic_config_serialize_wrapper=MappedTopicConfigTable(
        data_version=DataVersion(counter=5, state_version=3, timestamp=1_700_000_000_000),
        topic_config_table={
            "T": TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=8, perm=6),
            "ü": TopicConfig(topic_name="ü", attributes={"message.type": "FIFO"}),
        },
        topic_queue_mapping_info_map={
            "S": QueueMapping(topic="S", bname="b", total_queues=4, epoch=1, curr_id_map={0: 1})
        },
    ),
    filter_server_list=["10.0.0.1:30000"],
)


def block(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def packed(*topics: bytes, version: bytes = b"{}", rest: bytes = b"") -> bytes:
    """A compressed registration with these topic lines."""
    parts = [block(version), struct.pack(">i", len(topics)), *map(block, topics), block(b"[]")]
    return zlib.compress(b"".join(parts) + rest)


def topic_of(line: bytes) -> TopicConfig:
    body = decompress(packed(line), with_mapping=False)
    (topic,) = body.topic_config_serialize_wrapper.topic_config_table.values()
    return topic


def test_the_compressed_form_gives_back_the_body() -> None:
    assert decompress(compress(BODY), with_mapping=True) == BODY


def test_the_json_form_gives_back_the_body() -> None:
    assert fastjson.decode(fastjson.encode(BODY), RegisterBrokerBody) == BODY


def test_old_name_servers_get_no_mapping_section() -> None:
    read = decompress(compress(BODY, with_mapping=False), with_mapping=False)
    assert read.topic_config_serialize_wrapper.topic_queue_mapping_info_map == {}
    assert read.filter_server_list == BODY.filter_server_list


def test_a_mapping_section_that_nobody_asked_for_is_passed_over() -> None:
    read = decompress(compress(BODY), with_mapping=False)
    assert read.topic_config_serialize_wrapper.topic_queue_mapping_info_map == {}


def test_a_topic_line_of_4_9_has_no_attributes() -> None:
    topic = topic_of(b"T 4 8 6 SINGLE_TAG")
    assert topic == TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=8, perm=6)


def test_a_topic_line_may_end_in_a_blank() -> None:
    assert topic_of(b"T 4 8 6 SINGLE_TAG ").attributes == {}


def test_attributes_may_hold_blanks() -> None:
    assert topic_of(b'T 4 8 6 SINGLE_TAG {"k": "a b"}').attributes == {"k": "a b"}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"T",
        b"T 4 8 6",
        b"T four 8 6 SINGLE_TAG",
        b"T 4 8  6 SINGLE_TAG",
        b"T 99999999999 8 6 SINGLE_TAG",
        b"T 4 " + b"9" * 5000 + b" 6 SINGLE_TAG",
        b"T 4 8 6 SINGLE_TAG {",
        b"T 4 8 6 SINGLE_TAG [1]",
    ],
)
def test_a_topic_line_that_is_none_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        topic_of(line)


def test_a_registration_cut_at_any_byte_is_refused() -> None:
    data = compress(BODY)
    for cut in range(len(data)):
        with pytest.raises(ProtocolError):
            decompress(data[:cut], with_mapping=True)


def test_a_registration_whose_contents_are_cut_at_any_byte_is_refused() -> None:
    plain = zlib.decompress(compress(BODY))
    for cut in range(len(plain)):
        with pytest.raises(ProtocolError):
            decompress(zlib.compress(plain[:cut]), with_mapping=True)


@given(at=st.integers(0, 10_000), byte=st.integers(0, 255))
@settings(max_examples=200, deadline=None)
def test_damaged_contents_raise_nothing_but_a_protocol_error(at: int, byte: int) -> None:
    plain = bytearray(zlib.decompress(compress(BODY)))
    plain[at % len(plain)] = byte
    try:
        decompress(zlib.compress(plain), with_mapping=True)
    except ProtocolError as refused:
        assert str(refused)


@given(data=st.binary(max_size=60))
@settings(max_examples=100, deadline=None)
def test_random_bytes_raise_nothing_but_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decompress(data, with_mapping=True)
    with pytest.raises(ProtocolError):
        decompress(zlib.compress(data), with_mapping=True)


@pytest.mark.parametrize("length", [-1, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError, match=f"a length of {length}"):
        decompress(zlib.compress(struct.pack(">i", length)), with_mapping=False)


def test_a_count_of_topics_that_cannot_be_is_refused_at_once() -> None:
    data = zlib.compress(block(b"{}") + struct.pack(">i", 2**30))
    with pytest.raises(ProtocolError, match="a length of 1073741824"):
        decompress(data, with_mapping=False)


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "MAX_INFLATED_SIZE", 1000)
    with pytest.raises(ProtocolError, match="over 1000 bytes"):
        decompress(zlib.compress(bytes(10_000_000)), with_mapping=True)


def test_a_registration_of_just_the_limit_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    data = compress(BODY)
    size = len(zlib.decompress(data))
    monkeypatch.setattr(registration, "MAX_INFLATED_SIZE", size)
    assert decompress(data, with_mapping=True) == BODY
    monkeypatch.setattr(registration, "MAX_INFLATED_SIZE", size - 1)
    with pytest.raises(ProtocolError, match="inflates to over"):
        decompress(data, with_mapping=True)


def test_a_mapping_that_is_none_is_refused() -> None:
    for mapping in (b"{}", b"[]", b'{"topic":"S","bname":"b","currIdMap":{"x":1}}'):
        with pytest.raises(ProtocolError):
            decompress(packed(rest=struct.pack(">i", 1) + block(mapping)), with_mapping=True)


def test_a_data_version_is_equal_only_in_all_three() -> None:
    version = DataVersion(counter=1, state_version=2, timestamp=3)
    assert version == DataVersion(counter=1, state_version=2, timestamp=3)
    assert version != DataVersion(counter=1, state_version=2, timestamp=4)
    assert version != DataVersion(counter=1, state_version=0, timestamp=3)


def test_a_bumped_data_version_counts_one_more_change() -> None:
    version = DataVersion(counter=1, state_version=2, timestamp=3)
    assert version.bumped(9) == DataVersion(counter=2, state_version=2, timestamp=9)


def test_the_data_version_of_4_9_has_no_state_version() -> None:
    assert fastjson.decode('{"counter":5,"timestamp":7}', DataVersion) == DataVersion(
        counter=5, timestamp=7
    )


TOPICS = {name: TopicConfig(topic_name=name) for name in ("a", "b")}
MAPPINGS = {name: QueueMapping(topic=name, bname="b") for name in ("a", "b")}


@pytest.mark.parametrize(
    "table",
    [
        MappedTopicConfigTable(topic_config_table=TOPICS),
        MappedTopicConfigTable(topic_queue_mapping_info_map=MAPPINGS),
    ],
    ids=["topics", "mappings"],
)
def test_too_many_topics_or_mappings_are_refused(
    monkeypatch: pytest.MonkeyPatch, table: MappedTopicConfigTable
) -> None:
    monkeypatch.setattr(registration, "MAX_TOPICS", 1)
    body = RegisterBrokerBody(topic_config_serialize_wrapper=table)
    with pytest.raises(ProtocolError, match="2 topics is over the limit of 1"):
        decompress(compress(body), with_mapping=True)
