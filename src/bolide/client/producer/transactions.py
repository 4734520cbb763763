"""Transactional sends, and the checks by which brokers query the state of open transactions.

The broker stores a half message until the producer reports the end of the transaction. Without a
report it sends a check to any producer of the group.
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
from bolide.protocol.static_topics.addressing import is_logical

log = logging.getLogger(__name__)

CheckResult = TransactionState | None
"""None counts as UNKNOWN."""
Check = Callable[[StoredMessage], CheckResult | Awaitable[CheckResult]]
ReportState = Callable[
    [StoredMessage, CheckTransactionHeader, str, TransactionState], Awaitable[None]
]
"""Takes the message, the check, the address of the broker that sent it, and the state."""
LocalTransaction = Callable[..., CheckResult | Awaitable[CheckResult]]
"""Called with the message and the `args` of `send_in_transaction`."""

_MAX_WAITING = 2000
"""Checks that may wait; further ones are dropped, because brokers repeat them."""


class TransactionChecks:
    """Runs the checks of one producer; belongs to one event loop."""

    def __init__(self, check: Check, limit: int, report: ReportState) -> None:
        """Raises ConfigError."""
        if not callable(check):
            raise ConfigError(f"check={check!r}: must be a function that takes a message")
        if limit < 1:
            raise ConfigError(f"check_threads={limit}: must be at least 1")
        self._check = check
        self._limit = limit
        self._report = report
        self._waiting: asyncio.Queue[tuple[StoredMessage, CheckTransactionHeader, str]]
        self._workers: list[asyncio.Task[None]] = []
        self._pool: ThreadPoolExecutor | None = None

    def start(self, group: str) -> None:
        self._waiting = asyncio.Queue(_MAX_WAITING)
        if not _is_coroutine_function(self._check):
            self._pool = ThreadPoolExecutor(self._limit, thread_name_prefix=f"check-{group}")
        self._workers = [
            asyncio.create_task(self._work(), name=f"bolide-check-{number}")
            for number in range(self._limit)
        ]

    async def close(self) -> None:
        """Cancel the checks in flight; those that run in threads continue to their end."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._workers = []
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def submit(self, message: StoredMessage, header: CheckTransactionHeader, address: str) -> None:
        if not self._workers or self._waiting.full():
            log.warning(
                "too many transaction checks wait: the check of %s is dropped", message.unique_id
            )
            return
        self._waiting.put_nowait((message, header, address))

    async def _work(self) -> None:
        while True:
            message, header, address = await self._waiting.get()
            try:
                await self._report(message, header, address, await self._run_check(message))
            except Exception:
                log.exception(
                    "the state of transaction %s could not be reported", message.unique_id
                )

    async def _run_check(self, message: StoredMessage) -> TransactionState:
        try:
            if self._pool is None:
                result = self._check(message)
            else:
                loop = asyncio.get_running_loop()
                result = await loop.run_in_executor(self._pool, self._check, message)
            if inspect.isawaitable(result):
                result = await result
            return TransactionState.UNKNOWN if result is None else TransactionState(result)
        except (Exception, asyncio.CancelledError):
            if (task := asyncio.current_task()) and task.cancelling():
                raise  # the worker was cancelled, not an awaitable of the check
            log.exception(
                "the check of transaction %s failed; its state is reported as UNKNOWN",
                message.unique_id,
            )
            return TransactionState.UNKNOWN


def _is_coroutine_function(function: object) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004  an object may have an async __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


