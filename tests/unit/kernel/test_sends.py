"""Plain sends from bytes to log: compiled and in plain Python they write and answer the same.

That the answers are those of the ordinary way is for `tests/unit/broker/test_fast_path_twin.py`.
"""

import json
import struct
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.kernel import Sends, Slot, Units, reference, sends, units
from bolide.kernel.results import Stop
from bolide.model.message import Message
from bolide.protocol.batch import encode_batch
from bolide.protocol.frame import Frame
from bolide.protocol.framing import FrameDecoder
from bolide.protocol.record import Record, iter_records, read_record

KINDS = {
    "compiled": (Sends, Slot, Units),
    "reference": (sends.Sends, sends.Slot, units.Units),
}
BOTH = pytest.mark.parametrize("kind", KINDS)
HOST = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])
DIGITS = "0A00000100002A9F"
ID = "7F00000112345678ABCDEF0000010000"
NAMED = f"UNIQ_KEY\x01{ID}\x02"
FIELDS = {
    "a": "g", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000",
    "h": "0", "i": NAMED, "j": "0", "k": "false", "m": "false", "n": "broker-a",
}  # fmt: skip
START, TIME = 5000, 1_700_000_000_123
HALVES, OPS = b"RMQ_SYS_TRANS_HALF_TOPIC", b"RMQ_SYS_TRANS_OP_HALF_TOPIC"


def frame(body: bytes = b"hello", code: int = 310, opaque: int = 7, **changed: Any) -> bytes:
    top = {"code": code, "extFields": FIELDS | changed, "flag": 0, "opaque": opaque}
    header = json.dumps(top, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def batch(*bodies: bytes, **changed: Any) -> bytes:
    messages = [Message("T", body, keys=f"k{n}", tags="A") for n, body in enumerate(bodies)]
    return frame(encode_batch(messages), 320, **{"m": "true"} | changed)


def half(properties: str = "", **changed: Any) -> bytes:
    return frame(**{"i": f"TRAN_MSG\x01true\x02{NAMED}{properties}", "f": "4"} | changed)


def end_of(place: int = START, number: int = 0, state: int = 8, **changed: Any) -> bytes:
    fields = {
        "producerGroup": "g", "tranStateTableOffset": str(number), "commitLogOffset": str(place),
        "commitOrRollback": str(state), "msgId": ID,
    }  # fmt: skip
    header = {"code": 37, "extFields": fields | changed, "flag": 2, "opaque": 7}
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(text), len(text)) + text


class Taken(NamedTuple):
    end: int
    answers: bytes
    log: bytes
    messages: int
    keys: bytes
    touched: list[tuple[str, int, int, bytes]]
    ended: list[tuple[int, int, int]]


def take(kind: str, data: bytes, position: int = 0, room: int = 4000, **how: Any) -> Taken:
    make, slot, hold = KINDS[kind]
    table: dict[tuple[bytes, int], Any] = {}
    kernel = make(HOST, DIGITS, lambda *key: table.setdefault(key, hold()))
    kernel.configure(
        suffix=b"MSG_REGION\x01here\x02", region="here", trace_on="true", max_body=600, max_batch=3
    )
    kernel.slots = {b"T": slot(b"T", 4, how.get("has_window", False)), b"Z": slot(b"Z", 1, False)}
    opened = set(how.get("opened", range(10)))

    def claim(number: int) -> bool:
        is_open = number in opened
        opened.discard(number)
        return is_open

    kernel.open_transactions(slot(HALVES, 1, False), slot(OPS, 1, False), claim)
    kernel.takes_halves = how.get("takes_halves", True)
    kernel.readable_from = how.get("readable_from", START)
    target, keys = bytearray(b"\xaa" * 100 + bytes(room) + b"\xaa" * 100), bytearray()
    end, answers, written, count = kernel.take(
        data, position, how.get("longest", 10**6), how.get("most", 100), how.get("born", HOST),
        target, 100, room, START, TIME, keys,
    )  # fmt: skip
    assert not any(target[100 + written : 100 + room]), "nothing is left of what was not taken"
    assert target[:100] + target[100 + room :] == b"\xaa" * 200, "nothing is written elsewhere"
    touched = [
        (topic, queue_id, held.take_fresh()[0], bytes(held.take(0, 1000)))
        for topic, queue_id, held in kernel.take_touched()
    ]
    assert len(kernel.changed) == len(touched)
    ended = list(kernel.take_ended())
    log = bytes(target[100 : 100 + written])
    return Taken(end, answers, log, count, bytes(keys), touched, ended)


