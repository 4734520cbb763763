"""The reference for costs: a server and a loop that never change.

Do not optimise them: every stored ratio is relative to them. They use no code of Bolide.
"""

import asyncio
import struct
import sys
from typing import cast

HEADER = (
    b'{"code":0,"extFields":{"msgId":"7F00000100002A9F0000000000000000","queueId":"0",'
    b'"queueOffset":"0","nextBeginOffset":"0","minOffset":"0","maxOffset":"9"},"flag":1,'
    b'"language":"JAVA","opaque":%b,"serializeTypeCurrentRPC":"JSON","version":479}'
)
OPAQUE = b'"opaque":'
PULL = b'{"code":11,'
PULLED = b"".join(struct.pack(">I", 1228) + bytes(1224) for _ in range(32))
"""As many bytes as 32 messages of 1 KiB."""


class Answering(asyncio.Protocol):
    """Responds to every request with success; each pull gets the same 32 records."""

    def __init__(self) -> None:
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        at, answers = 0, []
        while len(data) - at >= 4:
            end = at + 4 + int.from_bytes(data[at : at + 4])
            if end > len(data):
                break
            answers.append(answer(data, at, end))
            at = end
        self._rest = data[at:]
        if answers:
            self._transport.write(b"".join(answers))


def answer(data: bytes, begin: int, end: int) -> bytes:
    at = data.index(OPAQUE, begin, end) + len(OPAQUE)
    header = HEADER % data[at : data.index(b",", at, end)]
    body = PULLED if data.startswith(PULL, begin + 8) else b""
    sizes = struct.pack(">II", 4 + len(header) + len(body), len(header))
    return b"".join((sizes, header, body))


def turn_around(times: int) -> int:
    """A loop of interpreter work without I/O."""
    found: dict[bytes, int] = {}
    for number in range(times):
        text = b"%08d" % number
        key = text[-3:]
        found[key] = found.get(key, 0) + len(text)
        struct.pack(">IQ", number, number * 7)
    return len(found)


async def serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Answering, "127.0.0.1", 0)
    print(f"serves on port {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        sys.exit(asyncio.run(serve()))
    uvloop.run(serve())
