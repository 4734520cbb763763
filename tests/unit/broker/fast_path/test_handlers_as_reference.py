"""The handlers are the reference of the fast path: whatever bytes arrive, replies are the same.

Two cores that are alike to the last bit get the same bytes in the same pieces, one with its fast
path and one without. What they write, in which order, and what lies in their logs is compared.
"""

import asyncio
import json
import logging
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bolide.broker.consume import long_polling as long_polling_module
from bolide.broker.fast_path.path import FastPath
from bolide.protocol.bodies.topics import TopicConfig, TopicFilterType
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import FrameFlag, HeaderEncoding
from bolide.protocol.framing import FrameDecoder, encode_frame
from bolide.remoting import connection as connection_module
from bolide.remoting.connection import Connection
from bolide.store.config import FlushMode
from tests.support.aio import until
from tests.support.broker import COMMIT, SUBSCRIBED, SUSPEND, pull_header, send_header
from tests.support.broker_core import BrokerCore
from tests.support.wire import request_bytes

T = TypeVar("T")
ID = "7F00000112345678ABCDEF0000010000"
NAMED = f"UNIQ_KEY\x01{ID}\x02"


def topics() -> list[TopicConfig]:
    return [
        TopicConfig(topic_name="Read", perm=4),
        TopicConfig(
            topic_name="Multi", topic_filter_type=TopicFilterType.MULTI_TAG, write_queue_nums=2
        ),
        TopicConfig(topic_name="Order", order=True, write_queue_nums=1, read_queue_nums=3),
        TopicConfig(topic_name="%RETRY%readers", write_queue_nums=1),
        TopicConfig(topic_name="%DLQ%readers", write_queue_nums=1),
        TopicConfig(topic_name="N" * 127),
    ]


# ---- streams of requests

INTERESTING: dict[str, list[Any]] = {
    "b": ["Read", "Multi", "Order", "%RETRY%readers", "%DLQ%readers", "None", "SCHEDULE_TOPIC_XXXX",
          "", "T T", "N" * 127, "Ü"],
    "c": ["TBW102", "T"],
    "e": ["-1", "0", "3", "4", "2147483647"],
    "f": ["1", "256", "769", "1792", "2", "4", "8", "12", "16", "48", "64", "128", "-1"],
    "g": ["0", "-1", "9223372036854775807"],
    "h": ["7", "-2147483648"],
    "i": [
        "", NAMED[:-1], f"TAGS\x01A\x02{NAMED}KEYS\x01k\x02", "TAGS\x01A\x02", NAMED * 2,
        f"{NAMED}DELAY\x011\x02", f"{NAMED}DELAY\x01-1\x02", f"{NAMED}CLUSTER\x01x\x02",
        f"{NAMED}MSG_REGION\x01x\x02", f"{NAMED}TRACE_ON\x01x\x02", f"{NAMED}POP_CK\x01x\x02",
        f"{NAMED}TRAN_MSG\x01true\x02", f"{NAMED}TIMER_DELAY_SEC\x015\x02", "XUNIQ_KEY\x01a\x02",
        f"{NAMED}_SYS_MSG_PRIORITY_\x012\x02", f"{NAMED}_SYS_MSG_PRIORITY_\x01x\x02",
        "UNIQ_KEY\x01\x02", 'UNIQ_KEY\x01"quoted"\x02', "UNIQ_KEY\x01ü\x02", f"{NAMED}Ü\x01ü\x02",
        f"junk{NAMED}", f"{NAMED}junk", f"{NAMED}\x01\x02\x02", "UNIQ_KEY\x01a\x01b\x02",
        "UNIQ_KEY", f"{NAMED[:-1]}\n", f"\x02{NAMED}", f"{NAMED}x\x01{'y' * 32_700}\x02",
        f"{NAMED}\ud800\x01x\x02",
    ],
    "j": ["1", "99"], "k": ["true"], "l": ["3"], "m": ["true"], "n": ["broker-a"],
    "code": [320, 10, 11, 9999, -1, "310"],
    "flag": [FrameFlag.ONE_WAY, FrameFlag.RESPONSE, 3, 4],
}  # fmt: skip
ODD = [
    None, True, False, 0, 1, 3, -1, 3.0, 1.5, 2**31, 2**63, -(2**63) - 1, "", " 1", "1 ", "01",
    "+1", "1_0", "-0", "1.0", "1e2", "true", "TRUE", "True", "yes", "0", "null", "x", "٣", [],
    {}, [1], {"x": 1}, "\ud800", 1e2, -0.0, 10**400,
]  # fmt: skip
"""What a peer may write in place of any value."""

