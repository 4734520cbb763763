"""The interface of a message store, independent of how it keeps messages."""

from collections.abc import Sequence
from typing import Protocol, Self

from bolide.kernel import Units
from bolide.protocol.headers.offsets import Boundary
from bolide.protocol.record import RecordDraft
from bolide.store.appending import Appended, AppendRoom
from bolide.store.flusher import Listener
from bolide.store.health import Health
from bolide.store.queries import FOREVER
from bolide.store.reading import EVERYTHING, MessageFilter, ReadLimits, ReadResult


class Store(Protocol):
    """`MessageStore` documents the methods; `tests/contract` checks every implementation."""

    health: Health

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None: ...

    # ---- appending

    def append(self, draft: RecordDraft) -> Appended: ...

    def append_batch(self, drafts: Sequence[RecordDraft]) -> list[Appended]: ...

    @property
    def takes_raw_records(self) -> bool: ...

    def reserve(self) -> AppendRoom | None: ...

    def tail(self, topic: bytes, queue_id: int) -> Units: ...

    def publish(
        self, room: AppendRoom, size: int, count: int, last_record: int, changed: Sequence[Units]
    ) -> tuple[int, int]: ...

    def end_burst(self) -> bool: ...

    # ---- durability

    @property
    def flushed(self) -> int: ...

    def wait_flushed(self, appended: Appended, timeout: float | None = None) -> bool: ...

    def on_flushed(self, listener: Listener) -> None: ...

    def off_flushed(self, listener: Listener) -> None: ...

    def flush(self) -> bool: ...

    # ---- reading

    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        limits: ReadLimits | None = None,
        wanted: MessageFilter = EVERYTHING,
        *,
        may_block: bool = True,
    ) -> ReadResult: ...

    def record_at(self, physical_offset: int, *, may_block: bool = True) -> memoryview | None: ...

    def message_at(self, physical_offset: int, *, may_block: bool = True) -> memoryview | None: ...

    def find(
        self,
        topic: str,
        key: str,
        *,
        limit: int | None = None,
        begin: int = 0,
        end: int = FOREVER,
        unconfirmed: bool = False,
    ) -> list[memoryview]: ...

    def min_offset(self, topic: str, queue_id: int) -> int: ...

    def max_offset(self, topic: str, queue_id: int) -> int: ...

    def is_recent(
        self, topic: str, queue_id: int, queue_offset: int, *, may_block: bool = True
    ) -> bool: ...

    def topics(self) -> set[str]: ...

    def offset_at(
        self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int: ...

    def earliest_time(self, topic: str, queue_id: int) -> int: ...

    def stored_at(self, topic: str, queue_id: int, queue_offset: int) -> int: ...

    def earliest_log_time(self) -> int: ...

    def remove_topic(self, topic: str) -> int: ...

    def set_batched(self, topic: str, *, is_batched: bool) -> None: ...
