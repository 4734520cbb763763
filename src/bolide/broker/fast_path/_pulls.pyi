from collections.abc import Callable, Collection

from bolide.kernel import Sieve

class PullReplies:
    def __init__(
        self,
        *,
        binary: bool,
        max_count: int,
        max_size: int,
        codes: Collection[int] | None,
        brokers: tuple[int, int],
        far: int,
        sys_flags: tuple[int, int],
        sieve: Sieve | None = None,
    ) -> None: ...
    def found(
        self,
        opaque: int,
        queue_offset: int,
        min_offset: int,
        max_offset: int,
        log_end: int,
        units: bytes | bytearray | memoryview,
        read: Callable[[int, int, int], memoryview | None],
    ) -> tuple[bytes, int, int, int, int, int] | None: ...
    def empty(
        self, status: tuple[int, str], opaque: int, next_offset: int, low: int, high: int
    ) -> bytes: ...

def read_pull(data: bytes, position: int) -> tuple[int, bytes, int, int, int] | None: ...
