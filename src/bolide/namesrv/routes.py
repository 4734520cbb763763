"""The route table: brokers by cluster and group, and topics (`RouteInfoManager`). Does no I/O.

A broker group (one broker name) has members by id; id 0 is the master. The topics of a group are
those that its master registers or, with an acting master, the member with the lowest id. A broker
is removed when it unregisters, when its connection closes or when its heartbeats stop. The topics
of a group are removed together with its last member.
"""

import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from bolide.model.names import READ, WRITE
from bolide.namesrv.config import NameServerConfig
from bolide.namesrv.topics import TopicQueues
from bolide.protocol import fastjson
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.registration import RegisterBrokerBody
from bolide.protocol.bodies.routes import (
    BrokerRoute,
    ClusterInfo,
    MemberGroup,
    QueueRoute,
    TopicList,
    TopicRoute,
)
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.headers.namesrv import MinBrokerIdChangeHeader, RegisterBrokerHeader

log = logging.getLogger(__name__)

MASTER_ID = 0
UNIT, UNIT_SUBSCRIPTION = 1, 2
_MEMBER_SYNC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"


class BrokerKey(NamedTuple):
    """Identity of a broker process."""

    cluster: str
    address: str

    def __str__(self) -> str:
        return f"{self.address} in {self.cluster}"


@dataclass(slots=True)
class LiveBroker:
    """A broker with a valid registration; `link` is the connection it registered through."""

    last_heartbeat: float
    timeout: float
    data_version: DataVersion
    link: Hashable
    ha_address: str | None


class Registered(NamedTuple):
    """Result of a registration: for a slave, its master's addresses; and the notices to send."""

    master_address: str | None = None
    ha_address: str | None = None
    notices: tuple["MinIdNotice", ...] = ()


class MinIdNotice(NamedTuple):
    """Notification for these brokers that the lowest id of their group changed."""

    addresses: list[str]
    header: MinBrokerIdChangeHeader


class RouteCounts(NamedTuple):
    brokers: int
    groups: int
    topics: int


