"""The compiled flow of sends: it stores and replies what the handlers would, or falls through.

Every run is compared with `send_replay`, which serves the same requests with the ordinary codecs.
That a whole broker replies alike with and without it is for `test_handlers_as_reference.py`.
"""

import json
import struct
import subprocess
import sys
from collections.abc import Collection
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("bolide.broker.fast_path._sends", reason="no compiled fast path")


from bolide.broker.fast_path._sends import (
    SPELLED_NAMES,
    SendFlow,
    SendPlans,
    SendTarget,
    find_ends,
)
from bolide.broker.fast_path.fall_through import FallThrough
from bolide.broker.fast_path.sends import _binary_reply_parts, _json_reply_parts
from bolide.broker.transactions.half_messages import OP_TAG, ORIGIN, STATE
from bolide.kernel import records
from bolide.kernel._units import Units
from bolide.kernel.results import Stop
from bolide.model.message import Host, Message
from bolide.model.names import HALF_TOPIC, OP_HALF_TOPIC
from bolide.model.properties import (
    INTERPRETED_PREFIXES,
    SET_ON_HALVES_PREFIXES,
    SPECIAL_HALF_PREFIXES,
    PropertyName,
)
from bolide.protocol.batch import encode_batch, encode_item
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame, FrameFlag, HeaderEncoding
from bolide.protocol.framing import FrameDecoder, encode_frame
from bolide.protocol.hosts import pack_host
from bolide.protocol.record import Record, iter_records, read_record
from bolide.protocol.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from bolide.store.appending import AppendRoom
from tests.unit.broker.fast_path.send_replay import Replay, Touched

HOST = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])
HOST_V6 = pack_host(Host("2001:db8::1", 10911))
DIGITS = "0A00000100002A9F"
ID = "7F00000112345678ABCDEF0000010000"
NAMED = f"UNIQ_KEY\x01{ID}\x02"
SUFFIX = "MSG_REGION\x01here\x02"
REPLY_FIELDS = {"MSG_REGION": "here", "TRACE_ON": "true"}
FIELDS = {
    "a": "g", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000",
    "h": "0", "i": NAMED, "j": "0", "k": "false", "m": "false", "n": "broker-a",
}  # fmt: skip
START, TIME = 5000, 1_700_000_000_123
MARGIN = 100
HALVES, OPS = HALF_TOPIC.encode(), OP_HALF_TOPIC.encode()
KINDS = ("singles", "batches", "halves")
JSON, BINARY = HeaderEncoding
Fall = FallThrough


# ---- requests


def frame(
    body: bytes = b"hello",
    code: int = 310,
    *,
    opaque: int = 7,
    flag: int = 0,
    encoding: HeaderEncoding = JSON,
    **changed: str,
) -> bytes:
    """A send to queue 1 of topic T."""
    fields = {name: text for name, text in (FIELDS | changed).items() if text or not encoding}
    if encoding is BINARY:
        whole = Frame(
            code=code, fields=fields, opaque=opaque, flag=flag, body=body, encoding=encoding
        )
        return encode_frame(whole)
    return framed({"code": code, "extFields": fields, "flag": flag, "opaque": opaque}, body)


