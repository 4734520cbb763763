"""Work outside a handler: background tasks, table-writing threads, cold reads, large JSON."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import Any, ParamSpec, TypeVar

from bolide.kernel import read_record
from bolide.model.names import AUDIT_TOPIC
from bolide.protocol import fastjson
from bolide.protocol.errors import ProtocolError
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.protocol.refusals import ServerError
from bolide.remoting.dispatch import DeferredReply, H, Reply, Request
from bolide.store.contract import Store
from bolide.store.errors import NotInMemory
from bolide.store.queries import Queries
from bolide.store.tables import Table

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MAX_BODY = 4 * 1024 * 1024
"""Maximum size of a JSON body: some ten thousand queues or subscriptions."""


class Pool(ThreadPoolExecutor):
    """Threads for one kind of blocking work, which knows what waits for them."""

    def __init__(self, threads: int, name: str) -> None:
        super().__init__(threads, name)
        self._numbers = count()
        self._waiting: dict[int, float] = {}

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        number = next(self._numbers)
        self._waiting[number] = time.monotonic()

        def run() -> R:
            self._waiting.pop(number, None)
            return fn(*args, **kwargs)

        future = super().submit(run)
        future.add_done_callback(lambda _: self._waiting.pop(number, None))  # it may be cancelled
        return future

    @property
    def waiting(self) -> tuple[int, float]:
        """How much work waits for a thread, and for how many seconds the oldest of it."""
        since = next(iter(list(self._waiting.values())), None)
        return len(self._waiting), 0.0 if since is None else time.monotonic() - since


_SHORT_BODY = 64 * 1024
_SLICE = 512
_BREATH = 0.0001

# Blocking work, each kind on threads of its own: a slow disk under the reads of a few clients must
# not hold up timers, delayed messages or registration. Threads are made when they are first needed.
COLD_READS = Pool(8, "bolide-reads")
"""Reads for clients of what is not in memory."""
ADMIN = Pool(2, "bolide-admin")
"""Queries and statistics for administrators, and the removal of topics."""
COMPUTE = Pool(2, "bolide-compute")
"""Work without the disk that would take too long on the event loop: large JSON, SQL92."""
DELAYS = Pool(2, "bolide-delays")
TIMERS = Pool(3, "bolide-timers")
TRANSACTIONS = Pool(2, "bolide-transactions")
REVIVAL = Pool(2, "bolide-revival")
"""Messages that were popped and not acknowledged in time."""
DEDUP = Pool(1, "bolide-dedup")
"""Recovery of deduplication windows."""
_TABLE_THREADS = Pool(3, "bolide-tables")
"""Several threads, so that a slow write of one table delays no other."""


class Background:
    """Background tasks owned by the broker, cancelled at shutdown; belongs to one event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def defer(self, work: Coroutine[Any, Any, Reply]) -> DeferredReply:
        """Run `work` as a task; the deferred reply is its result or exception."""
        deferred = DeferredReply()
        self.complete(deferred, work)
        return deferred

    def complete(self, deferred: DeferredReply, work: Coroutine[Any, Any, Reply]) -> None:
        """Run `work` as a task and complete `deferred` with its result or exception.

        If the connection is lost, the task is cancelled.
        """
        task = self.start(_complete(deferred, work), "broker-answer")
        deferred.on_lost = lambda: _cancel(task)
        # A task that is cancelled before its first step does not close its coroutine.
        task.add_done_callback(lambda _: work.close())

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


async def _complete(deferred: DeferredReply, work: Coroutine[Any, Any, Reply]) -> None:
    try:
        reply = await work
    except Exception as exc:  # noqa: BLE001  the dispatcher turns it into a response
        deferred.fail(exc)
    else:
        deferred.answer(reply)


async def on_thread(
    pool: ThreadPoolExecutor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run `work`, which blocks, on a thread of one of the pools above."""
    return await asyncio.get_running_loop().run_in_executor(pool, partial(work, *args, **kwargs))


async def on_saving_thread(work: Callable[[], T]) -> T:
    """Run `work`, which blocks on a table's file, on one of the table threads."""
    return await on_thread(_TABLE_THREADS, work)


def breathe() -> None:
    """Let the event loop run; called by a thread within long work that holds the interpreter.

    The loop would wait for a busy thread until the interpreter switches, which takes milliseconds.
    """
    time.sleep(_BREATH)


def slices(items: Sequence[T], size: int = _SLICE) -> Iterator[Sequence[T]]:
    """Yield the items in slices, each of which is little work."""
    return (items[start : start + size] for start in range(0, len(items), size))


def changed_keys(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Keys of two maps whose values differ. For threads; `before` may be changed meanwhile."""
    found: list[str] = []
    for keys in slices(list(after)):
        found += [key for key in keys if before.get(key) != after[key]]
        breathe()
    for keys in slices(list(before)):
        found += [key for key in keys if key not in after]
        breathe()
    return found


async def save_or_restore(table: Table[T], before: T) -> None:
    """Write a changed table to its file; if that fails, the table has its former value again.

    Raises:
        ServerError: the file cannot be written; nothing is changed.
    """
    try:
        await on_saving_thread(table.save)
    except OSError as exc:
        table.value = before
        raise ServerError(f"nothing is changed, {table.path} cannot be written: {exc}") from exc


async def read_json(request: Request[H], shape: type[T]) -> T:
    """Decode the JSON body of a request; a large body is decoded on a thread.

    Raises:
        ProtocolError: the body is missing or does not have the expected shape.
    """
    if not request.body:
        raise ProtocolError(
            f"request {request.frame.code} needs a body: the JSON of a {shape.__name__}"
        )
    if len(request.body) > _SHORT_BODY:
        return await on_thread(COMPUTE, fastjson.decode, request.body, shape)
    return fastjson.decode(request.body, shape)


async def message_at(store: Store | Queries, physical_offset: int) -> bytes | None:
    """Read the message at a physical offset that a client chose; None if none begins there.

    Messages of the audit log are left out. A read that needs the disk runs on a thread.
    """
    try:
        data = store.message_at(physical_offset, may_block=False)
    except NotInMemory:
        data = await on_thread(COLD_READS, store.message_at, physical_offset)
    return None if data is None or _is_audit(data) else bytes(data)


def _is_audit(data: memoryview) -> bool:
    try:
        record = read_record(data)
    except BadRecord:
        return False
    return isinstance(record, Record) and record.topic == AUDIT_TOPIC
