"""Connected producers and consumers (`ConsumerManager`, `ProducerManager`)."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from bolide.auth.access import Identity
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.events import Listeners
from bolide.protocol.bodies import heartbeat as bodies
from bolide.protocol.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumeType,
    Heartbeat,
    MessageModel,
    Subscription,
)
from bolide.remoting.connection import Connection

log = logging.getLogger("bolide.broker.clients")  # documented in docs/how-to/logging.md


@dataclass(slots=True)
class Member:
    """A client in a group, by connection; `last_seen` is the time of its last heartbeat."""

    client_id: str
    connection: Connection
    language: str
    version: int
    last_seen: float
    identity: Identity | None = None
    """Who sent the heartbeat; None if access control does not verify that."""


Members = dict[Connection, Member]


@dataclass(slots=True)
class ConsumerGroup:
    """A group with connected consumers; its settings are those of the latest heartbeat."""

    name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    by_connection: Members = field(default_factory=dict)
    fingerprint: int | None = None
    """Fingerprint of the last heartbeat; a different one means changed subscriptions."""

    @property
    def consumption(self) -> tuple[ConsumeType, MessageModel, dict[str, Subscription]]:
        return self.consume_type, self.message_model, self.subscriptions

    @property
    def members(self) -> list[Member]:
        return list(self.by_connection.values())

    @property
    def client_ids(self) -> list[str]:
        """Distinct ids: a client that reconnects has two members until the old connection ends."""
        return list(dict.fromkeys(member.client_id for member in self.by_connection.values()))

    def subscribe(self, subscriptions: Iterable[Subscription]) -> bool:
        """Adopt the subscriptions of a heartbeat; returns whether the set of topics changed.

        A subscription that is not newer than the known one of its topic does not replace it.
        """
        by_topic = {each.topic: each for each in subscriptions}
        has_changed = by_topic.keys() != self.subscriptions.keys()
        for topic, known in self.subscriptions.items():
            if topic in by_topic and by_topic[topic].sub_version <= known.sub_version:
                by_topic[topic] = known
        self.subscriptions = by_topic
        return has_changed


class ClientTable:
    """Connected clients by group and connection; belongs to one event loop.

    Heartbeats add clients. A client is removed when it unregisters, when its connection closes or
    when its heartbeats stop.
    """

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        groups: GroupTable,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._cell = cell
        self._groups = groups
        self._now = now
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, Members] = {}
        self._memberships: dict[Connection, _Membership] = {}
        self._producer_ids: dict[str, Member] = {}  # by client id, the latest
        self.on_change: Listeners[str] = Listeners()
        """A consumer group gained its first member, lost its last one, or changed its consume type,
        message model or subscriptions."""
        self.on_members_changed: Listeners[str] = Listeners()
        """A group whose members share the queues gained or lost a member or a subscribed topic: its
        members have to rebalance."""

    def adopt(self, other: "ClientTable") -> None:
        """Take over the clients of the table before, whose connections go on."""
        self._consumers = other._consumers  # noqa: SLF001
        self._producers = other._producers  # noqa: SLF001
        self._memberships = other._memberships  # noqa: SLF001
        self._producer_ids = other._producer_ids  # noqa: SLF001

    # ---- look-ups

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        return self._consumers.get(group)

    def consumer_ids(self, group: str) -> list[str]:
        found = self._consumers.get(group)
        return found.client_ids if found else []

    def subscription(self, group: str, topic: str) -> Subscription | None:
        found = self._consumers.get(group)
        return found.subscriptions.get(topic) if found else None

    def wants(self, group: str, topic: str) -> bool:
        """False only if consumers of the group are online and none subscribes to the topic."""
        found = self._consumers.get(group)
        return found is None or not found.subscriptions or topic in found.subscriptions

    def subscribers(self, topic: str) -> set[str]:
        """Names of the groups whose consumers subscribe to a topic."""
        groups = self._consumers.values()
        return {group.name for group in groups if topic in group.subscriptions}

    def find_consumer(self, group: str, client_id: str) -> Connection | None:
        """Find the connection of a client in a group, the newest if the client has several."""
        found = self._consumers.get(group)
        members = reversed(found.by_connection.values()) if found else ()
        return next((each.connection for each in members if each.client_id == client_id), None)

    def producers(self, group: str) -> list[Member]:
        return list(self._producers.get(group, {}).values())

    def find_producer(self, client_id: str) -> Connection | None:
        """Find the latest connection of a client that has producers in any group."""
        found = self._producer_ids.get(client_id)
        return found.connection if found else None

    def consumer_groups(self) -> list[ConsumerGroup]:
        """Groups with connected consumers. Any thread may call it."""
        return list(self._consumers.values())

    def producer_groups(self) -> list[str]:
        return list(self._producers)

    # ---- heartbeats

    def needs_subscriptions(self, beat: Heartbeat) -> bool:
        """Whether the client must include its subscriptions in the next heartbeat.

        V1 heartbeats always include them, V2 heartbeats only after a change. Call this before
        `heartbeat`, which overwrites the fingerprint that is compared here.
        """
        if not beat.heartbeat_fingerprint:
            return True
        groups = [self._consumers.get(each.group_name) for each in beat.consumer_data_set]
        return any(
            beat.without_sub if group is None else _has_changed(group, beat.heartbeat_fingerprint)
            for group in groups
        )

    def heartbeat(
        self,
        beat: Heartbeat,
        connection: Connection,
        language: str,
        version: int,
        identity: Identity | None = None,
    ) -> bool:
        """Record a client and its subscriptions; returns whether a consumer group changed.

        Consumer groups that do not exist are skipped.
        """
        member = Member(beat.client_id, connection, language, version, self._now(), identity)
        changed = [self._add_consumer(data, member, beat) for data in beat.consumer_data_set]
        for data in beat.producer_data_set:
            if connection not in self._producers.setdefault(data.group_name, {}):
                log.info("producer %s joins group %s", beat.client_id, data.group_name)
            self._producers[data.group_name][connection] = member
            self._membership(connection).producer_groups.add(data.group_name)
        if beat.producer_data_set:
            self._own_producer_id(member)
        return any(changed)

    def _own_producer_id(self, member: Member) -> None:
        """Send replies for a client id to this connection from now on.

        The id of a connected client of another account stays with that client.
        """
        holder = self._producer_ids.get(member.client_id)
        if holder is not None and _key_of(holder) != _key_of(member):
            log.warning("client id %s is in use by another account", member.client_id)
            return
        self._producer_ids[member.client_id] = member
        self._membership(member.connection).producer_ids.add(member.client_id)

    def _add_consumer(self, data: bodies.ConsumerGroup, member: Member, beat: Heartbeat) -> bool:
        if not self._may_consume(data):
            return False
        name = data.group_name
        is_new = name not in self._consumers
        group = self._consumers.setdefault(name, ConsumerGroup(name))
        before = group.consumption
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        group.fingerprint = beat.heartbeat_fingerprint
        changed = self._join(group, member)
        if not beat.without_sub:
            changed |= group.subscribe(data.subscription_data_set)
        if is_new or group.consumption != before:
            self.on_change(name)
        if changed:
            self._report_members(group)
        return changed

    def _may_consume(self, data: bodies.ConsumerGroup) -> bool:
        active = data.consume_type is ConsumeType.CONSUME_ACTIVELY
        if active and self._cell.value.reject_pull_consumer_enable:
            return False
        return data.group_name in self._groups

    def _join(self, group: ConsumerGroup, member: Member) -> bool:
        known = group.by_connection.get(member.connection)
        if known is None:
            log.info("consumer %s joins group %s", member.client_id, group.name)
        elif known.client_id != member.client_id:
            log.error(
                "clients %s and %s of group %s share one connection from %s: use one client id",
                known.client_id, member.client_id, group.name, member.connection.peer,
            )  # fmt: skip
        group.by_connection[member.connection] = member
        self._membership(member.connection).consumer_groups.add(group.name)
        return known is None

    # ---- leaving

    def unregister(
        self,
        client_id: str,
        producer_group: str | None,
        consumer_group: str | None,
        connection: Connection,
    ) -> None:
        """Remove a client from the groups it names."""
        log.info(
            "client %s leaves producer group %s, consumer group %s",
            client_id, producer_group, consumer_group,
        )  # fmt: skip
        if producer_group is not None:
            self._leave_producers(producer_group, connection)
        if consumer_group is not None:
            self._leave_consumers(consumer_group, connection)

    def connection_lost(self, connection: Connection) -> None:
        """Remove all clients of a closed connection."""
        membership = self._memberships.get(connection)
        if membership is None:
            return
        for group in list(membership.producer_groups):
            self._leave_producers(group, connection)
        for group in list(membership.consumer_groups):
            self._leave_consumers(group, connection)

    def expire(self) -> None:
        """Remove clients without recent heartbeats, and close their connections."""
        oldest = self._now() - self._cell.value.channel_expired_timeout
        for name, members in list(self._producers.items()):
            for member in _silent(members, oldest):
                self._leave_producers(name, member.connection)
                self._close_if_idle(member)
        for name, group in list(self._consumers.items()):
            for member in _silent(group.by_connection, oldest):
                self._leave_consumers(name, member.connection)
                self._close_if_idle(member)

    def _close_if_idle(self, member: Member) -> None:
        """Close the connection unless its client is still a member of another group."""
        log.warning("heartbeats of client %s have stopped", member.client_id)
        if member.connection not in self._memberships:
            member.connection.close()

    def _leave_producers(self, name: str, connection: Connection) -> None:
        members = self._producers.get(name, {})
        member = members.pop(connection, None)
        if not members:
            self._producers.pop(name, None)
        if member is not None:
            membership = self._memberships[connection]
            membership.producer_groups.discard(name)
            if not membership.producer_groups:
                self._remove_producer_ids(connection, membership)
            self._remove_if_empty(connection)

    def _leave_consumers(self, name: str, connection: Connection) -> None:
        group = self._consumers.get(name)
        member = group.by_connection.pop(connection, None) if group else None
        if group is None or member is None:
            return
        if not group.by_connection:
            del self._consumers[name]
            self.on_change(name)
        self._memberships[connection].consumer_groups.discard(name)
        self._remove_if_empty(connection)
        self._report_members(group)

    # ---- inside

    def _report_members(self, group: ConsumerGroup) -> None:
        config = self._groups.find(group.name)
        if group.message_model is MessageModel.BROADCASTING:
            return
        if not self._cell.value.notify_consumer_ids_changed_enable:
            return
        if config is None or config.notify_consumer_ids_changed_enable:
            self.on_members_changed(group.name)

    def _membership(self, connection: Connection) -> "_Membership":
        """The entry of a connection, created on first use."""
        return self._memberships.setdefault(connection, _Membership())

    def _remove_producer_ids(self, connection: Connection, membership: "_Membership") -> None:
        for client_id in membership.producer_ids:
            holder = self._producer_ids.get(client_id)
            if holder is not None and holder.connection is connection:
                del self._producer_ids[client_id]
        membership.producer_ids.clear()

    def _remove_if_empty(self, connection: Connection) -> None:
        membership = self._memberships[connection]
        if not membership.producer_groups and not membership.consumer_groups:
            del self._memberships[connection]


@dataclass(slots=True)
class _Membership:
    """The groups that clients on one connection are in."""

    producer_groups: set[str] = field(default_factory=set)
    consumer_groups: set[str] = field(default_factory=set)
    producer_ids: set[str] = field(default_factory=set)
    """Client ids of the producers."""


def _key_of(member: Member) -> str | None:
    """The access key that signed the heartbeat of a client; None without access control."""
    identity = member.identity
    return identity.access_key if identity is not None and identity.is_verified else None


def _has_changed(group: ConsumerGroup, fingerprint: int) -> bool:
    return group.fingerprint is not None and group.fingerprint != fingerprint


def _silent(members: Members, oldest: float) -> list[Member]:
    return [member for member in members.values() if member.last_seen < oldest]
