"""A park queue in memory."""

import asyncio

from bolide.client.consumer.parking.park_log import Found, Parked
from bolide.client.consumer.parking.parked_keys import ParkedKeys
from bolide.client.consumer.parking.records import ParkRecord, park_queue
from bolide.errors import BolideError
from bolide.model.message_queue import MessageQueue
from tests.unit.client.stored import stored

SOURCE = MessageQueue("T", "broker-a", 0)


class Crash(Exception):
    """The process of whoever writes ends here."""


class MemoryParkLog:
    """A park queue in memory; an append may crash before or after it is done, or fail unheard."""

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
        place = self.put(record, body)
        if crashes == "after":
            raise Crash
        if crashes == "unheard":
            raise BolideError("no answer")
        return place

    def put(self, record: ParkRecord, body: bytes = b"") -> int:
        self.records.append((record, body))
        self.grown.set()
        return len(self.records) - 1

    async def read(self, place: int, *, wait: float = 0.0) -> Found:
        while wait and place == len(self.records):
            self.grown.clear()
            await self.grown.wait()
        found = [self.at(each) for each in range(max(place, self.first), len(self.records))]
        return Found(found, len(self.records))

    async def find(self, place: int) -> Parked | None:
        return self.at(place) if self.first <= place < len(self.records) else None

    async def first_place(self) -> int:
        return self.first

    async def retention(self) -> float:
        return self.kept

    def at(self, place: int) -> Parked:
        record, body = self.records[place]
        return Parked(record, stored(place, body, topic=self.queue.topic))

    def fold(self) -> ParkedKeys:
        """What an administrator sees."""
        seen = ParkedKeys()
        for place in range(self.first, len(self.records)):
            seen.apply(self.records[place][0], place, 0)
        return seen
