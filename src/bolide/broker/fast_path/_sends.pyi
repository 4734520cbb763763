from typing import Any

from bolide.kernel import Units
from bolide.store.appending import AppendRoom

class SendTarget:
    topic: bytes
    name: str
    queues: int
    has_window: bool
    is_open: bool
    def __init__(self, topic: bytes, queues: int, has_window: bool) -> None: ...
    def take_sizes(self) -> tuple[tuple[list[int], int], tuple[list[int], int]]: ...
    def open_queue(self, queue_id: int, tail: Units) -> None: ...

class SendPlans:
    singles: dict[bytes, SendTarget]
    batches: dict[bytes, SendTarget]
    halves: dict[bytes, SendTarget]
    ends: set[bytes]
    signed: dict[bytes, SendPlans]
    signed_ends: bool
    access_key: bytes | None
    secret: bytes | None
    def __init__(self, access_key: bytes | None = None, secret: bytes | None = None) -> None: ...
    def __bool__(self) -> bool: ...
    def __len__(self) -> int: ...

class SendFlow:
    halves: SendTarget
    ops: SendTarget
    last_record: int
    error: BaseException | None
    missing_queue: tuple[SendTarget, int] | None
    def __init__(
        self, store_host: bytes, host_digits: str, halves: SendTarget, ops: SendTarget
    ) -> None: ...
    def configure(
        self,
        *,
        suffix: bytes,
        reply_fields: bytes,
        reply_end: bytes,
        binary_head: bytes,
        binary_fields: bytes,
        max_body: int,
        max_batch: int,
    ) -> None: ...
    def drain_ended(self) -> list[tuple[int, int, int, str, int]] | tuple[()]: ...
    def drain_touched(self) -> list[tuple[str, int, Units]]: ...
    def drain_counted(self) -> list[SendTarget]: ...
    def drain_requests(self) -> tuple[int, int, int]: ...
    def drain_changed(self) -> list[Units] | tuple[()]: ...
    def run(
        self,
        data: bytes,
        position: int,
        max_frame: int,
        max_messages: int,
        born_host: bytes,
        plans: SendPlans,
        claimed: set[int] | None,
        room: AppendRoom,
    ) -> tuple[int, bytes, int, int, int]: ...

def find_ends(data: bytes, position: int) -> list[int]: ...

SPELLED_NAMES: dict[Any, Any]
