"""A peer of raw bytes: it sends what it is told and reads only when it is asked to."""

import asyncio
import contextlib
import socket
import struct
from types import TracebackType
from typing import Self

from bolide.protocol.frame import Frame, FrameFlag, HeaderEncoding
from bolide.protocol.framing import decode_frame, encode_frame
from bolide.remoting.address import split_address
from tests.support.aio import PATIENCE

_LENGTH = struct.Struct(">I")
_NO_LINGER = struct.pack("ii", 1, 0)


def request_bytes(
    code: int,
    fields: dict[str, str] | None = None,
    *,
    opaque: int = 1,
    body: bytes = b"",
    one_way: bool = False,
    encoding: HeaderEncoding = HeaderEncoding.JSON,
) -> bytes:
    """One request as it stands on the wire."""
    flag = FrameFlag.ONE_WAY if one_way else 0
    return encode_frame(
        Frame(code=code, fields=fields, opaque=opaque, body=body, flag=flag, encoding=encoding)
    )


def response_of(data: bytes) -> Frame:
    """The one frame that `data` is."""
    assert _LENGTH.unpack_from(data)[0] == len(data) - _LENGTH.size
    return decode_frame(data[_LENGTH.size :])


class RawPeer:
    """Use it as `async with await RawPeer.connect(address) as peer`."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def connect(cls, address: str, *, receive_buffer: int = 0) -> Self:
        host, port = split_address(address)
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        sock.setblocking(False)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        peer = cls(sock)
        async with asyncio.timeout(PATIENCE):
            await peer._loop.sock_connect(sock, (host, port))
        return peer

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._socket, data)

    async def read(self, size: int) -> bytes:
        """That many bytes, fewer only if the connection ended."""
        data = bytearray()
        async with asyncio.timeout(PATIENCE):
            while len(data) < size:
                part = await self._loop.sock_recv(self._socket, size - len(data))
                if not part:
                    break
                data += part
        return bytes(data)

    async def frame(self) -> Frame:
        (length,) = _LENGTH.unpack(await self.read(_LENGTH.size))
        return decode_frame(await self.read(length))

    async def rest(self) -> bytes:
        """All that comes until the server closes the connection."""
        data = bytearray()
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                while part := await self._loop.sock_recv(self._socket, 65536):
                    data += part
        return bytes(data)

    def end(self) -> None:
        """Say that nothing more will be sent, and go on reading."""
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Vanish without a good-bye."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._socket.close()

    def close(self) -> None:
        self._socket.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
