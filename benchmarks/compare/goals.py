"""The project's goals relative to RocketMQ, and whether a run met them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.brokers import APACHE, BOLIDE, PLAIN, WORKERS
from benchmarks.compare import figures
from benchmarks.compare.figures import Metric
from benchmarks.compare.results import Results
from benchmarks.compare.rounds import Round

# µs of CPU per send in the prototypes of the append kernel, which validate nothing.
PROTOTYPE_64_SENDERS, PROTOTYPE_PIPELINED = 10.0, 1.4
_PROTOTYPES = 2.5
_PART_OF_BOUND, _PART_OF_SYNC_BOUND = 0.85, 0.6
_MAX_FAILED_SHARE = 0.001


@dataclass(frozen=True)
class Goal:
    """One goal, with the figure that this run measured for it."""

    what: str
    limit: float
    measured: float | None
    at_most: bool = False
    unit: str = "times"
    detail: str = ""
    cell: str = ""
    """The cell that provides the figure."""
    server: str = BOLIDE
    is_void: bool = False
    """Whether Bolide failed too many requests, which makes the goal missed at any figure."""

    @property
    def target(self) -> str:
        return f"{'at most' if self.at_most else 'at least'} {_number(self.limit, self.unit)}"

    @property
    def result(self) -> str:
        return "not measured" if self.measured is None else _number(self.measured, self.unit)

    @property
    def verdict(self) -> str:
        if self.is_void:
            return "**missed**"
        if self.measured is None:
            return ""
        met = self.measured <= self.limit if self.at_most else self.measured >= self.limit
        return "met" if met else "**missed**"


def goals(results: Results) -> Iterator[Goal]:
    for part in (_costs, _java, _rates, _latencies, _synced, _footprint, _scale, _client):
        yield from (with_failures(results, goal) for goal in part(results))


def cost_goal(results: Results, cell: str, limit: float, what: str) -> Goal:
    """That a message costs less CPU time than at RocketMQ's broker."""
    found = _ratio(results, cell, _per_cpu_second)
    goal = Goal(f"messages per server-CPU-second, {what}", limit, found, cell=cell)
    return with_failures(results, goal)


def with_failures(results: Results, goal: Goal) -> Goal:
    """Add the share of failed requests in the median round of both brokers."""
    rounds = results.rounds(goal.cell)
    ours, theirs = (
        figures.median(rounds, server, _failed_part) or 0.0 for server in (goal.server, APACHE)
    )
    shares = {"our": ours, "RocketMQ's": theirs}
    texts = [
        f"{part:.2%} of {whose} requests failed"
        for whose, part in shares.items()
        if part > _MAX_FAILED_SHARE
    ]
    detail = ", ".join(filter(None, (goal.detail, *texts)))
    return replace(goal, detail=detail, is_void=ours > _MAX_FAILED_SHARE)


def _costs(results: Results) -> Iterator[Goal]:
    goals = {
        "send-64": (3, "64 synchronous senders"),
        "pipelined": (6, "asynchronous sends"),
        "batch-16": (5, "batches of 16"),
        "batch-128": (5, "batches of 128"),
        "tail-1": (4, "tail, 1 consumer"),
        "tail-4": (4, "tail, 4 consumers"),
        "tail-16": (4, "tail, 16 consumers"),
        "catch-up": (4, "catch-up"),
    }
    for cell, (limit, what) in goals.items():
        found = _ratio(results, cell, _per_cpu_second)
        yield Goal(f"messages per server-CPU-second, {what}", limit, found, cell=cell)
    plain = figures.ratio(results.rounds("send-64"), PLAIN, APACHE, _per_cpu_second)
    what = "the same, 64 senders, without a compiler"
    yield Goal(what, 0.7, plain, cell="send-64", server=PLAIN)
    for cell, prototype in (("send-64", PROTOTYPE_64_SENDERS), ("pipelined", PROTOTYPE_PIPELINED)):
        cost = _ours(results, cell, _cpu_us)
        what = f"server CPU for a send, `{cell}`: {_PROTOTYPES:g} times the prototype's {prototype}"
        yield Goal(what, _PROTOTYPES * prototype, cost, at_most=True, unit="µs", cell=cell)


def _java(results: Results) -> Iterator[Goal]:
    for cell in ("java-sync", "java-batch", "java-transaction", "java-consumer"):
        rate = _ratio(results, cell, _per_second)
        bound = java_bound(results, cell)
        part = figures.quotient(rate, bound)
        detail = "" if bound is None else f"the bound is {bound:.2f} times"
        what = f"`{cell}`: messages per second, part of what the CPU costs allow"
        yield Goal(what, 100 * _PART_OF_BOUND, None if part is None else 100 * part, unit="%",
                  detail=detail, cell=cell)  # fmt: skip
        yield Goal(f"`{cell}`: messages per second", 1, rate, cell=cell)


def java_bound(results: Results, cell: str) -> float | None:
    """Bound by the lower of the two measured client costs, which gives the stricter bound."""
    rounds = results.rounds(cell)
    clients = [figures.median(rounds, name, _client_cpu_us) for name in (BOLIDE, APACHE)]
    ours, theirs = (figures.median(rounds, name, _cpu_us) for name in (BOLIDE, APACHE))
    found = [each for each in clients if each is not None]
    if not found or ours is None or theirs is None:
        return None
    return figures.client_bound(min(found), theirs, ours)


