"""What only the master has when its machine is lost.

In each round messages are sent to the master as fast as it takes them from a number of senders.
Then its machine is lost: all links are cut at one moment, and it is killed. What was answered with
SEND_OK until then and the others do not have would be lost with the machine: the slave, or the
member that controllers make the new master. The round ends with the return of the old one, with its
log.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from statistics import median

from bolide.chaos.report import Circumstances, table_lines
from bolide.chaos.target import READY_WITHIN, LocalTarget, create_topic, until_whole
from bolide.client.producer.producer import Producer
from bolide.client.producer.results import SendStatus
from bolide.errors import BolideError, ConfigError
from bolide.model.message import Message
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.offsets import MaxOffsetHeader, OffsetReply
from bolide.remoting.client import RemotingClient

_TOPIC = "chaos-loss"
_QUEUES = 4
_SEND_TIMEOUT = 1.0
_STILL = 0.5
"""Seconds without growth after which a member has all that reached it."""

Emit = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOptions:
    rounds: int = 20
    senders: int = 16
    size: int = 1024
    """Bytes of a message."""
    load: float = 2.0
    """Seconds of load before the machine is lost."""
    ahead: float = 0.0
    """Seconds for which the slaves are cut off before that, so that a master that does not wait
    for them is ahead of them."""
    is_loss_allowed: bool = False
    """Whether the mode promises less than "acknowledged is kept"."""

    def __post_init__(self) -> None:
        if self.ahead < 0:
            raise ConfigError(f"--ahead {self.ahead:g}: must not be negative")
        for name in ("rounds", "senders", "size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} {getattr(self, name)}: must be at least 1")


@dataclass(frozen=True, slots=True)
class Ack:
    """An acknowledged message."""

    queue_id: int
    queue_offset: int
    at: float


@dataclass(frozen=True, slots=True)
class LossRound:
    acknowledged: int
    rate: float
    """Acknowledged messages per second."""
    lost: int
    window: float
    """Seconds between the oldest lost acknowledgement and the loss of the machine."""
    weak: int = 0
    """Stored, with a status that promises less than SEND_OK; these are not judged."""


@dataclass(slots=True)
class LossResult:
    rounds: list[LossRound] = field(default_factory=list)
    is_loss_allowed: bool = False

    @property
    def lost(self) -> int:
        return sum(each.lost for each in self.rounds)

    @property
    def is_good(self) -> bool:
        """Nothing that had to be kept is lost; a round without acknowledgements shows nothing."""
        return all(each.acknowledged for each in self.rounds) and (
            self.is_loss_allowed or not self.lost
        )

    def summary(self) -> str:
        lost, windows = [r.lost for r in self.rounds], [r.window for r in self.rounds]
        total = sum(each.acknowledged for each in self.rounds)
        return (
            f"{len(self.rounds)} rounds at {median(r.rate for r in self.rounds):,.0f} messages/s:"
            f" {sum(lost):,} of {total:,} acknowledged messages were on the master only;"
            f" in a round median {median(lost):g}, at most {max(lost)}; the oldest of them was"
            f" acknowledged median {median(windows) * 1000:.1f} ms, at most"
            f" {max(windows) * 1000:.1f} ms before the loss."
            + ("" if self.is_good else " **Promises were broken.**")
        )

    def report(self, where: Circumstances) -> str:
        """The page of the measurement, in Markdown."""
        titles = ("Round", "Acknowledged", "Messages/s", "Weak", "Lost", "Oldest lost (ms)")
        rows = [
            (number, each.acknowledged, f"{each.rate:,.0f}", each.weak, each.lost,
             f"{each.window * 1000:.1f}")
            for number, each in enumerate(self.rounds, 1)
        ]  # fmt: skip
        lines = ["# Loss window", "", *where.lines(), "", self.summary(), ""]
        return "\n".join([*lines, *table_lines(titles, rows), ""])


def judge(
    acks: list[Ack], ends: dict[int, int], began: float, lost_at: float, weak: int = 0
) -> LossRound:
    """Compare what was acknowledged with where the queues of a survivor end."""
    lost = [ack.at for ack in acks if ack.queue_offset >= ends.get(ack.queue_id, 0)]
    window = max(lost_at - min(lost), 0.0) if lost else 0.0
    return LossRound(len(acks), len(acks) / (lost_at - began), len(lost), window, weak)


async def measure_loss(target: LocalTarget, options: LossOptions, emit: Emit) -> LossResult:
    """Run the rounds against a running cluster with one broker group.

    Raises:
        ConfigError: the cluster cannot be cut, or has not one slave and no controllers either.
        BolideError: the cluster does not become ready, or has no new master.
    """
    if len(target.members("broker")) != 2 and not target.controllers():
        raise ConfigError("without controllers the loss window needs one master and one slave")
    if not target.can_cut:
        raise ConfigError("the loss window cannot be measured with --network plain")
    result = LossResult(is_loss_allowed=options.is_loss_allowed)
    await create_topic(target.name_servers, _TOPIC, _QUEUES)
    for number in range(1, options.rounds + 1):
        found = await _Round(target, options, await until_whole(target)).run()
        result.rounds.append(found)
        emit(
            f"round {number}: {found.lost} of {found.acknowledged} lost, the oldest acknowledged"
            f" {found.window * 1000:.1f} ms before"
        )
    return result


class _Round:
    """One loss of the master's machine."""

    def __init__(self, target: LocalTarget, options: LossOptions, master: str) -> None:
        self._target = target
        self._options = options
        self._master = master
        self._others = [each for each in target.members("broker") if each != master]
        self._acks: list[Ack] = []
        self._weak = 0

    async def run(self) -> LossRound:
        began = time.monotonic()
        lost_at = await self._lose_master()
        ends = await _ends(self._target.address_of(await self._survivor()))
        await self._target.heal(self._master)
        await self._target.start(self._master)
        return judge(self._acks, ends, began, lost_at, self._weak)

    async def _lose_master(self) -> float:
        """When its links were cut, under load; the other members can be reached again."""
        target, options = self._target, self._options
        async with Producer(
            "chaos-loss", name_server=target.name_servers, send_timeout=_SEND_TIMEOUT, retries=0
        ) as producer:
            senders = [asyncio.create_task(self._send(producer)) for _ in range(options.senders)]
            await asyncio.sleep(options.load)
            if options.ahead:
                await asyncio.gather(*map(target.unplug, self._others))
                await asyncio.sleep(options.ahead)
            await target.unplug(self._master)
            lost_at = time.monotonic()  # at most the time of that command too late
            await target.kill(self._master)
            for task in senders:
                task.cancel()
            await asyncio.gather(*senders, return_exceptions=True)
        if options.ahead:
            for other in self._others:
                await target.heal(other)
        return lost_at

    async def _send(self, producer: Producer) -> None:
        body = b"x" * self._options.size
        while True:
            try:
                sent = await producer.send(Message(_TOPIC, body))
            except BolideError:
                await asyncio.sleep(0.01)
                continue
            if sent.status is SendStatus.SEND_OK:
                ack = Ack(sent.queue.queue_id, sent.queue_offset, time.monotonic())
                self._acks.append(ack)
            else:
                self._weak += 1

    async def _survivor(self) -> str:
        """The slave, or the new master, which decides what is kept."""
        if not self._target.controllers():
            return self._others[0]
        deadline = time.monotonic() + READY_WITHIN
        while time.monotonic() < deadline:
            for member in (await self._target.masters()).values():
                if member != self._master:
                    return member
            await asyncio.sleep(0.1)
        raise BolideError(f"there was no new master within {READY_WITHIN:g} s")


async def _ends(survivor: str) -> dict[int, int]:
    """Where the queues end at a member, when it has stored all that reached it."""
    found: dict[int, int] = {}
    async with RemotingClient() as client:
        for _ in count():
            before, found = (
                found,
                {queue_id: await _end(client, survivor, queue_id) for queue_id in range(_QUEUES)},
            )
            if found == before:
                break
            await asyncio.sleep(_STILL)
    return found


async def _end(client: RemotingClient, address: str, queue_id: int) -> int:
    header = MaxOffsetHeader(topic=_TOPIC, queue_id=queue_id)
    answer = await client.call(address, RequestCode.GET_MAX_OFFSET, header)
    return OffsetReply.from_fields(answer.fields).offset
