"""Collects the facts of a cluster through `AdminClient`, all servers at once.

Every question has its own time limit and its own failure, so a dead server costs as much time as
the limit, once, and leaves the other questions alone. Groups are examined last, until the time of
the whole survey is over, because a cluster may have thousands.
"""

import asyncio
import errno
import os
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from bolide.admin import AdminClient, ClusterNotFound
from bolide.admin.consumer_lag import lag_of
from bolide.admin.errors import GroupOffline
from bolide.admin.groups import group_of
from bolide.doctor.clock import ClockDifference, combined, difference_in
from bolide.doctor.facts import (
    IN_EFFECT,
    NOT_ASKED,
    BrokerFacts,
    Cause,
    ClusterFacts,
    GroupFacts,
    NameServerFacts,
    Unanswered,
    is_known,
    number_in,
)
from bolide.errors import BolideError
from bolide.model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX
from bolide.protocol.bodies.consumers import Connection
from bolide.protocol.bodies.controller import Replicas
from bolide.protocol.bodies.heartbeat import Subscription
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.refusals import NoPermission, RequestCodeNotSupported
from bolide.remoting.address import format_address, split_address
from bolide.remoting.errors import ConnectFailed, RemotingError

T = TypeVar("T")

_CONCURRENT = 32
_CLOCK_SAMPLES, _CLOCK_PAUSE = 3, 0.35
"""The pause is no divisor of a second, so that the samples hit different parts of one."""
_AFTER_START = 1.2
_MAX_PORT = 65_535
_NO_HOST = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT}
_VIP_DELTA, _HA_DELTA = -2, 1
_MAX_DEAD_LETTER_TOPICS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Time limits in seconds."""

    answer: float = 2.0
    """For one answer."""
    total: float = 8.0
    """For the survey; groups that are not examined by then are counted."""


class Survey:
    """One survey of a cluster.

    Args:
        cluster: the brokers of this cluster only.
    """

    def __init__(
        self,
        admin: AdminClient,
        *,
        cluster: str | None = None,
        limits: Limits | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._admin = admin
        self._cluster = cluster
        self._limits = limits or Limits()
        self._now = now
        self._slots = asyncio.Semaphore(_CONCURRENT)

    async def collect(self) -> ClusterFacts:
        """Raises ClusterNotFound if no NameServer knows the cluster."""
        deadline = asyncio.get_running_loop().time() + self._limits.total
        addresses = self._admin.name_servers.addresses
        name_servers = tuple(await _each(map(self._name_server, addresses)))
        registered = self._registered(name_servers)
        connected = await _each(map(self._connected, registered))
        brokers = await _each(self._broker(each, name_servers) for each in connected)
        facts = ClusterFacts(name_servers=name_servers, brokers=tuple(brokers))
        facts = await self._with_replicas(facts)
        return await self._with_groups(facts, deadline)

    async def _ask(self, request: Awaitable[T]) -> T | Unanswered:
        """An answer, or why there is none."""
        seconds = self._limits.answer
        try:
            async with self._slots, asyncio.timeout(seconds):
                return await request
        except TimeoutError:
            return Unanswered(f"no answer within {seconds:g} s", Cause.NO_ANSWER)
        except BolideError as exc:
            return Unanswered(_reason_of(exc), _cause_of(exc))

    # ---- NameServers

    async def _name_server(self, address: str) -> NameServerFacts:
        servers = self._admin.name_servers
        # An own connection first: the client says of a failed one no more than that it failed.
        connected = await self._connect(address)
        if not is_known(connected):
            return NameServerFacts(address=address, info=connected)
        begun = self._now()
        info = await self._ask(servers.cluster_info_at(address))
        took = max(self._now() - begun, 0.0)
        if not is_known(info):
            return NameServerFacts(address=address, info=info, seconds=took)
        topics, config = await asyncio.gather(
            self._ask(servers.topics_at(address)), self._ask(servers.config_at(address))
        )
        return NameServerFacts(
            address=address,
            info=info,
            seconds=took,
            topics=frozenset(topics) if is_known(topics) else topics,
            config=config,
        )

    def _registered(self, name_servers: Iterable[NameServerFacts]) -> list[BrokerFacts]:
        """All brokers that a NameServer knows, each address of a name and id once."""
        found: dict[tuple[str, int, str], BrokerFacts] = {}
        clusters: set[str] = set()
        for server in name_servers:
            if not is_known(server.info):
                continue
            clusters |= server.info.cluster_addr_table.keys()
            for name, route in server.info.broker_addr_table.items():
                for broker_id, address in route.broker_addrs.items():
                    found[name, broker_id, address] = BrokerFacts(
                        cluster=route.cluster or "",
                        name=name,
                        broker_id=broker_id,
                        address=address,
                        is_acting=route.enable_acting_master,
                    )
        if self._cluster is not None and clusters and self._cluster not in clusters:
            raise ClusterNotFound(self._cluster, clusters)
        return [found[key] for key in sorted(found) if self._cluster in {None, found[key].cluster}]

    # ---- brokers

    async def _connected(self, broker: BrokerFacts) -> BrokerFacts:
        return replace(broker, connected=await self._connect(broker.address))

    async def _broker(
        self, broker: BrokerFacts, name_servers: Iterable[NameServerFacts]
    ) -> BrokerFacts:
        if not is_known(broker.connected):
            return replace(broker, found_at=await self._search(broker, name_servers))
        ask, brokers, at = self._ask, self._admin.brokers, broker.address
        (config, (runtime, clock), vip, topics, ha_status, lags) = await asyncio.gather(
            ask(brokers.config(at)),
            self._figures(at),
            self._connect(_neighbour(at, _VIP_DELTA)),
            ask(self._topics(at)) if broker.is_master else _not_asked(),
            ask(brokers.ha_status(at)),
            ask(self._lags(at)) if broker.is_master else _not_asked(),
        )
        ha_address = _ha_address(at, config if is_known(config) else {})
        in_effect, pending = _in_effect(config, runtime)
        broker = replace(
            broker, config=in_effect, pending=pending, runtime=runtime, clock=clock, vip=vip,
            topics=topics, ha_status=ha_status, lags=lags, ha_address=ha_address,
        )  # fmt: skip
        ha, dead_letters, changes = await asyncio.gather(
            self._connect(ha_address) if broker.is_master else _not_asked(),
            self._dead_letters(broker),
            _not_asked() if broker.tells_pending else ask(self._config_changes(at)),
        )
        return replace(broker, ha=ha, dead_letters=dead_letters, config_changes=changes)

    async def _config_changes(self, address: str) -> int:
        return (await self._admin.brokers.config_version(address)).counter

    async def _topics(self, address: str) -> Mapping[str, TopicConfig]:
        return (await self._admin.topics.configs(address)).topic_config_table

    async def _lags(self, address: str) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for by_group in (await self._admin.brokers.consume_stats(address)).consume_stats_list:
            for group, parts in by_group.items():
                found[group] = found.get(group, 0) + sum(map(lag_of, parts))
        return found

    async def _dead_letters(self, broker: BrokerFacts) -> Mapping[str, int] | Unanswered:
        if not is_known(broker.topics):
            return broker.topics
        names = [name for name in broker.topics if name.startswith(DEAD_LETTER_PREFIX)]
        if len(names) > _MAX_DEAD_LETTER_TOPICS:
            return Unanswered(f"there are {len(names)} dead-letter topics, too many to look at")

        async def count(topic: str) -> tuple[str, int | Unanswered]:
            stats = await self._ask(self._admin.topics.stats_at(broker.address, topic))
            if not is_known(stats):
                return topic, stats
            return topic, sum(q.max_offset - q.min_offset for q in stats.offset_table.values())

        counts = await _each(map(count, names))
        for _, number in counts:
            if not is_known(number):
                return number
        return {
            topic.removeprefix(DEAD_LETTER_PREFIX): number
            for topic, number in counts
            if is_known(number)
        }

    async def _figures(
        self, address: str
    ) -> tuple[Mapping[str, str] | Unanswered, ClockDifference | Unanswered]:
        """The runtime figures, and what several of them tell of the clock."""
        # The first answer waits for the connection, so it says little of the clock.
        answer: Mapping[str, str] | Unanswered
        answer = await self._ask(self._admin.brokers.runtime(address))
        if not is_known(answer) and answer.cause is Cause.REFUSED:
            # RocketMQ's broker fails until it has counted for a second.
            await asyncio.sleep(_AFTER_START)
            answer = await self._ask(self._admin.brokers.runtime(address))
        if not is_known(answer):
            return answer, answer
        found: list[ClockDifference] = []
        for number in range(_CLOCK_SAMPLES):
            if number:
                await asyncio.sleep(_CLOCK_PAUSE)
            asked_at = self._now()
            answer = await self._ask(self._admin.brokers.runtime(address))
            if not is_known(answer):
                return answer, answer
            if difference := difference_in(answer, asked_at, self._now()):
                found.append(difference)
        if not found:
            return answer, Unanswered(
                "its runtime figures lack bootTimestamp or runtime", Cause.UNSUPPORTED
            )
        return answer, combined(found) or Unanswered(
            "its answers contradict each other: a clock was set while it was asked"
        )

    async def _search(self, broker: BrokerFacts, name_servers: Iterable[NameServerFacts]) -> str:
        """Where a broker answers whose address leads nowhere: at the hosts of the NameServers, with
        its own port; empty if nowhere."""
        try:
            host, port = split_address(broker.address)
        except ValueError:
            return ""
        hosts = {split_address(each.address)[0] for each in name_servers if is_known(each.info)}
        for other in sorted(hosts - {host}):
            address = format_address((other, port))
            config = await self._ask(self._admin.brokers.config(address))
            if is_known(config) and config.get("brokerName") == broker.name:
                return address
        return ""

    async def _connect(self, address: str) -> float | Unanswered:
        """Seconds to open a TCP connection, which is closed at once."""
        try:
            host, port = split_address(address)
        except ValueError as exc:
            return Unanswered(str(exc), Cause.NOT_CONNECTED)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with self._slots, asyncio.timeout(self._limits.answer):
                _, writer = await asyncio.open_connection(host, port)
        except TimeoutError:
            reason = f"no connection within {self._limits.answer:g} s"
            return Unanswered(reason, Cause.NOT_CONNECTED, host_is_silent=True)
        except (OSError, ValueError) as exc:  # a name may be none
            silent = isinstance(exc, socket.gaierror) or getattr(exc, "errno", 0) in _NO_HOST
            return Unanswered(_reason_of(exc), Cause.NOT_CONNECTED, host_is_silent=silent)
        took = loop.time() - begun
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return took

    async def _with_replicas(self, facts: ClusterFacts) -> ClusterFacts:
        """The facts with what the first controller that leads says of the groups."""
        texts = {each.setting("controllerAddr") or "" for each in facts.brokers}
        addresses = tuple(sorted({part for text in texts for part in text.split(";") if part}))
        names = sorted({each.name for each in facts.brokers})
        answer: Mapping[str, Replicas] | Unanswered = NOT_ASKED
        for address in addresses:
            found = await self._ask(self._admin.controllers.sync_state_sets(address, names))
            answer = found.replicas_info_table if is_known(found) else found
            if is_known(answer):
                break
        return replace(facts, controllers=addresses, replicas=answer)

    # ---- groups

    async def _with_groups(self, facts: ClusterFacts, deadline: float) -> ClusterFacts:
        tables = [each.topics for each in facts.name_servers if is_known(each.topics)]
        if self._cluster is not None and all(is_known(each.topics) for each in facts.masters):
            # NameServers do not tell which topics a cluster has; its brokers do.
            tables = [frozenset(table) for _, table in facts.topic_tables()]
        topics = frozenset[str]().union(*tables)
        names = {group_of(topic) for topic in topics if topic.startswith(RETRY_PREFIX)}
        wanted = sorted(name for name in names if not name.startswith(SYSTEM_GROUP_PREFIX))
        at = [each.address for each in facts.masters if each.silence is None]
        found: dict[str, GroupFacts] = {}

        async def examine(name: str) -> None:
            found[name] = await self._group(name, at)

        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await _each(map(examine, wanted))
        groups = [found[name] for name in wanted if name in found and found[name].members != ()]
        left = len(wanted) - len(found)
        return replace(facts, groups=tuple(groups), unexamined_groups=left)

    async def _group(self, name: str, addresses: Iterable[str]) -> GroupFacts:
        members: dict[str, tuple[str, Connection]] = {}
        for address in addresses:
            found = await self._ask(self._members(name, address))
            if not is_known(found):
                return GroupFacts(name=name, members=found)
            members |= {each.client_id or "": (address, each) for each in found}
        if len(members) < 2:  # a single member agrees with itself
            return GroupFacts(name=name, members=tuple(each for _, each in members.values()))

        async def subscribed(
            client_id: str, address: str
        ) -> tuple[str, tuple[Subscription, ...] | Unanswered]:
            request = self._admin.clients.running(name, client_id, address=address)
            state = await self._ask(request)
            return client_id, tuple(state.subscription_set) if is_known(state) else state

        told = await _each(subscribed(key, address) for key, (address, _) in members.items())
        return GroupFacts(
            name=name,
            members=tuple(each for _, each in members.values()),
            subscriptions=dict(told),
        )

    async def _members(self, group: str, address: str) -> list[Connection]:
        try:
            return (await self._admin.clients.consumers(group, address)).connection_set
        except GroupOffline:
            return []


async def _each(requests: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in requests]
    return [task.result() for task in tasks]


async def _not_asked() -> Unanswered:
    return NOT_ASKED


def _reason_of(exc: Exception) -> str:
    """A short text; asyncio says of a refused connection no more than that it failed."""
    failed = exc.__cause__ if isinstance(exc, ConnectFailed) else exc
    if isinstance(failed, OSError) and (failed.errno or 0) > 0:
        assert failed.errno is not None
        return os.strerror(failed.errno).lower()
    return " ".join(str(exc).split()) or type(exc).__name__


def _cause_of(exc: BolideError) -> Cause:
    if isinstance(exc, ConnectFailed):
        return Cause.NOT_CONNECTED
    if isinstance(exc, RemotingError):
        return Cause.NO_ANSWER
    if isinstance(exc, RequestCodeNotSupported):
        return Cause.UNSUPPORTED
    return Cause.NO_PERMISSION if isinstance(exc, NoPermission) else Cause.REFUSED


def _neighbour(address: str, distance: int) -> str:
    host, port = split_address(address)
    return format_address((host, port + distance))


def _in_effect(
    config: Mapping[str, str] | Unanswered, runtime: Mapping[str, str] | Unanswered
) -> tuple[Mapping[str, str] | Unanswered, Mapping[str, str]]:
    """The settings of a broker as they are in effect, and what others wait for a restart.

    A broker shows changes that wait. Bolide's tells among its figures what is in effect meanwhile.
    """
    if not is_known(config) or not is_known(runtime):
        return config, {}
    try:
        before = msgspec.json.decode(runtime.get(IN_EFFECT, "{}"), type=dict[str, str])
    except msgspec.MsgspecError:
        return config, {}
    return {**config, **before}, {key: config[key] for key in before if key in config}


def _ha_address(address: str, config: Mapping[str, str]) -> str:
    """Where a master sends its log to slaves, as slaves are told."""
    host, port = split_address(address)
    host = config.get("brokerIP2") or host
    given = number_in(config.get("haListenPort"))
    is_port = given is not None and 0 < given <= _MAX_PORT
    return format_address((host, int(given) if is_port and given else port + _HA_DELTA))
