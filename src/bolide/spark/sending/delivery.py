"""Parcels on their way: a few at once, each until it is stored.

Tasks of Spark have no event loop: a loop in a thread of its own sends while the task encodes the
next rows. What goes to one queue goes in order, one parcel after the other; what may go anywhere
goes at once. A broker that is away is waited for, and a parcel may then be stored twice unless its
rows have keys by which the broker knows them.
"""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from bolide.arrow.cluster import Connection
from bolide.client.blocking import Caller
from bolide.model.message_queue import MessageQueue
from bolide.spark.sending.parcels import Parcel
from bolide.spark.sending.rows import Task
from bolide.spark.sending.sender import Sender
from bolide.spark.sink_options import SinkOptions


class Delivery:
    """Sends parcels while its `with` block runs; at its end all of them are stored."""

    def __init__(self, connection: Connection, options: SinkOptions, task: Task) -> None:
        self.requests = 0
        """How many parcels were sent."""
        self._caller = Caller()
        self._sender = Sender(connection, options, task)
        self._most = options.in_flight
        self._under_way: deque[Future[None]] = deque()
        self._queues: dict[str, Sequence[MessageQueue]] = {}

    def __enter__(self) -> Self:
        self._caller.wait(self._sender.start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if exc is None:
                while self._under_way:
                    self._under_way.popleft().result()
        finally:
            for future in self._under_way:
                future.cancel()
            self._caller.wait(self._sender.close())

    def send(self, parcel: Parcel) -> None:
        """Hand one over; waits for the oldest if too many are under way, and raises its failure.

        Raises:
            RowFailed: a broker refuses a row.
            RowsFailed: rows could not be sent for as long as the options say.
        """
        while len(self._under_way) >= self._most:
            self._under_way.popleft().result()
        self._under_way.append(self._caller.submit(self._sender.send(parcel)))
        self.requests += 1

    def queues_of(self, topic: str) -> Sequence[MessageQueue]:
        """The writable queues of a topic, sorted; asked for once."""
        if topic not in self._queues:
            self._queues[topic] = self._caller.wait(self._sender.queues_of(topic))
        return self._queues[topic]
