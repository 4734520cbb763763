"""Brokers ask what became of transactions; a check of the user's answers, a few at a time."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from bolide.client.producing.results import TransactionState
from bolide.errors import ConfigError
from bolide.model.message import StoredMessage
from bolide.protocol.headers.transactions import CheckTransactionHeader

log = logging.getLogger(__name__)

Answer = TransactionState | None
"""None counts as unknown."""
Check = Callable[[StoredMessage], Answer | Awaitable[Answer]]
Tell = Callable[[StoredMessage, CheckTransactionHeader, str, TransactionState], Awaitable[None]]
"""Told the message, the question, the address it came from and the answer."""

_MOST_WAITING = 2000
"""Questions that wait for their turn; further ones are dropped: brokers ask again."""


class TransactionChecks:
    """Runs the checks of one producer; belongs to one event loop."""

    def __init__(self, check: Check, limit: int, tell: Tell) -> None:
        """Raises ConfigError."""
        if not callable(check):
            raise ConfigError(f"check={check!r}: must be a function that takes a message")
        if limit < 1:
            raise ConfigError(f"check_threads={limit}: must be at least 1")
        self._check = check
        self._limit = limit
        self._tell = tell
        self._waiting: asyncio.Queue[tuple[StoredMessage, CheckTransactionHeader, str]]
        self._workers: list[asyncio.Task[None]] = []
        self._pool: ThreadPoolExecutor | None = None

    def start(self, group: str) -> None:
        self._waiting = asyncio.Queue(_MOST_WAITING)
        if not _is_coroutine_function(self._check):
            self._pool = ThreadPoolExecutor(self._limit, thread_name_prefix=f"check-{group}")
        self._workers = [
            asyncio.create_task(self._work(), name=f"bolide-check-{number}")
            for number in range(self._limit)
        ]

    async def close(self) -> None:
        """Give up what is under way; a check that is in its thread still goes on to its end."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._workers = []
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def ask(self, message: StoredMessage, header: CheckTransactionHeader, address: str) -> None:
        if not self._workers or self._waiting.full():
            log.warning("too many checks wait: that of %s is dropped", message.unique_id)
            return
        self._waiting.put_nowait((message, header, address))

    async def _work(self) -> None:
        while True:
            message, header, address = await self._waiting.get()
            try:
                await self._tell(message, header, address, await self._decide(message))
            except Exception:
                log.exception("transaction %s could not be answered for", message.unique_id)

    async def _decide(self, message: StoredMessage) -> TransactionState:
        try:
            if self._pool is None:
                answer = self._check(message)
            else:
                loop = asyncio.get_running_loop()
                answer = await loop.run_in_executor(self._pool, self._check, message)
            if inspect.isawaitable(answer):
                answer = await answer
            return TransactionState.UNKNOWN if answer is None else TransactionState(answer)
        except (Exception, asyncio.CancelledError):
            if (task := asyncio.current_task()) and task.cancelling():
                raise  # we end, not something that the check waited for
            log.exception("the check of transaction %s failed: unknown", message.unique_id)
            return TransactionState.UNKNOWN


def _is_coroutine_function(function: object) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004  an object may have an async __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
