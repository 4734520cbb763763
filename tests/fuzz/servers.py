"""Targets that are whole servers: requests of any bytes, without sockets.

An input is a list of frames whose lengths are mended, so that mutations reach the handlers: the
encoding (1 byte), the size of the header (2), that of the body (2), header and body. No request
may end in an exception that is not a refusal. For a broker the outcome with the fast path must be
the one of the handlers alone, to the last byte of the log.
"""

import asyncio
import atexit
import logging
import random
import shutil
import struct
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from unittest import mock

from msgspec.structs import replace

from bolide.auth.access import Access, Identity, OpenAccess
from bolide.broker.consume import long_polling as long_polling_module
from bolide.broker.gate import Gate
from bolide.model.message import Message
from bolide.namesrv.server import NameServer
from bolide.protocol.batch import encode_batch
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame, HeaderEncoding
from bolide.protocol.framing import FrameDecoder, encode_frame
from bolide.protocol.refusals import NoPermission
from bolide.protocol.signature import ACCESS_KEY, is_signed_by
from bolide.remoting import connection as connection_module
from tests.fuzz import samples
from tests.fuzz.agreement import Disagreement
from tests.support.broker_core import BrokerCore, Peer, WholeLogStore
from tests.support.name_servers import config_in

T = TypeVar("T")

_HEAD = struct.Struct(">BHH")
_FAST_CODES = {
    RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.END_TRANSACTION,
    RequestCode.PULL_MESSAGE,
}  # fmt: skip
_MAX_FRAMES = 16
_LEFT_AS_IT_IS = 2
_PATIENCE = 50
"""Times that unanswered requests are waited for, 5 ms each."""


class RequestFailed(AssertionError):
    """A handler raised something else than a refusal."""


