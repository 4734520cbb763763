"""Producers and consumers of all kinds, which record everything they see.

Each kind has a topic and a consumer group of its own. Producers send one message after the other,
with a pause, so that a broker is busy but not full.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field

from bolide.chaos.history import (
    Delivered,
    History,
    Kept,
    Kind,
    Outcome,
    Sent,
    Unread,
    body_of,
    id_of,
)
from bolide.chaos.target import create_topic
from bolide.client.consumer.pop.pop_consumer import PopConsumer
from bolide.client.consumer.pull.pull_consumer import PullConsumer
from bolide.client.consumer.pull.pull_request import PullResult
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.producer.producer import Producer
from bolide.client.producer.results import SendResult, SendStatus, TransactionState
from bolide.client.producer.transactions import TransactionProducer
from bolide.cluster.control import masters
from bolide.errors import BolideError
from bolide.model.message import Message, StoredMessage
from bolide.model.message_queue import MessageQueue

log = logging.getLogger(__name__)

_INVISIBLE = 10.0
_POP_WAIT = 2.0
_DEDUP_TRIES = 20
_RETRY_PAUSE = 0.2
_COMMIT_SHARE, _ROLLBACK_SHARE = 0.7, 0.15  # the rest is left to a check-back


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOptions:
    """How much is sent."""

    kinds: tuple[Kind, ...] = tuple(Kind)
    producers: int = 2
    """For each kind."""
    consumers: int = 2
    """For each kind."""
    queues: int = 4
    """Of each topic, at each broker."""
    keys: int = 8
    """Keys of each producer; messages of a key are numbered."""
    pause: float = 0.03
    """Seconds between two sends of a producer."""
    send_timeout: float = 3.0
    longest_delay: float = 4.0
    """Seconds that a timer waits at most."""
    read_within: float = 20.0
    """Seconds for which a queue is looked for, and a pull that fails is repeated, when all queues
    are read in the end."""


@dataclass(slots=True)
class Workload:
    """Runs in its `sending` block, inside of its `consuming` block."""

    name_servers: str
    history: History
    options: WorkloadOptions
    seed: int
    last_acknowledged: dict[Kind, float] = field(default_factory=dict)
    """When the last acknowledged send of a kind began."""
    _decisions: dict[str, TransactionState] = field(default_factory=dict)
    """The "database" of the local transactions: what is not here was never begun."""
    _beginning: set[str] = field(default_factory=set)
    _arrived: set[str] = field(default_factory=set)
    _producers: dict[Kind, list[Producer]] = field(default_factory=dict)
    _is_over: asyncio.Event = field(default_factory=asyncio.Event)

    async def create_topics(self) -> None:
        """Create the topics on every master; raises BolideError if it takes too long."""
        for kind in self.options.kinds:
            attributes = {"dedup.window": "1h"} if kind is Kind.DEDUP else None
            await create_topic(self.name_servers, _topic(kind), self.options.queues, attributes)

    @asynccontextmanager
    async def consuming(self) -> AsyncIterator[None]:
        """Consume everything while the block runs; producers answer check-backs."""
        async with AsyncExitStack() as stack, _tasks() as group:
            popping = []
            for kind in self.options.kinds:
                for _ in range(self.options.producers):
                    producer = await stack.enter_async_context(self._producer(kind))
                    self._producers.setdefault(kind, []).append(producer)
                for _ in range(self.options.consumers):
                    if kind is Kind.POP:
                        popping.append(group.create_task(self._pop()))
                    else:
                        await stack.enter_async_context(await self._consumer(kind))
            try:
                yield
            finally:
                for task in popping:
                    task.cancel()

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Send while the block runs; at its end wait for the sends under way."""
        async with _tasks() as group:
            for kind, producers in self._producers.items():
                for number, producer in enumerate(producers):
                    group.create_task(self._produce(kind, number, producer))
            try:
                yield
            finally:
                self._is_over.set()

    async def drain(self, within: float) -> bool:
        """Wait until all acknowledged messages have been delivered; False if some were not."""
        wanted = {each.id for each in self.history.sent if each.outcome is Outcome.ACKNOWLEDGED}
        deadline = self.history.now() + within
        while not wanted <= self._arrived:
            if self.history.now() > deadline:
                return False
            await asyncio.sleep(0.1)
        return True

    async def read_back(self) -> None:
        """Record what the queues hold, read from their beginning, and which cannot be read.

        That a message was delivered once does not say that it is still there: consumers are
        milliseconds behind, so what a failover takes away has mostly been seen.
        """
        silent: set[str] = set()
        async with AsyncExitStack() as stack:
            # One for each NameServer: one that was killed knows a broker only when it registers
            # again, half a minute later.
            readers = [
                await stack.enter_async_context(PullConsumer("chaos-reader", name_server=each))
                for each in self.name_servers.split(";")
            ]
            for kind in self.options.kinds:
                for queue, reader in (await self._queues(kind, readers)).items():
                    # Of a broker that did not answer for so long, not every queue is waited for.
                    within = 0.0 if queue.broker_name in silent else self.options.read_within
                    if not await self._read_queue(reader, kind, queue, within):
                        silent.add(queue.broker_name)

    async def _queues(
        self, kind: Kind, readers: Sequence[PullConsumer]
    ) -> dict[MessageQueue, PullConsumer]:
        """The queues of a topic, and who knows the way to them.

        Those in which messages were acknowledged are waited for. If nobody knows them, they are
        recorded, unless their broker is there: then it has lost them.
        """
        missing = {each.queue for each in self.history.sent if each.kind is kind} - {""}
        found: dict[MessageQueue, PullConsumer] = {}
        deadline, error = time.monotonic() + self.options.read_within, ""
        while True:
            for reader in readers:
                try:
                    for queue in await reader.fetch_subscribe_queues(_topic(kind)):
                        found.setdefault(queue, reader)
                except BolideError as exc:
                    error = str(exc)
            names = {_queue_name(each.broker_name, each.queue_id) for each in found}
            if missing <= names or time.monotonic() > deadline:
                break
            await asyncio.sleep(_RETRY_PAUSE)
        if not found and not missing:
            self.history.record(Unread(kind=kind, queue="", error=error))
        elif missing - names:
            present = await self._registered_groups()
            for name in sorted(missing - names):
                if name.partition("/")[0] not in present:
                    error = "its broker is not registered"
                    self.history.record(Unread(kind=kind, queue=name, error=error))
        return found

    async def _registered_groups(self) -> set[str]:
        answers = [await masters(each) or {} for each in self.name_servers.split(";")]
        return {group for answer in answers for group in answer}

    async def _read_queue(
        self, reader: PullConsumer, kind: Kind, queue: MessageQueue, within: float
    ) -> bool:
        """Whether it could be read to its end; each pull must work in so many seconds."""
        offset, name = 0, _queue_name(queue.broker_name, queue.queue_id)
        while True:
            try:
                found = await _pull(reader, queue, offset, within)
            except BolideError as exc:
                self.history.record(Unread(kind=kind, queue=name, error=str(exc)))
                return False
            for each in found.messages:
                self.history.record(
                    Kept(id=id_of(each.body), kind=kind, queue=name, offset=each.queue_offset)
                )
            if found.next_offset == offset:
                return True
            offset = found.next_offset

    # ---- consumers

    async def _consumer(self, kind: Kind) -> PushConsumer:
        consumer = PushConsumer(
            f"chaos-{kind}", name_server=self.name_servers, consume_from="first",
            commit_interval=1.0, suspend=5.0, ordered_suspend=0.2,
        )  # fmt: skip

        async def handle(message: StoredMessage) -> None:
            self._record_delivery(kind, message)

        await consumer.subscribe(_topic(kind), handle, ordered=kind is Kind.ORDERED)
        return consumer

    async def _pop(self) -> None:
        async with PopConsumer(
            "chaos-pop", name_server=self.name_servers, consume_from="first", invisible=_INVISIBLE
        ) as consumer:
            await consumer.subscribe(_topic(Kind.POP))
            while True:
                try:
                    received = await consumer.receive(max_messages=16, wait=_POP_WAIT)
                    for message in received:
                        self._record_delivery(Kind.POP, message)
                    if received:
                        await consumer.ack(*received)
                except BolideError as exc:
                    log.info("a pop failed: %s", exc)
                    await asyncio.sleep(_RETRY_PAUSE)

    def _record_delivery(self, kind: Kind, message: StoredMessage) -> None:
        found = id_of(message.body)
        self._arrived.add(found)
        self.history.record(
            Delivered(
                id=found, kind=kind, at=self.history.now(),
                queue=_queue_name(message.broker_name, message.queue_id),
                offset=message.queue_offset, times=message.reconsume_times,
            )
        )  # fmt: skip

    # ---- producers

    async def _produce(self, kind: Kind, number: int, producer: Producer) -> None:
        chance = random.Random(f"{self.seed}-{kind}-{number}")  # noqa: S311  to be repeatable
        numbers: dict[str, int] = {}
        while not self._is_over.is_set():
            key = f"{kind}-{number}-{chance.randrange(self.options.keys)}"
            numbers[key] = numbers.get(key, 0) + 1
            await self._send(_Send(self, producer, kind, key, numbers[key], chance))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), self.options.pause)

    def _producer(self, kind: Kind) -> Producer:
        if kind is not Kind.TRANSACTION:
            return Producer(
                f"chaos-{kind}-senders", name_server=self.name_servers,
                send_timeout=self.options.send_timeout,
            )  # fmt: skip
        return TransactionProducer(
            "chaos-transaction-senders", check=self._check_back, topics=[_topic(kind)],
            name_server=self.name_servers, send_timeout=self.options.send_timeout,
        )  # fmt: skip

    async def _check_back(self, message: StoredMessage) -> TransactionState:
        found = id_of(message.body)
        # A broker may ask before its answer to the half message has arrived.
        is_begun = found not in self._beginning
        unknown = TransactionState.ROLLBACK if is_begun else TransactionState.UNKNOWN
        return self._decisions.get(found, unknown)

    @contextmanager
    def beginning(self, message_id: str) -> Iterator[None]:
        """While a transaction may still begin, its outcome is open."""
        self._beginning.add(message_id)
        try:
            yield
        finally:
            self._beginning.discard(message_id)

    def decide(self, message_id: str, state: TransactionState) -> None:
        """Note the outcome of a local transaction, for check-backs."""
        self._decisions[message_id] = state

    async def _send(self, send: "_Send") -> None:
        sent = await send.run()
        self.history.record(sent)
        if sent.outcome is Outcome.ACKNOWLEDGED:
            self.last_acknowledged[send.kind] = sent.began