def framed(top: dict[str, Any], body: bytes = b"") -> bytes:
    header = json.dumps(top, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def batch(*bodies: bytes, **changed: Any) -> bytes:
    messages = [Message("T", body, keys=f"k{n}", tags="A") for n, body in enumerate(bodies)]
    return frame(encode_batch(messages), 320, **{"m": "true"} | changed)


def half(properties: str = "", **changed: Any) -> bytes:
    return frame(**{"i": f"TRAN_MSG\x01true\x02{NAMED}{properties}", "f": "4"} | changed)


def end_of(
    place: int = START,
    number: int = 0,
    state: int = 8,
    *,
    flag: int = FrameFlag.ONE_WAY,
    encoding: HeaderEncoding = JSON,
    **changed: str,
) -> bytes:
    """An END_TRANSACTION, which commits the half message at the start of the log."""
    fields = {
        "producerGroup": "g", "tranStateTableOffset": str(number), "commitLogOffset": str(place),
        "commitOrRollback": str(state), "msgId": ID,
    } | changed  # fmt: skip
    if encoding is BINARY:
        whole = Frame(code=37, fields=fields, flag=flag, opaque=7, encoding=encoding)
        return encode_frame(whole)
    return framed({"code": 37, "extFields": fields, "flag": flag, "opaque": 7})


def binary(data: bytes) -> bytes:
    """The same frames with binary headers."""
    frames = FrameDecoder().feed(data)
    for each in frames:
        each.encoding = BINARY
    return b"".join(map(encode_frame, frames))


# ---- running


class Served(NamedTuple):
    """What a run did."""

    end: int
    replies: bytes
    log: bytes
    messages: int
    reason: FallThrough
    keys: bytes
    touched: list[Touched]
    ended: list[tuple[int, int, int]]

    @property
    def records(self) -> list[Record]:
        return list(iter_records(self.log, check_crc=True))

    @property
    def frames(self) -> list[Frame]:
        return FrameDecoder().feed(self.replies)


def target_of(
    topic: bytes, queues: int, has_window: bool = False, *, is_open: bool = True
) -> SendTarget:
    target = SendTarget(topic, queues, has_window)
    for queue_id in range(queues if is_open else 0):
        target.open_queue(queue_id, Units())
    return target


class Scene:
    """A sender with plans for all kinds of sends to the topics T and Z, and a log to write to."""

    def __init__(
        self,
        *,
        room: int = 4000,
        has_window: bool = False,
        kinds: Collection[str] = KINDS,
        groups: Collection[bytes] = (b"g",),
        claimed: Collection[int] | None = range(10),
        readable_from: int = START,
        born_host: bytes = HOST,
        store_host: bytes = HOST,
        max_body: int = 600,
        keys: bool = True,
    ) -> None:
        halves, ops = target_of(HALVES, 1), target_of(OPS, 1)
        self.flow = SendFlow(store_host, DIGITS, halves, ops)
        configure(self.flow, max_body)
        self.topic = target_of(b"T", 4, has_window)
        self.plans = SendPlans()
        for target in (self.topic, target_of(b"Z", 1)):
            for kind in kinds:
                getattr(self.plans, kind)[target.topic] = target
        for group in groups:
            self.plans.ends.update((group, group + b"\0T"))
        self.claimed = None if claimed is None else set(claimed)
        self.born_host = born_host
        self.target = bytearray(b"\xaa" * MARGIN + bytes(room) + b"\xaa" * MARGIN)
        self.room = room_in(self.target, room)
        self.room.readable_from = readable_from
        self.room.keys = bytearray() if keys else None
        self.replay = Replay(
            start=START, timestamp=TIME, suffix=SUFFIX, born_host=born_host,
            store_host=store_host, host_digits=DIGITS, region="here",
        )  # fmt: skip

    def run(
        self, data: bytes, position: int = 0, *, max_frame: int = 10**6, max_messages: int = 100
    ) -> Served:
        """Serve, compare with the handlers, and stand behind what was written."""
        room, flow, size = self.room, self.flow, len(self.target) - MARGIN
        before, keys_before = room.at, len(room.keys or b"")
        end, replies, written, count, reason = flow.run(
            data, position, max_frame, max_messages, self.born_host, self.plans, self.claimed, room
        )
        assert not any(self.target[before + written : size]), "only what was served is written"
        assert self.target[:MARGIN] + self.target[size:] == b"\xaa" * 2 * MARGIN
        touched = [
            (topic, queue_id, tail.take_fresh()[0], bytes(tail.take(0, 1000)))
            for topic, queue_id, tail in flow.drain_touched()
            if tail.fresh or reason != Fall.ERROR
        ]
        for changed in flow.drain_changed():
            assert changed.is_changed
        drained = list(flow.drain_ended())
        assert all(topic and born > 0 for *_, topic, born in drained)
        ended = [(half, state, op) for half, state, op, _, _ in drained]
        room.at, room.size = before + written, room.size - written
        room.physical_offset += written
        self.replay.serve(data[position:end])
        assert self.target[MARGIN : room.at] == self.replay.log
        assert (replies, count, touched, ended) == self.replay.drain()
        assert room.keys is None or room.keys == self.replay.keys
        assert flow.last_record == self.replay.last_record
        log, keys = bytes(self.target[before : room.at]), bytes((room.keys or b"")[keys_before:])
        return Served(end, replies, log, count, Fall(reason), keys, touched, ended)


def configure(flow: SendFlow, max_body: int = 600) -> None:
    reply_fields, reply_end = _json_reply_parts(REPLY_FIELDS)
    binary_head, binary_fields = _binary_reply_parts(REPLY_FIELDS)
    flow.configure(
        suffix=SUFFIX.encode(), reply_fields=reply_fields, reply_end=reply_end,
        binary_head=binary_head, binary_fields=binary_fields, max_body=max_body, max_batch=3,
    )  # fmt: skip


def room_in(target: bytearray, size: int) -> AppendRoom:
    room = AppendRoom()
    room.target, room.at, room.size = target, MARGIN, size
    room.physical_offset = room.readable_from = START
    room.timestamp, room.keys = TIME, bytearray()
    return room


def serve(
    data: bytes, position: int = 0, max_frame: int = 10**6, max_messages: int = 100, **how: Any
) -> Served:
    return Scene(**how).run(data, position, max_frame=max_frame, max_messages=max_messages)


def scan_of(served: Served) -> Any:
    return records.scan(served.log, 0, len(served.log), START)


# ---- single messages and batches


def test_a_send_is_written_noted_and_answered() -> None:
    served = serve(b"before" + frame(b"x" * 200, i=f"TAGS\x01A\x02{NAMED}KEYS\x01a b\x02"), 6)
    record = read_record(served.log, check_crc=True)
    assert isinstance(record, Record)
    assert (record.physical_offset, record.queue_offset, record.topic) == (START, 0, "T")
    assert bytes(record.properties).endswith(b"KEYS\x01a b\x02MSG_REGION\x01here\x02")
    scan = scan_of(served)
    assert (scan.stop, scan.count, scan.keys) == (Stop.END, 1, served.keys)
    assert [("T", 1, 1, scan.runs[0].entries)] == served.touched
    reply = json.loads(served.replies[8:])
    assert reply["extFields"] == {
        "msgId": f"{DIGITS}{START:016X}", "queueId": "1", "queueOffset": "0",
        "transactionId": ID, "MSG_REGION": "here", "TRACE_ON": "true",
    }  # fmt: skip
    assert (reply["code"], reply["opaque"], reply["flag"]) == (0, 7, 1)


@pytest.mark.parametrize("encoding", HeaderEncoding)
def test_all_fields_of_a_send_reach_its_record(encoding: HeaderEncoding) -> None:
    data = frame(b="T", e="2", f="257", g="-3", h="-9", opaque=-(2**31), encoding=encoding)
    served = serve(b"before" + data + b"after", 6)
    assert (served.end, served.reason) == (6 + len(data), Fall.SERVED)
    (record,) = served.records
    assert (record.queue_id, record.sys_flag, record.born_timestamp) == (2, 257, -3)
    assert (record.flag, bytes(record.body), record.store_timestamp) == (-9, b"hello", TIME)
    assert (record.born_host, record.store_host) == (HOST, HOST)
    (reply,) = served.frames
    assert (reply.encoding, reply.opaque) == (encoding, -(2**31))
    assert (reply.fields or {})["transactionId"] == ID


@pytest.mark.parametrize("encoding", HeaderEncoding)
def test_fields_that_may_be_missing_may_be_missing(encoding: HeaderEncoding) -> None:
    kept = {name: text for name, text in FIELDS.items() if name in "abcdefghi"}
    whole = Frame(code=310, fields=kept, opaque=1, body=b"x", encoding=encoding)
    assert serve(encode_frame(whole)).messages == 1
    kept.pop("i")
    assert serve(encode_frame(whole)).reason is Fall.UNUSUAL_HEADER, "a send needs its id"
    items = encode_item(0, b"1", "")
    whole = Frame(code=320, fields=kept | {"m": "true"}, body=items, encoding=encoding)
    assert serve(encode_frame(whole)).messages == 1, "a batch does not"


@pytest.mark.parametrize("hosts", [(HOST_V6, HOST), (HOST, HOST_V6), (HOST_V6, HOST_V6)])
def test_addresses_of_ipv6_are_written_with_their_flags(hosts: tuple[bytes, bytes]) -> None:
    born_host, store_host = hosts
    served = serve(
        frame() + half() + end_of(START + len(serve(frame(), born_host=born_host).log)),
        born_host=born_host,
        store_host=store_host,
    )
    assert {record.store_host for record in served.records} == {store_host}
    assert {record.born_host for record in served.records[:2]} == {born_host}


@pytest.mark.parametrize("size", [0, 4, 7, 12, 19, 21])
def test_a_host_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="4 or 16 bytes"):
        serve(frame(), born_host=bytes(size))


@pytest.mark.parametrize("encoding", HeaderEncoding)
def test_a_batch_is_taken_whole_and_its_messages_share_what_the_batch_has(
    encoding: HeaderEncoding,
) -> None:
    data = batch(b"one", b"two", b"three", i=f"{NAMED}WAIT\x01true\x02", encoding=encoding)
    served = serve(data + frame(encoding=encoding))
    scan = scan_of(served)
    assert (scan.count, scan.keys, served.messages) == (4, served.keys, 4)
    assert [run.entries for run in scan.runs] == [served.touched[0][3]]
    assert served.log.count(b"WAIT\x01true\x02MSG_REGION\x01here\x02") == 3
    first, _ = served.frames
    fields = first.fields or {}
    ids = fields["msgId"].split(",")
    assert (len(ids), int(ids[0][16:], 16)) == (3, START)
    assert "transactionId" not in fields


