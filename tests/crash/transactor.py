"""A process that sends messages in transactions until it is killed.

`python -m tests.crash.transactor '{"name_server": …}'`. Its local transactions are rows of a
database: who has a row for a message first, the local transaction or a check that finds none, has
decided. What is in the database is what must be delivered.
"""

import asyncio
import random
import sqlite3
import sys
import threading
from contextlib import closing
from itertools import count
from pathlib import Path

import msgspec

from bolide import Message, TransactionProducer, TransactionState
from bolide.errors import BolideError
from bolide.model.message import StoredMessage

GROUP, TOPIC = "transactors", "Paid"
SENDERS = 8

COMMIT, ROLLBACK, UNKNOWN = (
    TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN,
)  # fmt: skip


class Orders(msgspec.Struct, kw_only=True):
    """What the parent wants."""

    name_server: str
    database: str
    name: str
    most: int = 10**9
    """Transactions after which it only answers."""


class Database:
    """A row for each transaction that is decided; several processes use it."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, timeout=60, check_same_thread=False)
        self._lock = threading.Lock()
        self._connection.execute("PRAGMA synchronous=OFF")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS decided (name TEXT PRIMARY KEY, state INTEGER)"
        )
        self._connection.commit()

    def decide(self, name: str, state: TransactionState) -> TransactionState:
        """How it is decided: so, unless somebody was first."""
        with self._lock, self._connection as connection:
            connection.execute("INSERT OR IGNORE INTO decided VALUES (?, ?)", (name, int(state)))
            row = connection.execute("SELECT state FROM decided WHERE name = ?", (name,)).fetchone()
        return TransactionState(row[0])

    def committed(self) -> set[str]:
        with self._lock:
            return {
                row[0]
                for row in self._connection.execute(
                    "SELECT name FROM decided WHERE state = ?", (int(COMMIT),)
                )
            }

    def count(self) -> int:
        with self._lock:
            found: int = self._connection.execute("SELECT count(*) FROM decided").fetchone()[0]
        return found

    def close(self) -> None:
        self._connection.close()


class Transactor:
    def __init__(self, orders: Orders, database: Database) -> None:
        self._orders = orders
        self._database = database
        self._chance = random.Random(orders.name)
        self._numbers = count()

    async def run(self) -> None:
        orders = self._orders
        async with TransactionProducer(
            GROUP,
            check=self.check,
            topics=[TOPIC],
            name_server=orders.name_server,
            send_timeout=1.0,
            route_interval=0.5,
            heartbeat_interval=1.0,
        ) as producer:
            async with asyncio.TaskGroup() as senders:
                for _ in range(SENDERS):
                    senders.create_task(self._send(producer))
            await asyncio.Event().wait()

    async def _send(self, producer: TransactionProducer) -> None:
        while (number := next(self._numbers)) < self._orders.most:
            message = Message(TOPIC, f"{self._orders.name}/{number}".encode())
            try:
                await producer.send_in_transaction(message, self.local)
            except BolideError:
                await asyncio.sleep(0.05)

    def local(self, message: Message) -> TransactionState:
        """Decides; one in three does not tell, and one in ten ends before it could decide."""
        if self._chance.random() < 0.1:
            return UNKNOWN
        wanted = COMMIT if self._chance.random() < 0.7 else ROLLBACK
        state = self._database.decide(message.body.decode(), wanted)
        return UNKNOWN if self._chance.random() < 0.33 else state

    def check(self, message: StoredMessage) -> TransactionState:
        if self._chance.random() < 0.3:
            return UNKNOWN
        return self._database.decide(message.body.decode(), ROLLBACK)


if __name__ == "__main__":
    given = msgspec.json.decode(sys.argv[1], type=Orders)
    with closing(Database(Path(given.database))) as database:
        asyncio.run(Transactor(given, database).run())
