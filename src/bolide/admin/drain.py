"""Drains a broker: has producers leave it, so that it can be stopped.

Producers leave when the NameServers take the write permission out of the routes of a broker;
consumers go on reading, because the read permission stays. A NameServer gives the permission back
with every registration of changed topics, so that a drain takes it again in every round of looking
at what is open.
"""

from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from bolide.admin.brokers import Brokers
from bolide.admin.errors import AdminError
from bolide.admin.name_servers import NameServers
from bolide.admin.open_work import Open, Watch, is_of_users, is_written, slaves_of
from bolide.admin.servers import MASTER, Servers
from bolide.admin.topics import Topics
from bolide.errors import BolideError
from bolide.model.names import READ, WRITE, reply_topic
from bolide.protocol.bodies.topics import TopicConfig, TopicFilterType


class SlaveNotDrained(AdminError):
    """A slave takes no messages from producers."""

    def __init__(self, address: str, master: str | None) -> None:
        where = f"drain its master, {master}, if that is what you want to stop; " if master else ""
        super().__init__(
            f"{address} is a slave, to which nobody writes: {where}a slave can be stopped as it is,"
            " if its master has enough others (haStatus)"
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """What a drain does to one broker.

    Attributes:
        sole_topics: topics that no other broker takes messages of; their producers fail.
        slaves: the addresses of its slaves.
        producers: the producer groups that are connected now.
    """

    address: str
    broker_name: str
    cluster: str
    topics: int
    sole_topics: tuple[str, ...]
    slaves: tuple[str, ...]
    producers: tuple[str, ...]


class Drain:
    """Drains brokers; see the module."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._name_servers = NameServers(servers)
        self._topics = Topics(servers)
        self._brokers = Brokers(servers)

    async def plan(self, address: str, *, also: Collection[str] = ()) -> Plan:
        """What a drain of a broker does; nothing is changed.

        Args:
            also: addresses that are drained with it, and take no messages then either.

        Raises:
            BrokerUnknown: no broker with that address is registered.
            SlaveNotDrained: the broker is a slave.
        """
        broker = await self._servers.broker_at(address)
        if broker.broker_addrs.get(MASTER) != address:
            raise SlaveNotDrained(address, broker.broker_addrs.get(MASTER))
        topics = await self._written_topics(address)
        topics -= {broker.broker_name, broker.cluster or "", reply_topic(broker.cluster or "")}
        elsewhere = await self._written_elsewhere({address, *also})
        return Plan(
            address=address,
            broker_name=broker.broker_name,
            cluster=broker.cluster or "",
            topics=len(topics),
            sole_topics=tuple(sorted(topics - elsewhere)),
            slaves=slaves_of(broker),
            producers=tuple(sorted((await self._brokers.producers(address)).data)),
        )

    async def wipe(self, broker_name: str) -> list[Open]:
        """Take the write permission out of the routes; returns the NameServers that failed."""
        failed = []
        for address in self._name_servers.require_addresses():
            try:
                await self._name_servers.wipe_write_perm(broker_name, at=address)
            except BolideError as exc:
                failed.append(
                    Open(
                        kind="nameServers",
                        what=f"NameServer {address} still sends producers to the broker: {exc}",
                        advice="start it, or stop it for good",
                    )
                )
        return failed

    async def undo(self, plan: Plan) -> list[str]:
        """Give the write permission back; returns the topics that stay closed for producers.

        The request makes every topic readable and writable in the routes. Topics that the broker
        does not take messages of are registered again, so that their routes say so.
        """
        await self._name_servers.add_write_perm(plan.broker_name)
        table = (await self._topics.configs(plan.address)).topic_config_table
        closed = [
            config
            for _, config in sorted(table.items())
            if is_of_users(config.topic_name) and config.perm & (READ | WRITE) != READ | WRITE
        ]
        for config in closed:
            await self._register_again(plan.address, config)
        return [config.topic_name for config in closed]

    async def _register_again(self, address: str, config: TopicConfig) -> None:
        """Have a broker register a topic as it is.

        RocketMQ does so for every update, Bolide only if something changes: the filter type does,
        which has no effect, and then changes back.
        """
        unchanged = msgspec.structs.replace(config, attributes={})
        types = [kind for kind in TopicFilterType if kind != config.topic_filter_type]
        other = msgspec.structs.replace(unchanged, topic_filter_type=types[0])
        for each in (other, unchanged):
            await self._topics.update(address, each)

    def watch(self, plan: Plan, *, settle: float, ignored_groups: Collection[str] = ()) -> "Watch":
        """What is open at a broker, looked at again and again.

        Args:
            settle: seconds without a write after which producers count as gone. Clients ask for
                routes every 30 s.
            ignored_groups: groups that need not have consumed everything.
        """
        return Watch(self._servers, plan, settle, frozenset(ignored_groups))

    async def _written_topics(self, address: str) -> set[str]:
        table = (await self._topics.configs(address)).topic_config_table
        return {name for name, config in table.items() if is_written(config)}

    async def _written_elsewhere(self, drained: Collection[str]) -> set[str]:
        info = await self._servers.info()
        found: set[str] = set()
        for broker in info.broker_addr_table.values():
            address = broker.broker_addrs.get(MASTER)
            if address is not None and address not in drained:
                try:
                    found |= await self._written_topics(address)
                except BolideError:  # a broker that is away takes no messages
                    continue
        return found