def test_messages_of_a_batch_keep_their_flags_and_need_no_id() -> None:
    items = [
        encode_item(-3, b"1", f"{NAMED}TAGS\x01B"),
        encode_item(2**31 - 1, b"", ""),
        encode_item(0, b"3", "Ü\x01ü\x02junk"),
    ]
    served = serve(frame(b"".join(items), 320, m="true", i="TAGS\x01A"))
    assert [record.flag for record in served.records] == [-3, 2**31 - 1, 0]
    assert all(record.decode_properties()["TAGS"] == "A" for record in served.records)


def test_without_a_key_index_no_keys_are_noted() -> None:
    served = serve(frame() + batch(b"1"), keys=False)
    assert (served.messages, served.keys) == (2, b"")


def test_one_way_sends_are_stored_without_an_answer() -> None:
    for data in (frame(flag=2), frame(flag=2, encoding=BINARY), batch(b"1", flag=2)):
        served = serve(data)
        assert (served.messages, served.replies) == (1, b"")


def test_requests_to_several_topics_and_of_several_kinds_are_served_in_one_run() -> None:
    data = [frame(), frame(b="Z", e="0"), batch(b"1", b="Z", e="0"), half(b="Z", e="0"), half()]
    served = serve(b"".join([*data, *map(binary, data)]), room=9000)
    assert (served.messages, len(served.frames), len(served.touched)) == (10, 10, 3)


def test_escapes_of_json_are_resolved() -> None:
    text = '\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u0041 \\u007f'
    data = frame(i=f"{NAMED}x\x01@\x02")
    header = data[8 : -len(b"hello")].replace(b"@", text.encode())
    served = serve(struct.pack(">II", 9 + len(header), len(header)) + header + b"hello")
    (record,) = served.records
    assert record.decode_properties()["x"] == json.loads(f'"{text}"')


# ---- half messages and ends of transactions


@pytest.mark.parametrize("encoding", HeaderEncoding)
def test_a_half_message_waits_with_where_it_belongs(encoding: HeaderEncoding) -> None:
    served = serve(half("TAGS\x01A\x02KEYS\x01k", encoding=encoding))
    (record,) = served.records
    assert (record.topic.encode(), record.queue_id, record.sys_flag) == (HALVES, 0, 0)
    assert bytes(record.properties).decode() == (
        f"TRAN_MSG\x01true\x02{NAMED}TAGS\x01A\x02KEYS\x01k\x02MSG_REGION\x01here\x02"
        f"__transactionId__\x01{ID}\x02PGROUP\x01g\x02REAL_TOPIC\x01T\x02REAL_QID\x011\x02"
    )
    scan = scan_of(served)
    assert (scan.keys, scan.runs[0].entries) == (served.keys, served.touched[0][3])
    assert (served.frames[0].fields or {})["queueId"] == "1"


def test_a_half_message_keeps_the_group_that_it_names() -> None:
    served = serve(half("PGROUP\x01other\x02") + end_of(producerGroup="other"), groups=(b"other",))
    assert bytes(served.records[0].properties).count(b"PGROUP") == 1
    assert served.messages == 3


def test_a_half_message_keeps_how_its_body_is_compressed() -> None:
    served = serve(half(f=str(0x305)) + end_of())
    assert [record.sys_flag for record in served.records] == [0x301, 0x309, 0]


@pytest.mark.parametrize("encoding", HeaderEncoding)
def test_a_committed_half_message_goes_where_it_belongs_and_is_done_with(
    encoding: HeaderEncoding,
) -> None:
    scene = Scene()
    served = scene.run(half(h="9", encoding=encoding) + end_of(encoding=encoding))
    first, message, op = served.records
    assert (message.topic, message.queue_id, message.flag, message.sys_flag) == ("T", 1, 9, 8)
    assert message.prepared_transaction_offset == START
    assert (bytes(message.body), message.properties) == (b"hello", first.properties)
    assert (op.topic.encode(), bytes(op.body)) == (OPS, b"0")
    expected = f"TAGS\x01{OP_TAG}\x02{STATE}\x018\x02{ORIGIN}\x010\x02"
    assert bytes(op.properties).decode() == expected
    assert (served.messages, served.ended) == (3, [(0, 8, 0)])
    assert scene.claimed == set(range(1, 10)), "it is removed from what was claimed"
    scan = scan_of(served)
    assert (scan.stop, scan.keys) == (Stop.END, served.keys)
    assert [run.entries for run in scan.runs] == [entries for *_, entries in served.touched]


def test_of_a_half_message_that_is_rolled_back_only_that_is_written() -> None:
    served = serve(half() + end_of(state=12))
    assert [record.topic.encode() for record in served.records] == [HALVES, OPS]
    assert (served.messages, served.ended) == (2, [(0, 12, 0)])


def test_a_half_message_of_an_earlier_run_can_be_ended() -> None:
    scene = Scene()
    place = START + len(scene.run(frame()).log)
    scene.run(half() + half())
    size = len(serve(half()).log)
    assert scene.run(end_of(place + size, 1)).ended == [(1, 8, 0)]
    assert scene.run(end_of(place, state=12)).ended == [(0, 12, 1)]


