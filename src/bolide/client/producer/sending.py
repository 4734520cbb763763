"""One send, try after try: to a broker, on failure to another one, until the time is over.

A keyed message is tried at one queue only: no other one would know it for a repeat.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bolide.client.errors import BrokerUnknown, ClientError, SendFailed, SendTimedOut
from bolide.client.instance.instance import ClientInstance
from bolide.client.producer.hooks import ForbiddenHook, SendContext, SendHook
from bolide.client.producer.outgoing import Outgoing
from bolide.client.producer.queue_choice import Faults, QueueChoice
from bolide.client.producer.results import SendResult, SendStatus
from bolide.client.producer.settings import ProducerSettings
from bolide.model.message_queue import MessageQueue
from bolide.protocol.codes import ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.send import SendReply
from bolide.protocol.refusals import Refusal
from bolide.remoting.client import accepted
from bolide.remoting.errors import CallTimedOut, RemotingError

log = logging.getLogger(__name__)

_STORED = (
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
_BETTER_ELSEWHERE = (
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.NO_BUYER_ID,
    ResponseCode.NOT_IN_CURRENT_UNIT,
)
"""Refusals that the same broker would repeat."""

NO_TIME = 0.001
"""Seconds in which no try can succeed: timers may fire a little before the deadline."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5


@dataclass(slots=True)
class Tries:
    """What became of the tries of one send so far."""

    began: float
    deadline: float
    brokers: list[str] = field(default_factory=list)
    failure: Exception | None = None
    less_safe: SendResult | None = None
    """It was stored, but another try may do better."""


