"""A load of batches: one SEND_BATCH_MESSAGE request, repeated on a few connections."""

import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack

MESSAGES = 64
BODY = 128
CONNECTIONS = 4


def load(port: int, seconds: float, topic: str) -> int:
    """Send batches for that time; return the number of responses."""
    frame, answered = _frame(topic), 0
    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            for _ in range(CONNECTIONS)
        ]
        for each in connections:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.sendall(frame)
        for each in _round_robin(connections, time.monotonic() + seconds):
            _read_response(each)
            each.sendall(frame)
            answered += 1
        for each in connections:
            _read_response(each)
    return answered + CONNECTIONS


def _round_robin(connections: list[socket.socket], end: float) -> Iterator[socket.socket]:
    while time.monotonic() < end:
        yield from connections


def _frame(topic: str) -> bytes:
    body = b"".join(map(_item, range(MESSAGES)))
    fields = {
        "a": "smoke-batches", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0",
        "g": str(int(time.time() * 1000)), "h": "0", "i": "", "j": "0", "k": "false", "m": "true",
    }  # fmt: skip
    command = {
        "code": 320, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 1,
        "serializeTypeCurrentRPC": "JSON", "version": 479,
    }  # fmt: skip
    header = json.dumps(command, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def _item(number: int) -> bytes:
    """One message in the format of RocketMQ's MessageDecoder.encodeMessage."""
    properties = f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02TAGS\x01TagA".encode()
    rest = struct.pack(">IIII", 0, 0, 0, BODY) + bytes(BODY)
    rest += struct.pack(">H", len(properties)) + properties
    return struct.pack(">I", 4 + len(rest)) + rest


def _read_response(connection: socket.socket) -> None:
    (size,) = struct.unpack(">I", _read(connection, 4))
    response = _read(connection, size)
    if b'"code":0,' not in response and b'"code":0}' not in response:
        raise RuntimeError(f"the broker rejected a batch: {response!r}")


def _read(connection: socket.socket, size: int) -> bytes:
    data = connection.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise ConnectionError("the server closed the connection")
    return data