LEFT_HALVES: dict[str, tuple[bytes, FallThrough, dict[str, Any]]] = {
    "no plan for half messages": (half(), Fall.UNPREPARED, {"kinds": ("singles", "batches")}),
    "a half that asks for more": (half("DELAY\x011\x02"), Fall.INTERPRETED_PROPERTY, {}),
    "a half that says where it belongs": (
        half("REAL_TOPIC\x01Z\x02"), Fall.INTERPRETED_PROPERTY, {},
    ),
    "a half with a name twice": (half("a\x01b\x02a\x01b\x02"), Fall.INTERPRETED_PROPERTY, {}),
    "a half with two ids": (half(NAMED), Fall.INTERPRETED_PROPERTY, {}),
    "a half with a name like that of the id": (
        half("UNIQ_KEYS\x01a\x02"), Fall.INTERPRETED_PROPERTY, {},
    ),
    "a half without an id": (
        half(i="TRAN_MSG\x01true\x02"), Fall.INTERPRETED_PROPERTY, {},
    ),
    "a half without a group": (half(a=""), Fall.INTERPRETED_PROPERTY, {}),
    "a half that is none": (half(i=f"TRAN_MSG\x01false\x02{NAMED}"), Fall.INTERPRETED_PROPERTY, {}),
    "a half with many properties": (
        half("".join([f"n{number}\x01x\x02" for number in range(23)])),
        Fall.INTERPRETED_PROPERTY, {},
    ),
    "a half that is not ASCII": (half("a\x01ü\x02"), Fall.UNUSUAL_HEADER, {}),
    "a half with a pair without a value": (half("a\x01\x02"), Fall.INTERPRETED_PROPERTY, {}),
    "a half with an empty pair": (half("\x02"), Fall.INTERPRETED_PROPERTY, {}),
    "a half for a queue that does not exist": (half(e="4"), Fall.QUEUE, {}),
    "a half over the limit": (half(body=b"x" * 601), Fall.TOO_LARGE, {}),
    "a half with a key where repeats are found": (
        half("DEDUP_KEY\x01k\x02"), Fall.DEDUP_KEY, {"has_window": True},
    ),
    "the mark of a half without its property": (frame(f="4"), Fall.UNUSUAL_HEADER, {}),
    "a batch of halves": (batch(b"1", i="TRAN_MSG\x01true\x02"), Fall.INTERPRETED_PROPERTY, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_HALVES)
def test_half_messages_that_are_not_for_it_are_left(name: str) -> None:
    data, reason, how = LEFT_HALVES[name]
    served = serve(frame() + data + frame(), **how)
    assert (served.end, served.messages, served.reason) == (len(frame()), 1, reason)


LEFT_ENDS: dict[str, tuple[bytes, FallThrough, dict[str, Any]]] = {
    "an answer": (end_of(flag=3), Fall.UNUSUAL_HEADER, {}),
    "one with a remark": (
        framed({"code": 37, "extFields": {}, "remark": "x"}), Fall.UNUSUAL_HEADER, {},
    ),
    "one that cannot tell": (end_of(state=0), Fall.UNUSUAL_HEADER, {}),
    "one of a half message": (end_of(state=4), Fall.UNUSUAL_HEADER, {}),
    "another place": (end_of(START + 1), Fall.TRANSACTION, {}),
    "a place before all": (end_of(0), Fall.TRANSACTION, {}),
    "a place before the memory": (end_of(START - 101), Fall.TRANSACTION, {"readable_from": 0}),
    "a place below 0": (end_of(-1), Fall.UNUSUAL_HEADER, {}),
    "a place that may be on the disk": (end_of(), Fall.TRANSACTION, {"readable_from": START + 1}),
    "a place behind the end": (end_of(START + 3000), Fall.TRANSACTION, {}),
    "the end itself": (end_of(START + len(serve(half()).log)), Fall.TRANSACTION, {}),
    "another number": (end_of(number=1), Fall.TRANSACTION, {}),
    "a group without a plan": (end_of(producerGroup="h"), Fall.UNPREPARED, {}),
    "another group": (end_of(producerGroup="h"), Fall.TRANSACTION, {"groups": (b"g", b"h")}),
    "a longer group": (end_of(producerGroup="gg"), Fall.TRANSACTION, {"groups": (b"g", b"gg")}),
    "without a group": (end_of(producerGroup=""), Fall.UNPREPARED, {}),
    "an empty group": (end_of(producerGroup=""), Fall.TRANSACTION, {"groups": (b"g", b"")}),
    "a transaction that has ended": (end_of(), Fall.TRANSACTION, {"claimed": ()}),
    "where nothing was claimed": (end_of(), Fall.TRANSACTION, {"claimed": None}),
    "no number": (end_of(tranStateTableOffset="x"), Fall.UNUSUAL_HEADER, {}),
    "no place": (end_of(commitLogOffset=""), Fall.UNUSUAL_HEADER, {}),
    "a number over 64 bits": (end_of(tranStateTableOffset=str(2**64)), Fall.UNUSUAL_HEADER, {}),
    "an id to be quoted": (end_of(msgId='a"b'), Fall.UNUSUAL_HEADER, {}),
    "a check that is no word": (end_of(fromTransactionCheck="1"), Fall.UNUSUAL_HEADER, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_ENDS)
def test_ends_that_are_not_for_it_are_left_without_a_trace(name: str) -> None:
    data, reason, how = LEFT_ENDS[name]
    scene = Scene(**how)
    served = scene.run(half() + data + frame())
    assert (served.end, served.messages, served.ended) == (len(half()), 1, [])
    assert served.reason is reason
    claimed = how.get("claimed", range(10))
    assert scene.claimed == (None if claimed is None else set(claimed)), "all are still open"


@pytest.mark.parametrize(
    "field",
    ["producerGroup", "tranStateTableOffset", "commitLogOffset", "commitOrRollback", "msgId"],
)
@pytest.mark.parametrize("encoding", HeaderEncoding)
def test_an_end_without_one_of_its_fields_is_left(encoding: HeaderEncoding, field: str) -> None:
    whole = FrameDecoder().feed(end_of(encoding=encoding))[0]
    assert whole.fields is not None
    del whole.fields[field]
    assert serve(half() + encode_frame(whole)).reason is Fall.UNUSUAL_HEADER


def test_a_message_that_is_no_half_is_not_ended() -> None:
    size = len(serve(half()).log)
    served = serve(half() + frame() + end_of(START + size))
    assert (served.messages, served.reason) == (2, Fall.TRANSACTION)
    served = serve(frame() + end_of())
    assert (served.messages, served.reason) == (1, Fall.TRANSACTION)


def test_fields_that_an_end_may_have_beside_its_own_are_no_obstacle() -> None:
    more: dict[str, Any] = {
        "fromTransactionCheck": "false",
        "transactionId": ID,
        "topic": "T",
        "bname": "b",
    }
    assert serve(half() + end_of(**more)).messages == 3


def test_a_half_that_says_how_long_its_producer_may_take_is_left() -> None:
    data = half("CHECK_IMMUNITY_TIME_IN_SECONDS\x019\x02")
    served = serve(data + end_of())
    assert (served.end, served.reason) == (len(data), Fall.TRANSACTION)


@pytest.mark.parametrize("prefix", SPECIAL_HALF_PREFIXES)
def test_a_special_half_message_in_the_log_is_for_the_handlers_to_end(prefix: str) -> None:
    scene = Scene()
    scene.run(half(f"{'A' * len(prefix)}\x01x\x02"))
    assert scene.target.count(b"A" * len(prefix)) == 1
    scene.target[:] = scene.target.replace(b"A" * len(prefix), prefix.encode())
    scene.replay.log[:] = scene.target[MARGIN : scene.room.at]
    assert scene.run(end_of()).reason is Fall.TRANSACTION


@pytest.mark.parametrize("encoding", HeaderEncoding)
def test_an_end_that_wants_an_answer_gets_one(encoding: HeaderEncoding) -> None:
    served = serve(half() + end_of(flag=0, encoding=encoding))
    assert served.messages == 3
    _, reply = served.frames
    assert reply == Frame(flag=1, opaque=7, encoding=encoding)


def test_a_transaction_ends_once() -> None:
    served = serve(half() + end_of() + end_of())
    assert (served.end, served.reason) == (len(half() + end_of()), Fall.TRANSACTION)


def test_an_end_for_which_there_is_no_room_is_left_whole() -> None:
    data = half() + end_of()
    size = len(serve(data).log)
    assert serve(data, room=size).messages == 3
    served = serve(data, room=size - 1)
    assert (served.messages, served.reason) == (1, Fall.LOG_FILE_FULL)
    assert serve(data, max_frame=len(half())).messages == 3
    served = serve(half() + end_of(topic="x" * 600), max_frame=len(half()))
    assert (served.messages, served.reason) == (1, Fall.TOO_LARGE)


def test_an_end_needs_a_plan_for_the_topic_and_a_commit_room_for_its_body() -> None:
    scene = Scene()
    scene.run(half())
    del scene.plans.halves[b"T"]
    assert scene.run(end_of()).reason is Fall.UNPREPARED
    assert scene.run(end_of(state=12)).reason is Fall.UNPREPARED
    scene = Scene()
    scene.run(half())
    scene.topic.is_open = False
    assert scene.run(end_of()).reason is Fall.UNPREPARED
    scene = Scene()
    scene.run(half(e="3"))
    scene.plans.halves[b"T"] = target_of(b"T", 3)
    assert scene.run(end_of()).reason is Fall.TRANSACTION, "the queue is gone"
    scene = Scene()
    scene.run(half("DEDUP_KEY\x01k\x02"))
    scene.plans.halves[b"T"] = target_of(b"T", 4, True)
    assert scene.run(end_of()).reason is Fall.DEDUP_KEY
    scene = Scene()
    scene.run(half())
    configure(scene.flow, max_body=4)
    assert scene.run(end_of()).reason is Fall.TRANSACTION


def test_find_ends_names_the_half_messages_of_all_ends() -> None:
    ends = end_of(number=3) + end_of(number=5, encoding=BINARY, state=12)
    odd = end_of(number=6, state=0) + end_of(number=7, flag=3)
    data = half() + ends + frame() + odd + end_of(number=8)
    assert find_ends(b"before" + data, 6) == [3, 5, 8]
    assert find_ends(data[:-1], 0) == [3, 5]
    assert find_ends(data, len(half() + end_of(number=3))) == [5, 8]
    assert find_ends(b"", 0) == find_ends(data, len(data)) == []


# ---- what falls through


def item(properties: str, body: bytes = b"1") -> bytes:
    return encode_item(0, body, properties)


LEFT: dict[str, tuple[bytes, FallThrough]] = {
    "an unknown topic": (frame(b="U"), Fall.UNPREPARED),
    "a topic to be quoted": (frame(b='T"'), Fall.UNUSUAL_HEADER),
    "a queue too many": (frame(e="4"), Fall.QUEUE),
    "any queue": (frame(e="-1"), Fall.UNUSUAL_HEADER),
    "a body over the limit": (frame(b"x" * 601), Fall.TOO_LARGE),
    "too many properties": (frame(i=f"{NAMED}x\x01{'y' * 32_740}\x02"), Fall.TOO_LARGE),
    "a batch of too many": (batch(b"1", b"2", b"3", b"4"), Fall.TOO_LARGE),
    "a batch over the limit": (batch(b"1" * 600), Fall.TOO_LARGE),
    "a batch cut off": (
        frame(encode_batch([Message("T", b"1")])[:-1], 320, m="true"), Fall.BAD_BATCH,
    ),
    "a batch with some bytes too many": (
        frame(encode_batch([Message("T", b"1")]) + b"x", 320, m="true"), Fall.BAD_BATCH,
    ),
    "a batch whose lengths do not add up": (
        frame(item("a\x01b").replace(b"\0\3a", b"\0\2a"), 320, m="true"), Fall.BAD_BATCH,
    ),
    "a batch with a length below 0": (
        frame(item("a\x01b").replace(b"\0\3a", b"\xff\xffa"), 320, m="true"), Fall.BAD_BATCH,
    ),
    "a batch of which one asks": (
        frame(encode_batch([Message("T", b"1"), Message("T", b"2", delay_level=3)]), 320, m="true"),
        Fall.INTERPRETED_PROPERTY,
    ),
    "a batch that asks": (batch(b"1", i="DELAY\x011"), Fall.INTERPRETED_PROPERTY),
    "a batch with a pair without a value": (batch(b"1", i="a\x01\x02"), Fall.BAD_BATCH),
    "a batch with a pair without a name": (batch(b"1", i="\x01a\x02"), Fall.BAD_BATCH),
    "a batch with a name twice": (batch(b"1", i="a\x01b\x02a\x01b"), Fall.BAD_BATCH),
    "a batch with many properties": (
        batch(b"1", i="\x02".join([f"{letter}\x01x" for letter in "abcdefghi"])), Fall.BAD_BATCH,
    ),
    "a compressed batch": (batch(b"1", f="1"), Fall.UNUSUAL_HEADER),
    "a batch without messages": (frame(b"", 320, m="true"), Fall.UNUSUAL_HEADER),
    "a batch by its code alone": (frame(code=320), Fall.UNUSUAL_HEADER),
    "a batch by its mark alone": (frame(m="true"), Fall.UNUSUAL_HEADER),
    "another request": (frame(code=11), Fall.OTHER_REQUEST),
    "the send with long names": (frame(code=RequestCode.SEND_MESSAGE), Fall.OTHER_REQUEST),
    "a response": (frame(flag=FrameFlag.RESPONSE), Fall.UNUSUAL_HEADER),
    "no body": (frame(b""), Fall.UNUSUAL_HEADER),
    "a retry": (frame(j="1"), Fall.UNUSUAL_HEADER),
    "unit mode": (frame(k="true"), Fall.UNUSUAL_HEADER),
    "several tags": (frame(f="2"), Fall.UNUSUAL_HEADER),
    "a half message": (frame(f="4"), Fall.UNUSUAL_HEADER),
    "a committed message": (frame(f="8"), Fall.UNUSUAL_HEADER),
    "an IPv6 mark": (frame(f="16"), Fall.UNUSUAL_HEADER),
    "an inner batch": (frame(f="128"), Fall.UNUSUAL_HEADER),
    "flags below 0": (frame(f="-1"), Fall.UNUSUAL_HEADER),
    "no unique id": (frame(i=""), Fall.UNUSUAL_HEADER),
    "two unique ids": (frame(i=NAMED * 2), Fall.UNUSUAL_HEADER),
    "a name like that of the id": (frame(i=f"UNIQ_KEYS\x01a\x02{NAMED}"), Fall.UNUSUAL_HEADER),
    "an id to be quoted": (frame(i='UNIQ_KEY\x01a"b\x02'), Fall.UNUSUAL_HEADER),
    "a long id": (frame(i=f"UNIQ_KEY\x01{'a' * 129}\x02"), Fall.UNUSUAL_HEADER),
    "an id with a line feed": (frame(i="UNIQ_KEY\x01a\n"), Fall.UNUSUAL_HEADER),
    "an id that is empty": (frame(i="UNIQ_KEY\x01\x02"), Fall.UNUSUAL_HEADER),
    "an unknown field": (frame(z="1"), Fall.UNUSUAL_HEADER),
    "a field with a long name": (frame(topic="T"), Fall.UNUSUAL_HEADER),
    "a field that does not parse": (frame(e="x"), Fall.UNUSUAL_HEADER),
    "one that is not needed either": (frame(l="x"), Fall.UNUSUAL_HEADER),
    "a number over 32 bits": (frame(h=str(2**31)), Fall.UNUSUAL_HEADER),
    "a number over 64 bits": (frame(g=str(2**63)), Fall.UNUSUAL_HEADER),
    "a number with a zero in front": (frame(e="01"), Fall.UNUSUAL_HEADER),
}  # fmt: skip


@pytest.mark.parametrize("encoding", HeaderEncoding)
@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_for_it_ends_it_and_leaves_no_trace(
    name: str, encoding: HeaderEncoding
) -> None:
    data, reason = LEFT[name]
    good = frame(encoding=encoding)
    scene = Scene()
    if encoding is BINARY:
        data = binary(data)
        if name == "a topic to be quoted":  # a binary header has no quotes
            reason = Fall.UNPREPARED
    served = scene.run(good + data + good)
    assert (served.end, served.messages, served.reason) == (len(good), 1, reason)
    assert scene.flow.missing_queue is None
    assert scene.flow.error is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(struct.pack(">II", 6, 2) + b"{}", Fall.UNUSUAL_HEADER, id="an empty header"),
        pytest.param(struct.pack(">II", 8, 4) + b"null", Fall.UNUSUAL_HEADER, id="no header"),
        pytest.param(struct.pack(">II", 2**32 - 1, 0), Fall.SERVED, id="the largest length"),
        pytest.param(
            struct.pack(">II", 20, 2**24 - 1) + bytes(16),
            Fall.UNUSUAL_HEADER,
            id="a header beyond the frame",
        ),
        pytest.param(
            struct.pack(">II", 20, 1 << 24 | 17) + bytes(16),
            Fall.UNUSUAL_HEADER,
            id="a binary header beyond the frame",
        ),
        pytest.param(struct.pack(">I", 0), Fall.SERVED, id="no length of a header"),
        pytest.param(struct.pack(">II", 3, 0), Fall.UNUSUAL_HEADER, id="a length too small"),
        pytest.param(
            frame()[:4] + b"\2" + frame()[5:], Fall.UNUSUAL_HEADER, id="an unknown encoding"
        ),
        pytest.param(
            framed({"code": 310, "extFields": FIELDS, "remark": "x"}, b"x"),
            Fall.UNUSUAL_HEADER,
            id="a remark",
        ),
        pytest.param(
            framed({"code": 310, "extFields": FIELDS, "opaque": "1"}, b"x"),
            Fall.UNUSUAL_HEADER,
            id="an opaque in quotes",
        ),
        pytest.param(framed({"code": 310}, b"x"), Fall.UNUSUAL_HEADER, id="no fields"),
        pytest.param(
            framed({"code": 310, "extFields": FIELDS | {"k": None}}, b"x"),
            Fall.UNUSUAL_HEADER,
            id="a field that is null",
        ),
        pytest.param(
            framed({"code": 310, "extFields": FIELDS | {"i": 1}}, b"x"),
            Fall.UNUSUAL_HEADER,
            id="properties that are no text",
        ),
    ],
)
def test_what_is_no_usual_frame_is_left(data: bytes, reason: FallThrough) -> None:
    served = serve(data)
    assert (served.end, served.messages, served.reason) == (0, 0, reason)