TOP = ("code", "flag", "language", "opaque", "remark", "version", "extFields", "x")
FIELDS = tuple("abcdefghijklmnz")
CHANGES = [(key, value) for key, values in INTERESTING.items() for value in values]
ODD_CHANGES = [(key, value) for key in TOP + FIELDS for value in ODD]


class Raw(NamedTuple):
    """A send whose header is JSON of any kind."""

    top: dict[str, Any]
    fields: dict[str, Any]
    body: bytes = b"hello"
    ascii_only: bool = False
    binary: bool = False
    separators: tuple[str, str] = (",", ":")

    def header(self, opaque: int) -> bytes:
        header = {"code": 310, "opaque": opaque, "extFields": self.fields} | self.top
        text = json.dumps(header, ensure_ascii=self.ascii_only, separators=self.separators)
        return text.encode(errors="surrogatepass")

    def encode(self, opaque: int = 1) -> bytes:
        if not self.binary:
            return framed(self.header(opaque), self.body)
        numbers = {"code": 310, "flag": 0, "version": 399} | {
            key: value for key, value in self.top.items() if type(value) is int
        }
        header = struct.pack(
            ">HBHiIi", numbers["code"] % 2**16, 0, numbers["version"] % 2**16, opaque,
            numbers["flag"] % 2**32, 0,
        )  # fmt: skip
        fields = b"".join(map(binary_field, self.fields.items()))
        data = framed(header + struct.pack(">i", len(fields)) + fields, self.body)
        return data[:4] + b"\x01" + data[5:]

    def changed(self, *changes: tuple[str, Any]) -> "Raw":
        top, fields = dict(self.top), dict(self.fields)
        for key, value in changes:
            (top if key in TOP else fields)[key] = value
        return self._replace(top=top, fields=fields)

    def without(self, *keys: str) -> "Raw":
        kept = {key: value for key, value in self.fields.items() if key not in keys}
        return self._replace(fields=kept)


def binary_field(field: tuple[str, Any]) -> bytes:
    name, value = (str(part).encode(errors="surrogatepass") for part in field)
    return struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value


def framed(header: bytes, body: bytes) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


HEADER = send_header(properties=NAMED, queue_id=1, default_topic="None").to_short()
PLAIN = Raw({"flag": 0, "language": "JAVA", "version": 399}, dict(HEADER))


def batch_item(body: bytes, properties: str, flag: int) -> bytes:
    text = properties.encode()
    size = 20 + len(body) + 2 + len(text)
    return struct.pack(">I8xiI", size, flag, len(body)) + body + struct.pack(">h", len(text)) + text


def any_of(changes: list[T]) -> st.SearchStrategy[T]:
    """As `sampled_from`, which tells of all of them when it is asked what it is."""
    return st.integers(0, len(changes) - 1).map(lambda number: changes[number])


