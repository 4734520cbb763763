"""A process that fills a store until it is killed, and says what was acknowledged.

`python -m tests.crash.sender '{"root": …}'`: a line of JSON on standard output for each
acknowledgement. Messages follow from life and number (see `letters`).
"""

import itertools
import json
import os
import sys
import threading
from pathlib import Path

import msgspec

from bolide.store.config import FlushMode
from bolide.store.message_store import MessageStore
from bolide.store.tables import CONSUMER_OFFSETS, Table
from tests.crash.ledger import small_config
from tests.crash.letters import Name, batch, is_queued
from tests.support.faults import KillingDisk

THREADS = 3
SECONDS_A_MESSAGE = 20.0
"""The clock goes by messages, so that files expire after an hour of 180 messages."""


class Orders(msgspec.Struct, kw_only=True):
    """What the parent wants."""

    root: str
    life: int
    mode: FlushMode
    appends: int = 1_000_000
    moment: str = ""
    nth: int = 1
    now: float = 1_700_000_000.0


class Sender:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._numbers = itertools.count()
        self._disk = KillingDisk(Path(orders.root), orders.moment, orders.nth)
        self._table = Table(Path(orders.root) / "config", CONSUMER_OFFSETS, disk=self._disk)
        self._sent = 0

    def run(self) -> None:
        say(["opening"])
        # All of it is done all the time: each kill meets something under way.
        config = small_config(
            Path(self._orders.root),
            self._orders.mode,
            flush_interval=0.002,
            flush_least_pages=0,
            queue_flush_interval=0.003,
            queue_flush_least_pages=0,
            queue_flush_thorough_interval=0.02,
            clean_interval=0.01,
            delete_when=tuple(f"{hour:02d}" for hour in range(24)),
            file_reserved_hours=1,
            delete_log_files_interval=0.0,
        )
        self._table.load()
        with MessageStore(config, clock=self._clock, disk=self._disk) as store:
            say(["open"])
            threads = [
                threading.Thread(target=self._send, args=(store, first), daemon=True)
                for first in range(THREADS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        say(["closed"])

    def _clock(self) -> float:
        return self._orders.now + self._sent * SECONDS_A_MESSAGE

    def _send(self, store: MessageStore, first: int) -> None:
        for number in range(first, self._orders.appends, THREADS):
            drafts = batch(self._orders.life, number)
            places = store.append_batch(drafts)
            self._sent += len(places)
            if self._orders.mode is FlushMode.SYNC and not store.wait_flushed(places[-1], 60.0):
                raise TimeoutError("the disk is too slow for this test")
            say([
                "stored",
                [
                    [Name(self._orders.life, number, place), str(draft.topic, "utf-8"),
                     draft.queue_id, is_queued(draft), appended]
                    for place, (draft, appended) in enumerate(zip(drafts, places, strict=True))
                ],
            ])  # fmt: skip
            if first == 0:
                if number % 2:
                    store.end_burst()
                self._save_table()

    def _save_table(self) -> None:
        """The offset in it is the number of savings over all lives."""
        queue = self._table.value.offset_table.setdefault("Orders@readers", {})
        queue[0] = queue.get(0, 0) + 1
        self._table.changed()
        self._table.save()
        say(["saved", queue[0]])


def say(line: object) -> None:
    os.write(sys.stdout.fileno(), json.dumps(line).encode() + b"\n")  # at once: others write too


if __name__ == "__main__":
    Sender(msgspec.json.decode(sys.argv[1], type=Orders)).run()