@pytest.mark.parametrize("data", [frame(), frame(encoding=BINARY), batch(b"1"), end_of()])
def test_a_part_of_a_frame_is_left_until_the_rest_is_there(data: bytes) -> None:
    for size in range(len(data)):
        served = serve(half() + data[:size])
        assert (served.end, served.messages, served.reason) == (len(half()), 1, Fall.SERVED)


def test_a_binary_header_is_refused_at_every_cut() -> None:
    data = frame(b"", encoding=BINARY)
    for size in range(len(data) - 8):
        cut = struct.pack(">II", 4 + size + 5, 1 << 24 | size) + data[8 : 8 + size] + b"hello"
        assert serve(cut).reason in {Fall.UNUSUAL_HEADER, Fall.OTHER_REQUEST}


def test_what_does_not_fit_is_left() -> None:
    size = len(serve(frame()).log)
    served = serve(frame() * 3, room=2 * size)
    assert (served.messages, served.reason) == (2, Fall.LOG_FILE_FULL)
    assert serve(frame() * 3, room=2 * size - 1).messages == 1
    whole = len(serve(batch(b"1", b"2")).log)
    assert serve(batch(b"1", b"2"), room=whole).messages == 2
    served = serve(batch(b"1", b"2"), room=whole - 1)
    assert (served.messages, served.reason) == (0, Fall.LOG_FILE_FULL)


