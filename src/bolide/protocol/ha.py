"""The bytes of log replication between a slave and its master (RocketMQ: HA). Does no I/O.

A slave connects to the HA port of its master. There are two dialects; all numbers are big-endian.

Plain, `DefaultHAConnection`, of brokers with fixed roles:

    slave  → master   8 maxOffset                                   (the first one is the request)
    master → slave    8 offset, 4 size, size bytes of the log       (size 0 is a heartbeat)

With epochs, `AutoSwitchHAConnection`, of brokers in controller mode. State 1 is the handshake, 2
the transfer of log bytes.

    slave  → master   4 state 1, 2 syncFromLastFile, 2 asyncLearner, 8 brokerId
                      4 state 2, 8 maxOffset
    master → slave    4 state 1, 4 size, 8 maxOffset, 4 epoch, then for each epoch: 4 epoch, 8 start
                      4 state 2, 4 size, 8 offset, 4 epoch, 8 epochStartOffset, 8 confirmOffset,
                      size bytes of the log

The decoders take bytes in pieces of any size and limit what a peer may announce.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from bolide.protocol.errors import ProtocolError

MAX_TRANSFER: Final = 4 * 1024 * 1024
"""Most bytes of one transfer; the buffer of RocketMQ's slave."""
_MAX_EPOCHS = 100_000

_OFFSET = struct.Struct(">q")
_PLAIN_TRANSFER = struct.Struct(">qi")
_STATE = struct.Struct(">i")
_HELLO = struct.Struct(">ihhq")
_REPORT = struct.Struct(">iq")
_MASTER_HELLO = struct.Struct(">iiqi")
_EPOCH = struct.Struct(">iq")
_EPOCH_TRANSFER = struct.Struct(">iiqiqq")
_HANDSHAKE, _TRANSFER = 1, 2
_LEARNER, _COPIES_METADATA = 1, 2
"""Values of asyncLearner; RocketMQ's masters take every value but 1 for a plain slave."""


class HaProtocolError(ProtocolError):
    """The peer of a replication connection sent bytes of no valid form."""


class EpochStart(NamedTuple):
    """An epoch, the period of one master, and the log position where it begins."""

    epoch: int
    start: int


class SlaveHello(NamedTuple):
    """First message of a slave in controller mode."""

    broker_id: int
    from_last_file: bool = False
    is_learner: bool = False
    """Whether the slave never counts as in sync."""
    copies_metadata: bool = False
    """Ours: the slave tells when it has copied the master's tables, and counts only then."""


class MasterHello(NamedTuple):
    """The master's answer to a `SlaveHello`: the epochs of its log."""

    max_offset: int
    epoch: int
    epochs: tuple[EpochStart, ...]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A part of the master's log; without data it is a heartbeat."""

    offset: int
    data: bytes
    epoch: int = -1
    epoch_start: int = -1
    confirmed: int = -1


# ---- what slaves send


def encode_report(max_offset: int, *, with_epochs: bool) -> bytes:
    """The report of a slave's end of the log."""
    return _REPORT.pack(_TRANSFER, max_offset) if with_epochs else _OFFSET.pack(max_offset)


def encode_slave_hello(hello: SlaveHello) -> bytes:
    kind = _LEARNER if hello.is_learner else _COPIES_METADATA if hello.copies_metadata else 0
    return _HELLO.pack(_HANDSHAKE, hello.from_last_file, kind, hello.broker_id)


class SlaveMessages:
    """Decodes what a slave sends to its master: reports, and hellos if it has epochs."""

    def __init__(self, *, with_epochs: bool) -> None:
        self._with_epochs = with_epochs
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[SlaveHello | int]:
        """Yield hellos and reported offsets; of several reports at once only the last counts.

        Raises:
            HaProtocolError: the bytes are no message of a slave.
        """
        self._buffer += data
        yield from self._epoch_messages() if self._with_epochs else self._plain_reports()

    def _plain_reports(self) -> Iterator[int]:
        whole = len(self._buffer) // _OFFSET.size * _OFFSET.size
        if whole:
            reports = bytes(self._buffer[:whole])
            del self._buffer[:whole]
            yield [_checked_offset(offset) for (offset,) in _OFFSET.iter_unpack(reports)][-1]

    def _epoch_messages(self) -> Iterator[SlaveHello | int]:
        reported = None
        while len(self._buffer) >= _STATE.size:
            (state,) = _STATE.unpack_from(self._buffer)
            if state == _HANDSHAKE and len(self._buffer) >= _HELLO.size:
                _, from_last, kind, broker_id = _HELLO.unpack_from(self._buffer)
                del self._buffer[: _HELLO.size]
                if broker_id < 0:
                    raise HaProtocolError(f"a slave says that its id is {broker_id}")
                yield SlaveHello(
                    broker_id, from_last == 1, kind == _LEARNER, kind == _COPIES_METADATA
                )
            elif state == _TRANSFER and len(self._buffer) >= _REPORT.size:
                _, offset = _REPORT.unpack_from(self._buffer)
                del self._buffer[: _REPORT.size]
                reported = _checked_offset(offset)
            elif state not in (_HANDSHAKE, _TRANSFER):
                raise HaProtocolError(f"a slave sent state {state}")
            else:
                break
        if reported is not None:
            yield reported