class RouteTable:
    """All brokers and topics, with a cache of encoded routes; belongs to one event loop."""

    def __init__(self, config: Callable[[], NameServerConfig], clock: Callable[[], float]) -> None:
        self._config = config
        self._clock = clock
        self._topics = TopicQueues()
        self._brokers: dict[str, BrokerRoute] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        self._live: dict[BrokerKey, LiveBroker] = {}
        self._filter_servers: dict[BrokerKey, list[str]] = {}

    # ---- brokers

    def register(
        self, header: RegisterBrokerHeader, body: RegisterBrokerBody, link: Hashable
    ) -> Registered | None:
        """Add a broker or renew its registration; None if it must register in full first."""
        wrapper = body.topic_config_serialize_wrapper
        key = BrokerKey(header.cluster_name, header.broker_addr)
        broker = self._brokers.get(header.broker_name)
        known_ids = broker.broker_addrs if broker else {}
        if self._is_outdated(header, known_ids, wrapper.data_version):
            self._live.pop(key, None)
            _release_other_ids(known_ids, header)
            self._topics.clear_encoded()
            return Registered(*self._holder_of(header, known_ids))
        if header.broker_id not in known_ids and len(wrapper.topic_config_table) == 1:
            log.warning("broker %s sent a single topic before a full registration", key)
            return None
        lowest_before = min(known_ids, default=header.broker_id)
        self._forget_predecessor(header, known_ids, wrapper.data_version)
        broker, is_new = self._add_member(header)
        if header.broker_id == MASTER_ID or _is_acting(header, broker):
            self._update_topics(header, broker, body, is_new=is_new)
        self._renew(key, header, wrapper.data_version, link)
        self._set_filter_servers(key, body.filter_server_list)
        notices = self._notices(broker, None, header.ha_server_addr)
        return Registered(
            *self._master_of(header, broker),
            notices=notices if header.broker_id < lowest_before else (),
        )

    @property
    def counts(self) -> RouteCounts:
        """How much is registered."""
        return RouteCounts(len(self._live), len(self._brokers), len(self._topics))

    def touch(self, key: BrokerKey) -> None:
        """Record a heartbeat of a broker."""
        if live := self._live.get(key):
            live.last_heartbeat = self._clock()

    def data_version(self, key: BrokerKey) -> DataVersion | None:
        """Version of the topics that a broker registered last."""
        live = self._live.get(key)
        return live.data_version if live else None

    def unregister(self, key: BrokerKey, broker_name: str) -> tuple[MinIdNotice, ...]:
        """Remove a broker, and with the last member of a group the group's topics."""
        known = self._live.pop(key, None)
        self._filter_servers.pop(key, None)
        broker = self._brokers.get(broker_name)
        if broker is None:
            return ()
        log.info("broker %s of %s leaves%s", key, broker_name, "" if known else ", was unknown")
        lowest = min(broker.broker_addrs, default=None)
        removed = [i for i, address in broker.broker_addrs.items() if address == key.address]
        for broker_id in removed:
            del broker.broker_addrs[broker_id]
        self._topics.clear_encoded()
        if not broker.broker_addrs:
            self._drop_group(broker)
            return ()
        if broker.enable_acting_master and MASTER_ID not in broker.broker_addrs:
            self._topics.change_permission(broker_name, lambda perm: perm & ~WRITE)
        return self._notices(broker, key.address, None) if lowest in removed else ()

    def drop_link(self, link: Hashable) -> tuple[MinIdNotice, ...]:
        """Remove the brokers that registered through a closed connection."""
        return self._drop([key for key, live in self._live.items() if live.link is link])

    def drop_expired(self) -> tuple[list[Hashable], tuple[MinIdNotice, ...]]:
        """Remove brokers whose heartbeats have stopped; returns their links, to be closed."""
        now = self._clock()
        expired = [
            key for key, live in self._live.items() if live.last_heartbeat + live.timeout < now
        ]
        links = [self._live[key].link for key in expired]
        for key in expired:
            log.warning("broker %s sent no heartbeat for %g s", key, self._live[key].timeout)
        return links, self._drop(expired)

    def links_of(self, address: str) -> list[Hashable]:
        """Connections through which brokers at an address registered, of whatever cluster."""
        return [live.link for key, live in self._live.items() if key.address == address]

    def links_of_group(self, broker_name: str) -> list[Hashable]:
        """Connections through which the members of a broker group registered."""
        broker = self._brokers.get(broker_name)
        addresses = set(broker.broker_addrs.values()) if broker else set()
        return [link for address in addresses for link in self.links_of(address)]

    def clusters_of(self, broker_name: str) -> list[str]:
        """The clusters in which members of a broker group registered."""
        return [cluster for cluster, names in self._clusters.items() if broker_name in names]

    # ---- topics

    def set_topic(self, topic: str, queues: Iterable[QueueRoute]) -> None:
        """Set the queues of a topic for an administrator; all named brokers must be registered."""
        queues = list(queues)
        unknown = [queue.broker_name for queue in queues if queue.broker_name not in self._brokers]
        if unknown:
            log.warning("route of topic %s not set: unknown brokers %s", topic, unknown)
            return
        for each in queues:
            self._topics.set_queues(topic, each)

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Remove a topic from all clusters or from one."""
        if not cluster:
            self._topics.delete(topic)
            return
        for name in self._clusters.get(cluster, ()):
            self._topics.delete_queues(topic, name)

    def wipe_write_permission(self, broker_name: str) -> int:
        """Clear the write bit of all topics of a broker group; returns the number of topics."""
        return self._topics.change_permission(broker_name, lambda perm: perm & ~WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Make all topics of a broker group readable and writable."""
        return self._topics.change_permission(broker_name, lambda _: READ | WRITE)

    # ---- queries

    def encoded_route(self, topic: str, *, standard: bool = True) -> bytes | None:
        """The route of a topic as JSON; None if no broker has the topic.

        Args:
            standard: as in `fastjson.encode`.
        """
        encoded = self._topics.encoded.get((topic, standard))
        if encoded is None and (route := self.route(topic)) is not None:
            encoded = fastjson.encode(route, standard=standard)
            self._topics.encoded[topic, standard] = encoded
        return encoded

    def route(self, topic: str) -> TopicRoute | None:
        """The route of a topic; None if no broker has the topic."""
        queues = self._topics.queues(topic)
        brokers = [_copy(self._brokers[name]) for name in queues if name in self._brokers]
        if not brokers:
            return None
        route = TopicRoute(
            queue_datas=list(queues.values()),
            broker_datas=brokers,
            filter_server_table=self._filter_servers_of(brokers),
            topic_queue_mapping_by_broker=self._topics.mappings(topic),
        )
        if self._config().support_acting_master and not topic.startswith(_MEMBER_SYNC_PREFIX):
            _show_acting_masters(route)
        return route

    def clear_encoded(self) -> None:
        """Drop all cached routes after a change of settings."""
        self._topics.clear_encoded()

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            broker_addr_table=self._brokers,
            cluster_addr_table={name: list(names) for name, names in self._clusters.items()},
        )

    def member_group(self, cluster: str, broker_name: str) -> MemberGroup:
        broker = self._brokers.get(broker_name)
        addresses = dict(broker.broker_addrs) if broker else {}
        return MemberGroup(cluster=cluster, broker_name=broker_name, broker_addrs=addresses)

    def topic_names(self) -> TopicList:
        return TopicList(topic_list=self._topics.names())

    def topic_names_of_cluster(self, cluster: str) -> TopicList:
        return TopicList(topic_list=self._topics.names_on(self._clusters.get(cluster, {})))

    def system_topic_names(self) -> TopicList:
        """Names of clusters and broker groups, which are also topics, and one broker's address.

        RocketMQ's tools query that broker for the rest of the system topics.
        """
        names = list(self._clusters)
        for members in self._clusters.values():
            names += members
        addresses = (a for b in self._brokers.values() for a in b.broker_addrs.values())
        return TopicList(topic_list=list(dict.fromkeys(names)), broker_addr=next(addresses, None))

    def topic_names_by_flag(self, *, have: int, lack: int = 0) -> TopicList:
        """Topics whose system flag has the bits of `have` and none of `lack`."""
        return TopicList(topic_list=self._topics.names_by_flag(have=have, lack=lack))

    # ---- registration

    def _is_outdated(
        self, header: RegisterBrokerHeader, known_ids: dict[int, str], version: DataVersion
    ) -> bool:
        """Whether another broker with a newer state is registered under this id."""
        address = known_ids.get(header.broker_id)
        if address is None or address == header.broker_addr:
            return False
        holder = self._live.get(BrokerKey(header.cluster_name, address))
        if holder is None or holder.data_version.state_version <= version.state_version:
            return False
        log.warning(
            "broker %s not registered: id %s belongs to %s",
            header.broker_addr, header.broker_id, address,
        )  # fmt: skip
        return True

    def _holder_of(
        self, header: RegisterBrokerHeader, known_ids: dict[int, str]
    ) -> tuple[str | None, str | None]:
        """Address and HA address of the master that a deposed one must follow."""
        address = known_ids.get(MASTER_ID)
        live = self._live.get(BrokerKey(header.cluster_name, address)) if address else None
        return (address, live.ha_address) if live else (None, None)

    def _forget_predecessor(
        self, header: RegisterBrokerHeader, known_ids: dict[int, str], version: DataVersion
    ) -> None:
        """Forget the registration of the broker whose id a newer one takes.

        The former master would otherwise learn from its data version that all is as it was. So it
        registers, is refused, and receives the address of its successor.
        """
        address = known_ids.get(header.broker_id)
        if address is None or address == header.broker_addr:
            return
        key = BrokerKey(header.cluster_name, address)
        live = self._live.get(key)
        log.warning(
            "broker %s takes id %d of %s from %s",
            header.broker_addr, header.broker_id, header.broker_name, address,
        )  # fmt: skip
        if live is not None and live.data_version.state_version < version.state_version:
            del self._live[key]
            self._filter_servers.pop(key, None)

    def _add_member(self, header: RegisterBrokerHeader) -> tuple[BrokerRoute, bool]:
        """Add the broker to its cluster and group; also returns whether its id is new there."""
        self._clusters.setdefault(header.cluster_name, {})[header.broker_name] = None
        broker = self._brokers.get(header.broker_name)
        if broker is None:
            broker = BrokerRoute(broker_name=header.broker_name, cluster=header.cluster_name)
            self._brokers[header.broker_name] = broker
        before = (dict(broker.broker_addrs), broker.enable_acting_master, broker.zone_name)
        broker.enable_acting_master = bool(header.enable_acting_master)
        broker.zone_name = header.zone_name
        addresses = broker.broker_addrs
        _release_other_ids(addresses, header)
        is_new = header.broker_id not in addresses
        addresses[header.broker_id] = header.broker_addr
        if before != (addresses, broker.enable_acting_master, broker.zone_name):
            self._topics.clear_encoded()
        return broker, is_new

    def _update_topics(
        self,
        header: RegisterBrokerHeader,
        broker: BrokerRoute,
        body: RegisterBrokerBody,
        *,
        is_new: bool,
    ) -> None:
        wrapper = body.topic_config_serialize_wrapper
        key = BrokerKey(header.cluster_name, header.broker_addr)
        changed = is_new or self.data_version(key) != wrapper.data_version
        if self._config().delete_topic_with_broker_registration:
            self._forget_missing_topics(broker.broker_name, body)
        read_only = header.broker_id != MASTER_ID and broker.enable_acting_master
        for topic in wrapper.topic_config_table.values():
            if changed or broker.broker_name not in self._topics.queues(topic.topic_name):
                queues = _queues_of(topic, broker.broker_name, read_only=read_only)
                self._topics.set_queues(topic.topic_name, queues)
        if changed:
            for name, mapping in wrapper.topic_queue_mapping_info_map.items():
                self._topics.set_mapping(name, mapping)

    def _forget_missing_topics(self, broker_name: str, body: RegisterBrokerBody) -> None:
        wrapper = body.topic_config_serialize_wrapper
        if wrapper.topic_queue_mapping_info_map:
            return  # a broker has queues of static topics that it does not list
        for topic in self._topics.names():
            if topic not in wrapper.topic_config_table:
                self._topics.delete_queues(topic, broker_name)

    def _renew(
        self, key: BrokerKey, header: RegisterBrokerHeader, version: DataVersion, link: Hashable
    ) -> None:
        requested = header.heartbeat_timeout_millis
        default = self._config().broker_channel_expired_time
        timeout = default if requested is None else requested / 1000
        if key not in self._live:
            log.info(
                "broker %s of %s registered, HA %s", key, header.broker_name, header.ha_server_addr
            )
        self._live[key] = LiveBroker(self._clock(), timeout, version, link, header.ha_server_addr)

    def _set_filter_servers(self, key: BrokerKey, servers: list[str] | None) -> None:
        if servers is None or servers == self._filter_servers.get(key, []):
            return
        self._topics.clear_encoded()
        if servers:
            self._filter_servers[key] = servers
        else:
            del self._filter_servers[key]

    def _master_of(
        self, header: RegisterBrokerHeader, broker: BrokerRoute
    ) -> tuple[str | None, str | None]:
        """Address and HA address of a slave's master; None for a master that is not registered."""
        master = broker.broker_addrs.get(MASTER_ID)
        if header.broker_id == MASTER_ID or master is None:
            return None, None
        live = self._live.get(BrokerKey(header.cluster_name, master))
        return (master, live.ha_address) if live else (None, None)

    # ---- removal

    def _drop(self, keys: list[BrokerKey]) -> tuple[MinIdNotice, ...]:
        notices: tuple[MinIdNotice, ...] = ()
        for key in keys:
            names = [
                name
                for name in self._clusters.get(key.cluster, ())
                if key.address in self._brokers[name].broker_addrs.values()
            ]
            for name in names:
                notices += self.unregister(key, name)
            self._live.pop(key, None)
            self._filter_servers.pop(key, None)
        return notices

    def _drop_group(self, broker: BrokerRoute) -> None:
        del self._brokers[broker.broker_name]
        for cluster, names in list(self._clusters.items()):
            names.pop(broker.broker_name, None)
            if not names:
                del self._clusters[cluster]
        self._topics.delete_group(broker.broker_name)

    # ---- replies

    def _filter_servers_of(self, brokers: list[BrokerRoute]) -> dict[str, list[str]]:
        return {
            address: servers
            for broker in brokers
            for address in broker.broker_addrs.values()
            if (servers := self._filter_servers.get(BrokerKey(broker.cluster or "", address)))
        }

    def _notices(
        self, broker: BrokerRoute, offline: str | None, ha_address: str | None
    ) -> tuple[MinIdNotice, ...]:
        config = self._config()
        if not config.notify_min_broker_id_changed:
            return ()
        if offline is not None and not broker.enable_acting_master:
            return ()
        addresses = broker.broker_addrs
        lowest = min(addresses)
        notified = [
            a for i, a in addresses.items() if offline or len(addresses) == 1 or i != lowest
        ]
        header = MinBrokerIdChangeHeader(
            min_broker_id=lowest,
            min_broker_addr=addresses[lowest],
            offline_broker_addr=offline,
            ha_broker_addr=ha_address,
        )
        return (MinIdNotice(notified, header),)


