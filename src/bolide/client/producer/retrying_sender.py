"""Sends with retries: after a failure to another broker, until the timeout.

A keyed message is retried at the same queue only, because other queues cannot detect duplicates.

A broker that cannot be reached has not stored the message, so such a try does not count as one of
the retries: if there is no other broker, the route is queried until it names a new master or the
timeout has passed. A failover is noticed within the 200 ms of these queries.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from bolide.client.errors import (
    BrokerUnknown,
    ClientError,
    SendFailed,
    SendTimedOut,
    WrongState,
)
from bolide.client.instance.instance import ClientInstance
from bolide.client.producer.hooks import ForbiddenHook, SendContext, SendHook
from bolide.client.producer.queue_choice import BrokerFaults, QueueChoice
from bolide.client.producer.results import SendResult, SendStatus
from bolide.client.producer.send_request import SendRequest
from bolide.client.producer.settings import ProducerSettings
from bolide.errors import BolideError
from bolide.model.message_queue import MessageQueue
from bolide.protocol.codes import ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.send import SendReply
from bolide.protocol.refusals import GoAway, NotLeaderForQueue, Refusal, ServiceNotAvailable
from bolide.remoting.client import accepted
from bolide.remoting.errors import CallTimedOut, ConnectFailed, RemotingError

log = logging.getLogger(__name__)

_STORED = (
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
_PERSISTENT_REFUSALS = (
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.NO_BUYER_ID,
    ResponseCode.NOT_IN_CURRENT_UNIT,
)
"""Refusals that a retry at the same broker would meet again."""

MIN_TRY_SECONDS = 0.001
"""A try is not started with less time left: timers may fire a little before the deadline."""

_NOT_SENT = (ConnectFailed, BrokerUnknown)
"""Failures before the request was written."""
_ROLE_LOST = (ServiceNotAvailable, GoAway)
"""Refusals of a broker that may be no master any more."""
_MASTER_LOST = (RemotingError, BrokerUnknown, *_ROLE_LOST)
"""Failures after which the route may name another master."""
_FIRST_PAUSE, _MAX_PAUSE = 0.02, 0.5


@dataclass(slots=True)
class Attempts:
    """The tries of one send so far."""

    began: float
    deadline: float
    brokers: list[str] = field(default_factory=list)
    not_sent: int = 0
    """How many of the tries did not reach a broker."""
    failure: Exception | None = None
    weakly_stored: SendResult | None = None
    """A result other than SEND_OK, returned unless a later try succeeds."""


class RetryingSender:
    """Sends requests to brokers and retries them by a producer's settings."""

    def __init__(
        self,
        instance: ClientInstance,
        settings: ProducerSettings,
        faults: BrokerFaults | None,
        *,
        group: str,
        send_hooks: list[SendHook],
        forbidden_hooks: list[ForbiddenHook],
    ) -> None:
        self._instance = instance
        self._settings = settings
        self.choice = QueueChoice(faults, instance.suspects)
        self._faults = faults
        self._group = group
        self._send_hooks = send_hooks
        self._forbidden_hooks = forbidden_hooks
        self._now = asyncio.get_running_loop().time

    async def send(
        self, request: SendRequest, chosen: MessageQueue | Sequence[MessageQueue], deadline: float
    ) -> SendResult:
        """Send to the chosen queue, once unless keyed, or to any of several queues with retries."""
        attempts = Attempts(self._now(), deadline)
        result: SendResult | None
        if isinstance(chosen, MessageQueue) and request.is_keyed and self._settings.retries:
            result = await self._retry_same_queue(request, chosen, attempts)
        elif isinstance(chosen, MessageQueue):
            result = await self._try_one_queue(request, chosen, attempts)
        else:
            result = await self._try_several(request, chosen, attempts)
        return result or self._end(request, attempts)

    async def continue_after(
        self,
        request: SendRequest,
        queues: Sequence[MessageQueue],
        queue: MessageQueue,
        reply: Frame | RemotingError,
        attempts: Attempts,
    ) -> SendResult:
        """Continue after a first try at `queue` that ended with this reply or error."""
        result = await self._try(_read(reply, request, queue), queue, attempts)
        result = result or await self._try_several(request, queues, attempts)
        return result or self._end(request, attempts)

    @property
    def has_hooks(self) -> bool:
        """Whether a hook must be called for every try."""
        return bool(self._send_hooks or self._forbidden_hooks)

    def _end(self, request: SendRequest, attempts: Attempts) -> SendResult:
        """The result, or the error raised, if no try returned SEND_OK."""
        if attempts.weakly_stored is None:
            raise self._failure(request, attempts)
        return attempts.weakly_stored

    async def _try_several(
        self, request: SendRequest, queues: Sequence[MessageQueue], attempts: Attempts
    ) -> SendResult | None:
        while (left := self._retries_left(attempts)) >= 0:
            if attempts.failure is not None:
                queues = await self._queues_after(attempts.failure, request.topic, queues, attempts)
            seconds = attempts.deadline - self._now()
            if seconds < MIN_TRY_SECONDS:
                break
            avoid = attempts.brokers[-1] if attempts.brokers else None
            queue = self.choice.choose(request.topic, queues, avoid)
            if left and self._settings.try_timeout is not None:
                seconds = min(seconds, self._settings.try_timeout)
            sent = self._send_to(request, queue, seconds)
            if result := await self._try(sent, queue, attempts):
                return result
        return None

    def _retries_left(self, attempts: Attempts) -> int:
        """How many tries may follow the next one; negative if no try is left."""
        counted = len(attempts.brokers) - (attempts.not_sent if self._settings.retries else 0)
        return self._settings.retries - counted

    async def _queues_after(
        self, failure: Exception, topic: str, queues: Sequence[MessageQueue], attempts: Attempts
    ) -> Sequence[MessageQueue]:
        """The queues for the next try; waits for a new route if there is no other broker."""
        renewals = self._instance.renewals
        if isinstance(failure, _MASTER_LOST):
            tried = set(attempts.brokers)
            if any(self.choice.answers(q) for q in queues if q.broker_name not in tried):
                renewals.renew_soon(topic)
            else:
                await self._renew_route(topic, attempts.deadline)
        return self._instance.routes.find_publish_queues(topic) or queues

    async def _renew_route(self, topic: str, deadline: float) -> None:
        with suppress(TimeoutError, WrongState):
            async with asyncio.timeout_at(deadline):
                await self._instance.renewals.renew(topic)

    async def _try_one_queue(
        self, request: SendRequest, queue: MessageQueue, attempts: Attempts
    ) -> SendResult | None:
        """One try, repeated only while the request cannot have reached a broker."""
        while (seconds := attempts.deadline - self._now()) >= MIN_TRY_SECONDS:
            sent = self._send_to(request, queue, seconds)
            if result := await self._try(sent, queue, attempts):
                return result
            is_moved = isinstance(attempts.failure, NotLeaderForQueue) and len(attempts.brokers) < 2
            if self._settings.retries and self._may_return(queue, attempts.failure):
                await self._renew_route(queue.topic, attempts.deadline)
            elif not is_moved:
                break
        return None

    def _may_return(self, queue: MessageQueue, failure: Exception | None) -> bool:
        """Whether a request was not sent only because its broker has no master now."""
        routes, is_closed = self._instance.routes, self._instance.renewals.is_closed
        is_known = routes.broker_of(queue) in routes.brokers
        return isinstance(failure, _NOT_SENT) and is_known and not is_closed

    async def _retry_same_queue(
        self, request: SendRequest, queue: MessageQueue, attempts: Attempts
    ) -> SendResult | None:
        """Retry at the same queue until the deadline."""
        pause = _FIRST_PAUSE
        while (
            seconds := attempts.deadline - self._now()
        ) >= MIN_TRY_SECONDS and not self._instance.renewals.is_closed:
            if self._settings.try_timeout is not None:
                seconds = min(seconds, self._settings.try_timeout)
            sent = self._send_to(request, queue, seconds)
            if result := await self._try(sent, queue, attempts):
                return result
            if (
                isinstance(attempts.failure, Refusal)
                and attempts.failure.code in _PERSISTENT_REFUSALS
            ):
                break
            if isinstance(attempts.failure, _MASTER_LOST):
                await self._renew_route(queue.topic, attempts.deadline)
                continue
            await asyncio.sleep(max(min(pause, attempts.deadline - self._now()), 0))
            pause = min(pause * 2, _MAX_PAUSE)
        return None

    async def send_oneway(
        self, request: SendRequest, chosen: MessageQueue | Sequence[MessageQueue], deadline: float
    ) -> None:
        """Send one-way, once."""
        if not isinstance(chosen, MessageQueue):
            chosen = self.choice.choose(request.topic, chosen)
        address = self._find_address(chosen)
        if address is None:
            async with self.within_deadline(deadline, request.messages[0].topic):
                address = await self._require_address(chosen)
        context = self._before(request, chosen, address, one_way=True)
        _set_queue(request, chosen)
        try:
            async with self.within_deadline(deadline, request.messages[0].topic):
                await self._instance.notify(
                    address, request.code, request.fields, body=request.body
                )
        except Exception as exc:
            self._after(context, None, exc)
            raise
        self._after(context, None, None)

    @asynccontextmanager
    async def within_deadline(self, deadline: float, topic: str) -> AsyncIterator[None]:
        """Raise SendTimedOut if the block does not end by the deadline."""
        began = self._now()
        try:
            async with asyncio.timeout_at(deadline):
                yield
        except TimeoutError as exc:
            raise SendTimedOut(topic, (), self._now() - began, None) from exc

    async def _try(
        self, sent: Awaitable[SendResult], queue: MessageQueue, attempts: Attempts
    ) -> SendResult | None:
        """One try; None if another try should follow."""
        attempts.brokers.append(queue.broker_name)
        began = self._now()
        try:
            result = await sent
        except (RemotingError, Refusal, ClientError) as exc:
            attempts.failure = exc
            attempts.not_sent += (
                isinstance(exc, _NOT_SENT) and not self._instance.renewals.is_closed
            )
            if self._faults is not None:
                self._faults.failed(queue.broker_name, self._now() - began)
            if isinstance(exc, _ROLE_LOST):  # for later sends, if this one has no further try
                self._instance.renewals.renew_soon(queue.topic)
            if isinstance(exc, NotLeaderForQueue):  # another broker leads the queue now
                await self._refresh_route(queue.topic)
                return None
            is_final = isinstance(exc, Refusal) and exc.code not in self._settings.retried_codes
            if is_final and attempts.weakly_stored is not None:
                return (
                    attempts.weakly_stored
                )  # the message is stored: a failed retry must not hide that
            if is_final:
                exc.add_note(f"while sending to {queue}")
                raise
            log.debug("a send to %s failed: %s", queue, exc)
            return None
        if self._faults is not None:
            self._faults.sent(queue.broker_name, self._now() - began)
        is_ok = result.status is SendStatus.SEND_OK
        if is_ok or not self._settings.retry_another_broker_when_not_store_ok:
            return result
        attempts.weakly_stored = result
        return None

    async def _refresh_route(self, topic: str) -> None:
        try:
            await self._instance.routes.refresh(topic)
        except BolideError as exc:
            log.debug("the route of %s is not known again: %s", topic, exc)

    async def _send_to(
        self, request: SendRequest, queue: MessageQueue, seconds: float
    ) -> SendResult:
        address = self._find_address(queue)
        if address is None:
            began = self._now()
            try:
                async with asyncio.timeout(seconds):
                    address = await self._require_address(queue)
            except TimeoutError as exc:
                raise BrokerUnknown(queue.broker_name) from exc
            seconds -= self._now() - began
        _set_queue(request, queue)
        context = self._before(request, queue, address)
        try:
            reply = await self._instance.call(
                address,
                request.code,
                request.fields,
                body=request.body,
                within=seconds,
                accept=_STORED,
            )
            result = _result(reply, request, queue)
        except Exception as exc:
            if isinstance(exc, RemotingError):
                self._suspect_master(queue, address)
            self._after(context, None, exc)
            raise
        self._after(context, result, None)
        return result

    def _suspect_master(self, queue: MessageQueue, address: str) -> None:
        """Suspect the broker at an address that did not answer, unless it is not master now."""
        master = self._instance.routes.master_of(queue)
        if master is not None and self._instance.vip(master) == address:
            self._instance.broker_failed(master, queue.topic)

    def _find_address(self, queue: MessageQueue) -> str | None:
        address = self._instance.routes.master_of(queue)
        return None if address is None else self._instance.vip(address)

    async def _require_address(self, queue: MessageQueue) -> str:
        """Raises BrokerUnknown or NoNameServer."""
        address = await self._instance.routes.require_master_of(queue)
        return self._instance.vip(address)

    def _failure(self, request: SendRequest, attempts: Attempts) -> SendFailed:
        now = self._now()
        is_late = attempts.deadline - now < MIN_TRY_SECONDS or _is_timeout(attempts.failure)
        kind = SendTimedOut if is_late else SendFailed
        seconds = now - attempts.began
        failure = kind(request.messages[0].topic, attempts.brokers, seconds, attempts.failure)
        failure.__cause__ = attempts.failure
        return failure

    # Hooks

    def _before(
        self, request: SendRequest, queue: MessageQueue, address: str, *, one_way: bool = False
    ) -> SendContext | None:
        if not self._send_hooks and not self._forbidden_hooks:
            return None
        context = SendContext(
            group=self._group,
            messages=request.messages,
            unique_ids=request.unique_ids,
            queue=queue,
            broker_address=address,
            client_id=self._instance.client_id,
            namespace=self._instance.settings.namespace,
            kind=request.kind,
            one_way=one_way,
        )
        for forbid in self._forbidden_hooks:
            forbid(context)
        for hook in self._send_hooks:
            _guarded(hook.before, context)
        return context

    def _after(
        self, context: SendContext | None, result: SendResult | None, error: Exception | None
    ) -> None:
        if context is None:
            return
        context.result, context.error = result, error
        for hook in self._send_hooks:
            _guarded(hook.after, context)