def _rates(results: Results) -> Iterator[Goal]:
    pipelined = _ratio(results, "pipelined", _per_second)
    yield Goal("messages per second, asynchronous", 3, pipelined, cell="pipelined")
    rounds = results.rounds("send-64-workers")
    found = figures.ratio(rounds, WORKERS, APACHE, _per_second)
    what = "messages per second, 64 senders, `--workers 2`"
    yield Goal(what, 3, found, cell="send-64-workers", server=WORKERS)


def _latencies(results: Results) -> Iterator[Goal]:
    half = _ratio(results, "half-load", lambda each: each.loaded.p99_us)
    what = "p99 of a send at half of RocketMQ's most"
    yield Goal(what, 0.5, half, at_most=True, cell="half-load")
    wake = _ours(results, "wake-up", lambda each: each.loaded.p50_us)
    in_ms = None if wake is None else wake / 1000
    what = "p50 from send to receipt by a long poll"
    yield Goal(what, 1, in_ms, at_most=True, unit="ms", cell="wake-up")


def _synced(results: Results) -> Iterator[Goal]:
    for senders in (8, 64):
        cell = f"sync-{senders}"
        yield Goal(f"SYNC_FLUSH, {senders} senders, messages per second", 1.5,
                  _ratio(results, cell, _per_second), cell=cell)  # fmt: skip
        bound = sync_bound(results, senders)
        part = figures.quotient(_ours(results, cell, _per_second), bound)
        detail = "" if bound is None else f"the bound is {bound:,.0f} messages/s"
        yield Goal(f"SYNC_FLUSH, {senders} senders, part of N ÷ (t + N ÷ r)",
                  100 * _PART_OF_SYNC_BOUND, None if part is None else 100 * part, unit="%",
                  detail=detail, cell=cell)  # fmt: skip


def sync_bound(results: Results, senders: int) -> float | None:
    rounds = results.rounds(f"sync-{senders}")
    sync_s = figures.median(rounds, BOLIDE, lambda each: each.loaded.extra["sync_s"])
    unsynced = _ours(results, f"send-{senders}", _per_second)
    if sync_s is None or not unsynced:
        return None
    return figures.sync_bound(senders, sync_s, unsynced)


def _footprint(results: Results) -> Iterator[Goal]:
    yield Goal("private memory, idle", 1 / 8, _ratio(results, "start", _private), at_most=True)
    after = (_last(results, "ten-million", name) for name in (BOLIDE, APACHE))
    found = figures.quotient(*(each.used.private_mib if each else None for each in after))
    yield Goal("private memory after 10 million messages", 1 / 4, found, at_most=True)
    first = _ratio(results, "start", lambda each: each.loaded.extra.get("first_send_s"))
    yield Goal("start-up to the first accepted send", 1 / 5, first, at_most=True)


def _scale(results: Results) -> Iterator[Goal]:
    pairs = (("queues-10000", "send-64", 80), ("queues-10000-pipelined", "pipelined", 50))
    for cell, baseline, limit in pairs:
        many, few = (_ours(results, each, _per_second) for each in (cell, baseline))
        part = figures.quotient(many, few)
        yield Goal(f"messages per second with 10,000 queues, of those with 4, `{baseline}`",
                  limit, None if part is None else 100 * part, unit="%", cell=cell)  # fmt: skip
    costs = figures.values(results.rounds("ten-million"), BOLIDE, _cpu_us)
    grown = figures.growth(costs)
    what = "cost of an append, the last of 10 million by the first"
    yield Goal(what, 1.2, grown, at_most=True, cell="ten-million")


def _client(results: Results) -> Iterator[Goal]:
    sends = _ours(results, "ours-async", _per_second)
    yield Goal("our client: asynchronous sends", 25_000, sends, unit="/s", cell="ours-async")
    received = _ours(results, "ours-consumer", _per_second)
    what = "our client: messages consumed"
    yield Goal(what, 100_000, received, unit="/s", cell="ours-consumer")


def _ratio(results: Results, cell: str, metric: Metric) -> float | None:
    return figures.ratio(results.rounds(cell), BOLIDE, APACHE, metric)


def _ours(results: Results, cell: str, metric: Metric) -> float | None:
    return figures.median(results.rounds(cell), BOLIDE, metric)


def _last(results: Results, cell: str, server: str) -> Round | None:
    found = [each for each in results.rounds(cell) if each.server == server]
    return found[-1] if found else None


def _per_second(found: Round) -> float:
    return found.per_second


def _per_cpu_second(found: Round) -> float:
    return found.per_cpu_second


def _cpu_us(found: Round) -> float:
    return found.cpu_us


def _client_cpu_us(found: Round) -> float:
    return found.client_cpu_us


def _failed_part(found: Round) -> float:
    return found.failed_part


def _private(found: Round) -> float:
    return found.used.private_mib


def _number(value: float, unit: str) -> str:
    if unit == "/s":
        return f"{value:,.0f}/s"
    if unit == "%":
        return f"{value:.0f} %"
    return f"{value:.3g} {unit}"
