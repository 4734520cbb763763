"""Encoding of plain sends and decoding of their replies.

Both are compared with the general codec, which builds frames and headers.
"""

import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bolide.kernel import send_frames
from bolide.kernel.send_frames import Credentials, SendAnswer, SendTemplate
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame, FrameFlag, HeaderEncoding
from bolide.protocol.framing import decode_frame, encode_frame
from bolide.protocol.headers.send import SendReply
from bolide.protocol.signature import signature

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)

COMMON = {"a": "G", "c": "TBW102", "d": "4", "k": "false", "b": "T"}
EVERYTHING = dict.fromkeys(range(-5, 100))
USUAL = {
    "msgId": "7F0000010000" + "0" * 20,
    "queueId": "1",
    "queueOffset": "2",
    "transactionId": "ID",
    "MSG_REGION": "DefaultRegion",
    "TRACE_ON": "true",
}
READ = (7, USUAL["msgId"], 1, 2, "ID", "DefaultRegion", True)


@pytest.fixture(scope="session", params=["reference", "compiled"])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    """Run each test on both kernels; the compiled one is skipped if not built."""
    if request.param == "reference":
        return send_frames
    return pytest.importorskip("bolide.kernel._send_frames", reason="no compiled kernel")  # type: ignore[no-any-return]


# Requests


@given(
    group=texts,
    broker=texts,
    queue_id=ints,
    opaque=st.integers(0, 2**31 - 1),
    born=longs,
    flag=ints,
    properties=texts,
    body=st.binary(max_size=50),
    one_way=st.booleans(),
)
def test_a_request_is_the_one_that_the_ordinary_way_would_write(
    twin: ModuleType,
    *,
    group: str,
    broker: str,
    queue_id: int,
    opaque: int,
    born: int,
    flag: int,
    properties: str,
    body: bytes,
    one_way: bool,
) -> None:
    common = COMMON | {"a": group}
    fields = common | {
        "f": "0", "h": str(flag), "j": "0", "i": properties,
        "e": str(queue_id), "n": broker, "g": str(born),
    }  # fmt: skip
    expected = Frame(
        code=RequestCode.SEND_MESSAGE_V2,
        fields=fields,
        flag=FrameFlag.ONE_WAY if one_way else 0,
        opaque=opaque,
        body=body,
    )
    template: SendTemplate = twin.SendTemplate(common, queue_id, broker)
    found = template.write(opaque, born, flag, properties, body, one_way=one_way)
    assert found == encode_frame(expected)


@given(
    group=texts,
    broker=texts,
    access_key=texts,
    token=st.none() | texts.filter(bool),
    secret=st.binary(max_size=70),
    born=longs,
    flag=ints,
    properties=texts,
    body=st.binary(max_size=150),
)
def test_a_signed_request_is_the_one_that_the_signer_would_make(
    twin: ModuleType,
    *,
    group: str,
    broker: str,
    access_key: str,
    token: str | None,
    secret: bytes,
    born: int,
    flag: int,
    properties: str,
    body: bytes,
) -> None:
    common = COMMON | {"a": group}
    own = {"AccessKey": access_key} | ({"SecurityToken": token} if token else {})
    fields = common | {
        "f": "0", "h": str(flag), "j": "0", "i": properties, "e": "3", "n": broker, "g": str(born),
    } | own  # fmt: skip
    fields["Signature"] = signature(fields, body, secret)
    expected = Frame(code=RequestCode.SEND_MESSAGE_V2, fields=fields, opaque=7, body=body)
    template: SendTemplate = twin.SendTemplate(common, 3, broker, Credentials(own, secret))
    for _ in range(2):  # a template keeps nothing of the message before
        assert template.write(7, born, flag, properties, body) == encode_frame(expected)


def test_half_a_surrogate_pair_is_refused(twin: ModuleType) -> None:
    with pytest.raises(UnicodeEncodeError):
        twin.SendTemplate(COMMON, 0, "b").write(1, 2, 3, "\ud800", b"")