def _is_timeout(failure: BaseException | None) -> bool:
    """Check the error too: timers may fire early, so that the clock alone is not reliable."""
    return isinstance(failure, CallTimedOut) or (
        isinstance(failure, BrokerUnknown) and isinstance(failure.__cause__, TimeoutError)
    )


async def _read(
    reply: Frame | RemotingError, request: SendRequest, queue: MessageQueue
) -> SendResult:
    if isinstance(reply, RemotingError):
        raise reply
    return _result(accepted(reply, _STORED), request, queue)


def _result(answer: Frame, request: SendRequest, queue: MessageQueue) -> SendResult:
    reply = SendReply.from_fields(answer.fields)
    topic = request.messages[0].topic
    return SendResult(
        status=SendStatus(answer.code),
        message_id=reply.batch_uniq_id or ",".join(request.unique_ids),
        offset_message_id=reply.msg_id,
        queue=MessageQueue(topic, queue.broker_name, reply.queue_id),
        queue_offset=reply.queue_offset,
        transaction_id=reply.transaction_id,
        region=reply.region,
        trace_on=reply.trace_on,
        recall_handle=reply.recall_handle,
        repeats=reply.repeats or 0,
    )


def _set_queue(request: SendRequest, queue: MessageQueue) -> None:
    fields = request.fields
    fields["e"] = str(queue.queue_id)
    fields["n"] = queue.broker_name
    fields["g"] = str(time.time_ns() // 1_000_000)


def _guarded(hook: object, context: SendContext) -> None:
    try:
        hook(context)  # type: ignore[operator]
    except Exception:
        log.exception("a send hook failed")