OPAQUES = st.integers(100, 200)
SENDS = st.builds(
    lambda changes, dropped, body, opaque, ascii_only, binary: (
        PLAIN._replace(body=body, ascii_only=ascii_only, binary=binary)
        .changed(*changes)
        .without(*dropped)
        .encode(opaque)
    ),
    st.lists(any_of(CHANGES) | any_of(ODD_CHANGES), max_size=3),
    st.sets(st.sampled_from(FIELDS), max_size=1) | st.just(set()),
    st.sampled_from([b"hello", b"x", b"", bytes(5000)]),
    OPAQUES,
    st.booleans(),
    st.booleans(),
)
PULLS = st.builds(
    lambda topic, offset, queue_id, sys_flag, tags, opaque: request_bytes(
        RequestCode.PULL_MESSAGE,
        pull_header(
            topic, offset, queue_id=queue_id, sys_flag=sys_flag, subscription=tags,
            suspend_timeout_millis=60_000, commit_offset=offset,
        ).to_fields(),
        opaque=opaque,
    ),
    st.sampled_from(["T", "T", "Order", "None"]),
    st.integers(-1, 4),
    st.integers(0, 4),
    st.sampled_from([SUBSCRIBED, SUBSCRIBED | SUSPEND, 0, COMMIT | SUBSCRIBED]),
    st.sampled_from(["*", "A", "||"]),
    OPAQUES,
)  # fmt: skip
LONG_NAMES = st.builds(
    lambda opaque, encoding: request_bytes(
        RequestCode.SEND_MESSAGE,
        send_header(properties=NAMED).to_fields(),
        opaque=opaque,
        body=b"hello",
        encoding=encoding,
    ),
    OPAQUES,
    st.sampled_from(HeaderEncoding),
)
ITEM_PROPERTIES = [
    "", NAMED, NAMED[:-1], f"{NAMED}TAGS\x01A\x02KEYS\x01a b\x02", "Ü\x01ü\x02", "junk",
    f"{NAMED}DELAY\x011\x02", f"{NAMED}_SYS_MSG_PRIORITY_\x011\x02",
    f"TAGS\x01ü\x02{NAMED}", f"{NAMED}x\x01{'y' * 32_600}\x02",
]  # fmt: skip
ITEMS = st.builds(
    batch_item,
    st.sampled_from([b"hello", b"", bytes(700)]),
    any_of(ITEM_PROPERTIES),
    st.sampled_from([0, 7, -1]),
)
BATCHES = st.builds(
    lambda items, changes, opaque, cut, binary: (
        PLAIN._replace(body=b"".join(items)[: -1 if cut else None], binary=binary)
        .changed(("code", 320), ("m", "true"), *changes)
        .encode(opaque)
    ),
    st.lists(ITEMS, max_size=4),
    st.lists(any_of(CHANGES), max_size=1),
    OPAQUES,
    st.sampled_from([False, False, False, True]),
    st.booleans(),
)
FRAMES = OPAQUES.map(PLAIN.encode) | SENDS | PULLS | LONG_NAMES | BATCHES

