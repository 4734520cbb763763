"""How long a broker group cannot be written to when its master fails.

In each round the master of a group is killed, alone or together with the leading controller,
paused, or cut off from all other members (clients still reach it). With one clock are measured:
the time until another member accepts a send, found by sends straight to each member; the time
until a client with a send timeout of 1 s has a send acknowledged by another member; and what the
old master acknowledges after that, which must be nothing.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bolide.chaos.report import Circumstances, table_lines
from bolide.chaos.target import (
    READY_WITHIN,
    Target,
    create_topic,
    leading_controller,
    until_whole,
)
from bolide.client.producer.producer import Producer
from bolide.errors import BolideError, ConfigError
from bolide.model.message import Message
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.send import SendHeader
from bolide.protocol.message_id import OffsetId
from bolide.remoting.address import format_address
from bolide.remoting.client import RemotingClient

log = logging.getLogger(__name__)

FAULTS = ("kill", "kill-leaders", "pause", "cut")
_TOPIC = "chaos-failover"
_PROBE_EVERY = 0.02
_PROBE_WITHIN = 0.5
_HELD_WITHIN = 10.0
"""Seconds for a send to the old master, which may hold it and acknowledge it when it is back."""
_SEND_TIMEOUT = 1.0
_QUORUM = 3
"""Controllers of which one may be missing."""

Emit = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverOptions:
    fault: str = "kill"
    rounds: int = 20
    give_up: float = 30.0
    """Seconds after which a round counts as failed."""
    watch: float = 3.0
    """Seconds for which the old master is watched after the fault is healed."""
    settle: float = 2.0
    """Seconds between two rounds, after the group is whole again."""

    def __post_init__(self) -> None:
        if self.fault not in FAULTS:
            raise ConfigError(f"--fault {self.fault}: must be one of {', '.join(FAULTS)}")
        if self.rounds < 1:
            raise ConfigError(f"--rounds {self.rounds}: must be at least 1")


@dataclass(slots=True)
class FailoverRound:
    """Times in seconds since the fault; None: not within the limit."""

    old: str
    new: str | None = None
    writable: float | None = None
    client: float | None = None
    late_acknowledgements: int = 0
    """By the old master, of sends that began after the fault, after another was writable."""


@dataclass(slots=True)
class FailoverResult:
    fault: str
    rounds: list[FailoverRound] = field(default_factory=list)

    @property
    def late_acknowledgements(self) -> int:
        return sum(each.late_acknowledgements for each in self.rounds)

    @property
    def failed(self) -> int:
        return sum(each.writable is None or each.client is None for each in self.rounds)

    @property
    def is_good(self) -> bool:
        return not self.failed and not self.late_acknowledgements

    def summary(self) -> str:
        writable = [each.writable for each in self.rounds if each.writable is not None]
        client = [each.client for each in self.rounds if each.client is not None]
        return (
            f"{self.fault}: {len(self.rounds)} rounds, {self.failed} failed;"
            f" new master writable {_spread(writable)}; client acknowledged {_spread(client)};"
            f" acknowledged by the old master afterwards: {self.late_acknowledgements}"
        )

    def report(self, where: Circumstances) -> str:
        """The page of the measurement, in Markdown."""
        rows = [
            (number, each.old, each.new or "-", _text(each.writable), _text(each.client),
             each.late_acknowledgements)
            for number, each in enumerate(self.rounds, 1)
        ]  # fmt: skip
        titles = (
            "Round", "Old master", "New master", "Writable after (s)", "Client after (s)",
            "Late acknowledgements",
        )  # fmt: skip
        lines = ["# Failover", "", *where.lines(), "", self.summary(), ""]
        return "\n".join([*lines, *table_lines(titles, rows), ""])


async def measure_failover(target: Target, options: FailoverOptions, emit: Emit) -> FailoverResult:
    """Run the rounds against a running cluster with one broker group.

    Raises:
        ConfigError: the cluster has a group without replicas, or cannot cut.
        BolideError: the cluster does not become ready.
    """
    if len(target.members("broker")) < 2:
        raise ConfigError("a failover needs a broker group with at least two members")
    if options.fault == "cut" and not target.can_cut:
        raise ConfigError(
            "--fault cut: the links of this cluster cannot be cut; take --network proxy"
        )
    if options.fault == "kill-leaders" and len(target.controllers()) < _QUORUM:
        raise ConfigError(
            f"--fault kill-leaders: without one of {len(target.controllers())} controllers nobody"
            f" elects; take at least {_QUORUM}"
        )
    result = FailoverResult(options.fault)
    await create_topic(target.name_servers, _TOPIC, queues=4)
    for number in range(1, options.rounds + 1):
        old = await until_whole(target)
        await asyncio.sleep(options.settle)
        harmed = [old]
        if options.fault == "kill-leaders":
            harmed.append(await leading_controller(target))
        found = await _Round(target, options, harmed).run()
        result.rounds.append(found)
        emit(
            f"round {number}: {options.fault} of {' and '.join(harmed)}, then {found.new}:"
            f" writable after {_text(found.writable)} s, client after {_text(found.client)} s"
        )
    return result


@dataclass(slots=True)
class _Ack:
    member: str
    began: float
    ended: float


class _Round:
    """One failover; all times are of one monotonic clock.

    Args:
        harmed: the master of the group, and what fails together with it.
    """

    def __init__(self, target: Target, options: FailoverOptions, harmed: Sequence[str]) -> None:
        self._target = target
        self._options = options
        self._harmed = harmed
        self._old = old = harmed[0]
        group = target.group_of(old)
        self._members = [
            each for each in target.members("broker") if target.group_of(each) == group
        ]
        self._probes: list[_Ack] = []
        self._client_acks: list[_Ack] = []
        self._changed = asyncio.Event()

    async def run(self) -> FailoverRound:
        async with AsyncExitStack() as stack:
            remoting = await stack.enter_async_context(RemotingClient())
            producer = await stack.enter_async_context(
                Producer(
                    "chaos-failover", name_server=self._target.name_servers,
                    send_timeout=_SEND_TIMEOUT,
                )
            )  # fmt: skip
            await stack.enter_async_context(_running(self._send(producer)))
            await self._until(lambda: bool(self._client_acks), READY_WITHIN)
            began = time.monotonic()
            async with self._fault():
                for member in self._members:
                    await stack.enter_async_context(_running(self._probe(remoting, member)))
                await self._until(lambda: self._is_over(began), self._options.give_up)
            await asyncio.sleep(self._options.watch)
        return self._judge(began)

    @asynccontextmanager
    async def _fault(self) -> AsyncIterator[None]:
        target, old, fault = self._target, self._old, self._options.fault
        if fault in ("kill", "kill-leaders"):
            await asyncio.gather(*map(target.kill, self._harmed))
        elif fault == "pause":
            target.pause(old)
        else:
            roles = ("namesrv", "controller", "broker")
            others = [each for role in roles for each in target.members(role) if each != old]
            await target.cut(old, others, "both")
        try:
            yield
        finally:
            if fault in ("kill", "kill-leaders"):
                await asyncio.gather(*map(target.start, self._harmed))
            elif fault == "pause":
                target.resume(old)
            else:
                await target.heal(old)

    async def _send(self, producer: Producer) -> None:
        by_address = {self._target.address_of(each): each for each in self._members}
        while True:
            began = time.monotonic()
            try:
                sent = await producer.send(Message(_TOPIC, b"from the client"))
            except BolideError:
                await asyncio.sleep(_PROBE_EVERY)
                continue
            host = OffsetId.decode(sent.offset_message_id).host
            member = by_address.get(format_address((host.ip, host.port)), "")
            self._client_acks.append(_Ack(member, began, time.monotonic()))
            self._changed.set()
            await asyncio.sleep(_PROBE_EVERY)

    async def _probe(self, remoting: RemotingClient, member: str) -> None:
        address = self._target.address_of(member)
        within = _HELD_WITHIN if member == self._old else _PROBE_WITHIN
        while True:
            began = time.monotonic()
            header = SendHeader(
                producer_group="chaos-probe", topic=_TOPIC, queue_id=0, sys_flag=0,
                born_timestamp=int(time.time() * 1000), flag=0,
            )  # fmt: skip
            with suppress(BolideError):
                await remoting.call(
                    address, RequestCode.SEND_MESSAGE, header, body=b"probe", within=within
                )
                self._probes.append(_Ack(member, began, time.monotonic()))
                self._changed.set()
            await asyncio.sleep(_PROBE_EVERY)

    def _is_over(self, began: float) -> bool:
        return self._new(self._probes, began) is not None and (
            self._new(self._client_acks, began) is not None
        )

    def _new(self, acks: list[_Ack], began: float) -> _Ack | None:
        """The first acknowledgement by another member than the old master."""
        return next((a for a in acks if a.ended >= began and a.member != self._old), None)

    async def _until(self, condition: Callable[[], bool], within: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()

    def _judge(self, began: float) -> FailoverRound:
        found = FailoverRound(self._old)
        if writable := self._new(self._probes, began):
            found.new, found.writable = writable.member, writable.ended - began
            found.late_acknowledgements = sum(
                ack.member == self._old and ack.began >= began and ack.ended > writable.ended
                for ack in (*self._probes, *self._client_acks)
            )
        if client := self._new(self._client_acks, began):
            found.client = client.ended - began
        return found


@asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "never"
    return f"median {median(seconds):.2f} s, worst {max(seconds):.2f} s"


def _text(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f}"
