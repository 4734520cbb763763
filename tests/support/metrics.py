"""Reading /metrics as Prometheus does, and how long a loop stands still meanwhile."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from bolide.metrics.exporter import Exporter


class HttpReply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        packed = self.headers.get("content-encoding") == "gzip"
        return (gzip.decompress(self.body) if packed else self.body).decode()


async def http(address: str, request: bytes) -> HttpReply:
    """Send bytes and read one response."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request)
        return await read_reply(reader, has_body=not request.startswith(b"HEAD"))
    finally:
        writer.close()


async def read_reply(reader: asyncio.StreamReader, *, has_body: bool = True) -> HttpReply:
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    pairs = [line.split(": ", 1) for line in lines if line]
    headers = {name.lower(): value for name, value in pairs}
    size = int(headers["content-length"]) if has_body else 0
    return HttpReply(int(status.split()[1]), headers, await reader.readexactly(size))


async def get(exporter: Exporter, path: str, *headers: str) -> HttpReply:
    assert exporter.address is not None
    lines = [f"GET {path} HTTP/1.1", "Host: here", *headers, "", ""]
    return await http(exporter.address, "\r\n".join(lines).encode())


class Scraped:
    """The series of one scrape, by name."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kinds: dict[str, str] = {}
        self.labels: dict[str, set[str]] = {}
        self._values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(text):
            assert family.name not in self.kinds, f"{family.name} is there twice"
            self.kinds[family.name] = family.type
            for sample in family.samples:
                self.labels.setdefault(family.name, set()).update(sample.labels)
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self._values, f"{key} is there twice"
                self._values[key] = sample.value

    def all(self, name: str, **labels: str) -> list[float]:
        """Values of the series that have these labels among theirs."""
        wanted = labels.items()
        return [
            value for (found, own), value in self._values.items() if found == name and wanted <= own
        ]

    def one(self, name: str, **labels: str) -> float:
        found = self.all(name, **labels)
        assert len(found) == 1, (name, labels, found)
        return found[0]


async def fetch(exporter: Exporter) -> HttpReply:
    """Collect anew, and read all of it."""
    exporter.forget_recent()
    reply = await get(exporter, "/metrics", "Accept-Encoding: gzip")
    assert reply.status == 200
    return reply


async def scrape(exporter: Exporter) -> Scraped:
    return Scraped((await fetch(exporter)).text)


class Stalls:
    """The longest stall in seconds: of the clock, and of the processor as used by this process.

    When other processes keep the machine busy the first one grows, the second one does not.
    """

    longest = 0.0
    longest_own = 0.0


@asynccontextmanager
async def stalls() -> AsyncIterator[Stalls]:
    """The longest time that the loop does not come round in the block."""
    found = Stalls()

    async def watch() -> None:
        before, own_before = time.perf_counter(), time.process_time()
        while True:
            await asyncio.sleep(0)
            now, own = time.perf_counter(), time.process_time()
            found.longest = max(found.longest, now - before)
            found.longest_own = max(found.longest_own, own - own_before)
            before, own_before = now, own

    task = asyncio.create_task(watch())
    await asyncio.sleep(0.01)
    found.longest = found.longest_own = 0.0
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
