"""The rounds: a fault of the master under load, and when each client is served again."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.failover.clients import Client, Send, sending
from benchmarks.failover.groups import SERVERS, Group
from bolide.admin import AdminClient
from bolide.chaos.target import until_whole
from bolide.client.consumer.pull.pull_consumer import PullConsumer
from bolide.errors import BolideError

FAULTS = ("kill", "pause")
_TOPIC = "failover"
_CLUSTER = "DefaultCluster"
_QUEUES = 4
_POLL = 0.1
_READY_WITHIN = 120.0
_GIVE_UP = 60.0
_SETTLE = 3.0
_STEADY = 0.5
"""How recently each client must have been served before a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    fault: str
    seconds: dict[str, float | None]
    """Until a send of a client was acknowledged by the new master; None: not within the limit."""


@dataclass(slots=True)
class Outcome:
    """What the rounds with one server gave."""

    server: str
    rounds: list[Round] = field(default_factory=list)
    acknowledged: int = 0
    lost: int = 0
    """Acknowledged, and not in the topic at the end."""


def served_after(sends: Iterable[Send], fault_at: float, old: str) -> float | None:
    """Seconds from the fault to the first acknowledgement by another broker than the old master."""
    for send in sends:
        if send.is_acknowledged and send.ended >= fault_at and send.broker != old:
            return send.ended - fault_at
    return None


def lost_ids(sends: Iterable[Send], stored: set[str]) -> set[str]:
    """Ids that were acknowledged and are not stored."""
    return {send.id for send in sends if send.is_acknowledged} - stored


async def measure(
    server: str, clients: Sequence[str], faults: Sequence[str], directory: Path
) -> Outcome:
    """Run one round for each of the faults with a new group of a server.

    Raises:
        BolideError: the group does not become whole, or a client is not served.
        ProcessFailed: a process does not start.
    """
    outcome = Outcome(server)
    async with SERVERS[server](directory / server) as group:
        await _create_topic(group)
        home = directory / f"{server}-clients"
        async with sending(clients, group.name_servers, _TOPIC, home) as senders:
            for fault in faults:
                done = await _round(group, senders, fault)
                print(f"{server}: {fault}, served again after (s): {done.seconds}", flush=True)
                outcome.rounds.append(done)
            await until_whole(group, _READY_WITHIN)
        sends = [send for client in senders.values() for send in client.sends()]
        lost = lost_ids(sends, await _stored_ids(group.name_servers))
    outcome.acknowledged = sum(send.is_acknowledged for send in sends)
    outcome.lost = len(lost)
    if lost:
        print(f"{server}: lost {sorted(lost)[:20]}", flush=True)
    return outcome


async def _round(group: Group, clients: dict[str, Client], fault: str) -> Round:
    await until_whole(group, _READY_WITHIN)
    await asyncio.sleep(_SETTLE)
    old = await until_whole(group, _READY_WITHIN)
    await _until(lambda: all(map(_is_served, clients.values())), _READY_WITHIN)
    address = group.address_of(old)
    fault_at = time.monotonic()
    if fault == "kill":
        await group.kill(old)
    else:
        group.pause(old)

    def found() -> dict[str, float | None]:
        return {
            name: served_after(client.sends(), fault_at, address)
            for name, client in clients.items()
        }

    try:
        with suppress(TimeoutError):
            await _until(lambda: None not in found().values(), _GIVE_UP)
    finally:
        if fault == "kill":
            await group.start(old)
        else:
            group.resume(old)
    return Round(fault=fault, seconds=found())


def _is_served(client: Client) -> bool:
    sends = client.sends()
    is_recent = bool(sends) and sends[-1].ended > time.monotonic() - _STEADY
    return is_recent and sends[-1].is_acknowledged


async def _until(condition: Callable[[], bool], within: float) -> None:
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110  what other processes do raises no event
            await asyncio.sleep(_POLL)


async def _create_topic(group: Group) -> None:
    """Create the topic, and wait until every member has it."""
    await until_whole(group, _READY_WITHIN)
    async with AdminClient(group.name_servers) as admin:
        await admin.topics.create(_TOPIC, _CLUSTER, queues=_QUEUES)
        async with asyncio.timeout(_READY_WITHIN):
            for member in group.members("broker"):
                while not await _has_topic(admin, group.address_of(member)):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL)


async def _has_topic(admin: AdminClient, address: str) -> bool:
    try:
        await admin.topics.config(address, _TOPIC)
    except BolideError:
        return False
    return True


async def _stored_ids(name_servers: str) -> set[str]:
    """The bodies of all messages of the topic."""
    found: set[str] = set()
    async with PullConsumer("failover-audit", name_server=name_servers) as consumer:
        for queue in await consumer.fetch_subscribe_queues(_TOPIC):
            offset, end = 0, 1
            while offset < end:
                pulled = await consumer.pull(queue, "*", offset)
                found.update(message.body.decode() for message in pulled.messages)
                offset, end = pulled.next_offset, pulled.max_offset
    return found