def route_of_zone(route: TopicRoute, zone: str) -> TopicRoute:
    """The part of a route within a zone; groups without a master stay readable."""
    kept = [
        broker
        for broker in route.broker_datas
        if MASTER_ID not in broker.broker_addrs or (broker.zone_name or "").lower() == zone.lower()
    ]
    names = {broker.broker_name for broker in route.broker_datas} - {b.broker_name for b in kept}
    addresses = {address for broker in kept for address in broker.broker_addrs.values()}
    return TopicRoute(
        queue_datas=[queue for queue in route.queue_datas if queue.broker_name not in names],
        broker_datas=kept,
        filter_server_table={a: s for a, s in route.filter_server_table.items() if a in addresses},
        order_topic_conf=route.order_topic_conf,
        topic_queue_mapping_by_broker=route.topic_queue_mapping_by_broker,
    )


def _release_other_ids(addresses: dict[int, str], header: RegisterBrokerHeader) -> None:
    """Remove other ids of the address: a slave that became master changes its id."""
    for other in [i for i, address in addresses.items() if address == header.broker_addr]:
        if other != header.broker_id:
            del addresses[other]


def _is_acting(header: RegisterBrokerHeader, broker: BrokerRoute) -> bool:
    """Whether this slave is the acting master of its group; 4.x brokers never are."""
    return header.enable_acting_master is not None and header.broker_id == min(broker.broker_addrs)


def _show_acting_masters(route: TopicRoute) -> None:
    perms = {queue.broker_name: queue.perm for queue in route.queue_datas}
    for broker in route.broker_datas:
        addresses = broker.broker_addrs
        if MASTER_ID in addresses or not addresses or not broker.enable_acting_master:
            continue
        if not perms.get(broker.broker_name, WRITE) & WRITE:
            addresses[MASTER_ID] = addresses.pop(min(addresses))


def _queues_of(topic: TopicConfig, broker_name: str, *, read_only: bool) -> QueueRoute:
    return QueueRoute(
        broker_name=broker_name,
        read_queue_nums=topic.read_queue_nums,
        write_queue_nums=topic.write_queue_nums,
        perm=topic.perm & ~WRITE if read_only else topic.perm,
        topic_sys_flag=topic.topic_sys_flag,
    )


def _copy(broker: BrokerRoute) -> BrokerRoute:
    return msgspec.structs.replace(broker, broker_addrs=dict(broker.broker_addrs))