def taken_by_both(data: bytes, position: int = 0, **how: Any) -> Taken:
    one, other = (take(kind, data, position, **how) for kind in KINDS)
    assert one == other
    return one


def test_a_send_is_written_noted_and_answered() -> None:
    taken = taken_by_both(
        b"before" + frame(b"x" * 200, i=f"TAGS\x01A\x02{NAMED}KEYS\x01a b\x02"), 6
    )
    record = read_record(taken.log, check_crc=True)
    assert isinstance(record, Record)
    assert (record.physical_offset, record.queue_offset, record.topic) == (START, 0, "T")
    assert bytes(record.properties).endswith(b"KEYS\x01a b\x02MSG_REGION\x01here\x02")
    scan = reference.scan(taken.log, 0, len(taken.log), START)
    assert (scan.stop, scan.count, scan.keys) == (Stop.END, 1, taken.keys)
    assert [("T", 1, 1, scan.runs[0].entries)] == taken.touched
    answer = json.loads(taken.answers[8:])
    assert answer["extFields"] == {
        "msgId": f"{DIGITS}{START:016X}", "queueId": "1", "queueOffset": "0",
        "transactionId": ID, "MSG_REGION": "here", "TRACE_ON": "true",
    }  # fmt: skip
    assert (answer["code"], answer["opaque"], answer["flag"]) == (0, 7, 1)


def test_a_batch_is_taken_whole_and_its_messages_share_what_the_batch_has() -> None:
    data = batch(b"one", b"two", b"three", i=f"{NAMED}WAIT\x01true\x02")
    taken = taken_by_both(data + frame())
    scan = reference.scan(taken.log, 0, len(taken.log), START)
    assert (scan.count, scan.keys, taken.messages) == (4, taken.keys, 4)
    assert [run.entries for run in scan.runs] == [taken.touched[0][3]]
    assert taken.log.count(b"WAIT\x01true\x02MSG_REGION\x01here\x02") == 3
    answer = json.loads(taken.answers[8 : 4 + int.from_bytes(taken.answers[:4])])
    ids = answer["extFields"]["msgId"].split(",")
    assert (len(ids), int(ids[0][16:], 16)) == (3, START)
    assert "transactionId" not in answer["extFields"]


def records_of(taken: Taken) -> list[Record]:
    return list(iter_records(taken.log, check_crc=True))


def test_a_half_message_waits_with_where_it_belongs() -> None:
    taken = taken_by_both(half("TAGS\x01A\x02KEYS\x01k"))
    (record,) = records_of(taken)
    assert (record.topic.encode(), record.queue_id, record.sys_flag) == (HALVES, 0, 0)
    assert bytes(record.properties).decode() == (
        f"TRAN_MSG\x01true\x02{NAMED}TAGS\x01A\x02KEYS\x01k\x02MSG_REGION\x01here\x02"
        f"__transactionId__\x01{ID}\x02PGROUP\x01g\x02REAL_TOPIC\x01T\x02REAL_QID\x011\x02"
    )
    scan = reference.scan(taken.log, 0, len(taken.log), START)
    assert (scan.keys, scan.runs[0].entries) == (taken.keys, taken.touched[0][3])
    assert json.loads(taken.answers[8:])["extFields"]["queueId"] == "1"


def test_a_committed_half_message_goes_where_it_belongs_and_is_done_with() -> None:
    taken = taken_by_both(half(h="9") + end_of())
    first, message, op = records_of(taken)
    assert (message.topic, message.queue_id, message.flag, message.sys_flag) == ("T", 1, 9, 8)
    assert message.prepared_transaction_offset == START
    assert (bytes(message.body), message.properties) == (b"hello", first.properties)
    assert (op.topic.encode(), bytes(op.body)) == (OPS, b"0")
    assert bytes(op.properties) == b"TAGS\x01d\x02BOLIDE_STATE\x018\x02BOLIDE_ORIGIN\x010\x02"
    assert (taken.messages, taken.ended) == (3, [(0, 8, 0)])
    scan = reference.scan(taken.log, 0, len(taken.log), START)
    assert (scan.stop, scan.keys) == (Stop.END, taken.keys)
    assert [run.entries for run in scan.runs] == [entries for *_, entries in taken.touched]


