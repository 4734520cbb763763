"""Targets of replication: what slaves and masters send, and the file of epochs."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bolide.protocol.ha import (
    EpochStart,
    HaProtocolError,
    MasterHello,
    MasterMessages,
    SlaveHello,
    SlaveMessages,
    Transfer,
    encode_epoch_header,
    encode_master_hello,
    encode_plain_header,
    encode_report,
    encode_slave_hello,
)
from bolide.replication.epochs import are_possible, common_point, decode_epochs, encode_epochs
from bolide.store.message_store import MessageStore
from bolide.store.replica_log import LogMismatch
from tests.fuzz import samples
from tests.support.store import small_config

_EPOCH = EpochStart(3, 4096)
Decoder = MasterMessages | SlaveMessages


def from_slave(data: bytes) -> None:
    """Hellos and the last report are the same however the bytes are cut into pieces."""
    with_epochs = data[:1] == b"\1"
    whole, cut = _both_ways(lambda: SlaveMessages(with_epochs=with_epochs), data)
    assert [*_hellos(whole), *_reports(whole)[-1:]] == [*_hellos(cut), *_reports(cut)[-1:]]


def _hellos(messages: list[Any]) -> list[Any]:
    return [each for each in messages if isinstance(each, SlaveHello)]


def _reports(messages: list[Any]) -> list[Any]:
    return [each for each in messages if isinstance(each, int)]


def from_master(data: bytes) -> None:
    """Messages are the same in pieces, and encode to what was received."""
    with_epochs = data[:1] == b"\1"
    whole, cut = _both_ways(lambda: MasterMessages(with_epochs=with_epochs), data)
    assert whole == cut, "pieces give other messages than the whole"
    wire = b"".join(_encoded(each, with_epochs=with_epochs) for each in whole)
    assert data[1:].startswith(wire), "the messages encode to other bytes"
    for each in whole:
        if isinstance(each, MasterHello) and are_possible(each.epochs, each.max_offset):
            point = common_point(each.epochs, each.max_offset, each.epochs, each.max_offset)
            assert point == each.max_offset, "a log differs from itself"


def _both_ways(decoder: Callable[[], Decoder], data: bytes) -> tuple[list[Any], list[Any]]:
    """The messages of the bytes as a whole and in pieces. Raises HaProtocolError if both do."""
    size = 1 + len(data) % 13
    pieces = [data[at : at + size] for at in range(1, len(data), size)]
    whole, error = _fed(decoder(), [data[1:]])
    cut, other = _fed(decoder(), pieces)
    assert (error is None) == (other is None), "pieces give another error"
    if error is not None:
        raise error
    return whole, cut


def _fed(decoder: Decoder, pieces: list[bytes]) -> tuple[list[Any], HaProtocolError | None]:
    found: list[Any] = []
    try:
        for piece in pieces:
            found += decoder.feed(piece)
    except HaProtocolError as exc:
        return found, exc
    return found, None


def _encoded(message: MasterHello | Transfer, *, with_epochs: bool) -> bytes:
    if isinstance(message, MasterHello):
        return encode_master_hello(message)
    size = len(message.data)
    if not with_epochs:
        return encode_plain_header(message.offset, size) + message.data
    epoch = EpochStart(message.epoch, message.epoch_start)
    return encode_epoch_header(message.offset, size, epoch, message.confirmed) + message.data


def slave_seeds() -> Iterator[bytes]:
    yield b"\0" + encode_report(77, with_epochs=False) + encode_report(99, with_epochs=False)
    hello = SlaveHello(7, from_last_file=True)
    yield b"\1" + encode_slave_hello(hello) + encode_report(77, with_epochs=True) * 2


def master_seeds() -> Iterator[bytes]:
    yield b"\0" + encode_plain_header(4096, 5) + b"bytes" + encode_plain_header(4101, 0)
    hello = MasterHello(5000, 3, (EpochStart(1, 0), _EPOCH))
    transfer = encode_epoch_header(4096, 5, _EPOCH, 90) + b"bytes"
    yield b"\1" + encode_master_hello(hello) + transfer + encode_epoch_header(4101, 0, _EPOCH, 91)


def epochs_file(data: bytes) -> None:
    found = decode_epochs(data.decode())
    assert decode_epochs(encode_epochs(found)) == found


def replica_log(data: bytes) -> None:
    """A slave takes any bytes as its master's log, up to what is no record, and stays sound."""
    with tempfile.TemporaryDirectory() as directory:
        config = small_config(Path(directory))
        with MessageStore(config, background=False) as store:
            store.replica.begin()
            try:
                _replicate(store, data)
            except LogMismatch:
                store.cut_incomplete()
            end = store.replica.dispatched
            assert end == store.sound_end
            store.finish_replication()
            assert store.log.end == end, "the log ends within a record"
        with MessageStore(config, background=False) as store:
            assert store.log.end <= end, "a restart found more than was there"


def _replicate(store: MessageStore, data: bytes) -> None:
    at = 0
    size = 1 + len(data) % 97
    while at < len(data):
        store.replica.append(at, memoryview(data)[at : at + size])
        store.replica.dispatch()
        at += size


def log_seeds() -> Iterator[bytes]:
    yield from samples.logs()
