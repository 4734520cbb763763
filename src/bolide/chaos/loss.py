"""What only the master has when its machine is lost, with a slave that it does not wait for.

In each round messages are sent to an ASYNC_MASTER as fast as it takes them from a number of
senders. Then its machine is lost: all links are cut at one moment, and it is killed. What was
acknowledged until then and the slave does not have would be lost with the machine. The round ends
with the return of the master, with its log.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from statistics import median

from bolide.chaos.report import Circumstances, table_lines
from bolide.chaos.target import LocalTarget, create_topic, until_whole
from bolide.client.producer.producer import Producer
from bolide.errors import BolideError, ConfigError
from bolide.model.message import Message
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.offsets import MaxOffsetHeader, OffsetReply
from bolide.remoting.client import RemotingClient

_TOPIC = "chaos-loss"
_QUEUES = 4
_SEND_TIMEOUT = 1.0
_STILL = 0.5
"""Seconds without growth after which a slave has all that reached it."""

Emit = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOptions:
    rounds: int = 20
    senders: int = 16
    size: int = 1024
    """Bytes of a message."""
    load: float = 2.0
    """Seconds of load before the machine is lost."""

    def __post_init__(self) -> None:
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


@dataclass(slots=True)
class LossResult:
    rounds: list[LossRound] = field(default_factory=list)

    def summary(self) -> str:
        lost, windows = [r.lost for r in self.rounds], [r.window for r in self.rounds]
        total = sum(each.acknowledged for each in self.rounds)
        return (
            f"{len(self.rounds)} rounds at {median(r.rate for r in self.rounds):,.0f} messages/s:"
            f" {sum(lost):,} of {total:,} acknowledged messages were on the master only;"
            f" in a round median {median(lost):g}, at most {max(lost)}; the oldest of them was"
            f" acknowledged median {median(windows) * 1000:.1f} ms, at most"
            f" {max(windows) * 1000:.1f} ms before the loss"
        )

    def report(self, where: Circumstances) -> str:
        """The page of the measurement, in Markdown."""
        titles = ("Round", "Acknowledged", "Messages/s", "Lost", "Oldest lost (ms)")
        rows = [
            (number, each.acknowledged, f"{each.rate:,.0f}", each.lost, f"{each.window * 1000:.1f}")
            for number, each in enumerate(self.rounds, 1)
        ]
        lines = ["# Loss window", "", *where.lines(), "", self.summary(), ""]
        return "\n".join([*lines, *table_lines(titles, rows), ""])


def judge(acks: list[Ack], ends: dict[int, int], began: float, lost_at: float) -> LossRound:
    """Compare what was acknowledged with where the queues of the slave end."""
    lost = [ack.at for ack in acks if ack.queue_offset >= ends.get(ack.queue_id, 0)]
    window = max(lost_at - min(lost), 0.0) if lost else 0.0
    return LossRound(len(acks), len(acks) / (lost_at - began), len(lost), window)


async def measure_loss(target: LocalTarget, options: LossOptions, emit: Emit) -> LossResult:
    """Run the rounds against a running cluster with one master and one slave.

    Raises:
        ConfigError: the cluster cannot be cut, or has no slave.
        BolideError: the cluster does not become ready.
    """
    if len(target.members("broker")) != 2:
        raise ConfigError("the loss window is measured with one master and one slave")
    if not target.can_cut:
        raise ConfigError("the loss window cannot be measured with --network plain")
    result = LossResult()
    await create_topic(target, _TOPIC, _QUEUES)
    for number in range(1, options.rounds + 1):
        found = await _round(target, options, await until_whole(target))
        result.rounds.append(found)
        emit(
            f"round {number}: {found.lost} of {found.acknowledged} lost, the oldest acknowledged"
            f" {found.window * 1000:.1f} ms before"
        )
    return result


async def _round(target: LocalTarget, options: LossOptions, master: str) -> LossRound:
    (slave,) = (each for each in target.members("broker") if each != master)
    acks: list[Ack] = []
    async with Producer(
        "chaos-loss", name_server=target.name_servers, send_timeout=_SEND_TIMEOUT, retries=0
    ) as producer:
        body = b"x" * options.size
        began = time.monotonic()
        senders = [asyncio.create_task(_send(producer, body, acks)) for _ in range(options.senders)]
        await asyncio.sleep(options.load)
        await target.unplug(master)
        lost_at = time.monotonic()  # at most the time of that command too late
        await target.kill(master)
        for task in senders:
            task.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
    ends = await _ends(target.address_of(slave))
    await target.heal(master)
    await target.start(master)
    return judge(acks, ends, began, lost_at)


async def _send(producer: Producer, body: bytes, acks: list[Ack]) -> None:
    while True:
        try:
            sent = await producer.send(Message(_TOPIC, body))
        except BolideError:
            await asyncio.sleep(0.01)
        else:
            acks.append(Ack(sent.queue.queue_id, sent.queue_offset, time.monotonic()))


async def _ends(slave: str) -> dict[int, int]:
    """Where the queues end at the slave, when it has all that reached it."""
    found: dict[int, int] = {}
    async with RemotingClient() as client:
        for _ in count():
            before, found = (
                found,
                {queue_id: await _end(client, slave, queue_id) for queue_id in range(_QUEUES)},
            )
            if found == before:
                break
            await asyncio.sleep(_STILL)
    return found


async def _end(client: RemotingClient, address: str, queue_id: int) -> int:
    header = MaxOffsetHeader(topic=_TOPIC, queue_id=queue_id)
    answer = await client.call(address, RequestCode.GET_MAX_OFFSET, header)
    return OffsetReply.from_fields(answer.fields).offset
