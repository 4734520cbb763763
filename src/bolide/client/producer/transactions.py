"""Transactional sends, and the checks by which brokers ask for their state.

The broker keeps such a message as a half until it is told how the transaction ended. If it is not
told, it asks a producer of the group, any of them.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, Unpack

import msgspec

from bolide.client.errors import WrongState
from bolide.client.producer.hooks import EndTransactionContext, EndTransactionHook
from bolide.client.producer.producer import Producer, SendArguments
from bolide.client.producer.results import (
    SendResult,
    SendStatus,
    TransactionResult,
    TransactionState,
)
from bolide.client.producer.settings import ProducerArguments
from bolide.client.tracing.trace_hooks import EndTransactionTrace
from bolide.errors import BolideError, ConfigError
from bolide.model.message import Message, StoredMessage
from bolide.model.message_checks import InvalidMessage
from bolide.model.properties import PropertyName
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.transactions import CheckTransactionHeader, EndTransactionHeader
from bolide.protocol.message_id import OffsetId

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


Local = Callable[..., Answer | Awaitable[Answer]]
"""A local transaction: called with the message, and what else `send_in_transaction` was given."""


class Transaction:
    """A half message whose transaction is under way; end it, once."""

    def __init__(self, producer: "TransactionProducer", message: Message, half: SendResult) -> None:
        self.message = message
        """As it was stored, with its id."""
        self.half = half
        self._producer = producer
        self._is_over = False

    @property
    def id(self) -> str:
        """By which checks can tell it again: consumers see it as the id of the message."""
        return self.half.transaction_id or self.half.message_id

    @property
    def is_over(self) -> bool:
        """Whether somebody has said how it ended, or that he cannot."""
        return self._is_over

    async def commit(self) -> TransactionResult:
        """Have the message delivered."""
        return await self.end(TransactionState.COMMIT)

    async def rollback(self) -> TransactionResult:
        """Have the message forgotten."""
        return await self.end(TransactionState.ROLLBACK)

    async def leave_open(self) -> TransactionResult:
        """Say that it cannot be told yet: the broker will ask."""
        return await self.end(TransactionState.UNKNOWN)

    async def end(self, state: TransactionState) -> TransactionResult:
        """Tell the broker. That it cannot be told is no error here: it will ask.

        Raises:
            WrongState: it was ended before.
        """
        if self._is_over:
            raise WrongState(f"transaction {self.id} has ended: begin another one")
        self._is_over = True
        confirmed = await self._producer.end_transaction(self, state)
        fields = msgspec.structs.asdict(self.half)
        return TransactionResult(**fields, state=state, is_confirmed=confirmed)


class TransactionProducer(Producer):
    """Sends messages in transactions while its `async with` block runs."""

    def __init__(
        self,
        group: str,
        *,
        check: Check,
        topics: Iterable[str] = (),
        check_threads: int = 4,
        **arguments: Unpack[ProducerArguments],
    ) -> None:
        """Say who sends, and who knows what became of a transaction.

        Args:
            group: all producers of it must be able to answer for each other.
            check: called with the message of a transaction that stayed open; says what became of
                it. A coroutine function runs on the event loop, a plain one in a thread. What it
                raises counts as unknown.
            topics: topics whose brokers may ask at once, before anything was sent to them: after a
                restart somebody has to answer for the transactions that were left open.
            check_threads: how many checks run at a time.
            arguments: as of `Producer`.

        Raises:
            ConfigError: one cannot be used; names it.
        """
        super().__init__(group, **arguments)
        self._checks = TransactionChecks(check, check_threads, self._answer)
        self._end_hooks: list[EndTransactionHook] = []
        self._topics |= {self._client.wrap(topic) for topic in topics}

    async def start(self) -> None:
        """Begin; `async with` does so. Raises as `Producer.start`."""
        await super().start()
        if self.tracing is not None:
            self.add_end_transaction_hook(EndTransactionTrace(self.tracing))
        self._checks.start(self.group)
        for topic in list(self._topics):
            with suppress(BolideError):  # it is asked for again and again
                await self._instance.routes.refresh(topic)

    async def close(self) -> None:
        """As `Producer.close`; checks that are under way are given up."""
        await self._checks.close()
        await super().close()

    # Transactions

    async def begin(self, message: Message, **how: Unpack[SendArguments]) -> Transaction:
        """Store the half of a message. Nobody gets it until the transaction is committed.

        Raises:
            InvalidMessage: it has a delay level, or as `send`.
            BolideError: as `send`; the transaction has not begun then.
        """
        if message.delay_level:
            raise InvalidMessage(
                "delay_level", "a message of a transaction is delivered when that ends, not later"
            )
        half = await self.send(self._prepared(message), **how)
        stored = message.with_properties({PropertyName.UNIQUE_ID: half.message_id})
        return Transaction(self, stored, half)

    async def send_in_transaction(
        self, message: Message, local: Local, *args: Any, **how: Unpack[SendArguments]
    ) -> TransactionResult:
        """Store the half of a message, run the local transaction, and tell the broker of its end.

        Args:
            message: what is delivered if the local transaction says COMMIT.
            local: called with the message and `args`; a coroutine function, or a plain one, which
                runs in a thread. If it raises, the transaction stays open for the check to decide.
            args: for `local`.
            how: as in `send`.

        Raises:
            BolideError: as `begin`; `local` was not called then.
            Exception: what `local` raised.
        """
        transaction = await self.begin(message, **how)
        if transaction.half.status is not SendStatus.SEND_OK:
            return await transaction.rollback()  # it may be lost: the local one must not begin
        try:
            state = await _called(local, transaction.message, *args)
        except Exception:
            await transaction.leave_open()
            raise
        return await transaction.end(state)

    @asynccontextmanager
    async def transaction(
        self, message: Message, **how: Unpack[SendArguments]
    ) -> AsyncIterator[Transaction]:
        """A block that is the local transaction: it commits at its end, or rolls back if it raises.

        What becomes of it may be said inside too: `await transaction.leave_open()`. A block that is
        cancelled leaves it open.
        """
        transaction = await self.begin(message, **how)
        try:
            yield transaction
        except Exception:
            if not transaction.is_over:
                await transaction.rollback()
            raise
        if not transaction.is_over:
            await transaction.commit()

    async def end_transaction(self, transaction: Transaction, state: TransactionState) -> bool:
        """For `Transaction`: tell the broker that has the half; says whether it confirmed."""
        half = transaction.half
        header = EndTransactionHeader(
            topic=self._client.wrap(transaction.message.topic),
            producer_group=self._client.wrap(self.group),
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=OffsetId.decode(half.offset_message_id).physical_offset,
            commit_or_rollback=int(state),
            msg_id=half.message_id,
            transaction_id=half.transaction_id,
        )
        context = self._context(transaction.message, header, half.queue.broker_name)
        with self._under_way:
            try:
                await self._tell(header, context)
            except BolideError as exc:
                context.error = exc
                log.warning(
                    "transaction %s ended with %s, and its broker does not know: it will ask (%s)",
                    transaction.id, state.name, exc,
                )  # fmt: skip
        self._run_hooks(context)
        return context.error is None and state is not TransactionState.UNKNOWN

    async def _tell(self, header: EndTransactionHeader, context: EndTransactionContext) -> None:
        routes, code = self._instance.routes, RequestCode.END_TRANSACTION
        address = await routes.require_master(context.broker_name, header.topic or "")
        context.broker_address = address = self._instance.vip(address)
        if context.state is TransactionState.UNKNOWN:  # nobody answers that
            await self._instance.notify(address, code, header)
        else:
            await self._instance.call(address, code, header, within=self.settings.send_timeout)

    def _prepared(self, message: Message) -> Message:
        return message.with_properties({
            PropertyName.TRANSACTION_PREPARED: "true",
            PropertyName.PRODUCER_GROUP: self._client.wrap(self.group),
        })  # fmt: skip

    # Questions of brokers

    def check_transaction(
        self, message: StoredMessage, header: CheckTransactionHeader, address: str
    ) -> None:
        """For the instance: a broker asks what became of a transaction."""
        self._checks.ask(message, header, address)

    async def _answer(
        self,
        message: StoredMessage,
        asked: CheckTransactionHeader,
        address: str,
        state: TransactionState,
    ) -> None:
        header = EndTransactionHeader(
            topic=asked.topic,
            producer_group=self._client.wrap(self.group),
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=int(state),
            from_transaction_check=True,
            msg_id=message.unique_id or message.message_id,
            transaction_id=asked.transaction_id,
        )
        name = asked.broker_name or self._instance.routes.name_of(address) or ""
        context = self._context(message, header, name)
        context.broker_address = address
        try:
            await self._instance.notify(address, RequestCode.END_TRANSACTION, header)
        except BolideError as exc:  # it asks again
            context.error = exc
        self._run_hooks(context)

    # Hooks

    def add_end_transaction_hook(self, hook: EndTransactionHook) -> None:
        """Have `hook` see the end of every transaction from now on."""
        self._end_hooks.append(hook)

    def _context(
        self, message: Message | StoredMessage, header: EndTransactionHeader, broker_name: str
    ) -> EndTransactionContext:
        return EndTransactionContext(
            group=self.group,
            message=message,
            unique_id=header.msg_id,
            transaction_id=header.transaction_id,
            broker_name=broker_name,
            broker_address="",
            client_id=self.client_id,
            namespace=self._client.namespace,
            state=TransactionState(header.commit_or_rollback),
            from_check=header.from_transaction_check,
        )

    def _run_hooks(self, context: EndTransactionContext) -> None:
        for hook in self._end_hooks:
            try:
                hook.ended(context)
            except Exception:
                log.exception("a hook of ended transactions failed")


async def _called(local: Local, *args: Any) -> TransactionState:
    if inspect.iscoroutinefunction(local):
        outcome = await local(*args)
    else:
        outcome = await asyncio.to_thread(local, *args)
        if inspect.isawaitable(outcome):
            outcome = await outcome
    return TransactionState.UNKNOWN if outcome is None else TransactionState(outcome)
