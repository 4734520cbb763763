"""Our frames and the NameServer's bodies against bytes of Java; see the README beside this file."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from bolide.protocol import fastjson, json_dialect
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.queues import QueueMapping
from bolide.protocol.bodies.registration import RegisterBrokerBody, compress, decompress
from bolide.protocol.bodies.routes import (
    BrokerRoute,
    ClusterInfo,
    KvTable,
    MemberGroup,
    MemberGroupBody,
    QueueRoute,
    TopicList,
    TopicRoute,
)
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.frame import Frame, HeaderEncoding
from bolide.protocol.framing import FrameDecoder, encode_frame

Case = dict[str, Any]

VERSIONS = ("5.x", "4.9")
ADDRESSES = {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}
MAPPING = QueueMapping(
    topic="static", bname="broker-a", total_queues=4, epoch=12, curr_id_map={0: 1, 2: 3}
)
SHAPES: dict[str, type[Any]] = {
    shape.__name__: shape
    for shape in (DataVersion, TopicRoute, ClusterInfo, KvTable, TopicList, MemberGroupBody)
}


def cases(kind: str | None = None, *versions: str) -> list[Any]:
    found = []
    for version in versions or VERSIONS:
        text = (Path(__file__).parent / f"frames-{version}.jsonl").read_text(encoding="ascii")
        for case in map(json.loads, text.splitlines()):
            if case["kind"] == kind or (kind is None and case["kind"] in SHAPES):
                name = " ".join((version, case["kind"], case.get("encoding", ""), case["name"]))
                found.append(pytest.param(case | {"of": version}, id=name))
    assert found, kind
    return found


def frame_of(case: Case) -> Frame:
    """What went into Java's encoder."""
    return Frame(
        code=case["code"],
        fields=case["fields"],
        flag=case["flag"],
        language=case["language"],
        opaque=case["opaque"],
        remark=case["remark"],
        version=case["version"],
        body=bytes.fromhex(case["body"] or ""),
        encoding=HeaderEncoding[case["encoding"]],
    )


def read(data: bytes) -> Frame:
    decoder = FrameDecoder()
    (frame,) = decoder.feed(data)
    assert decoder.error is None
    return frame


def body_of(case: Case) -> bytes:
    return bytes.fromhex(case["hex"])


# Frames


@pytest.mark.parametrize("case", cases("frame"))
def test_we_read_the_frame_java_wrote(case: Case) -> None:
    expected = frame_of(case)
    if expected.fields is not None:
        plain = {key: text.replace("\ud800", "?") for key, text in expected.fields.items()}
        binary = expected.encoding is HeaderEncoding.ROCKETMQ
        expected.fields = {key: text for key, text in plain.items() if text or not binary}
    assert read(body_of(case)) == expected


@pytest.mark.parametrize("case", cases("frame"))
def test_we_write_the_frame_java_writes(case: Case) -> None:
    written = encode_frame(frame_of(case))
    # Java's maps have the order of their hashes, and the fastjson of 4.9 has escapes of its own.
    if len(case["fields"] or ()) > 1 or case["name"].startswith("escapes"):
        assert read(written) == read(body_of(case))
    else:
        assert written.hex() == case["hex"]


def test_java_frames_in_one_stream_come_out_in_order() -> None:
    every = [param.values[0] for param in cases("frame")]
    stream = b"".join(body_of(case) for case in every)
    decoder = FrameDecoder()
    parts = [stream[at : at + 100] for at in range(0, len(stream), 100)]
    codes = [frame.code for part in parts for frame in decoder.feed(part)]
    assert codes == [case["code"] for case in every]


# Bodies


@pytest.mark.parametrize("case", cases(None, "5.x"))
def test_a_body_of_5_x_is_written_back_byte_for_byte(case: Case) -> None:
    value = fastjson.decode(body_of(case), SHAPES[case["kind"]])
    standard = case["name"].endswith("standard JSON")
    written = fastjson.encode(value, standard=standard)
    if case["kind"] == "ClusterInfo" and case["name"] == "empty":
        assert json_dialect.parse(written) == {"brokerAddrTable": {}, "clusterAddrTable": {}}
    else:
        assert written == body_of(case)


@pytest.mark.parametrize("case", cases(None, "4.9"))
def test_a_body_of_4_9_is_written_back_with_no_member_lost(case: Case) -> None:
    value = fastjson.decode(body_of(case), SHAPES[case["kind"]])
    standard = case["name"].endswith("standard JSON")
    written = json_dialect.parse(fastjson.encode(value, standard=standard))
    assert_holds(written, json_dialect.parse(body_of(case)))


def assert_holds(whole: Any, part: Any) -> None:
    """All of `part` is in `whole`; objects may have more members."""
    if isinstance(part, dict):
        for key, value in part.items():
            assert_holds(whole[key], value)
    elif isinstance(part, list):
        for ours, theirs in zip(whole, part, strict=True):
            assert_holds(ours, theirs)
    else:
        assert whole == part


