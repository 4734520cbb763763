"""The compiled flow of pulls: what is read of a request, and what a reply says.

Replies are compared with the frame that a handler would send, and with `reply_of`, which finds the
records of units in plain Python. What plans do with it is for `test_pulls.py`.
"""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("bolide.broker.fast_path._pulls", reason="no compiled fast path")


from bolide.kernel import sieves
from bolide.protocol.codes import ResponseCode
from bolide.protocol.frame import Frame, FrameFlag
from bolide.protocol.framing import MAX_FRAME_SIZE, encode_frame
from bolide.protocol.headers.pull import PullReply
from bolide.protocol.property_string import decode_properties
from tests.unit.kernel.drafts import DRAFT, ENCODED, record

UNIT = struct.Struct(">qiq")
START = 4096
SIZE = len(ENCODED)
STORED = 1_700_000_000_123
RECORDS = [record(DRAFT, number, START + number * SIZE, STORED + number) for number in range(5)]
BLOCK = b"".join(RECORDS)
UNITS = b"".join(UNIT.pack(START + number * SIZE, SIZE, number) for number in range(5))
SETTINGS: dict[str, Any] = {
    "max_count": 32, "max_size": 10**6, "codes": None, "brokers": (0, 1), "far": 10**6,
    "sys_flags": (2, 0),
}  # fmt: skip


def header(offset: object = 3200, commit: object = -1, opaque: object = 7, more: str = "") -> bytes:
    return (
        (
            '{"code":11,"extFields":{"consumerGroup":"g","topic":"T","queueOffset":"%s","queueId":"0",'
            '"commitOffset":"%s"%s},"flag":0,"opaque":%s,"version":479}'
        )
        .__mod__((offset, commit, more, opaque))
        .encode()
    )


