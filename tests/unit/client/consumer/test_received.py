import pytest

from bolide.client.consumer.received import read_messages
from bolide.model.message import CompressionType, Host, SysFlag
from bolide.protocol.compression import compress
from bolide.protocol.hosts import pack_host
from bolide.protocol.record import Placement, RecordDraft, encode_record, place_record
from bolide.protocol.record_errors import BadRecord

HOST = pack_host(Host("10.0.0.1", 10911))


def record(topic: str = "T", body: bytes = b"1", properties: str = "", sys_flag: int = 0) -> bytes:
    made = encode_record(
        RecordDraft(topic.encode(), body, properties.encode(), 3, 0, HOST, HOST, sys_flag=sys_flag)
    )
    place_record(made, 0, Placement(7, 4096, 1))
    return bytes(made)


def test_records_become_messages_with_what_the_pull_said() -> None:
    body = record() + record(body=b"2", properties="TAGS\x01A\x02")
    first, second = read_messages(body, "broker-a", min_offset=0, max_offset=10)
    assert (first.body, second.body, second.tags) == (b"1", b"2", "A")
    assert (first.broker_name, first.queue_id, first.min_offset, first.lag) == (
        "broker-a", 3, 0, 3,
    )  # fmt: skip


@pytest.mark.parametrize("kind", CompressionType)
def test_a_compressed_body_comes_out_plain(kind: CompressionType) -> None:
    body = compress(b"plain" * 100, kind)
    (message,) = read_messages(record(body=body, sys_flag=kind.flags), "a")
    assert message.body == b"plain" * 100
    assert not message.sys_flag & SysFlag.COMPRESSED


def test_a_body_that_does_not_inflate_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    (message,) = read_messages(record(body=b"junk", sys_flag=CompressionType.ZLIB.flags), "a")
    assert message.body == b"junk"
    assert message.sys_flag & SysFlag.COMPRESSED
    assert "T queue 3 at 7 stays compressed" in caplog.text


def test_a_retry_shows_its_real_topic() -> None:
    retried = record("%RETRY%NS%G", properties="RETRY_TOPIC\x01NS%T\x02")
    (message,) = read_messages(retried, "a", namespace="NS")
    assert message.topic == "T"
    (message,) = read_messages(record("%RETRY%G"), "a")
    assert message.topic == "%RETRY%G"


def test_the_namespace_is_taken_off() -> None:
    (message,) = read_messages(record("NS%T"), "a", namespace="NS")
    assert message.topic == "T"


def test_bytes_that_are_no_records_are_refused() -> None:
    with pytest.raises(BadRecord):
        read_messages(b"0123456789", "a")