# Answers

Reader = Callable[[bytes, int, Any], tuple[int, list[SendAnswer]]]


@pytest.fixture(scope="session")
def read(twin: ModuleType) -> Reader:
    return twin.read_answers  # type: ignore[no-any-return]


def answer(
    opaque: int = 7,
    *,
    code: int = 0,
    flag: int = FrameFlag.RESPONSE,
    encoding: HeaderEncoding = HeaderEncoding.JSON,
    body: bytes = b"",
    remark: str | None = None,
    without: str = "",
    **more: str,
) -> bytes:
    fields = {name: text for name, text in (USUAL | more).items() if name != without}
    return encode_frame(
        Frame(
            code=code,
            fields=fields,
            flag=flag,
            opaque=opaque,
            remark=remark,
            encoding=encoding,
            body=body,
        )
    )


def test_answers_in_a_row_are_read_at_once(read: Reader) -> None:
    data = b"before" + answer(7) + answer(8) + answer(7)
    expected = [READ, (8, *READ[1:]), READ]
    assert read(data, 6, EVERYTHING) == (len(data), expected)
    assert read(data + answer(9)[:-1], 6, EVERYTHING) == (len(data), expected)


def test_an_answer_of_apache_is_read(read: Reader) -> None:
    header = (
        b'{"code":0,"extFields":{"queueId":"1","TRACE_ON":"true","MSG_REGION":"DefaultRegion",'
        b'"msgId":"%b","transactionId":"ID","queueOffset":"2"},"flag":1,"language":"JAVA",'
        b'"opaque":7,"serializeTypeCurrentRPC":"JSON","version":493}' % USUAL["msgId"].encode()
    )
    data = struct.pack(">II", 4 + len(header), len(header)) + header
    assert read(data, 0, EVERYTHING) == (len(data), [READ])


def test_only_what_is_wanted_is_read(read: Reader) -> None:
    data = answer(7) + answer(8)
    assert read(data, 0, {7: None}) == (len(data) // 2, [READ])
    assert read(data, 0, {8: None}) == (0, [])
    assert read(b"", 0, EVERYTHING) == (0, [])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(answer(code=ResponseCode.FLUSH_DISK_TIMEOUT), id="stored less safely"),
        pytest.param(answer(code=ResponseCode.SYSTEM_BUSY), id="a refusal"),
        pytest.param(answer(flag=0), id="a request"),
        pytest.param(answer(encoding=HeaderEncoding.ROCKETMQ), id="a binary header"),
        pytest.param(answer(body=b"1"), id="a body"),
        pytest.param(answer(recallHandle="h"), id="a recall handle"),
        pytest.param(answer(batchUniqId="h"), id="the ids of a batch"),
        pytest.param(answer(repeats="1"), id="repeats"),
        pytest.param(answer(without="msgId"), id="no id"),
        pytest.param(answer(without="queueOffset"), id="no offset"),
        pytest.param(answer(queueOffset="x"), id="an offset that is no number"),
        pytest.param(answer(queueId=str(2**31)), id="a queue over 32 bits"),
        pytest.param(answer(queueOffset=str(2**63)), id="an offset over 64 bits"),
        pytest.param(answer(TRACE_ON="maybe"), id="a mark that is none"),
        pytest.param(struct.pack(">II", 2**32 - 1, 0), id="the largest length"),
        pytest.param(struct.pack(">II", 4, 2**24 - 1), id="a header beyond the frame"),
        pytest.param(struct.pack(">I", 0), id="no header"),
        pytest.param(struct.pack(">II", 0, 4), id="no room for a header"),
        pytest.param(struct.pack(">II", 6, 2) + b"{}", id="an empty header"),
        pytest.param(b"\xff" * 60, id="garbage"),
    ],
)
def test_what_is_unusual_is_left_alone(read: Reader, data: bytes) -> None:
    assert read(data, 0, EVERYTHING) == (0, [])


