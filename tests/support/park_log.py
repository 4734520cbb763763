"""A park queue in memory."""

import asyncio

from bolide.client.consumer.parking.park_log import CarriedRecord, ParkLogRead
from bolide.client.consumer.parking.parked_keys import ParkedKeys
from bolide.client.consumer.parking.records import ParkRecord, park_queue
from bolide.errors import BolideError
from bolide.model.message_queue import MessageQueue
from tests.unit.client.stored import stored

SOURCE = MessageQueue("T", "broker-a", 0)


class Crash(Exception):
    """The writing process ends here."""


class MemoryParkLog:
    """A park queue in memory; an append may crash before or after the write, or lose its reply."""

    def __init__(self) -> None:
        self.queue = park_queue("group", SOURCE)
        self.records: list[tuple[ParkRecord, bytes]] = []
        self.first = 0
        self.kept = 3600.0
        self.grown = asyncio.Event()
        self.crashes: str | None = None

    async def append(self, record: ParkRecord, body: bytes = b"", flag: int = 0) -> int:
        crashes, self.crashes = self.crashes, None
        if crashes == "before":
            raise Crash
        park_offset = self.put(record, body)
        if crashes == "after":
            raise Crash
        if crashes == "unheard":
            raise BolideError("no answer")
        return park_offset

    def put(self, record: ParkRecord, body: bytes = b"") -> int:
        self.records.append((record, body))
        self.grown.set()
        return len(self.records) - 1

    async def read(self, park_offset: int, *, wait: float = 0.0) -> ParkLogRead:
        while wait and park_offset == len(self.records):
            self.grown.clear()
            await self.grown.wait()
        found = [self.at(each) for each in range(max(park_offset, self.first), len(self.records))]
        return ParkLogRead(found, len(self.records))

    async def find(self, park_offset: int) -> CarriedRecord | None:
        return self.at(park_offset) if self.first <= park_offset < len(self.records) else None

    async def first_park_offset(self) -> int:
        return self.first

    async def retention(self) -> float:
        return self.kept

    def at(self, park_offset: int) -> CarriedRecord:
        record, body = self.records[park_offset]
        return CarriedRecord(record, stored(park_offset, body, topic=self.queue.topic))

    def fold(self) -> ParkedKeys:
        """The state an administrator sees."""
        seen = ParkedKeys()
        for park_offset in range(self.first, len(self.records)):
            seen.apply(self.records[park_offset][0], park_offset, 0)
        return seen