@dataclass(slots=True)
class _Send:
    """One message on its way."""

    workload: Workload
    producer: Producer
    kind: Kind
    key: str
    number: int
    chance: random.Random
    delay: float = 0.0
    tries: int = 1

    @property
    def id(self) -> str:
        return f"{self.key}-{self.number}"

    async def run(self) -> Sent:
        """Send it as its kind demands, and say how it ended."""
        ways: dict[Kind, Callable[[], Awaitable[SendResult | Outcome]]] = {
            Kind.ORDERED: self._ordered, Kind.TRANSACTION: self._transaction,
            Kind.TIMER: self._timer, Kind.DEDUP: self._once,
        }  # fmt: skip
        began = self.workload.history.now()
        error = ""
        result: SendResult | Outcome
        try:
            result = await ways.get(self.kind, self._plain)()
        except (BolideError, OSError) as exc:
            error = f"{type(exc).__name__}: {exc}"[:200]
            # A check-back finds no local transaction, and rolls back.
            is_rolled_back = self.kind is Kind.TRANSACTION
            result = Outcome.ROLLED_BACK if is_rolled_back else Outcome.UNKNOWN
        return self._sent(began, result, error)

    def _sent(self, began: float, result: SendResult | Outcome, error: str) -> Sent:
        queue, offset = "", -1
        if isinstance(result, Outcome):
            outcome = result
        else:
            is_safe = result.status is SendStatus.SEND_OK
            outcome = Outcome.ACKNOWLEDGED if is_safe else Outcome.WEAK
            queue = _queue_name(result.queue.broker_name, result.queue.queue_id)
            offset = result.queue_offset
        return Sent(
            id=self.id, kind=self.kind, key=self.key, number=self.number, began=began,
            ended=self.workload.history.now(), outcome=outcome, queue=queue, offset=offset,
            error=error, tries=self.tries, delay=self.delay,
        )  # fmt: skip

    def _message(self, *, delay: float | None = None, dedup_key: str = "") -> Message:
        return Message(
            _topic(self.kind), body_of(self.id), keys=self.key, delay=delay, dedup_key=dedup_key
        )

    async def _plain(self) -> SendResult:
        return await self.producer.send(self._message())

    async def _ordered(self) -> SendResult:
        return await self.producer.send(self._message(), key=self.key)

    async def _timer(self) -> SendResult:
        self.delay = round(self.chance.uniform(0.2, self.workload.options.longest_delay), 3)
        return await self.producer.send(self._message(delay=self.delay))

    async def _once(self) -> SendResult:
        """Send again with the same key until it is acknowledged, also if it is stored weakly."""
        message = self._message(dedup_key=self.id)
        while True:
            is_last = self.tries == _DEDUP_TRIES
            try:
                result = await self.producer.send(message)
                if result.status is SendStatus.SEND_OK or is_last:
                    return result
            except BolideError:
                if is_last:
                    raise
            self.tries += 1
            await asyncio.sleep(_RETRY_PAUSE)

    async def _transaction(self) -> Outcome:
        assert isinstance(self.producer, TransactionProducer)
        draw = self.chance.random()

        async def local(message: Message) -> TransactionState:
            del message
            is_rollback = _COMMIT_SHARE <= draw < _COMMIT_SHARE + _ROLLBACK_SHARE
            state = TransactionState.ROLLBACK if is_rollback else TransactionState.COMMIT
            self.workload.decide(self.id, state)
            return state if draw < _COMMIT_SHARE + _ROLLBACK_SHARE else TransactionState.UNKNOWN

        with self.workload.beginning(self.id):
            result = await self.producer.send_in_transaction(self._message(), local)
        if result.status is not SendStatus.SEND_OK:
            return Outcome.ROLLED_BACK  # the local transaction did not begin
        is_rollback = result.state is TransactionState.ROLLBACK
        return Outcome.ROLLED_BACK if is_rollback else Outcome.ACKNOWLEDGED


async def _pull(
    reader: PullConsumer, queue: MessageQueue, offset: int, within: float
) -> PullResult:
    """Pull again until it works; raises the BolideError of the last try if it takes too long."""
    deadline = time.monotonic() + within
    while True:
        try:
            return await reader.pull(queue, "*", offset)
        except BolideError as exc:
            if time.monotonic() > deadline:
                raise
            log.info("a pull of the last reading failed: %s", exc)
            await asyncio.sleep(_RETRY_PAUSE)


@asynccontextmanager
async def _tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """A group of tasks that raises its first error by itself, so that it can be caught."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


def _topic(kind: Kind) -> str:
    return f"chaos-{kind}"


def _queue_name(broker: str, queue_id: int) -> str:
    return f"{broker}/{queue_id}"
