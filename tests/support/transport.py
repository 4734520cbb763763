"""A transport without a socket: remembers what is written and whether it is read from."""

import asyncio
from collections.abc import Iterable
from typing import Any


class FakeTransport(asyncio.Transport):
    """What it holds leaves when the test calls `drain`; until then it counts as unsent."""

    def __init__(self, peer: tuple[str, int] = ("10.0.0.9", 4711)) -> None:
        super().__init__({"peername": peer})
        self.writes: list[bytes] = []
        self.is_read = True
        self.aborted = False
        self._high = 64 * 1024
        self._unsent = 0
        self._closing = False
        self._paused = False

    def attach(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        self._unsent += len(data)
        if self._unsent > self._high and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)

    def drain(self) -> None:
        """Everything written has left."""
        self._unsent = 0
        if self._paused:
            self._paused = False
            self._protocol.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else self._high

    def get_write_buffer_size(self) -> int:
        return self._unsent

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """The peer hangs up in turn, as clients do."""
        asyncio.get_running_loop().call_soon(self.close)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.aborted = True
        self.close()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return super().get_extra_info(name, default)