class Transaction:
    """An open transaction; end it exactly once."""

    def __init__(self, producer: "TransactionProducer", message: Message, half: SendResult) -> None:
        self.message = message
        """The message as stored, with its id."""
        self.half = half
        self._producer = producer
        self._is_over = False

    @property
    def id(self) -> str:
        """The id that checks see; for consumers it is the id of the message."""
        return self.half.transaction_id or self.half.message_id

    @property
    def is_over(self) -> bool:
        """Whether `end` was called."""
        return self._is_over

    async def commit(self) -> TransactionResult:
        """Deliver the message."""
        return await self.end(TransactionState.COMMIT)

    async def rollback(self) -> TransactionResult:
        """Discard the message."""
        return await self.end(TransactionState.ROLLBACK)

    async def leave_open(self) -> TransactionResult:
        """End with UNKNOWN: the broker checks back later."""
        return await self.end(TransactionState.UNKNOWN)

    async def end(self, state: TransactionState) -> TransactionResult:
        """Report the state to the broker; a failure is no error, because the broker checks back.

        Raises:
            WrongState: the transaction was ended before.
        """
        if self._is_over:
            raise WrongState(f"transaction {self.id} has ended: begin another one")
        self._is_over = True
        is_confirmed = await self._producer.end_transaction(self, state)
        fields = msgspec.structs.asdict(self.half)
        return TransactionResult(**fields, state=state, is_confirmed=is_confirmed)


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
        """Create a producer with a function that checks open transactions.

        Args:
            group: every producer of a group must be able to check the transactions of all others.
            check: called with the message of an open transaction; returns its state. A coroutine
                function runs on the event loop, a plain function in a thread. An exception counts
                as UNKNOWN.
            topics: topics whose brokers may send checks before the first send, for transactions
                left open before a restart.
            check_threads: how many checks run at a time.
            arguments: those of `Producer`.

        Raises:
            ConfigError: a setting is invalid.
        """
        super().__init__(group, **arguments)
        self._checks = TransactionChecks(check, check_threads, self._report_checked)
        self._end_hooks: list[EndTransactionHook] = []
        self._topics |= {self._client.wrap(topic) for topic in topics}

    async def start(self) -> None:
        """Start, as `async with` does. Raises like `Producer.start`."""
        await super().start()
        if self.tracing is not None:
            self.add_end_transaction_hook(EndTransactionTrace(self.tracing))
        self._checks.start(self.group)
        for topic in list(self._topics):
            with suppress(BolideError):  # routes are refreshed periodically
                await self._instance.routes.refresh(topic)

    async def close(self) -> None:
        """Like `Producer.close`; checks in flight are cancelled."""
        await self._checks.close()
        await super().close()

    # Transactions

    async def begin(self, message: Message, **how: Unpack[SendArguments]) -> Transaction:
        """Store a half message, which is not delivered until the transaction is committed.

        Raises:
            InvalidMessage: the message has a delay level, or like `send`.
            BolideError: like `send`; the transaction has not begun then.
        """
        if message.delay_level:
            raise InvalidMessage("delay_level", "a transactional message cannot be delayed")
        half = await self.send(self._prepared(message), **how)
        stored = message.with_properties({PropertyName.UNIQUE_ID: half.message_id})
        return Transaction(self, stored, half)

    async def send_in_transaction(
        self, message: Message, local: LocalTransaction, *args: Any, **how: Unpack[SendArguments]
    ) -> TransactionResult:
        """Store a half message, run the local transaction, and report its end to the broker.

        Args:
            message: delivered if the local transaction returns COMMIT.
            local: called with the message and `args`; a coroutine function, or a plain function,
                which runs in a thread. If it raises, the transaction stays open for the check.
            args: for `local`.
            how: like in `send`.

        Raises:
            BolideError: like `begin`; `local` was not called then.
            Exception: raised by `local`.
        """
        transaction = await self.begin(message, **how)
        if transaction.half.status is not SendStatus.SEND_OK:
            return (
                await transaction.rollback()
            )  # the half may be lost: the local transaction must not begin
        try:
            state = await _run_local(local, transaction.message, *args)
        except Exception:
            await transaction.leave_open()
            raise
        return await transaction.end(state)

    @asynccontextmanager
    async def transaction(
        self, message: Message, **how: Unpack[SendArguments]
    ) -> AsyncIterator[Transaction]:
        """Run the block as the local transaction: commit at its end, roll back if it raises.

        The block may end the transaction itself, as by `await transaction.leave_open()`. A
        cancelled block leaves the transaction open.
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
        """For `Transaction`: report its end to the broker; return whether the broker confirmed."""
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
        context = self._context(transaction.message, header, self._broker_of(half))
        with self._in_flight:
            try:
                await self._report_end(header, context)
            except BolideError as exc:
                context.error = exc
                log.warning(
                    "transaction %s: %s could not be reported; the broker will check back (%s)",
                    transaction.id, state.name, exc,
                )  # fmt: skip
        self._run_hooks(context)
        return context.error is None and state is not TransactionState.UNKNOWN

    def _broker_of(self, half: SendResult) -> str:
        """The broker that has a half message; the queue of a static topic may have moved on."""
        if not is_logical(half.queue.broker_name):
            return half.queue.broker_name
        host = OffsetId.decode(half.offset_message_id).host
        return self._instance.routes.name_of(str(host)) or half.queue.broker_name

    async def _report_end(
        self, header: EndTransactionHeader, context: EndTransactionContext
    ) -> None:
        routes, code = self._instance.routes, RequestCode.END_TRANSACTION
        address = await routes.require_master(context.broker_name, header.topic or "")
        context.broker_address = address = self._instance.vip(address)
        if context.state is TransactionState.UNKNOWN:  # brokers do not reply to UNKNOWN
            await self._instance.notify(address, code, header)
        else:
            await self._instance.call(address, code, header, within=self.settings.send_timeout)

    def _prepared(self, message: Message) -> Message:
        return message.with_properties({
            PropertyName.TRANSACTION_PREPARED: "true",
            PropertyName.PRODUCER_GROUP: self._client.wrap(self.group),
        })  # fmt: skip

    # Checks

    def check_transaction(
        self, message: StoredMessage, header: CheckTransactionHeader, address: str
    ) -> None:
        """For the client instance: run the check that a broker sent."""
        self._checks.submit(message, header, address)

    async def _report_checked(
        self,
        message: StoredMessage,
        check: CheckTransactionHeader,
        address: str,
        state: TransactionState,
    ) -> None:
        header = EndTransactionHeader(
            topic=check.topic,
            producer_group=self._client.wrap(self.group),
            tran_state_table_offset=check.tran_state_table_offset,
            commit_log_offset=check.commit_log_offset,
            commit_or_rollback=int(state),
            from_transaction_check=True,
            msg_id=message.unique_id or message.message_id,
            transaction_id=check.transaction_id,
        )
        name = check.broker_name or self._instance.routes.name_of(address) or ""
        context = self._context(message, header, name)
        context.broker_address = address
        try:
            await self._instance.notify(address, RequestCode.END_TRANSACTION, header)
        except BolideError as exc:  # the broker repeats the check
            context.error = exc
        self._run_hooks(context)

    # Hooks

    def add_end_transaction_hook(self, hook: EndTransactionHook) -> None:
        """Call `hook` after the end of every transaction was reported."""
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
                log.exception("an end-transaction hook failed")


async def _run_local(local: LocalTransaction, *args: Any) -> TransactionState:
    if inspect.iscoroutinefunction(local):
        outcome = await local(*args)
    else:
        outcome = await asyncio.to_thread(local, *args)
        if inspect.isawaitable(outcome):
            outcome = await outcome
    return TransactionState.UNKNOWN if outcome is None else TransactionState(outcome)