def only(kind: str, version: str, name: str = "full") -> bytes:
    (case,) = (param.values[0] for param in cases(kind, version) if param.values[0]["name"] == name)
    return body_of(case)


@pytest.mark.parametrize("name", ["full", "full, standard JSON"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_route_has_the_values_java_put_in(version: str, name: str) -> None:
    new = version == "5.x"
    queues = {"read_queue_nums": 4, "write_queue_nums": 8, "perm": 6, "topic_sys_flag": 1}
    brokers = [
        BrokerRoute(broker_name=broker, cluster="DefaultCluster", broker_addrs=ADDRESSES)
        for broker in ("broker-a", "broker-b")
    ]
    if new:
        brokers[1].enable_acting_master, brokers[1].zone_name = True, "zone-1"
    assert fastjson.decode(only("TopicRoute", version, name), TopicRoute) == TopicRoute(
        queue_datas=[QueueRoute(broker_name=each.broker_name, **queues) for each in brokers],
        broker_datas=brokers,
        filter_server_table={"10.0.0.1:10911": ["10.0.0.1:30000"]},
        order_topic_conf="broker-a:4;broker-b:4",
        topic_queue_mapping_by_broker={"broker-a": MAPPING} if new else None,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_lists_have_the_values_java_put_in(version: str) -> None:
    broker = BrokerRoute(broker_name="broker-a", cluster="DefaultCluster", broker_addrs=ADDRESSES)
    assert fastjson.decode(only("ClusterInfo", version), ClusterInfo) == ClusterInfo(
        broker_addr_table={"broker-a": broker}, cluster_addr_table={"DefaultCluster": ["broker-a"]}
    )
    table = fastjson.decode(only("KvTable", version), KvTable)
    assert table == KvTable(table={"order": "broker-a:4;ü"})
    assert fastjson.decode(only("TopicList", version), TopicList) == TopicList(
        topic_list=["%RETRY%group", "TopicTest"], broker_addr="10.0.0.1:10911"
    )


def test_a_member_group_has_the_values_java_put_in() -> None:
    group = MemberGroup(
        cluster="DefaultCluster", broker_name="broker-a", broker_addrs={0: "10.0.0.1:10911"}
    )
    read_group = fastjson.decode(only("MemberGroupBody", "5.x"), MemberGroupBody)
    assert read_group == MemberGroupBody(broker_member_group=group)


# Registrations


def assert_two_topics(body: RegisterBrokerBody, version: str) -> None:
    topics, new = body.topic_config_serialize_wrapper, version == "5.x"
    attributes = {"message.type": "FIFO"} if new else {}
    assert topics.data_version == DataVersion(
        counter=5, state_version=3 if new else 0, timestamp=1_700_000_000_000
    )
    assert topics.topic_config_table == {
        "TopicTest": TopicConfig(topic_name="TopicTest", read_queue_nums=4, write_queue_nums=8),
        "%RETRY%group": TopicConfig(
            topic_name="%RETRY%group", read_queue_nums=1, write_queue_nums=1, attributes=attributes
        ),
    }
    assert topics.topic_queue_mapping_info_map == ({"static": MAPPING} if new else {})
    assert body.filter_server_list == ["10.0.0.1:30000"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plain_registration_has_the_values_java_put_in(version: str) -> None:
    body = only("plain registration", version, "two topics")
    assert_two_topics(fastjson.decode(body, RegisterBrokerBody), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_compressed_registration_has_the_values_java_put_in(version: str) -> None:
    body = only("compressed registration", version, "two topics")
    assert_two_topics(decompress(body, with_mapping=version == "5.x"), version)


@pytest.mark.parametrize("case", cases("plain registration"))
def test_a_plain_registration_is_written_back_with_no_member_lost(case: Case) -> None:
    written = fastjson.encode(fastjson.decode(body_of(case), RegisterBrokerBody))
    assert_holds(json_dialect.parse(written), json_dialect.parse(body_of(case)))
    if case["of"] == "5.x":
        assert written == body_of(case)


@pytest.mark.parametrize("case", cases("compressed registration", "5.x"))
def test_a_compressed_registration_of_5_x_is_written_back_as_it_was(case: Case) -> None:
    written = compress(decompress(body_of(case), with_mapping=True))
    assert zlib.decompress(written) == zlib.decompress(body_of(case))


@pytest.mark.parametrize("case", cases("compressed registration", "4.9"))
def test_a_compressed_registration_of_4_9_is_read_back_equal(case: Case) -> None:
    body = decompress(body_of(case), with_mapping=False)
    assert decompress(compress(body, with_mapping=False), with_mapping=False) == body
