"""The compiled flow of pulls: what is read of a request, and what a reply says.

Replies are compared with the frame that a handler would send, and with `reply_of`, which finds the
records of units in plain Python. What plans do with it is for `test_pulls.py`.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("bolide.broker.fast_path._pulls", reason="no compiled fast path")

from bolide.broker.fast_path._pulls import PullReplies, read_pull
from bolide.broker.fast_path.pulls import refill
from bolide.kernel import sieves
from bolide.kernel._sieves import Sieve
from bolide.protocol import binary_fields, json_fields
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame, FrameFlag, HeaderEncoding
from bolide.protocol.framing import MAX_FRAME_SIZE, encode_frame
from bolide.protocol.headers.pull import PullHeader, PullReply
from bolide.protocol.property_string import decode_properties
from bolide.protocol.record import RECORD_HEAD, is_record_magic, property_bytes, store_time
from tests.support.broker import pull_header
from tests.unit.kernel.drafts import DRAFT, ENCODED, V6, record

Read = Callable[[int, int, int], memoryview | None]
UNIT = struct.Struct(">qiq")
START = 4096
SIZE = len(ENCODED)
STORED = 1_700_000_000_123
RECORDS = [record(DRAFT, number, START + number * SIZE, STORED + number) for number in range(5)]
BLOCK = b"".join(RECORDS)
UNITS = b"".join(UNIT.pack(START + number * SIZE, SIZE, number) for number in range(5))
FIELDS_AT = 21  # in a binary header without a remark
BINARY = HeaderEncoding.ROCKETMQ
SETTINGS: dict[str, Any] = {
    "max_count": 32, "max_size": 10**6, "codes": None, "brokers": (0, 1), "far": 10**6,
    "sys_flags": (2, 0),
}  # fmt: skip


def header(offset: object = 3200, commit: object = -1, opaque: object = 7, more: str = "") -> bytes:
    return (
        (
            '{"code":11,"extFields":{"consumerGroup":"g","topic":"T","queueOffset":"%s","queueId":"0",'
            '"commitOffset":"%s"%s},"flag":0,"opaque":%s,"version":513}'
        )
        .__mod__((offset, commit, more, opaque))
        .encode()
    )


def framed(text: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


def binary(
    offset: object = 3200,
    commit: object = -1,
    opaque: int = 7,
    code: int = RequestCode.PULL_MESSAGE,
    flag: int = 0,
    **changed: str,
) -> bytes:
    """The frame of a pull with a binary header; an empty text leaves a field out."""
    fields = pull_header().to_fields() | {"queueOffset": str(offset), "commitOffset": str(commit)}
    kept = {name: text for name, text in (fields | changed).items() if text}
    return encode_frame(Frame(code=code, fields=kept, opaque=opaque, flag=flag, encoding=BINARY))


def many_fields(count: int) -> bytes:
    more = {f"more{number}": "x" for number in range(count)}
    fields = pull_header().to_fields() | more
    return encode_frame(Frame(code=RequestCode.PULL_MESSAGE, fields=fields, encoding=BINARY))


def framed_binary(text: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(text) + len(body), 1 << 24 | len(text)) + text + body


def numbers_in(frame: Frame) -> tuple[int, int, int]:
    fields = frame.fields or {}
    return int(fields["queueOffset"]), int(fields["commitOffset"]), frame.opaque


def key_of(data: bytes) -> bytes:
    found = read_pull(data, 0)
    assert found is not None
    return found[1]


# ---- requests


def test_a_pull_is_read_where_it_lies_and_its_numbers_are_no_part_of_its_key() -> None:
    first, second = framed(header(5, 4, 3)), framed(header(10**17, -1, -(2**31)))
    data = b"before" + first + second + b"behind"
    found = read_pull(data, 6)
    assert found is not None
    end, key, *numbers = found
    assert (end, numbers) == (6 + len(first), [5, 4, 3])
    assert read_pull(data, end) == (end + len(second), key, 10**17, -1, -(2**31))
    assert key == header("", "", "")
    assert refill(key, 5, 4, 3) == header(5, 4, 3)


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
def test_a_pull_with_a_binary_header_has_one_key_whatever_its_numbers_are(code: int) -> None:
    first, second = binary(5, 4, 3, code), binary(10**17, -(10**17), -(2**31), code)
    data = b"before" + first + second + b"behind"
    found = read_pull(data, 6)
    assert found is not None
    end, key, *numbers = found
    assert (end, numbers) == (6 + len(first), [5, 4, 3])
    assert read_pull(data, end) == (end + len(second), key, 10**17, -(10**17), -(2**31))
    assert not key.startswith(b"{"), "that is how a key of a JSON header begins"


def test_the_numbers_may_stand_in_any_order() -> None:
    texts = [
        b'{"opaque":%s,"extFields":{"commitOffset":"%s","queueOffset":"%s"},"code":11}' % each
        for each in ((b"3", b"4", b"5"), (b"", b"", b""))
    ]
    assert read_pull(framed(texts[0]), 0) == (8 + len(texts[0]), texts[1], 5, 4, 3)
    fields = {"commitOffset": "4", "topic": "T", "queueOffset": "5"}
    data = encode_frame(Frame(code=11, fields=fields, opaque=3, encoding=BINARY))
    found = read_pull(data, 0)
    assert found is not None
    assert (found[0], *found[2:]) == (len(data), 5, 4, 3)
    other = {"queueOffset": "5", "topic": "T", "commitOffset": "4"}
    assert key_of(encode_frame(Frame(code=11, fields=other, encoding=BINARY))) != found[1]


def test_requests_that_differ_in_anything_else_have_other_keys() -> None:
    keys = {key_of(framed(header(more=more))) for more in ("", ',"a":"1"')}
    assert len(keys) == 2
    usual = Frame(code=11, fields=pull_header().to_fields(), encoding=BINARY)
    assert usual.fields is not None
    frames = [
        binary(), binary(code=RequestCode.LITE_PULL_MESSAGE), binary(flag=2), binary(flag=1),
        binary(more="1"), binary(more="2"), binary(other="1"), binary(topic="U"),
        binary(queueId="1"), binary(maxMsgNums="31"), binary(sysFlag="0"), binary(subVersion="5"),
        encode_frame(Frame(code=11, fields=usual.fields, language="GO", encoding=BINARY)),
        encode_frame(Frame(code=11, fields=usual.fields, version=1, encoding=BINARY)),
        encode_frame(Frame(code=11, fields=usual.fields, version=-1, encoding=BINARY)),
        encode_frame(Frame(code=11, fields=usual.fields | {"more": ""}, encoding=BINARY)),
        binary(topic="Ü"), binary(topic="\x01"), many_fields(40), many_fields(41),
        encode_frame(
            Frame(code=11, fields=dict(reversed(usual.fields.items())), encoding=BINARY)
        ),
    ]  # fmt: skip
    assert len({key_of(data) for data in frames}) == len(frames)


@pytest.mark.parametrize(
    "text",
    [
        *(header(offset) for offset in ("", "-1", "01", "+1", "1x", " 1", "1" * 19, "-0", "1.0")),
        *(header(5, commit) for commit in ("", "-", "00", "-01", "9" * 19, "x", '"')),
        *(header(5, 4, opaque) for opaque in ('"1"', 2**31, -(2**31) - 1, "1.5", "1 ", "", "null")),
        header().replace(b"queueOffset", b"queueoffset"),
        header().replace(b'"opaque":7', b'"opaque": 7'),
        header()[: header().index(b"7,")] + b"7",
        header(more="," + '"' * 2048),
    ],
)
def test_what_is_unusual_is_not_read(text: bytes) -> None:
    assert read_pull(framed(text), 0) is None


def test_what_is_not_whole_or_not_a_header_alone_is_not_read() -> None:
    for data, text in ((framed(header()), header()), (binary(), binary()[8:])):
        assert all(read_pull(data[:size], 0) is None for size in range(len(data)))
        assert read_pull(data, len(data)) is read_pull(data, -1) is None
        with_body = framed(text, b"a body") if text == header() else framed_binary(text, b"a body")
        assert read_pull(with_body, 0) is None
        swapped = data[:4] + bytes([1 - data[4]]) + data[5:]
        assert read_pull(swapped, 0) is None, "the other encoding"
        assert read_pull(data[:4] + b"\2" + data[5:], 0) is None, "no encoding"


@pytest.mark.parametrize(
    "data",
    [
        *(binary(offset) for offset in ("", "-1", "01", "+1", "1x", " 1", "1" * 19, "-0", "1.0")),
        *(binary(5, commit) for commit in ("", "-", "00", "-01", "9" * 19, "x", "-0", "ü")),
        binary(code=RequestCode.SEND_MESSAGE),
        binary(code=0),
        binary(code=RequestCode.PULL_MESSAGE | 1 << 8),
        binary(more="x" * 2048),
        encode_frame(Frame(code=11, encoding=BINARY)),
        encode_frame(Frame(code=11, fields=pull_header().to_fields(), remark="x", encoding=BINARY)),
        binary(xueueOffset="5").replace(b"xueueOffset", b"queueOffset"),
        binary(xommitOffset="5").replace(b"xommitOffset", b"commitOffset"),
    ],
)
def test_an_unusual_binary_header_is_not_read(data: bytes) -> None:
    assert read_pull(data, 0) is None


def test_a_binary_header_is_refused_at_every_cut() -> None:
    text = binary()[8:]
    for size in range(len(text)):
        assert read_pull(framed_binary(text[:size]), 0) is None
        padded = text[:size] + b"\0" * (len(text) - size)
        found = read_pull(framed_binary(padded), 0)
        assert found is None or found[2:] == numbers_in(binary_fields.decode(padded))
    assert read_pull(framed_binary(text + b"\0"), 0) is None


def test_a_binary_header_whose_fields_are_cut_is_read_only_where_the_cut_is_between_fields() -> (
    None
):
    text = binary()[8:]
    fields, readable = text[FIELDS_AT:], []
    for size in range(len(fields)):
        data = framed_binary(text[: FIELDS_AT - 4] + struct.pack(">I", size) + fields[:size])
        found = read_pull(data, 0)
        if found is not None:
            readable.append(size)
            assert found[2:] == (3200, -1, 7)
    names = list(pull_header().to_fields())
    numbers = max(names.index("queueOffset"), names.index("commitOffset"))
    assert len(readable) == len(names) - numbers - 1, "both numbers, and some of those behind them"


@pytest.mark.parametrize("place", [0, 13, 14, 15, 16, 17, 18, 19, 20, 21])
def test_odd_lengths_in_a_binary_header_are_refused(place: int) -> None:
    text = bytearray(binary()[8:])
    for value in (0x01, 0x7F, 0x80, 0xFF):
        spoiled = text.copy()
        spoiled[place] = value
        assert spoiled == text or read_pull(framed_binary(bytes(spoiled)), 0) is None


def test_a_json_header_never_has_the_key_of_a_binary_one() -> None:
    """Its reply would be binary, where the handlers refuse the frame."""
    key = key_of(binary(more='"queueOffset":"","commitOffset":"","opaque":,'))
    found = read_pull(framed(refill(key, 5, 4, 3)), 0)
    assert found is None or found[1] != key


NUMBERS = st.sampled_from(
    ["0", "1", "-1", "-0", "07", "12345678901", "9" * 18, "9" * 19, "", "x", "2147483648", '"']
)
PROBE = 123_456_789_012, 987_654_321, 1_234_567
POSITIONS = st.sampled_from([0, 0, 0, 1, 5, -1, 10**9])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    more = draw(st.sampled_from(["", ',"queueOffset":"5"', ',"x":"\\"opaque\\":3"', ',"opaque":4']))
    data = bytearray(framed(header(draw(NUMBERS), draw(NUMBERS), draw(NUMBERS), more)))
    for at in draw(st.lists(st.integers(0, len(data) - 1), max_size=3)):
        data[at] = draw(st.integers(0, 255) | st.sampled_from(list(b'0123456789"{}[],:\\ -.e')))
    return bytes(data)


@st.composite
def binary_requests(draw: st.DrawFn) -> bytes:
    number = draw(st.integers(-(2**31), 2**31 - 1))
    data = bytearray(binary(draw(NUMBERS), draw(NUMBERS), number))
    for at in draw(st.lists(st.integers(0, len(data) - 1), max_size=3)):
        data[at] = draw(st.integers(0, 255))
    return bytes(data)


def numbers_of(frame: Frame) -> tuple[int, int, int] | None:
    try:
        fields = PullHeader.from_fields(frame.fields)
    except ProtocolError:
        return None
    return fields.queue_offset, fields.commit_offset, frame.opaque


@given(data=requests(), position=POSITIONS)
def test_a_key_and_its_numbers_are_the_whole_header(data: bytes, position: int) -> None:
    found = read_pull(data, position)
    if found is None or data[position + 4]:
        return
    end, key, *numbers = found
    assert end == position + 4 + int.from_bytes(data[position : position + 4])
    assert refill(key, *numbers) == data[position + 8 : end]


@given(data=requests())
def test_if_a_key_decodes_to_the_numbers_that_were_put_in_it_does_so_for_all(data: bytes) -> None:
    found = read_pull(data, 0)
    if found is None or data[4]:
        return
    end, key, *numbers = found
    try:
        frame = json_fields.decode(refill(key, *PROBE))
        is_pull = numbers_of(frame) == PROBE
    except ProtocolError:
        return
    if is_pull:
        assert numbers_of(json_fields.decode(data[8:end])) == tuple(numbers)


@given(data=binary_requests(), position=POSITIONS)
def test_what_is_read_of_a_binary_header_is_what_it_decodes_to(data: bytes, position: int) -> None:
    found = read_pull(data, position)
    if found is None or not data[position + 4]:
        return
    end, _, *numbers = found
    frame = binary_fields.decode(data[position + 8 : end])
    assert (frame.code, frame.remark) in ((11, None), (361, None))
    assert numbers_in(frame) == tuple(numbers)


# ---- replies


@pytest.fixture(params=HeaderEncoding)
def encoding(request: pytest.FixtureRequest) -> HeaderEncoding:
    """Every test that takes it writes replies with JSON and with binary headers."""
    found = request.param
    assert isinstance(found, HeaderEncoding)
    return found


def reader(data: bytes = BLOCK, start: int = START, most: int = 10**9) -> Read:
    """Blocks of at most so many bytes, but for records that are larger."""

    def read(place: int, least: int, wished: int) -> memoryview | None:
        assert least <= wished
        at = place - start
        if not 0 <= at <= len(data) - least:
            return None
        return memoryview(data)[at : at + max(least, most)]

    return read


def expected(
    encoding: HeaderEncoding,
    records: Sequence[bytes],
    next_offset: int,
    *,
    broker: int = 0,
    status: str = "FOUND",
    opaque: int = 9,
    ends: tuple[int, int] = (3, 100),
) -> bytes:
    """The frame that a handler would send."""
    code = ResponseCode.SUCCESS if records else ResponseCode.PULL_RETRY_IMMEDIATELY
    fields = PullReply(
        suggest_which_broker_id=broker, next_begin_offset=next_offset, min_offset=ends[0],
        max_offset=ends[1], topic_sys_flag=2, group_sys_flag=0,
    ).to_fields()  # fmt: skip
    return encode_frame(
        Frame(
            code=code, fields=fields, body=b"".join(records), remark=status, opaque=opaque,
            flag=FrameFlag.RESPONSE, encoding=encoding,
        )
    )  # fmt: skip


def replies_of(encoding: HeaderEncoding, **given: Any) -> PullReplies:
    return PullReplies(binary=encoding is BINARY, **SETTINGS | given)


def reply(
    encoding: HeaderEncoding, units: bytes = UNITS, read: Read | None = None, **given: Any
) -> Any:
    """The reply to request 9 for the messages from offset 50 on of a queue from 3 to 100."""
    replies = replies_of(encoding, **given)
    return replies.found(9, 50, 3, 100, START + len(BLOCK), units, read or reader())


@pytest.mark.parametrize("most", [10**9, 2 * SIZE, 1], ids=["one block", "some", "each its own"])
def test_the_records_of_the_units_go_into_one_frame(encoding: HeaderEncoding, most: int) -> None:
    frame, *facts = reply(encoding, read=reader(most=most))
    assert frame == expected(encoding, RECORDS, 55)
    assert facts == [55, 5, 5 * SIZE, SIZE, STORED + 4]


def test_the_store_time_of_a_record_with_an_ipv6_address_is_found(encoding: HeaderEncoding) -> None:
    data = record(DRAFT._replace(born_host=V6), 0, START, STORED)
    frame, *facts = reply(encoding, UNIT.pack(START, len(data), 0), reader(data))
    assert frame == expected(encoding, [data], 51)
    assert facts[-1] == STORED


@pytest.mark.parametrize("opaque", [0, -1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("number", [0, 2**40, 2**63 - 10])
def test_numbers_of_any_size_are_written(
    encoding: HeaderEncoding, opaque: int, number: int
) -> None:
    replies = replies_of(encoding, brokers=(number, 1))
    found = replies.found(opaque, number, 0, number, START, UNITS, reader())
    assert found is not None
    given: dict[str, Any] = {"opaque": opaque, "broker": number, "ends": (0, number)}
    assert found[0] == expected(encoding, RECORDS, number + 5, **given)


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        ({"max_count": 2}, 2),
        ({"max_size": 3 * SIZE}, 3),
        ({"max_size": 3 * SIZE - 1}, 2),
        ({"max_size": 1}, 1),
        ({"max_count": 1, "max_size": 0}, 1),
    ],
)
def test_a_reply_ends_at_its_limits(
    encoding: HeaderEncoding, limits: dict[str, Any], count: int
) -> None:
    frame, next_offset, *_ = reply(encoding, **limits)
    assert (frame, next_offset) == (expected(encoding, RECORDS[:count], 50 + count), 50 + count)


def test_who_is_far_behind_is_sent_to_another_broker(encoding: HeaderEncoding) -> None:
    frame = reply(encoding, max_count=1, brokers=(5, 6), far=4 * SIZE)[0]
    assert frame == expected(encoding, RECORDS[:1], 51, broker=6)
    frame = reply(encoding, max_count=1, brokers=(5, 6), far=5 * SIZE)[0]
    assert frame == expected(encoding, RECORDS[:1], 51, broker=5)
    frame = reply(encoding, max_count=1, brokers=(5, 6), far=2**70)[0]
    assert frame == expected(encoding, RECORDS[:1], 51, broker=5)


def test_units_whose_code_is_not_wanted_are_passed_over(encoding: HeaderEncoding) -> None:
    frame, next_offset, count, *_ = reply(encoding, codes={1, 3, 10**12})
    wanted = expected(encoding, [RECORDS[1], RECORDS[3]], 55)
    assert (frame, next_offset, count) == (wanted, 55, 2)
    frame, *facts = reply(encoding, codes={77})
    assert frame == expected(encoding, [], 55, status="NO_MATCHED_MESSAGE")
    assert facts == [55, 0, 0, 0, 0]
    found = reply(encoding, codes={0}, max_count=1)
    assert found[1] == 51, "the limit ends it before the next unit"


NUMBERED = [
    record(DRAFT._replace(properties=b"TAGS\x01TagA\x02   n\x01%5d\x02" % number), 0, START + at)
    for number, at in zip(range(5), range(0, 5 * SIZE, SIZE), strict=True)
]


def accepts_of(*texts: bytes) -> Callable[[bytes], bool]:
    def accepts(properties: bytes) -> bool:
        found = decode_properties(str(properties, "utf-8", "replace")).get("   n", "")
        return found.encode("utf-8", "replace") in texts

    return accepts


def sieve_of(*texts: bytes) -> Sieve:
    """Lets records of such numbers pass."""
    plan = sieves.IsListed(b"\x02   n\x01", frozenset(texts))
    return Sieve(plan, accepts_of(*texts))


def test_records_that_do_not_pass_the_sieve_are_passed_over(encoding: HeaderEncoding) -> None:
    read = reader(b"".join(NUMBERED))
    sieve = sieve_of(b"    1", b"    3", b"    4")
    frame, *facts = reply(encoding, read=read, sieve=sieve)
    assert frame == expected(encoding, [NUMBERED[1], *NUMBERED[3:]], 55)
    assert facts[:3] == [55, 3, 3 * SIZE]
    frame, next_offset, *_ = reply(
        encoding, read=read, sieve=sieve, codes={0, 1, 2, 3}, max_count=1
    )
    assert (frame, next_offset) == (expected(encoding, [NUMBERED[1]], 52), 52)
    frame, *facts = reply(encoding, read=read, sieve=sieve_of(b"    7"))
    assert frame == expected(encoding, [], 55, status="NO_MATCHED_MESSAGE")
    assert facts == [55, 0, 0, 0, 0]


def test_what_a_sieve_is_not_sure_of_is_for_the_handlers(encoding: HeaderEncoding) -> None:
    def fails(_: bytes) -> bool:
        raise ValueError

    assert reply(encoding, sieve=Sieve(sieves.Asked(fails), lambda _: True)) is None


@pytest.mark.parametrize(
    "odd",
    [
        (START + 2 * SIZE, SIZE - 1, 0),
        (START + 2 * SIZE + 1, SIZE, 0),
        (START + 5 * SIZE, SIZE, 0),
        (START - 1, SIZE, 0),
        (-1, SIZE, 0),
        (2**63 - 1, SIZE, 0),
        (START, 0x7FFF_FFFF, 0),
        (START, 0, 0),
        (START, -1, 0),
        (START, 90, 0),
    ],
)
def test_what_is_not_plain_is_for_the_handlers(
    encoding: HeaderEncoding, odd: tuple[int, ...]
) -> None:
    units = UNITS[: 2 * UNIT.size] + UNIT.pack(*odd) + UNITS[3 * UNIT.size :]
    assert reply(encoding, units) is None
    assert reply(encoding, b"") is None
    assert reply(encoding, read=lambda *_: memoryview(b"short")) is None


def test_codes_that_are_no_hashes_are_for_the_handlers_where_they_matter(
    encoding: HeaderEncoding,
) -> None:
    units = UNIT.pack(START, SIZE, -(2**40))
    assert reply(encoding, units, codes={1}) is None
    assert reply(encoding, units)[0] == expected(encoding, RECORDS[:1], 51)


def test_a_frame_that_would_be_too_large_is_for_the_handlers(encoding: HeaderEncoding) -> None:
    unit = UNITS[: UNIT.size]
    units = unit * (MAX_FRAME_SIZE // SIZE + 1)
    assert reply(encoding, units, max_count=10**6, max_size=10**9) is None


def test_what_the_reader_raises_is_raised_and_the_next_reply_is_whole(
    encoding: HeaderEncoding,
) -> None:
    read, places = reader(most=SIZE), []

    def fail(place: int, least: int, wished: int) -> memoryview | None:
        places.append(place)
        if len(places) == 3:
            raise KeyError(place)
        return read(place, least, wished)

    with pytest.raises(KeyError):
        reply(encoding, read=fail)
    with pytest.raises(TypeError):
        reply(encoding, units=None)  # type: ignore[arg-type]
    assert reply(encoding)[0] == expected(encoding, RECORDS, 55)


def test_a_reply_written_while_another_is_written_disturbs_neither(
    encoding: HeaderEncoding,
) -> None:
    inner = []

    def read(place: int, least: int, wished: int) -> memoryview | None:
        inner.append(reply(encoding, max_count=2)[0])
        return reader(most=SIZE)(place, least, wished)

    assert reply(encoding, read=read)[0] == expected(encoding, RECORDS, 55)
    assert inner == [expected(encoding, RECORDS[:2], 52)] * 5


def test_a_reply_without_messages_says_why(encoding: HeaderEncoding) -> None:
    frame = replies_of(encoding).empty((20, "NO_MATCHED_MESSAGE"), 9, 55, 3, 100)
    assert frame == expected(encoding, [], 55, status="NO_MATCHED_MESSAGE")


def test_a_remark_that_is_too_long_for_a_header_is_refused(encoding: HeaderEncoding) -> None:
    with pytest.raises(ValueError, match="too long"):
        replies_of(encoding).empty((20, "x" * 300), 9, 55, 3, 100)


# ---- whatever lies in queues and log


def record_of(read: Read, place: int, size: int) -> bytes | None:
    """The record that a unit names, if it is there."""
    block = read(place, size, size)
    if block is None:
        return None
    told, magic, own_place = RECORD_HEAD.unpack_from(block)
    is_sound = (told, own_place) == (size, place) and is_record_magic(magic)
    return bytes(block[:size]) if is_sound else None


def records_of(
    units: bytes,
    read: Read,
    limits: tuple[int, int],
    codes: frozenset[int] | None,
    accepts: Callable[[bytes], bool] | None,
) -> tuple[list[bytes], int] | None:
    """The records of a reply and how many units it passes; None where handlers must decide."""
    found: list[bytes] = []
    passed, (max_count, max_size) = 0, limits
    for at in range(0, len(units) - UNIT.size + 1, UNIT.size):
        place, size, code = UNIT.unpack_from(units, at)
        if not 91 <= size < MAX_FRAME_SIZE or place < 0:
            return None
        if found and (len(found) >= max_count or sum(map(len, found)) + size > max_size):
            break
        passed += 1
        if codes is not None and not -(2**31) <= code < 2**31:
            return None  # no hash of tags
        if codes is not None and code not in codes:
            continue
        data = record_of(read, place, size)
        if data is None:
            return None
        if accepts is None or accepts(property_bytes(data)):
            found.append(data)
    return (found, passed) if passed else None


def reply_of(  # noqa: PLR0917  as `PullReplies.found`
    encoding: HeaderEncoding,
    units: bytes,
    read: Read,
    log_end: int,
    limits: tuple[int, int],
    codes: frozenset[int] | None = None,
    accepts: Callable[[bytes], bool] | None = None,
) -> Any:
    """What `PullReplies.found` returns of units from offset 50 on, in plain Python."""
    taken = records_of(units, read, limits, codes, accepts)
    if taken is None:
        return None
    found, passed = taken
    if not found:
        frame = expected(encoding, [], 50 + passed, status="NO_MATCHED_MESSAGE")
        return frame, 50 + passed, 0, 0, 0, 0
    behind = max(log_end - RECORD_HEAD.unpack_from(found[-1])[2], 0)
    frame = expected(encoding, found, 50 + passed, broker=int(behind > SETTINGS["far"]))
    facts = len(found), sum(map(len, found)), behind, store_time(found[-1])
    return frame, 50 + passed, *facts


SPOILED = st.dictionaries(st.integers(0, 5 * SIZE - 1), st.integers(0, 255), max_size=3)
MOST = st.sampled_from([1, 2 * SIZE, 10**9])
ENCODINGS = st.sampled_from(HeaderEncoding)


def spoil(data: bytes, spoiled: dict[int, int]) -> bytes:
    changed = bytearray(data)
    for at, value in spoiled.items():
        changed[at] = value
    return bytes(changed)


@given(
    encoding=ENCODINGS,
    spoiled=SPOILED,
    numbers=st.frozensets(st.integers(0, 5), max_size=4),
    limits=st.tuples(st.integers(0, 5), st.integers(0, 6 * SIZE)),
    most=MOST,
)
def test_a_reply_through_a_sieve_is_the_one_in_plain_python_or_none(
    encoding: HeaderEncoding,
    spoiled: dict[int, int],
    numbers: frozenset[int],
    limits: tuple[int, int],
    most: int,
) -> None:
    read = reader(spoil(b"".join(NUMBERED), spoiled), START, most)
    texts = [b"%5d" % number for number in numbers]
    max_count, max_size = limits
    compiled = reply(
        encoding, read=read, max_count=max_count, max_size=max_size, sieve=sieve_of(*texts)
    )
    log_end = START + len(BLOCK)
    plain = reply_of(encoding, UNITS, read, log_end, limits, accepts=accepts_of(*texts))
    assert compiled == plain or (compiled is None and spoiled)


@given(
    encoding=ENCODINGS,
    units=st.lists(
        st.tuples(
            st.sampled_from(
                [*range(START, START + 5 * SIZE, SIZE), START - 1, START + 3, -1, 2**63 - 1]
            ),
            st.sampled_from([SIZE, SIZE, SIZE, SIZE, 0, 90, 91, -1, 2**31 - 1]),
            st.sampled_from([0, 1, 1, 2, -(2**31), 2**31, -(2**63)]),
        ),
        max_size=8,
    ),
    spoiled=SPOILED,
    tail=st.binary(max_size=19),
    limits=st.tuples(st.integers(-1, 9), st.integers(-1, 6 * SIZE)),
    codes=st.none() | st.frozensets(st.sampled_from([0, 1, -(2**31), 2**40]), max_size=3),
    most=MOST,
    log_end=st.sampled_from([0, START, START + 5 * SIZE, 2**63 - 1]),
)
def test_a_reply_is_the_one_in_plain_python(  # noqa: PLR0917  what hypothesis draws
    encoding: HeaderEncoding,
    units: list[tuple[int, int, int]],
    spoiled: dict[int, int],
    tail: bytes,
    limits: tuple[int, int],
    codes: frozenset[int] | None,
    most: int,
    log_end: int,
) -> None:
    packed = b"".join(UNIT.pack(*unit) for unit in units) + tail
    read = reader(spoil(BLOCK, spoiled), START, most)
    replies = replies_of(encoding, max_count=limits[0], max_size=limits[1], codes=codes)
    found = replies.found(9, 50, 3, 100, log_end, packed, read)
    assert found == reply_of(encoding, packed, read, log_end, limits, codes)