def test_of_a_half_message_that_is_rolled_back_only_that_is_written() -> None:
    taken = taken_by_both(half() + end_of(state=12))
    assert [record.topic.encode() for record in records_of(taken)] == [HALVES, OPS]
    assert (taken.messages, taken.ended) == (2, [(0, 12, 0)])


LEFT_HALVES: dict[str, tuple[bytes, dict[str, Any]]] = {
    "where transactions are refused": (half(), {"takes_halves": False}),
    "a half that asks for more": (half("DELAY\x011\x02"), {}),
    "a half that says where it belongs": (half("REAL_TOPIC\x01Z\x02"), {}),
    "a half with a name twice": (half("a\x01b\x02a\x01b\x02"), {}),
    "a half with a key where repeats are found": (half("DEDUP_KEY\x01k\x02"), {"has_window": True}),
    "the mark of a half without its property": (frame(f="4"), {}),
    "a batch of halves": (batch(b"1", i="TRAN_MSG\x01true\x02"), {}),
}


@pytest.mark.parametrize("name", LEFT_HALVES)
def test_half_messages_that_are_not_for_it_are_left(name: str) -> None:
    data, how = LEFT_HALVES[name]
    assert taken_by_both(frame() + data + frame(), **how).end == len(frame())


LEFT_ENDS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "an answer": (end_of().replace(b'"flag":2', b'"flag":3'), {}),
    "one with a remark": (end_of().replace(b'"opaque"', b'"remark":"x","opaque"'), {}),
    "one that cannot tell": (end_of(state=0), {}),
    "another place": (end_of(START + 1), {}),
    "a place before all": (end_of(0), {}),
    "a place that may be on the disk": (end_of(), {"readable_from": START + 1}),
    "a place behind the end": (end_of(START + 3000), {}),
    "a message that is no half": (end_of(START + 330), {}),
    "another number": (end_of(number=1), {}),
    "another group": (end_of(producerGroup="h"), {}),
    "without a group": (end_of(producerGroup=""), {}),
    "a transaction that has ended": (end_of(), {"opened": ()}),
    "no number": (end_of(tranStateTableOffset="x"), {}),
}


@pytest.mark.parametrize("name", LEFT_ENDS)
def test_ends_that_are_not_for_it_are_left_without_a_trace(name: str) -> None:
    data, how = LEFT_ENDS[name]
    taken = taken_by_both(half() + data + frame(), **how)
    assert (taken.end, taken.messages, taken.ended) == (len(half()), 1, [])


def test_a_half_that_says_how_long_its_producer_may_take_is_left() -> None:
    data = half("CHECK_IMMUNITY_TIME_IN_SECONDS\x019\x02")
    assert taken_by_both(data + end_of()).end == len(data)


def test_an_end_that_wants_an_answer_gets_one() -> None:
    taken = taken_by_both(half() + end_of().replace(b'"flag":2', b'"flag":0'))
    assert taken.messages == 3
    _, answer = FrameDecoder().feed(taken.answers)
    assert answer == Frame(flag=1, opaque=7)


def test_a_transaction_ends_once() -> None:
    assert taken_by_both(half() + end_of() + end_of()).end == len(half() + end_of())


def test_an_end_for_which_there_is_no_room_is_left_whole() -> None:
    data = half() + end_of()
    size = len(taken_by_both(data).log)
    assert taken_by_both(data, room=size).messages == 3
    assert taken_by_both(data, room=size - 1).messages == 1
    assert taken_by_both(data, longest=len(half())).messages == 3
    assert taken_by_both(half() + end_of(topic="x" * 600), longest=len(half())).messages == 1