usual_texts = st.one_of(st.sampled_from(["true", "false", "0", "1", "-1", "", "null"]), texts)
fields = st.fixed_dictionaries(
    {},
    optional={
        "msgId": texts,
        "queueId": st.one_of(ints.map(str), usual_texts),
        "queueOffset": st.one_of(longs.map(str), usual_texts),
        "transactionId": texts,
        "MSG_REGION": texts,
        "TRACE_ON": usual_texts,
        "recallHandle": texts,
    },
)
frames = st.builds(
    Frame,
    code=st.sampled_from([0, 0, 0, 0, 10]),
    fields=st.one_of(st.none(), fields, st.just(USUAL), fields.map(lambda some: USUAL | some)),
    flag=st.sampled_from([1, 1, 1, 0, 2, 3]),
    opaque=st.one_of(st.integers(0, 5), ints),
    remark=st.one_of(st.none(), texts),
    language=texts,
    version=ints,
    encoding=st.sampled_from([HeaderEncoding.JSON] * 4 + [HeaderEncoding.ROCKETMQ]),
    body=st.sampled_from([b"", b"", b"", b"1"]),
)
headers = st.sampled_from([
    b'{"code":0,"extFields":{"msgId":"m","queueId":1,"queueOffset":"2"},"flag":1,"opaque":1}',
    b'{"code":0,"extFields":{"msgId":"m","queueId":"1","queueOffset":"+2"},"flag":1,"opaque":1}',
    b'{"code":0,"extFields":{"msgId":"m","queueId":"01","queueOffset":"2"},"flag":1,"opaque":1}',
    b'{"code":0,"extFields":{"msgId":"m","queueId":"1.0","queueOffset":" 2"},"flag":1,"opaque":1}',
    b'{"code":0,"extFields":{"msgId":"m","queueId":"1","queueId":"2","queueOffset":"2"},"flag":1}',
    b'{"code":0,"extFields":{"msgId":"m","queueId":"1","queueOffset":"2","TRACE_ON":null},"flag":1}',
    b'{"code":0,"extFields":{"msgId":"m","queueId":"1","queueOffset":"2"},"flag":1,"language":null}',
    b'{"code":0,"extFields":{"msgId":"\\u0041","queueId":"-0","queueOffset":"2"},"flag":1,"x":[{}]}',
    b'{"code":"0","extFields":{"msgId":"m","queueId":"1","queueOffset":"2"},"flag":1,"opaque":1}',
    b'{"code":0,"extFields":{"msgId":"m","queueId":"1","queueOffset":"2"},"flag":true,"opaque":1}',
]).map(lambda text: struct.pack(">II", 4 + len(text), len(text)) + text)  # fmt: skip


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """A sequence of frames, some of them damaged."""
    data = bytearray(b"".join(draw(st.lists(st.one_of(frames.map(encode_frame), headers)))))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        data[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(data)


@given(data=streams())
@example(answer() + answer(8))
@example(answer() + answer().replace(b'"JSON"', rb'"\SON"'))
def test_what_is_read_is_what_the_ordinary_way_reads(read: Reader, data: bytes) -> None:
    end, found = read(data, 0, EVERYTHING)
    at = 0
    for each in found:
        size = 4 + struct.unpack_from(">I", data, at)[0]
        expected = ordinary(data[at + 4 : at + size])
        assert each == expected
        assert [type(part) for part in each] == [type(part) for part in expected]
        at += size
    assert at == end


def ordinary(payload: bytes) -> SendAnswer:
    frame = decode_frame(payload)
    assert frame.code == 0
    assert frame.flag & FrameFlag.RESPONSE
    assert not frame.body
    reply = SendReply.from_fields(frame.fields)
    assert (reply.batch_uniq_id, reply.recall_handle, reply.repeats) == (None, None, None)
    return (
        frame.opaque, reply.msg_id, reply.queue_id, reply.queue_offset,
        reply.transaction_id, reply.region, reply.trace_on,
    )  # fmt: skip