# ---- what masters send


def encode_plain_header(offset: int, size: int) -> bytes:
    return _PLAIN_TRANSFER.pack(offset, size)


def encode_epoch_header(offset: int, size: int, epoch: EpochStart, confirmed: int) -> bytes:
    return _EPOCH_TRANSFER.pack(_TRANSFER, size, offset, *epoch, confirmed)


def encode_master_hello(hello: MasterHello) -> bytes:
    entries = b"".join(_EPOCH.pack(*each) for each in hello.epochs)
    return _MASTER_HELLO.pack(_HANDSHAKE, len(entries), hello.max_offset, hello.epoch) + entries


class MasterMessages:
    """Decodes what a master sends to a slave: transfers, and hellos if it has epochs."""

    def __init__(self, *, with_epochs: bool) -> None:
        self._with_epochs = with_epochs
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[MasterHello | Transfer]:
        """Yield the whole messages received so far.

        Raises:
            HaProtocolError: the bytes are no message of a master, or announce too much.
        """
        self._buffer += data
        while (found := self._next()) is not None:
            message, size = found
            del self._buffer[:size]
            yield message

    def _next(self) -> tuple[MasterHello | Transfer, int] | None:
        if not self._with_epochs:
            return self._plain_transfer()
        if len(self._buffer) < _STATE.size:
            return None
        (state,) = _STATE.unpack_from(self._buffer)
        if state == _HANDSHAKE:
            return self._hello()
        if state == _TRANSFER:
            return self._epoch_transfer()
        raise HaProtocolError(f"a master sent state {state}")

    def _plain_transfer(self) -> tuple[Transfer, int] | None:
        if len(self._buffer) < _PLAIN_TRANSFER.size:
            return None
        offset, size = _PLAIN_TRANSFER.unpack_from(self._buffer)
        data = self._body(_PLAIN_TRANSFER.size, size, MAX_TRANSFER)
        _checked_offset(offset)
        return None if data is None else (Transfer(offset, data), _PLAIN_TRANSFER.size + size)

    def _epoch_transfer(self) -> tuple[Transfer, int] | None:
        if len(self._buffer) < _EPOCH_TRANSFER.size:
            return None
        _, size, offset, epoch, start, confirmed = _EPOCH_TRANSFER.unpack_from(self._buffer)
        data = self._body(_EPOCH_TRANSFER.size, size, MAX_TRANSFER)
        _checked_offset(offset)
        if data is None:
            return None
        return Transfer(offset, data, epoch, start, confirmed), _EPOCH_TRANSFER.size + size

    def _hello(self) -> tuple[MasterHello, int] | None:
        if len(self._buffer) < _MASTER_HELLO.size:
            return None
        _, size, max_offset, epoch = _MASTER_HELLO.unpack_from(self._buffer)
        data = self._body(_MASTER_HELLO.size, size, _MAX_EPOCHS * _EPOCH.size)
        if data is None:
            return None
        if size % _EPOCH.size:
            raise HaProtocolError(f"a master announced {size} bytes of epochs")
        epochs = tuple(EpochStart(*each) for each in _EPOCH.iter_unpack(data))
        return MasterHello(_checked_offset(max_offset), epoch, epochs), _MASTER_HELLO.size + size

    def _body(self, at: int, size: int, limit: int) -> bytes | None:
        """The bytes behind a header, or None until all of them have arrived."""
        if not 0 <= size <= limit:
            raise HaProtocolError(f"a master announced {size} bytes, the limit is {limit}")
        if len(self._buffer) < at + size:
            return None
        with memoryview(self._buffer) as view:  # a slice of the buffer itself would be a copy more
            return bytes(view[at : at + size])


def _checked_offset(offset: int) -> int:
    if offset < 0:
        raise HaProtocolError(f"the peer of a replica reported position {offset}")
    return offset