IN_TRANSACTION = f"TRAN_MSG\x01true\x02{NAMED}PGROUP\x01producers\x02"
HALF = PLAIN.changed(("i", IN_TRANSACTION), ("f", "4"))
END = Raw(
    {"code": 37, "flag": FrameFlag.ONE_WAY, "language": "JAVA", "version": 399},
    {
        "topic": "T", "producerGroup": "producers", "tranStateTableOffset": "0",
        "commitLogOffset": "0", "commitOrRollback": "8", "fromTransactionCheck": "false",
        "msgId": ID, "transactionId": ID, "bname": "broker-a",
    },
    b"",
)  # fmt: skip
HALF_SIZE, MESSAGE_SIZE, OP_SIZE = 330, 307, 157
"""Of the records of `HALF`, of the message that it becomes, and of what tells its end."""
PLACES = [
    halves * HALF_SIZE + messages * MESSAGE_SIZE + ops * OP_SIZE
    for halves, messages, ops in [(0, 0, 0), (1, 0, 0), (1, 0, 1), (1, 1, 1), (2, 0, 0), (2, 1, 1)]
]
HALF_PROPERTIES = [
    f"{NAMED}TRAN_MSG\x01true\x02", f"{NAMED}TRAN_MSG\x01true", f"{NAMED}TRAN_MSG\x01TRUE\x02",
    f"{NAMED}TRAN_MSG\x01false\x02", f"{NAMED}TRAN_MSG\x02", "TRAN_MSG\x01true\x02",
    *(
        f"{IN_TRANSACTION}{more}" for more in (
            "TAGS\x01A\x02KEYS\x01a b\x02", "TAGS\x01A\x02TAGS\x01B\x02", "DELAY\x011\x02",
            "TIMER_DELAY_SEC\x015\x02", "_SYS_MSG_PRIORITY_\x011\x02",
            "__STARTDELIVERTIME\x015\x02", "REAL_TOPIC\x01Order\x02",
            "REAL_QID\x013\x02", "__transactionId__\x01x\x02", "TRANSACTION_CHECK_TIMES\x013\x02",
            "TRAN_PREPARED_QUEUE_OFFSET\x017\x02", "CHECK_IMMUNITY_TIME_IN_SECONDS\x011\x02",
            "CLUSTER\x01x\x02", "BOLIDE_STATE\x018\x02", "POP_CK\x01x\x02", "DEDUP_KEY\x01k\x02",
            "Ü\x01ü\x02", "junk", "a\x01b\x01c\x02", "\x02", "a\x01\x02", "x\x01y",
            "UNIQ_KEYS\x01x\x02", "PGROUP\x01others\x02", f"x\x01{'y' * 32_500}\x02",
            "\t\x01\n\x02", "".join(f"p{number}\x01v\x02" for number in range(22)),
        )
    ),
]  # fmt: skip
HALVES = st.builds(
    lambda changes, opaque, binary: HALF._replace(binary=binary).changed(*changes).encode(opaque),
    st.lists(
        any_of([("i", text) for text in HALF_PROPERTIES])
        | any_of([change for change in CHANGES if change[0] != "i"]),
        max_size=2,
    ),
    OPAQUES,
    st.booleans(),
)
END_CHANGES = [
    *(("tranStateTableOffset", text) for text in ("1", "2", "-1", "x", "00", "9" * 25)),
    *(("commitLogOffset", text) for text in (*map(str, PLACES), "1", "-1", "x", "9" * 18)),
    *(("commitOrRollback", text) for text in ("12", "0", "4", "9", "x", "08")),
    *(("fromTransactionCheck", text) for text in ("true", "1", "x", "")),
    *(("producerGroup", text) for text in ("others", "", "Ü", "\n")),
    ("msgId", ""), ("topic", "Ü"), ("remark", "because"), ("z", "1"), ("flag", 3),
    ("flag", 0), ("flag", 0), ("flag", 0),
]  # fmt: skip
ENDS = st.builds(
    lambda place, number, state, changes, binary, body: (
        END._replace(binary=binary, body=body)
        .changed(("commitLogOffset", str(place)), ("tranStateTableOffset", str(number)))
        .changed(("commitOrRollback", state), *changes)
        .encode()
    ),
    st.sampled_from(PLACES),
    st.integers(0, 2),
    st.sampled_from(["8", "8", "12"]),
    st.lists(any_of(END_CHANGES), max_size=1),
    st.booleans(),
    st.sampled_from([b"", b"", b"body"]),
)
TRANSACTIONS = st.sampled_from([HALF.encode(), HALF._replace(binary=True).encode()]) | HALVES | ENDS


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A plain send with a few bytes changed, added or taken away; its lengths may be mended."""
    binary = draw(st.booleans())
    data = bytearray(PLAIN._replace(binary=binary).encode(draw(OPAQUES)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data) - 1))
        byte = draw(st.integers(0, 255) | st.sampled_from(list(b'0123456789"{}[],:\\ -.e')))
        end = at + draw(st.sampled_from([0, 1, 1, 2]))
        data[at:end] = bytes([byte]) * draw(st.sampled_from([0, 1, 1]))
    if draw(st.booleans()):
        size = len(data) - 8 - len(PLAIN.body)
        data[:8] = struct.pack(">II", max(len(data) - 4, 0), max(size, 0) | binary << 24)
    return bytes(data)


class Stream(NamedTuple):
    pieces: list[bytes]
    pauses: list[int]
    """Turns of the event loop after each piece."""


@st.composite
def streams(draw: st.DrawFn, frames: st.SearchStrategy[bytes] = FRAMES) -> Stream:
    data = b"".join(draw(st.lists(frames, min_size=1, max_size=6)))
    cuts = sorted(draw(st.sets(st.integers(0, len(data)), max_size=4)))
    ends = [*cuts, len(data)]
    pieces = [data[start:end] for start, end in zip([0, *cuts], ends, strict=True) if start < end]
    return Stream(pieces, draw(st.lists(st.sampled_from([0, 3]), min_size=6, max_size=6)))


# ---- the comparison


class Outcome(NamedTuple):
    written: bytes
    closed: bool
    log: list[tuple[int, bytes]]
    offsets: dict[int, int]
    open_halves: list[int]
    sent: tuple[int, int]


@pytest.fixture(autouse=True)
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a turn takes decides only when the loop gets to other things, not what happens."""
    for module in (connection_module, long_polling_module):
        monkeypatch.setattr(module, "_TURN", 60.0)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes the fast path served, each time."""
    sizes: list[int] = []
    serve = FastPath.serve

    def watched(
        path: FastPath, data: bytes, position: int, connection: Connection, until: float
    ) -> int:
        end = serve(path, data, position, connection, until)
        sizes.append(end - position)
        return end

    monkeypatch.setattr(FastPath, "serve", watched)
    return sizes


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What they log of all this is not compared."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


async def outcome_of(
    stream: Stream, directory: Path, mode: FlushMode, *, fast: bool, in_order: bool = True
) -> Outcome:
    random.seed(1)  # queues are chosen by chance
    core = BrokerCore(directory, *topics(), mode=mode)
    await core.transactions.queue.load()
    # The flow stops once to have a queue created, and a memory store shows it no older record.
    core.store.tail(b"T", 1)
    peer = core.connect(fast=fast)
    for piece, turns in zip(stream.pieces, stream.pauses, strict=False):
        peer.receive(piece)
        await turn(turns)
    await turn(20)
    if not in_order:
        await until(lambda: peer.connection.is_idle or peer.transport.is_closing())
    core.long_polling.stop()
    await turn(5)
    outcome = Outcome(
        peer.written if in_order else sorted_frames(peer.written),
        peer.transport.is_closing(),
        core.log,
        core.tables.offsets.of("readers", "T"),
        list(core.transactions.queue.open.between(0, 8)),
        core.statistics.totals[:2],
    )
    peer.connection.abort()
    await turn(2)
    await core.stop()
    return outcome


async def turn(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


def compare(
    stream: Stream, directory: Path, mode: FlushMode = FlushMode.ASYNC, *, in_order: bool = True
) -> Outcome:
    """Without order what threads may finish sooner or later is waited for and sorted."""

    async def both() -> list[Outcome]:
        return [
            await outcome_of(stream, directory, mode, fast=fast, in_order=in_order)
            for fast in (False, True)
        ]

    ordinary, quick = asyncio.run(both())
    assert quick == ordinary
    return quick


def sorted_frames(written: bytes) -> bytes:
    return b"".join(sorted(encode_frame(frame) for frame in FrameDecoder().feed(written)))


def whole(*frames: bytes) -> Stream:
    return Stream([b"".join(frames)], [0])


FUZZ = settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=250)


@FUZZ
@given(stream=streams())
def test_any_mix_of_requests_is_answered_alike(tmp_path: Path, stream: Stream) -> None:
    compare(stream, tmp_path)


@FUZZ
@given(stream=streams(mutated() | OPAQUES.map(PLAIN.encode)))
def test_damaged_requests_are_answered_alike(tmp_path: Path, stream: Stream) -> None:
    compare(stream, tmp_path)


@settings(FUZZ, max_examples=50)
@given(stream=streams())
def test_sends_that_wait_for_the_disk_are_answered_alike(tmp_path: Path, stream: Stream) -> None:
    compare(stream, tmp_path, FlushMode.SYNC)


@FUZZ
@given(stream=streams(TRANSACTIONS))
def test_transactions_begin_and_end_alike(tmp_path: Path, stream: Stream) -> None:
    compare(stream, tmp_path, in_order=False)


@settings(FUZZ, max_examples=50)
@given(stream=streams(TRANSACTIONS))
def test_transactions_that_wait_for_the_disk_begin_and_end_alike(
    tmp_path: Path, stream: Stream
) -> None:
    compare(stream, tmp_path, FlushMode.SYNC, in_order=False)


@pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary"])
@pytest.mark.parametrize(("state", "places"), [("8", 3), ("12", 2)], ids=["commit", "roll back"])
def test_transactions_are_served_by_the_fast_path(
    tmp_path: Path, served: list[int], state: str, places: int, *, binary: bool
) -> None:
    half = HALF._replace(binary=binary).encode()
    wish = END._replace(binary=binary).changed(("commitOrRollback", state))
    end, asks = wish.encode(), wish.changed(("flag", 0)).encode()
    assert len(FrameDecoder().feed(compare(whole(half, asks), tmp_path).written)) == 2
    assert served.pop() == len(half) + len(asks)
    outcome = compare(whole(half, end), tmp_path)
    assert served == [len(half) + len(end)]
    sizes = [len(record) for _, record in outcome.log]
    assert sizes == [
        HALF_SIZE,
        *([MESSAGE_SIZE] if state == "8" else []),
        OP_SIZE + (state == "12"),
    ]
    assert outcome.open_halves == [1, 2, 3, 4, 5, 6, 7]
    again = compare(whole(half, end, end, half), tmp_path)
    assert len(again.log) == places + 1, "a transaction ends once"


@settings(FUZZ, max_examples=100)
@given(stream=streams())
def test_requests_with_a_turn_for_each_are_answered_alike(tmp_path: Path, stream: Stream) -> None:
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(connection_module, "_TURN", -1.0)
        compare(stream, tmp_path)


@pytest.mark.parametrize("key", TOP + FIELDS)
def test_whatever_stands_in_a_field_is_taken_alike(tmp_path: Path, key: str) -> None:
    for value in ODD + INTERESTING.get(key, []):
        for raw in (PLAIN, PLAIN._replace(ascii_only=True)):
            frame = raw.changed((key, value)).encode()
            compare(whole(PLAIN.encode(2), frame, PLAIN.encode(3)), tmp_path)


BARE = [
    b"1e400", b"[1e400]", b"0.1e-400", b"1E5", b"00", b"-", b"nan", b"9" * 5000, b"9" * 400 + b".5",
    b'"\xff"', b'{"\xff":1}', b'"\xed\xa0\x80"', b'"\\ud800"', b'"\\u12"', b'"\x01"', b'"\\x"',
    b"{1:2}", b"[" * 600 + b"]" * 600, b"[" * 2000 + b"]" * 2000,
    b'{"a":' * 900 + b"1" + b"}" * 900,
]  # fmt: skip
"""Bytes that stand for a value where JSON is expected."""


@pytest.mark.parametrize("key", ["x", "language", "z", "i", "e"])
def test_whatever_bytes_stand_for_a_value_are_taken_alike(tmp_path: Path, key: str) -> None:
    header = PLAIN.changed((key, "@@")).header(1)
    for value in BARE:
        frame = framed(header.replace(b'"@@"', value), PLAIN.body)
        compare(whole(PLAIN.encode(2), frame, PLAIN.encode(3)), tmp_path)


@pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary"])
@pytest.mark.parametrize("mode", FlushMode)
def test_plain_sends_are_served_by_the_fast_path(
    tmp_path: Path,
    served: list[int],
    mode: FlushMode,
    monkeypatch: pytest.MonkeyPatch,
    *,
    binary: bool,
) -> None:
    """Or else all of this would compare the ordinary way with itself."""
    plain = PLAIN._replace(binary=binary).encode()
    assert len(compare(whole(plain * 3), tmp_path, mode).log) == 3
    assert served == [3 * len(plain)]
    monkeypatch.setattr(connection_module, "_TURN", -1.0)
    monkeypatch.setattr("bolide.broker.fast_path.sends._MAX_MESSAGES", 1)
    assert len(compare(whole(plain * 3), tmp_path, mode).log) == 3
    assert served[1:] == [len(plain)] * 3, "what waits for its turn does not lose its way"