def framed(text: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


# ---- requests


def test_a_pull_is_read_where_it_lies_and_its_numbers_are_no_part_of_its_key(kernel: Any) -> None:
    first, second = framed(header(5, 4, 3)), framed(header(10**17, -1, -(2**31)))
    data = b"before" + first + second + b"behind"
    end, key, *numbers = kernel.read_plain_pull(data, 6)
    assert (end, numbers) == (6 + len(first), [5, 4, 3])
    assert kernel.read_plain_pull(data, end) == (end + len(second), key, 10**17, -1, -(2**31))
    assert key == header("", "", "")
    assert pulls.refill(key, 5, 4, 3) == header(5, 4, 3)


def test_requests_that_differ_in_anything_else_have_other_keys(kernel: Any) -> None:
    keys = {kernel.read_plain_pull(framed(header(more=more)), 0)[1] for more in ("", ',"a":"1"')}
    assert len(keys) == 2


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
def test_what_is_unusual_is_not_read(kernel: Any, text: bytes) -> None:
    assert kernel.read_plain_pull(framed(text), 0) is None


def test_what_is_not_whole_or_not_a_json_header_alone_is_not_read(kernel: Any) -> None:
    data = framed(header())
    assert all(kernel.read_plain_pull(data[:size], 0) is None for size in range(len(data)))
    assert kernel.read_plain_pull(data, len(data)) is None
    assert kernel.read_plain_pull(framed(header(), b"a body"), 0) is None
    assert kernel.read_plain_pull(data[:4] + b"\1" + data[5:], 0) is None, "the binary encoding"


# ---- answers


def reader(
    data: bytes = BLOCK, start: int = START, most: int = 10**9
) -> Callable[[int, int, int], memoryview | None]:
    """Blocks of at most so many bytes, but for records that are larger."""

    def read(place: int, least: int, wished: int) -> memoryview | None:
        assert least <= wished
        at = place - start
        if not 0 <= at <= len(data) - least:
            return None
        return memoryview(data)[at : at + max(least, most)]

    return read


def expected(
    records: list[bytes],
    next_offset: int,
    *,
    broker: int = 0,
    status: str = "FOUND",
    opaque: int = 9,
) -> bytes:
    code = ResponseCode.SUCCESS if records else ResponseCode.PULL_RETRY_IMMEDIATELY
    fields = PullReply(
        suggest_which_broker_id=broker, next_begin_offset=next_offset, min_offset=3,
        max_offset=100, topic_sys_flag=2, group_sys_flag=0,
    ).to_fields()  # fmt: skip
    return encode_frame(
        Frame(
            code=code, fields=fields, body=b"".join(records), remark=status, opaque=opaque,
            flag=FrameFlag.RESPONSE,
        )
    )  # fmt: skip


def answer(kernel: Any, units: bytes = UNITS, read: Any = None, **given: Any) -> Any:
    answers = kernel.PullAnswers(**SETTINGS | given)
    return answers.found(9, 50, 3, 100, START + len(BLOCK), units, read or reader())


@pytest.mark.parametrize("most", [10**9, 2 * SIZE, 1], ids=["one block", "some", "each its own"])
def test_the_records_of_the_units_go_into_one_frame(kernel: Any, most: int) -> None:
    frame, *facts = answer(kernel, read=reader(most=most))
    assert frame == expected(RECORDS, 55)
    assert facts == [55, 5, 5 * SIZE, SIZE, STORED + 4]


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
def test_an_answer_ends_at_its_limits(kernel: Any, limits: dict[str, Any], count: int) -> None:
    frame, next_offset, *_ = answer(kernel, **limits)
    assert (frame, next_offset) == (expected(RECORDS[:count], 50 + count), 50 + count)


def test_who_is_far_behind_is_sent_to_another_broker(kernel: Any) -> None:
    frame = answer(kernel, max_count=1, brokers=(5, 6), far=4 * SIZE)[0]
    assert frame == expected(RECORDS[:1], 51, broker=6)
    frame = answer(kernel, max_count=1, brokers=(5, 6), far=5 * SIZE)[0]
    assert frame == expected(RECORDS[:1], 51, broker=5)


def test_units_whose_code_is_not_wanted_are_passed_over(kernel: Any) -> None:
    frame, next_offset, count, *_ = answer(kernel, codes={1, 3, 10**12})
    assert (frame, next_offset, count) == (expected([RECORDS[1], RECORDS[3]], 55), 55, 2)
    frame, *facts = answer(kernel, codes={77})
    assert frame == expected([], 55, status="NO_MATCHED_MESSAGE")
    assert facts == [55, 0, 0, 0, 0]
    assert answer(kernel, codes={0}, max_count=1)[1] == 51, "the limit ends it before the next unit"


NUMBERED = [
    record(DRAFT._replace(properties=b"TAGS\x01TagA\x02   n\x01%5d\x02" % number), 0, START + at)
    for number, at in zip(range(5), range(0, 5 * SIZE, SIZE), strict=True)
]


def sieve_of(kernel: Any, *texts: bytes) -> Any:
    """Lets records of such numbers pass."""
    plan = sieves.IsListed(b"\x02   n\x01", frozenset(texts))
    made: Any = sieves if kernel is pulls else compiled_sieves()

    def accepts(properties: bytes) -> bool:
        found = decode_properties(str(properties, "utf-8", "replace")).get("   n", "")
        return found.encode("utf-8", "replace") in texts

    return made.Sieve(plan, accepts)


def compiled_sieves() -> Any:
    from bolide.kernel import _sieves

    return _sieves


def test_records_that_do_not_pass_the_sieve_are_passed_over(kernel: Any) -> None:
    read = reader(b"".join(NUMBERED))
    sieve = sieve_of(kernel, b"    1", b"    3", b"    4")
    frame, *facts = answer(kernel, read=read, sieve=sieve)
    assert frame == expected([NUMBERED[1], *NUMBERED[3:]], 55)
    assert facts[:3] == [55, 3, 3 * SIZE]
    frame, next_offset, *_ = answer(kernel, read=read, sieve=sieve, codes={0, 1, 2, 3}, max_count=1)
    assert (frame, next_offset) == (expected([NUMBERED[1]], 52), 52)
    frame, *facts = answer(kernel, read=read, sieve=sieve_of(kernel, b"    7"))
    assert frame == expected([], 55, status="NO_MATCHED_MESSAGE")
    assert facts == [55, 0, 0, 0, 0]


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_what_a_sieve_is_not_sure_of_is_for_the_ordinary_way() -> None:
    def fails(_: bytes) -> bool:
        raise ValueError

    sieve = compiled_sieves().Sieve(sieves.Asked(fails), lambda _: True)
    assert answer(module("compiled"), sieve=sieve) is None


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@given(
    spoiled=st.dictionaries(st.integers(0, 5 * SIZE - 1), st.integers(0, 255), max_size=3),
    numbers=st.frozensets(st.integers(0, 5), max_size=4),
    limits=st.tuples(st.integers(0, 5), st.integers(0, 6 * SIZE)),
    most=st.sampled_from([1, 2 * SIZE, 10**9]),
)
def test_the_compiled_answer_through_a_sieve_is_its_twins_or_none(
    spoiled: dict[int, int], numbers: frozenset[int], limits: tuple[int, int], most: int
) -> None:
    data = bytearray(b"".join(NUMBERED))
    for at, value in spoiled.items():
        data[at] = value
    read, texts = reader(bytes(data), START, most), [b"%5d" % number for number in numbers]
    limited: dict[str, Any] = {"read": read, "max_count": limits[0], "max_size": limits[1]}
    plain, compiled = (
        answer(kernel, sieve=sieve_of(kernel, *texts), **limited)
        for kernel in (pulls, module("compiled"))
    )
    assert compiled == plain or (compiled is None and spoiled)


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
def test_what_is_not_plain_is_for_the_ordinary_way(kernel: Any, odd: tuple[int, ...]) -> None:
    units = UNITS[: 2 * UNIT.size] + UNIT.pack(*odd) + UNITS[3 * UNIT.size :]
    assert answer(kernel, units) is None
    assert answer(kernel, b"") is None
    assert answer(kernel, read=lambda *_: memoryview(b"short")) is None


def test_codes_that_are_no_hashes_are_for_the_ordinary_way_where_they_matter(kernel: Any) -> None:
    units = UNIT.pack(START, SIZE, -(2**40))
    assert answer(kernel, units, codes={1}) is None
    assert answer(kernel, units)[0] == expected(RECORDS[:1], 51)


def test_a_frame_that_would_be_too_large_is_for_the_ordinary_way(kernel: Any) -> None:
    unit = UNITS[: UNIT.size]
    units = unit * (MAX_FRAME_SIZE // SIZE + 1)
    assert answer(kernel, units, max_count=10**6, max_size=10**9) is None


def test_what_the_reader_raises_is_raised_and_the_next_answer_is_whole(kernel: Any) -> None:
    read, places = reader(most=SIZE), []

    def fail(place: int, least: int, wished: int) -> memoryview | None:
        places.append(place)
        if len(places) == 3:
            raise KeyError(place)
        return read(place, least, wished)

    with pytest.raises(KeyError):
        answer(kernel, read=fail)
    assert answer(kernel)[0] == expected(RECORDS, 55)


def test_an_answer_made_while_another_is_made_disturbs_neither(kernel: Any) -> None:
    inner = []

    def read(place: int, least: int, wished: int) -> memoryview | None:
        inner.append(answer(kernel, max_count=2)[0])
        return reader(most=SIZE)(place, least, wished)

    assert answer(kernel, read=read)[0] == expected(RECORDS, 55)
    assert inner == [expected(RECORDS[:2], 52)] * 5


def test_an_answer_without_messages_says_why(kernel: Any) -> None:
    answers = kernel.PullAnswers(**SETTINGS)
    frame = answers.tell((20, "NO_MATCHED_MESSAGE"), 9, 55, 3, 100)
    assert frame == expected([], 55, status="NO_MATCHED_MESSAGE")