LEFT = {
    "an unknown topic": frame(b="U"),
    "a queue too many": frame(e="4"),
    "any queue": frame(e="-1"),
    "a body over the limit": frame(b"x" * 601),
    "too many properties": frame(i=f"{NAMED}x\x01{'y' * 32_700}\x02"),
    "a batch of too many": batch(b"1", b"2", b"3", b"4"),
    "a batch cut off": frame(encode_batch([Message("T", b"1")])[:-1], 320, m="true"),
    "a batch of which one asks": frame(
        encode_batch([Message("T", b"1"), Message("T", b"2", delay_level=3)]), 320, m="true"
    ),
    "a batch without messages": frame(b"", 320, m="true"),
    "another request": frame(code=11),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_for_it_ends_it_and_leaves_no_trace(name: str) -> None:
    good = frame()
    taken = taken_by_both(good + LEFT[name] + good)
    assert (taken.end, taken.messages) == (len(good), 1)


def test_part_of_a_frame_is_left() -> None:
    assert taken_by_both(frame() + frame()[:-1]).end == len(frame())


def test_what_does_not_fit_is_left() -> None:
    size = len(taken_by_both(frame()).log)
    assert taken_by_both(frame() * 3, room=2 * size).messages == 2
    assert taken_by_both(frame() * 3, room=2 * size - 1).messages == 1
    whole = len(taken_by_both(batch(b"1", b"2")).log)
    assert taken_by_both(batch(b"1", b"2"), room=whole - 1).messages == 0


def test_it_stops_when_it_has_enough() -> None:
    assert taken_by_both(frame() * 5, most=2).end == 2 * len(frame())
    assert taken_by_both(frame() * 2, longest=len(frame()) - 1).messages == 0


def test_where_repeats_are_found_what_has_a_key_is_left() -> None:
    keyed = frame(i=f"{NAMED}DEDUP_KEY\x01k\x02")
    assert taken_by_both(keyed).messages == 1
    assert taken_by_both(keyed, has_window=True).messages == 0
    assert taken_by_both(batch(b"1"), has_window=True).messages == 0


def test_one_way_sends_are_stored_without_an_answer() -> None:
    data = frame().replace(b'"flag":0', b'"flag":2')
    taken = taken_by_both(data)
    assert (taken.messages, taken.answers) == (1, b"")


@BOTH
def test_a_queue_that_is_gone_is_looked_up_again(kind: str) -> None:
    make, slot, hold = KINDS[kind]
    made: list[Any] = []

    def find(*_: Any) -> Any:
        made.append(hold())
        return made[-1]

    kernel = make(HOST, DIGITS, find)
    kernel.configure(suffix=b"", region="r", trace_on="true", max_body=600, max_batch=3)
    kernel.slots = {b"T": slot(b"T", 4, False)}
    for expected in (1, 1, 2):
        kernel.take(frame(), 0, 10**6, 10, HOST, bytearray(1000), 0, 1000, 0, TIME, None)
        assert len(made) == expected
        made[0].is_closed = expected == 1 and made[0].end == 2


@BOTH
def test_a_target_without_the_room_it_is_said_to_have_is_refused(kind: str) -> None:
    make, _, hold = KINDS[kind]
    kernel = make(HOST, DIGITS, lambda *_: hold())
    for at, room in ((0, 11), (11, 0), (-1, 1), (0, -1)):
        with pytest.raises(ValueError, match="of 10"):
            kernel.take(frame(), 0, 10**6, 10, HOST, bytearray(10), at, room, 0, TIME, None)


TEXTS = st.sampled_from(
    ["0", "1", "-1", "00", "", "3", "2147483648", "true", "ü", "\\u0031", 'x"', "\n"]
)
PROPERTIES = st.lists(
    st.sampled_from([NAMED, "TAGS\x01A\x02", "KEYS\x01k1 k2\x02", "x\x01y\x02", "\x02", "\x01",
                     "junk", "WAIT\x01true", "DELAY\x011\x02", "UNIQ_KEY\x01a-b\x02", "\t/\\"]),
    max_size=4,
).map("".join)  # fmt: skip
SENDS = st.one_of(
    st.just(frame()),
    st.builds(lambda i: frame(i=NAMED + i), PROPERTIES),
    st.builds(lambda i: frame(i=i), PROPERTIES),
    st.builds(
        lambda key, text: frame(**{key: text}), st.sampled_from(list("abcdefghijklmnz")), TEXTS
    ),
    st.builds(
        lambda bodies, i: batch(*bodies, i=i),
        st.lists(st.binary(max_size=50), max_size=4),
        PROPERTIES,
    ),
    st.builds(half, PROPERTIES),
    st.builds(
        end_of,
        st.sampled_from([START, START, START + 1, START + 276]),
        st.integers(0, 1),
        st.sampled_from([8, 12]),
    ).map(lambda data: data.replace(b'"flag":2', b'"flag":0')),
)


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(SENDS))
    for _ in range(draw(st.integers(0, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@given(frames=st.lists(SENDS | spoilt(), max_size=5), room=st.integers(0, 3000))
def test_whatever_comes_the_kernel_takes_nothing_that_its_reference_would_not(
    frames: list[bytes], room: int
) -> None:
    """And what it takes it writes and answers as that does; it may leave more."""
    data = b"".join(frames)
    compiled = take("compiled", data, room=room)
    limited = take("reference", data[: compiled.end], room=room)
    assert limited == compiled
