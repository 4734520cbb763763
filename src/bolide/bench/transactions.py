"""`bench transaction`: transactional sends whose local transactions end at random."""

import random
import time
from collections import Counter, OrderedDict
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from bolide.bench.counters import SendCounters
from bolide.bench.producer import require_cluster
from bolide.bench.report import Emit, SendProgress, Summary, send_figures
from bolide.bench.runner import Bounds, Run
from bolide.bench.workload import Workload, random_body
from bolide.client.producer.results import TransactionState
from bolide.client.producer.settings import ProducerArguments
from bolide.client.producer.transactions import TransactionProducer
from bolide.errors import BolideError
from bolide.model.message import Message, StoredMessage

GROUP = "benchmark_transaction_producer"

_MAX_REMEMBERED = 200_000
_COMMIT, _ROLLBACK, _UNKNOWN = (
    TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """Probabilities, 0 to 1, of the outcomes of a local transaction or of a check."""

    rollback: float = 0.0
    unknown: float = 0.0

    def draw(self) -> TransactionState:
        number = random.random()  # noqa: S311  not for cryptography
        if number < self.rollback:
            return _ROLLBACK
        return _UNKNOWN if number < self.rollback + self.unknown else _COMMIT


class Ledger:
    """Records the state of each transaction and counts the checks of brokers."""

    def __init__(self, at_check: Odds) -> None:
        self._at_check = at_check
        self._states: OrderedDict[str, TransactionState] = OrderedDict()
        self.ends: Counter[TransactionState] = Counter()
        self.checks = 0
        self.unexpected = 0
        """Checks of transactions that are not recorded."""
        self.duplicated = 0
        """Checks of transactions that have already ended."""

    def record(self, unique_id: str, state: TransactionState) -> TransactionState:
        """Record the state of a transaction; the oldest entries are evicted."""
        self.ends[state] += 1
        self._states[unique_id] = state
        if len(self._states) > _MAX_REMEMBERED:
            self._states.popitem(last=False)
        return state

    def check(self, message: StoredMessage) -> TransactionState:
        self.checks += 1
        unique_id = message.unique_id or ""
        known = self._states.get(unique_id)
        if known is None:  # sent by another run, or evicted
            self.unexpected += 1
            return self._at_check.draw()
        if known is not _UNKNOWN:
            self.duplicated += 1
            return known
        return self.record(unique_id, self._at_check.draw())

    def as_text(self) -> str:
        return (
            f"Check: {self.checks} | UnexpectedCheck: {self.unexpected}"
            f" | DuplicatedCheck: {self.duplicated}"
        )

    def figures(self) -> dict[str, float]:
        return {
            "committed": self.ends[_COMMIT],
            "rolled_back": self.ends[_ROLLBACK],
            "said_unknown": self.ends[_UNKNOWN],
            "checks": self.checks,
            "unexpected_checks": self.unexpected,
            "duplicated_checks": self.duplicated,
        }


async def measure_transactions(
    load: Workload,
    at_send: Odds,
    at_check: Odds,
    bounds: Bounds,
    emit: Emit,
    client: ProducerArguments,
) -> Summary:
    """Send messages in transactions until the bounds are reached.

    Raises:
        NoNameServer: no NameServer is configured.
    """
    counters, ledger = SendCounters(), Ledger(at_check)

    async def check(message: StoredMessage) -> TransactionState:
        return ledger.check(message)

    async with TransactionProducer(GROUP, check=check, **client) as producer:
        await require_cluster(producer, load.topic)
        run = Run(bounds)
        progress = SendProgress(counters, lambda text: emit(f"{text} | {ledger.as_text()}"))
        senders = _Senders(producer, load, at_send, counters, ledger)
        run_time = await run.until_done(senders.work(run), progress)
    progress.complete(run_time.seconds)
    return Summary(
        command="transaction",
        figures=send_figures(counters, run_time) | ledger.figures(),
        times={"send": counters.times},
        last_failure=counters.last_failure,
    )


class _Senders:
    def __init__(
        self,
        producer: TransactionProducer,
        load: Workload,
        at_send: Odds,
        counters: SendCounters,
        ledger: Ledger,
    ) -> None:
        self._producer = producer
        self._load = load
        self._at_send = at_send
        self._counters = counters
        self._ledger = ledger
        self._message = Message(load.topic, random_body(load.size))

    def work(self, run: Run) -> list[Coroutine[Any, Any, None]]:
        return [self._send_all(run) for _ in range(self._load.senders)]

    async def _send_all(self, run: Run) -> None:
        while run.claim():
            started = time.perf_counter()
            try:
                await self._producer.send_in_transaction(self._message, self._local)
            except BolideError as exc:
                self._counters.failed(1, exc)
                await run.pause(1.0)
            else:
                self._counters.succeeded(1, time.perf_counter() - started)

    async def _local(self, message: Message) -> TransactionState:
        return self._ledger.record(message.unique_id or "", self._at_send.draw())
