"""The gate: no request gets past it, whichever way it is served."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.auth.access import Identity, OpenAccess
from bolide.auth.audit import AUDITED
from bolide.broker.assembly import HANDLERS
from bolide.broker.gate import Gate, Hooks
from bolide.kernel import COMPILED
from bolide.model.names import AUDIT_TOPIC
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame, HeaderEncoding
from bolide.protocol.refusals import NoPermission
from bolide.remoting.dispatch import handled_codes
from tests.support.aio import on_loop, until
from tests.support.broker import SUBSCRIBED, SUSPEND, pull_header, send_header
from tests.support.broker_core import BrokerCore, Peer
from tests.support.wire import request_bytes

CODES = sorted(set().union(*map(handled_codes, HANDLERS)))
ENCODINGS = [HeaderEncoding.JSON, HeaderEncoding.ROCKETMQ]
NAMED = {"UNIQ_KEY": "7F00000112345678ABCDEF0000010000"}
HALF = NAMED | {"TRAN_MSG": "true", "PGROUP": "producers"}


class RefuseAll(OpenAccess):
    """Lets no request through while it is on."""

    def __init__(self, *, is_on: bool = True) -> None:
        super().__init__()
        self.seen: list[tuple[str, int]] = []
        self._is_on = is_on

    def check(self, request: Frame, peer: str) -> Identity:
        if not self._is_on:
            return super().check(request, peer)
        self.seen.append((peer, request.code))
        raise NoPermission("nobody may do anything")

    def switch_on(self) -> None:
        self._is_on = True
        self.on_changed()


@asynccontextmanager
async def core_in(directory: Path, gate: Gate) -> AsyncIterator[BrokerCore]:
    core = BrokerCore(directory, gate=gate)
    await core.transactions.queue.load()
    core.tables.groups.require("readers")
    try:
        yield core
    finally:
        await core.stop()


def send(opaque: int, encoding: HeaderEncoding, **given: Any) -> bytes:
    fields = send_header("T", **{"properties": NAMED} | given).to_short()
    code = RequestCode.SEND_MESSAGE_V2
    return request_bytes(code, fields, opaque=opaque, body=b"hello", encoding=encoding)


def batch(opaque: int, encoding: HeaderEncoding) -> bytes:
    fields = send_header("T", batch=True, properties={"shared": "1"}).to_short()
    item = struct.pack(">IIIII", 0, 0, 0, 0, 1) + b"x" + struct.pack(">H", 0)
    body = struct.pack(">I", len(item)) + item[4:]
    code = RequestCode.SEND_BATCH_MESSAGE
    return request_bytes(code, fields, opaque=opaque, body=body, encoding=encoding)


def pull(opaque: int, encoding: HeaderEncoding, code: RequestCode, **given: Any) -> bytes:
    fields = pull_header(**given).to_fields()
    return request_bytes(code, fields, opaque=opaque, encoding=encoding)


def end(opaque: int, encoding: HeaderEncoding, half: Frame) -> bytes:
    """The commit of the half message that a reply tells of."""
    stored = half.fields or {}
    fields = {
        "producerGroup": "producers",
        "tranStateTableOffset": stored["queueOffset"],
        "commitLogOffset": str(int(stored["msgId"][-16:], 16)),
        "commitOrRollback": "8",
        "msgId": stored["transactionId"],
    }
    code = RequestCode.END_TRANSACTION
    return request_bytes(code, fields, opaque=opaque, encoding=encoding)


async def reply(peer: Peer, data: bytes, opaque: int) -> Frame:
    peer.receive(data)
    await until(lambda: peer.answer(opaque))
    found = peer.answer(opaque)
    assert found is not None
    return found


STREAMS: dict[str, Callable[[int, HeaderEncoding], bytes]] = {
    "plain sends": send,
    "half messages": lambda opaque, encoding: send(opaque, encoding, properties=HALF, sys_flag=4),
    "batches": batch,
    "pulls": lambda opaque, encoding: pull(opaque, encoding, RequestCode.PULL_MESSAGE),
    "lite pulls": lambda opaque, encoding: pull(opaque, encoding, RequestCode.LITE_PULL_MESSAGE),
    "waiting pulls": lambda opaque, encoding: pull(
        opaque,
        encoding,
        RequestCode.PULL_MESSAGE,
        sys_flag=SUBSCRIBED | SUSPEND,
        suspend_timeout_millis=60_000,
        queue_offset=1,
    ),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("code", [*CODES, 9999])
@on_loop
async def test_a_gate_that_refuses_everything_lets_no_request_through(
    tmp_path: Path, code: int, encoding: HeaderEncoding
) -> None:
    if encoding is HeaderEncoding.ROCKETMQ and code > 0x7FFF:
        pytest.skip("a binary header has 16 bits for the code")
    rule = RefuseAll()
    async with core_in(tmp_path, Gate(access=rule)) as core:
        peer = core.connect(prepared=False)
        answer = await reply(peer, request_bytes(code, {}, opaque=7, encoding=encoding), 7)
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION, "nobody may do anything",
        )  # fmt: skip
        assert [seen for _, seen in rule.seen] == [code]
        assert len(core.log) == core.store.max_offset(AUDIT_TOPIC, 0) == (code in AUDITED)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", STREAMS)
@on_loop
async def test_requests_of_the_fast_path_are_refused_from_the_first_on(
    tmp_path: Path, kind: str, encoding: HeaderEncoding
) -> None:
    async with core_in(tmp_path, Gate(access=RefuseAll())) as core:
        peer = core.connect(prepared=False)
        for opaque in (1, 2, 3):
            answer = await reply(peer, STREAMS[kind](opaque, encoding), opaque)
            assert answer.code == ResponseCode.NO_PERMISSION
        assert not core.log


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "in one piece"])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", [kind for kind in STREAMS if kind != "waiting pulls"])
@on_loop
async def test_a_gate_that_begins_to_refuse_stops_a_stream_at_once(
    tmp_path: Path, kind: str, encoding: HeaderEncoding, together: bool
) -> None:
    rule = RefuseAll(is_on=False)
    async with core_in(tmp_path, Gate(access=rule)) as core:
        peer, make = core.connect(prepared=False), STREAMS[kind]
        await reply(peer, send(100, HeaderEncoding.JSON), 100)  # so that there is something to pull
        for opaque in range(1, 6):
            assert (await reply(peer, make(opaque, encoding), opaque)).code == ResponseCode.SUCCESS
        await asyncio.sleep(0)  # the burst ends
        if COMPILED:
            served = core.fast_path.fall_throughs
            assert served.served_sends + served.served_pulls >= 4, "the fast path has served some"
        stored = len(core.log)
        rule.switch_on()
        frames = [make(opaque, encoding) for opaque in range(6, 9)]
        for piece in [b"".join(frames)] if together else frames:
            peer.receive(piece)
        await until(lambda: all(map(peer.answer, range(6, 9))))
        assert {peer.answer(opaque).code for opaque in range(6, 9)} == {  # type: ignore[union-attr]
            ResponseCode.NO_PERMISSION
        }
        assert len(core.log) == stored


@pytest.mark.parametrize("encoding", ENCODINGS)
@on_loop
async def test_ends_of_transactions_are_refused_in_the_middle_of_a_stream(
    tmp_path: Path, encoding: HeaderEncoding
) -> None:
    rule = RefuseAll(is_on=False)
    async with core_in(tmp_path, Gate(access=rule)) as core:
        peer = core.connect(prepared=False)
        halves = [
            await reply(peer, send(each, encoding, properties=HALF, sys_flag=4), each)
            for each in range(1, 5)
        ]
        for number, half in enumerate(halves[:3]):
            opaque = 10 + number
            assert (await reply(peer, end(opaque, encoding, half), opaque)).code == 0
        stored = len(core.log)
        rule.switch_on()
        answer = await reply(peer, end(20, encoding, halves[3]), 20)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert len(core.log) == stored
        assert core.transactions.queue.open.is_open(3)


@pytest.mark.skipif(not COMPILED, reason="there is no fast path")
@on_loop
async def test_what_one_sender_was_allowed_is_not_prepared_for_another(tmp_path: Path) -> None:
    class OnlyFirst(OpenAccess):
        allowed = ""

        def check(self, request: Frame, peer: str) -> Identity:
            if peer != self.allowed:
                raise NoPermission("another peer")
            return super().check(request, peer)

    rule = OnlyFirst()
    async with core_in(tmp_path, Gate(access=rule)) as core:
        first, second = core.connect(prepared=False), core.connect(prepared=False)
        first.connection.peer, second.connection.peer = "10.0.0.8:1", "10.0.0.9:1"
        rule.allowed = "10.0.0.8:1"
        for opaque in range(1, 4):
            data = send(opaque, HeaderEncoding.JSON)
            assert (await reply(first, data, opaque)).code == ResponseCode.SUCCESS
            assert (await reply(second, data, opaque)).code == ResponseCode.NO_PERMISSION
        await asyncio.sleep(0)  # the burst ends
        assert core.fast_path.fall_throughs.served_sends == 2


@pytest.mark.skipif(not COMPILED, reason="there is no fast path")
@on_loop
async def test_a_signed_request_prepares_nothing_for_unsigned_ones(tmp_path: Path) -> None:
    class SignedOnly(OpenAccess):
        def check(self, request: Frame, peer: str) -> Identity:
            if "AccessKey" not in (request.fields or {}):
                raise NoPermission("sign your requests")
            return super().check(request, peer)

    async with core_in(tmp_path, Gate(access=SignedOnly())) as core:
        peer = core.connect(prepared=False)
        fields = send_header("T", properties=NAMED).to_short()
        signed = fields | {"AccessKey": "me", "Signature": "s"}
        code = RequestCode.SEND_MESSAGE_V2
        data = request_bytes(code, signed, opaque=1, body=b"hello")
        assert (await reply(peer, data, 1)).code == ResponseCode.SUCCESS
        answer = await reply(peer, send(2, HeaderEncoding.JSON), 2)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert len(core.log) == 1


@on_loop
async def test_a_request_hook_sees_every_request_and_its_reply(tmp_path: Path) -> None:
    class Watcher:
        def __init__(self) -> None:
            self.seen: list[tuple[str, int]] = []

        def before(self, peer: str, request: Frame) -> None:
            self.seen.append(("before", request.code))

        def after(self, peer: str, request: Frame, response: Frame) -> None:
            self.seen.append(("after", response.code))

    hook = Watcher()
    async with core_in(tmp_path, Gate(Hooks(request=(hook,)))) as core:
        peer = core.connect(prepared=False)
        for opaque in (1, 2, 3):
            await reply(peer, send(opaque, HeaderEncoding.JSON), opaque)
        assert hook.seen == [("before", 310), ("after", 0)] * 3
