"""Handlers that wait for each other and count themselves."""

import asyncio
import threading

from tests.support.aio import PATIENCE


class Crowd:
    """How many of its handlers run now, and how many ran at most at once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.gate = asyncio.Event()
        self.thread_gate = threading.Event()
        self._lock = threading.Lock()

    def _enter(self, by: int) -> None:
        with self._lock:
            self.now += by
            self.most = max(self.most, self.now)

    async def on_loop(self, _message: object) -> None:
        self._enter(1)
        await self.gate.wait()
        self._enter(-1)

    def in_thread(self, _message: object) -> None:
        self._enter(1)
        self.thread_gate.wait(PATIENCE)
        self._enter(-1)

    def open(self) -> None:
        self.gate.set()
        self.thread_gate.set()
