"""Plain sends, straight from the bytes: which are plain, and what is read."""

import struct
from typing import Any

import pytest

from bolide.kernel.plain_sends import PlainSend, asks_for_nothing, read_plain_send
from bolide.model.message import Host
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame, FrameFlag, HeaderEncoding
from bolide.protocol.framing import encode_frame
from tests.support.broker import send_header

ID = "7F00000112345678ABCDEF0000010000"
NAMED = f"UNIQ_KEY\x01{ID}\x02"
HOST = Host("10.0.0.1", 10911)


def request(
    code: int = RequestCode.SEND_MESSAGE_V2,
    *,
    body: bytes = b"hello",
    flag: int = 0,
    encoding: HeaderEncoding = HeaderEncoding.JSON,
    extra: dict[str, str] | None = None,
    **given: Any,
) -> bytes:
    values: dict[str, Any] = {"properties": NAMED, "queue_id": 2} | given
    header = send_header(**values)
    fields = header.to_short() | (extra or {})
    frame = Frame(code=code, fields=fields, opaque=7, flag=flag, body=body, encoding=encoding)
    return encode_frame(frame)


@pytest.mark.parametrize("encoding", HeaderEncoding)
def test_a_plain_send_is_read_as_it_lies(encoding: HeaderEncoding) -> None:
    data = request(sys_flag=0x101, flag=FrameFlag.ONE_WAY, encoding=encoding)
    send = read_plain_send(b"before" + data + b"after", 6)
    assert send == PlainSend(
        end=6 + len(data),
        opaque=7,
        one_way=True,
        topic="T",
        queue_id=2,
        sys_flag=0x101,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties=NAMED,
        unique_id=ID,
        body=b"hello",
        is_binary=encoding is HeaderEncoding.ROCKETMQ,
    )


def test_a_batch_is_read_with_no_id_of_its_own() -> None:
    send = read_plain_send(request(RequestCode.SEND_BATCH_MESSAGE, batch=True), 0)
    assert send is not None
    assert (send.is_batch, send.unique_id, send.properties) == (True, "", NAMED)


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 7, 8, 50, -1])
def test_part_of_a_send_is_none(cut: int) -> None:
    assert read_plain_send(request()[:cut], 0) is None


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(request(RequestCode.SEND_MESSAGE), id="another code"),
        pytest.param(request(RequestCode.SEND_BATCH_MESSAGE), id="a batch by its code alone"),
        pytest.param(request(batch=True), id="a batch by its mark alone"),
        pytest.param(request(flag=FrameFlag.RESPONSE), id="a response"),
        pytest.param(
            request(encoding=HeaderEncoding.ROCKETMQ, extra={"z": "1"}), id="one of a binary header"
        ),
        pytest.param(request(body=b""), id="no body"),
        pytest.param(request(queue_id=-1), id="any queue"),
        pytest.param(request(reconsume_times=1), id="a retry"),
        pytest.param(request(unit_mode=True), id="unit mode"),
        pytest.param(request(sys_flag=2), id="several tags"),
        pytest.param(request(sys_flag=4), id="a half message"),
        pytest.param(request(sys_flag=8), id="a committed message"),
        pytest.param(request(sys_flag=0x10), id="an IPv6 mark"),
        pytest.param(request(sys_flag=0x80), id="an inner batch"),
        pytest.param(request(properties=""), id="no unique id"),
        pytest.param(request(properties=NAMED * 2), id="two unique ids"),
        pytest.param(request(properties='UNIQ_KEY\x01a"b\x02'), id="an id to be quoted"),
        pytest.param(request(properties=f"UNIQ_KEY\x01{'a' * 129}\x02"), id="a long id"),
        pytest.param(request(properties="UNIQ_KEY\x01a\n"), id="an id with a line feed"),
        pytest.param(request(extra={"z": "1"}), id="an unknown field"),
        pytest.param(request(extra={"e": "x"}), id="a field that does not parse"),
        pytest.param(request(extra={"l": "x"}), id="one that is not needed either"),
        pytest.param(request(extra={"g": str(2**63)}), id="a number over 64 bits"),
        pytest.param(struct.pack(">II", 6, 2) + b"{}", id="an empty header"),
        pytest.param(struct.pack(">II", 8, 4) + b"null", id="no header"),
        pytest.param(struct.pack(">II", 2**32 - 1, 0), id="the largest length"),
        pytest.param(struct.pack(">II", 20, 2**24 - 1) + bytes(16), id="a header beyond the frame"),
        pytest.param(struct.pack(">I", 0), id="no length of a header"),
    ],
)
def test_what_is_not_plain_is_left_alone(data: bytes) -> None:
    assert read_plain_send(data, 0) is None


@pytest.mark.parametrize(
    "name",
    ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TRAN_MSG", "POP_CK",
     "INNER_NUM", "MSG_REGION", "TRACE_ON", "CLUSTER", "__STARTDELIVERTIME"],
)  # fmt: skip
def test_a_property_that_asks_for_something_makes_a_send_not_plain(name: str) -> None:
    properties = f"{NAMED}{name}\x011\x02"
    assert read_plain_send(request(properties=properties), 0) is None
    assert not asks_for_nothing(properties)
    assert asks_for_nothing(NAMED)