def test_it_stops_when_it_has_enough() -> None:
    served = serve(frame() * 5, max_messages=2)
    assert (served.end, served.reason) == (2 * len(frame()), Fall.SERVED)
    served = serve(frame() * 2, max_frame=len(frame()) - 1)
    assert (served.messages, served.reason) == (0, Fall.TOO_LARGE)


def test_where_repeats_are_found_what_has_a_key_is_left() -> None:
    keyed = frame(i=f"{NAMED}DEDUP_KEY\x01k\x02")
    assert serve(keyed).messages == 1
    assert serve(keyed, has_window=True).reason is Fall.DEDUP_KEY
    assert serve(batch(b"1"), has_window=True).reason is Fall.DEDUP_KEY
    assert serve(frame(), has_window=True).messages == 1


# ---- plans, targets and queues


@pytest.mark.parametrize(
    ("kind", "data"), [("singles", frame()), ("batches", batch(b"1")), ("halves", half())]
)
def test_each_kind_of_send_has_its_own_plans(kind: str, data: bytes) -> None:
    assert serve(data, kinds=[kind]).messages == 1
    others = [each for each in KINDS if each != kind]
    assert serve(data, kinds=others).reason is Fall.UNPREPARED
    scene = Scene(kinds=[kind])
    assert len(scene.plans) == 4, "two topics, and a group with and without a topic"
    scene.topic.is_open = False
    assert scene.run(data).reason is Fall.UNPREPARED