class _Failures(logging.Handler):
    """Collects the exceptions that the dispatcher logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def check(self) -> None:
        found, self.records = self.records, []
        for record in found:
            cause = record.exc_info[1] if record.exc_info else None
            raise RequestFailed(record.getMessage()) from cause


_failures = _Failures()
_loop: asyncio.AbstractEventLoop | None = None
_directory: Path | None = None


def _prepare() -> tuple[asyncio.AbstractEventLoop, Path]:
    """The event loop of all runs, and an empty directory."""
    global _loop, _directory  # noqa: PLW0603  one of each in a process
    if _loop is None:
        _loop = asyncio.new_event_loop()
        atexit.register(_loop.close)
        _directory = Path(tempfile.mkdtemp(prefix="bolide-fuzz-"))
        atexit.register(shutil.rmtree, _directory, ignore_errors=True)
    assert _directory is not None
    for each in _directory.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    (_directory / "store").mkdir()
    return _loop, _directory


def _run(serve: Callable[[Path], Coroutine[Any, Any, T]]) -> T:
    """Run a server; raises RequestFailed."""
    loop, directory = _prepare()
    logger = logging.getLogger("bolide.remoting.dispatch")
    logger.addHandler(_failures)
    try:
        # How long a turn takes decides only when the loop gets to other things.
        with (
            mock.patch.object(connection_module, "_TURN", 60.0),
            mock.patch.object(long_polling_module, "_TURN", 60.0),
        ):
            found = loop.run_until_complete(serve(directory))
    finally:
        logger.removeHandler(_failures)
    _failures.check()
    return found


def wire_of(data: bytes, *, sign: bool = False) -> bytes:
    """The frames of an input, as they stand on the wire.

    Args:
        sign: signatures are made right, unless the encoding has a bit that says no.
    """
    wire = b""
    for _ in range(_MAX_FRAMES):
        if len(data) < _HEAD.size:
            break
        encoding, header_size, body_size = _HEAD.unpack_from(data)
        header = data[_HEAD.size : _HEAD.size + header_size]
        body = data[_HEAD.size + len(header) :][:body_size]
        data = data[_HEAD.size + len(header) + len(body) :]
        size = len(header) | (encoding & 1) << 24
        frame = struct.pack(">II", 4 + len(header) + len(body), size) + header + body
        wire += samples.signed_anew(frame) if sign and not encoding & _LEFT_AS_IT_IS else frame
    return wire


def input_of(wire: bytes) -> bytes:
    """The opposite of `wire_of`, for one frame."""
    (word,) = struct.unpack_from(">I", wire, 4)
    size = word & 0xFFFFFF
    header, body = wire[8 : 8 + size], wire[8 + size :]
    return _HEAD.pack(word >> 24, len(header), len(body)) + header + body


def seeds() -> Iterator[bytes]:
    for wire in samples.frames():
        yield input_of(wire)
    yield from fast_seeds()


def fast_seeds() -> list[bytes]:
    """Each stream in both encodings, and all of them as one: a broker takes long to set up."""
    streams = [
        b"".join(input_of(encode_frame(replace(frame, encoding=encoding))) for frame in frames)
        for frames in _plain_streams()
        for encoding in HeaderEncoding
    ]
    return [*streams, b"".join(streams)]


def signed_fast_seeds() -> list[bytes]:
    """Streams whose first frames prepare what the further ones want."""
    streams = [frames * 3 for frames in _plain_streams()]
    half, end = next(each for each in _plain_streams() if each[-1].code == 37)
    wire = b"".join(encode_frame(samples.signed(each)) for each in (half, end, half))
    done = _run(lambda path: _served(path, wire, fast=False, access=_OneAccount()))
    place = {"tranStateTableOffset": "1", "commitLogOffset": str(done.log[-1][0])}
    streams.append([half, end, half, replace(end, fields=(end.fields or {}) | place)])
    return [
        b"".join(
            input_of(encode_frame(samples.signed(replace(frame, encoding=encoding))))
            for frame in frames
        )
        for frames in streams
        for encoding in HeaderEncoding
    ]


def _plain_streams() -> Iterator[list[Frame]]:
    """Sends and pulls that the fast path serves."""
    send = {
        "a": "producers", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0",
        "g": "1700000000000", "h": "0", "i": samples.PROPERTIES[1].decode(), "j": "0", "k": "false",
    }  # fmt: skip
    pull = {
        "consumerGroup": "readers", "topic": "T", "queueId": "1", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "1000",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    prepared = f"TRAN_MSG\x01true\x02UNIQ_KEY\x01{samples.ID}\x02PGROUP\x01producers\x02"
    half = send | {"f": "4", "i": prepared}
    end = {
        "topic": "T", "producerGroup": "producers", "tranStateTableOffset": "0",
        "commitLogOffset": "0", "commitOrRollback": "8", "fromTransactionCheck": "false",
        "msgId": samples.ID, "transactionId": samples.ID,
    }  # fmt: skip
    yield [Frame(code=310, fields=send, opaque=1, body=b"hello")] * 2
    yield [Frame(code=310, fields=send, opaque=1, body=b"hello"),
           Frame(code=11, fields=pull, opaque=2)]  # fmt: skip
    yield [Frame(code=11, fields=pull, opaque=2)] * 3
    yield [Frame(code=310, fields=half, opaque=1, body=b"hello"), Frame(code=37, fields=end)]
    batch = encode_batch([Message("T", b"one"), Message("T", b"two")])
    yield [Frame(code=320, fields=send | {"m": "true"}, opaque=3, body=batch)]


class _NoRetention:
    """A memory store has no files to delete."""

    def delete_expired_soon(self) -> None: ...


class Outcome(NamedTuple):
    """What a broker did; the order of replies is left out, since threads make some of them."""

    written: list[bytes]
    closed: bool
    log: list[tuple[int, bytes]]
    sent: Any


class _OneAccount(OpenAccess):
    """Serves those who sign with the secret of the samples."""

    def check(self, request: Frame, peer: str) -> Identity:
        fields = request.fields or {}
        if fields.get(ACCESS_KEY) != samples.KEY or not is_signed_by(
            fields, request.body, samples.SECRET, request.version
        ):
            raise NoPermission("check signature failed.")
        return Identity(samples.KEY, peer, is_verified=True)

    def secret_of(self, identity: Identity) -> bytes | None:
        return samples.SECRET


async def _served(
    directory: Path, wire: bytes, *, fast: bool, access: Access | None = None
) -> Outcome:
    random.seed(1)  # queues are chosen by chance
    core = BrokerCore(directory, gate=Gate(access=access), store_class=WholeLogStore)
    core.parts.store.retention = _NoRetention()  # type: ignore[assignment]
    try:
        await core.transactions.queue.load()
        core.tables.groups.require("readers")
        core.store.tail(b"T", 1)
        # Plans without a first request are nobody's in particular: who must sign has none.
        peer = core.connect(fast=fast, prepared=access is None)
        for part in _parts(wire):
            peer.receive(part)
        await _settle(peer, _PATIENCE // 10)  # long polls wait
        core.long_polling.stop()
        await _settle(peer)
        outcome = Outcome(
            _frames(peer.written), peer.transport.is_closing(), core.log,
            core.statistics.totals[:2],
        )  # fmt: skip
        peer.connection.abort()
        await asyncio.sleep(0)
    finally:
        await core.stop()
    return outcome


def _parts(wire: bytes) -> list[bytes]:
    """The first frame, the last one and what lies between, as if they were received one by one.

    A half is ended only when it has been stored.
    """
    starts = [0]
    while starts[-1] < len(wire):
        starts.append(starts[-1] + 4 + int.from_bytes(wire[starts[-1] :][:4]))
    cuts = sorted({0, *starts[1:2], *starts[-2:]})
    return [wire[begin:end] for begin, end in pairwise(cuts)]


async def _settle(peer: Peer, patience: int = _PATIENCE) -> None:
    for _ in range(20):
        await asyncio.sleep(0)
    for _ in range(patience):
        if peer.connection.is_idle or peer.transport.is_closing():
            return
        await asyncio.sleep(0.005)


def _frames(written: bytes) -> list[bytes]:
    return sorted(encode_frame(frame) for frame in FrameDecoder().feed(written))


def broker(data: bytes) -> None:
    """Any request: each is answered, and none fails in an unexpected way."""
    wire = wire_of(data)
    _run(lambda directory: _served(directory, wire, fast=True))


def fast_path(data: bytes) -> None:
    """Requests that the fast path may serve: it must do what the handlers do."""
    _compare(wire_of(data))


def signed_fast_path(data: bytes) -> None:
    """The same at a broker that wants signatures; most frames are signed anew, some are not."""
    _compare(wire_of(data, sign=True), _OneAccount())


def _compare(wire: bytes, access: Access | None = None) -> None:
    if any(frame.code not in _FAST_CODES for frame in FrameDecoder().feed(wire)):
        return
    expected = _run(lambda directory: _served(directory, wire, fast=False, access=access))
    found = _run(lambda directory: _served(directory, wire, fast=True, access=access))
    if found != expected:
        raise Disagreement(f"handlers: {expected!r:.3000}\nfast path: {found!r:.3000}")


async def _name_served(directory: Path, wire: bytes) -> None:
    server = NameServer(config_in(directory))
    peer = Peer(server.dispatcher)
    peer.receive(wire)
    await _settle(peer)
    FrameDecoder().feed(peer.written)
    peer.connection.abort()
    await asyncio.sleep(0)


def name_server(data: bytes) -> None:
    wire = wire_of(data)
    _run(lambda directory: _name_served(directory, wire))