class Sending:
    """Carries requests to brokers as a producer's settings say."""

    def __init__(
        self,
        instance: ClientInstance,
        settings: ProducerSettings,
        faults: Faults | None,
        *,
        group: str,
        send_hooks: list[SendHook],
        forbidden_hooks: list[ForbiddenHook],
    ) -> None:
        self._instance = instance
        self._settings = settings
        self.choice = QueueChoice(faults)
        self._faults = faults
        self._group = group
        self._send_hooks = send_hooks
        self._forbidden_hooks = forbidden_hooks
        self._now = asyncio.get_running_loop().time

    async def send(
        self, outgoing: Outgoing, chosen: MessageQueue | Sequence[MessageQueue], deadline: float
    ) -> SendResult:
        """Send to the one queue, once unless it is keyed; or to any of several until one has it."""
        tries = Tries(self._now(), deadline)
        result: SendResult | None
        if isinstance(chosen, MessageQueue) and outgoing.is_keyed and self._settings.retries:
            result = await self._try_again(outgoing, chosen, tries)
        elif isinstance(chosen, MessageQueue):
            sent = self._send_to(outgoing, chosen, deadline - tries.began)
            result = await self._try(sent, chosen, tries)
        else:
            result = await self._try_several(outgoing, chosen, tries)
        return result or self._end(outgoing, tries)

    async def go_on(
        self,
        outgoing: Outgoing,
        queues: Sequence[MessageQueue],
        queue: MessageQueue,
        said: Frame | RemotingError,
        tries: Tries,
    ) -> SendResult:
        """Go on after a first try at `queue`, of which this is the answer or the failure."""
        result = await self._try(_read(said, outgoing, queue), queue, tries)
        result = result or await self._try_several(outgoing, queues, tries)
        return result or self._end(outgoing, tries)

    @property
    def is_watched(self) -> bool:
        """Whether hooks want to see every try."""
        return bool(self._send_hooks or self._forbidden_hooks)

    def _end(self, outgoing: Outgoing, tries: Tries) -> SendResult:
        """What comes of it if no try was as good as it should be."""
        if tries.less_safe is None:
            raise self._failure(outgoing, tries)
        return tries.less_safe

    async def _try_several(
        self, outgoing: Outgoing, queues: Sequence[MessageQueue], tries: Tries
    ) -> SendResult | None:
        for left in range(self._settings.retries - len(tries.brokers), -1, -1):
            seconds = tries.deadline - self._now()
            if seconds < NO_TIME:
                break
            avoid = tries.brokers[-1] if tries.brokers else None
            queue = self.choice.choose(outgoing.topic, queues, avoid)
            if left and self._settings.try_timeout is not None:
                seconds = min(seconds, self._settings.try_timeout)
            sent = self._send_to(outgoing, queue, seconds)
            if result := await self._try(sent, queue, tries):
                return result
        return None

    async def _try_again(
        self, outgoing: Outgoing, queue: MessageQueue, tries: Tries
    ) -> SendResult | None:
        """The same queue until the time is over."""
        pause = _FIRST_PAUSE
        while (seconds := tries.deadline - self._now()) >= NO_TIME:
            if self._settings.try_timeout is not None:
                seconds = min(seconds, self._settings.try_timeout)
            sent = self._send_to(outgoing, queue, seconds)
            if result := await self._try(sent, queue, tries):
                return result
            if isinstance(tries.failure, Refusal) and tries.failure.code in _BETTER_ELSEWHERE:
                break
            await asyncio.sleep(max(min(pause, tries.deadline - self._now()), 0))
            pause = min(pause * 2, _LONGEST_PAUSE)
        return None

    async def throw(
        self, outgoing: Outgoing, chosen: MessageQueue | Sequence[MessageQueue], deadline: float
    ) -> None:
        """Send one-way, once."""
        if not isinstance(chosen, MessageQueue):
            chosen = self.choice.choose(outgoing.topic, chosen)
        address = self._find_address(chosen)
        if address is None:
            async with self.until(deadline, outgoing.messages[0].topic):
                address = await self._require_address(chosen)
        context = self._before(outgoing, chosen, address, one_way=True)
        _address_to(outgoing, chosen)
        try:
            async with self.until(deadline, outgoing.messages[0].topic):
                await self._instance.notify(
                    address, outgoing.code, outgoing.fields, body=outgoing.body
                )
        except Exception as exc:
            self._after(context, None, exc)
            raise
        self._after(context, None, None)

    @asynccontextmanager
    async def until(self, deadline: float, topic: str) -> AsyncIterator[None]:
        """Raise SendTimedOut if the block is not done by the deadline."""
        began = self._now()
        try:
            async with asyncio.timeout_at(deadline):
                yield
        except TimeoutError as exc:
            raise SendTimedOut(topic, (), self._now() - began, None) from exc

    async def _try(
        self, sent: Awaitable[SendResult], queue: MessageQueue, tries: Tries
    ) -> SendResult | None:
        """One try; None if another one may do better."""
        tries.brokers.append(queue.broker_name)
        began = self._now()
        try:
            result = await sent
        except (RemotingError, Refusal, ClientError) as exc:
            tries.failure = exc
            if self._faults is not None:
                self._faults.failed(queue.broker_name, self._now() - began)
            is_final = isinstance(exc, Refusal) and exc.code not in self._settings.retried_codes
            if is_final and tries.less_safe is not None:
                return tries.less_safe  # it is stored: a try for better must not hide that
            if is_final:
                exc.add_note(f"while sending to {queue}")
                raise
            log.debug("a try to send to %s failed: %s", queue, exc)
            return None
        if self._faults is not None:
            self._faults.sent(queue.broker_name, self._now() - began)
        good = result.status is SendStatus.SEND_OK
        if good or not self._settings.retry_another_broker_when_not_store_ok:
            return result
        tries.less_safe = result
        return None

    async def _send_to(self, outgoing: Outgoing, queue: MessageQueue, seconds: float) -> SendResult:
        address = self._find_address(queue)
        if address is None:
            began = self._now()
            try:
                async with asyncio.timeout(seconds):
                    address = await self._require_address(queue)
            except TimeoutError as exc:
                raise BrokerUnknown(queue.broker_name) from exc
            seconds -= self._now() - began
        _address_to(outgoing, queue)
        context = self._before(outgoing, queue, address)
        try:
            answer = await self._instance.call(
                address,
                outgoing.code,
                outgoing.fields,
                body=outgoing.body,
                within=seconds,
                accept=_STORED,
            )
            result = _result(answer, outgoing, queue)
        except Exception as exc:
            self._after(context, None, exc)
            raise
        self._after(context, result, None)
        return result

    def _find_address(self, queue: MessageQueue) -> str | None:
        address = self._instance.routes.master(queue.broker_name)
        return None if address is None else self._instance.vip(address)

    async def _require_address(self, queue: MessageQueue) -> str:
        """Raises BrokerUnknown or NoNameServer."""
        address = await self._instance.routes.require_master(queue.broker_name, queue.topic)
        return self._instance.vip(address)

    def _failure(self, outgoing: Outgoing, tries: Tries) -> SendFailed:
        now = self._now()
        is_late = tries.deadline - now < NO_TIME or _is_timeout(tries.failure)
        kind = SendTimedOut if is_late else SendFailed
        seconds = now - tries.began
        failure = kind(outgoing.messages[0].topic, tries.brokers, seconds, tries.failure)
        failure.__cause__ = tries.failure
        return failure

    # Hooks

    def _before(
        self, outgoing: Outgoing, queue: MessageQueue, address: str, *, one_way: bool = False
    ) -> SendContext | None:
        if not self._send_hooks and not self._forbidden_hooks:
            return None
        context = SendContext(
            group=self._group,
            messages=outgoing.messages,
            unique_ids=outgoing.unique_ids,
            queue=queue,
            broker_address=address,
            client_id=self._instance.client_id,
            namespace=self._instance.settings.namespace,
            kind=outgoing.kind,
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
    """Timers may fire a little early, so that the clock alone does not tell."""
    return isinstance(failure, CallTimedOut) or (
        isinstance(failure, BrokerUnknown) and isinstance(failure.__cause__, TimeoutError)
    )


async def _read(said: Frame | RemotingError, outgoing: Outgoing, queue: MessageQueue) -> SendResult:
    if isinstance(said, RemotingError):
        raise said
    return _result(accepted(said, _STORED), outgoing, queue)


def _result(answer: Frame, outgoing: Outgoing, queue: MessageQueue) -> SendResult:
    reply = SendReply.from_fields(answer.fields)
    topic = outgoing.messages[0].topic
    return SendResult(
        status=SendStatus(answer.code),
        message_id=reply.batch_uniq_id or ",".join(outgoing.unique_ids),
        offset_message_id=reply.msg_id,
        queue=MessageQueue(topic, queue.broker_name, reply.queue_id),
        queue_offset=reply.queue_offset,
        transaction_id=reply.transaction_id,
        region=reply.region,
        trace_on=reply.trace_on,
        recall_handle=reply.recall_handle,
        repeats=reply.repeats or 0,
    )


def _address_to(outgoing: Outgoing, queue: MessageQueue) -> None:
    fields = outgoing.fields
    fields["e"] = str(queue.queue_id)
    fields["n"] = queue.broker_name
    fields["g"] = str(time.time_ns() // 1_000_000)


def _guarded(hook: object, context: SendContext) -> None:
    try:
        hook(context)  # type: ignore[operator]
    except Exception:
        log.exception("a send hook failed")