def test_kinds_that_take_turns_do_not_use_the_plans_of_each_other() -> None:
    served = serve(frame() + batch(b"1"), kinds=["singles"])
    assert (served.messages, served.reason) == (1, Fall.UNPREPARED)
    served = serve(frame() + half(), kinds=["singles"])
    assert (served.messages, served.reason) == (1, Fall.UNPREPARED)
    served = serve(half() + frame(), kinds=["halves"])
    assert (served.messages, served.reason) == (1, Fall.UNPREPARED)


def test_a_queue_whose_tail_is_not_known_or_closed_is_asked_for() -> None:
    scene = Scene()
    target = scene.plans.singles[b"T"] = SendTarget(b"T", 4, False)
    assert (target.topic, target.name, target.queues) == (b"T", "T", 4)
    assert scene.run(frame()).reason is Fall.QUEUE
    assert scene.flow.missing_queue == (target, 1)
    tail = Units()
    target.open_queue(1, tail)
    assert scene.run(frame(e="2")).reason is Fall.QUEUE, "another queue of the topic"
    assert scene.flow.missing_queue == (target, 2)
    assert scene.run(frame()).messages == 1
    assert scene.flow.missing_queue is None
    assert scene.run(frame()).messages == 1
    tail.is_closed = True
    assert scene.run(frame()).reason is Fall.QUEUE
    assert scene.flow.missing_queue == (target, 1)


@pytest.mark.parametrize(
    ("data", "missing"),
    [(half(), [HALVES]), (batch(b"1"), [b"T"]), (half() + end_of(), [HALVES, OPS, b"T"])],
)
def test_every_queue_that_a_request_needs_is_asked_for(data: bytes, missing: list[bytes]) -> None:
    scene, position, asked = Scene(), 0, []
    scene.flow = SendFlow(HOST, DIGITS, SendTarget(HALVES, 1, False), SendTarget(OPS, 1, False))
    configure(scene.flow)
    scene.plans.batches[b"T"] = scene.plans.halves[b"T"] = SendTarget(b"T", 4, False)
    while (served := scene.run(data, position)).reason is Fall.QUEUE:
        assert scene.flow.missing_queue is not None
        target, queue_id = scene.flow.missing_queue
        asked.append(target.topic)
        target.open_queue(queue_id, Units())
        position = served.end
    assert (served.end, served.reason, asked) == (len(data), Fall.SERVED, missing)


def test_changed_queues_are_named_until_the_store_has_learned_of_them() -> None:
    scene, data = Scene(), frame() + frame(e="2")
    flow = scene.flow
    for expected in (2, 0):  # the tails say that they are known as changed
        flow.run(data, 0, 10**6, 10, HOST, scene.plans, None, room_in(bytearray(1000), 900))
        changed = flow.drain_changed()
        assert len(changed) == expected
        assert all(tail.is_changed for tail in changed)
    assert [(topic, queue_id) for topic, queue_id, _ in flow.drain_touched()] == [
        ("T", 1),
        ("T", 2),
    ]
    assert not flow.drain_touched()
    assert not flow.drain_changed()
    assert not flow.drain_ended()


def test_a_target_without_the_room_it_is_said_to_have_is_refused() -> None:
    scene = Scene()
    for at, size in ((0, 11), (11, 0), (-1, 1), (0, -1)):
        room = room_in(bytearray(10), size)
        room.at = at
        with pytest.raises(ValueError, match="of 10"):
            scene.flow.run(frame(), 0, 10**6, 10, HOST, scene.plans, None, room)


@pytest.mark.parametrize("data", [frame(), half(), frame(encoding=BINARY)])
def test_an_exception_is_reported_and_nothing_of_its_request_is_written(data: bytes) -> None:
    scene = Scene()
    assert scene.room.keys is not None
    with memoryview(scene.room.keys):  # it cannot grow now
        served = scene.run(data)
    assert (served.end, served.messages, served.reason) == (0, 0, Fall.ERROR)
    assert isinstance(scene.flow.error, BufferError)
    assert scene.run(data).messages == 1
    assert scene.flow.error is None


@pytest.mark.parametrize("encoding", HeaderEncoding)
def test_an_exception_in_a_batch_leaves_no_part_of_a_reply(encoding: HeaderEncoding) -> None:
    scene = Scene()
    assert scene.room.keys is not None
    with memoryview(scene.room.keys):
        assert scene.run(batch(b"1", b"2", encoding=encoding)).reason is Fall.ERROR


def test_an_exception_at_an_end_leaves_the_half_message_claimed() -> None:
    """Those in `claimed` are opened again; one that is neither there nor ended is lost."""
    scene = Scene()
    scene.run(half())
    assert scene.room.keys is not None
    with memoryview(scene.room.keys):
        assert scene.run(end_of()).reason is Fall.ERROR
    assert scene.claimed == set(range(10))


# ---- names and numbers that are defined elsewhere


def test_names_that_are_spelled_out_equal_their_definitions() -> None:
    assert {each: each for each in SPELLED_NAMES} == SPELLED_NAMES
    assert SPELLED_NAMES.keys() == {
        PropertyName.UNIQUE_ID, PropertyName.TRANSACTION_PREPARED, PropertyName.PRODUCER_GROUP,
        PropertyName.REAL_TOPIC, PropertyName.REAL_QUEUE_ID, PropertyName.TRANSACTION_ID,
        PropertyName.DEDUP_KEY, PropertyName.KEYS, PropertyName.TAGS,
        RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION, RequestCode.SEND_BATCH_MESSAGE,
        ACCESS_KEY, SIGNATURE, SECURITY_TOKEN,
    }  # fmt: skip


@pytest.mark.parametrize("encoding", HeaderEncoding)
@pytest.mark.parametrize("prefix", INTERPRETED_PREFIXES)
def test_a_name_that_the_broker_interprets_makes_a_send_fall_through(
    prefix: str, encoding: HeaderEncoding
) -> None:
    for properties in (f"{prefix}\x011\x02{NAMED}", f"{NAMED}{prefix}X\x011", f"{NAMED}{prefix}"):
        reason = serve(frame(i=properties, encoding=encoding)).reason
        assert reason is Fall.INTERPRETED_PROPERTY
        items = encode_item(0, b"1", NAMED) + encode_item(0, b"2", properties)
        reason = serve(frame(items, 320, m="true", encoding=encoding)).reason
        assert reason is Fall.INTERPRETED_PROPERTY
        data = batch(b"1", i=properties, encoding=encoding)
        assert serve(data).reason is Fall.INTERPRETED_PROPERTY
    for properties in (f"{NAMED}X{prefix}\x011\x02", f"{NAMED}x\x01{prefix}\x02"):
        assert serve(frame(i=properties, encoding=encoding)).messages == 1


@pytest.mark.parametrize("prefix", {*SET_ON_HALVES_PREFIXES, *INTERPRETED_PREFIXES})
def test_a_name_that_the_broker_sets_on_half_messages_makes_one_fall_through(prefix: str) -> None:
    assert serve(half(f"{prefix}X\x011\x02")).reason is Fall.INTERPRETED_PROPERTY
    assert serve(half(f"X{prefix}\x011\x02")).messages == 1


@pytest.mark.parametrize(
    "name",
    [
        PropertyName.DELAY_LEVEL, PropertyName.TIMER_DELAY_SEC, PropertyName.TIMER_DELAY_MS,
        PropertyName.TIMER_DELIVER_MS, PropertyName.TIMER_OUT_MS, PropertyName.TIMER_ENQUEUE_MS,
        PropertyName.TIMER_DEQUEUE_MS, PropertyName.TIMER_ROLL_TIMES,
        PropertyName.TIMER_DELETE_UNIQUE_ID, PropertyName.TIMER_DELAY_LEVEL,
        PropertyName.TRANSACTION_PREPARED, PropertyName.POP_CHECKPOINT,
        PropertyName.POP_CHECKPOINT_OFFSET, PropertyName.INNER_COUNT, PropertyName.INNER_BASE,
        PropertyName.MULTI_DISPATCH, PropertyName.MULTI_QUEUE_OFFSET, PropertyName.CLUSTER,
        PropertyName.REGION, PropertyName.TRACE_ON, PropertyName.START_DELIVER_TIME,
        PropertyName.EXPIRES_AT, PropertyName.CRON, PropertyName.CRON_ZONE,
        PropertyName.SERIES_ID, PropertyName.SERIES_TURN, PropertyName.PARK, STATE, ORIGIN,
    ],
)  # fmt: skip
def test_every_name_that_handlers_interpret_begins_with_an_interpreted_prefix(name: str) -> None:
    assert name.startswith(INTERPRETED_PREFIXES)
    assert serve(frame(i=f"{NAMED}{name}\x011\x02")).reason is Fall.INTERPRETED_PROPERTY


def test_every_name_of_ours_but_the_dedup_key_begins_with_our_prefix() -> None:
    ours = {name for name in vars(PropertyName).values() if "BOLIDE" in str(name).upper()}
    assert {name for name in ours if isinstance(name, str) and not name.startswith("bolide.")} == {
        PropertyName.EXPIRES_AT, PropertyName.CRON, PropertyName.CRON_ZONE,
        PropertyName.SERIES_ID, PropertyName.SERIES_TURN, PropertyName.PARK,
    }  # fmt: skip


CHANGED_DEFINITIONS = {
    "a property": (
        "from bolide.model.properties import PropertyName",
        "PropertyName.REAL_QUEUE_ID = 'OTHER'",
    ),
    "a reason": (
        "import enum",
        "from bolide.broker.fast_path import fall_through",
        "reasons = fall_through.FallThrough",
        "names = [(each.name, each + (each.name == 'QUEUE')) for each in reasons]",
        "fall_through.FallThrough = enum.IntEnum('FallThrough', names)",
    ),
    "too many prefixes": (
        "from bolide.model import properties",
        "properties.INTERPRETED_PREFIXES = tuple('ABCDEFGHIJKLMNOPQ')",
    ),
}


@pytest.mark.parametrize("name", CHANGED_DEFINITIONS)
def test_a_definition_that_has_changed_stops_the_import_but_not_as_a_missing_module(
    name: str,
) -> None:
    lines = [*CHANGED_DEFINITIONS[name], "import bolide.broker.fast_path._sends"]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert error.startswith(("RuntimeError:", "ValueError:")), done.stderr


# ---- whatever comes

TEXTS = st.sampled_from(
    ["0", "1", "-1", "00", "", "3", "2147483648", "true", "ü", "\\u0031", 'x"', "\n"]
)
PROPERTIES = st.lists(
    st.sampled_from([NAMED, "TAGS\x01A\x02", "KEYS\x01k1 k2\x02", "x\x01y\x02", "\x02", "\x01",
                     "junk", "WAIT\x01true", "DELAY\x011\x02", "UNIQ_KEY\x01a-b\x02", "\t/\\",
                     "PGROUP\x01g\x02", "REAL_QID\x011\x02", "\0"]),
    max_size=4,
).map("".join)  # fmt: skip
ENCODINGS = st.sampled_from(HeaderEncoding)
SENDS = st.one_of(
    st.builds(frame, flag=st.sampled_from([0, 0, 2]), encoding=ENCODINGS),
    st.builds(lambda i, encoding: frame(i=NAMED + i, encoding=encoding), PROPERTIES, ENCODINGS),
    st.builds(lambda i, encoding: frame(i=i, encoding=encoding), PROPERTIES, ENCODINGS),
    st.builds(
        lambda key, text, encoding: frame(encoding=encoding, **{key: text}),
        st.sampled_from(list("abcdefghijklmnz")),
        TEXTS,
        ENCODINGS,
    ),
    st.builds(
        lambda bodies, i, encoding: batch(*bodies, i=i, encoding=encoding),
        st.lists(st.binary(max_size=50), max_size=4),
        PROPERTIES,
        ENCODINGS,
    ),
    st.builds(half, PROPERTIES, encoding=ENCODINGS),
    st.builds(
        end_of,
        st.sampled_from([START, START, START + 1, START + 276]),
        st.integers(0, 1),
        st.sampled_from([8, 12]),
        flag=st.sampled_from([0, 2]),
        encoding=ENCODINGS,
    ),
)


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(SENDS))
    for _ in range(draw(st.integers(0, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@given(frames=st.lists(SENDS | spoilt(), max_size=5), room=st.integers(0, 3000))
def test_whatever_comes_it_serves_only_what_the_handlers_would_serve_alike(
    frames: list[bytes], room: int
) -> None:
    """`Scene.run` compares log, queues, keys and replies. It may leave more to the handlers."""
    served = serve(b"".join(frames), room=room)
    assert served.reason is not Fall.ERROR


@given(frames=st.lists(SENDS, min_size=1, max_size=6), cut=st.integers(0, 2000))
def test_it_does_not_matter_in_how_many_pieces_requests_arrive(
    frames: list[bytes], cut: int
) -> None:
    data = b"".join(frames)
    whole, scene = serve(data), Scene()
    first = scene.run(data[:cut])
    second = scene.run(data, first.end)
    assert (second.end, first.log + second.log) == (whole.end, whole.log)
    assert first.replies + second.replies == whole.replies


@pytest.mark.parametrize("queue_id", [-1, 4, 5_000_000])
def test_a_target_has_no_queues_beyond_its_number(queue_id: int) -> None:
    with pytest.raises(IndexError):
        SendTarget(b"T", 4, has_window=False).open_queue(queue_id, Units())
