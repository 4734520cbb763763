"""Connected producers and consumers (`ConsumerManager`, `ProducerManager`)."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from bolide.broker.metadata.groups import GroupTable
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
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

Notify = Callable[[Connection, str], None]
"""Tells a consumer that the members of a group changed."""


@dataclass(slots=True)
class Member:
    """A client of a group on one connection; `last_seen` is the time of its last heartbeat."""

    client_id: str
    connection: Connection
    language: str
    version: int
    last_seen: float


Members = dict[Connection, Member]


@dataclass(slots=True)
class ConsumerGroup:
    """A group that has consumers, with what the last heartbeat said of it."""

    name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    by_connection: Members = field(default_factory=dict)
    fingerprint: int | None = None
    """That of the last heartbeat, by which a change of subscriptions is seen."""

    @property
    def ways(self) -> tuple[ConsumeType, MessageModel, dict[str, Subscription]]:
        """How and what it consumes."""
        return self.consume_type, self.message_model, self.subscriptions

    @property
    def members(self) -> list[Member]:
        return list(self.by_connection.values())

    @property
    def client_ids(self) -> list[str]:
        """Each once: after a reconnect a client is here twice until the old connection ends."""
        return list(dict.fromkeys(member.client_id for member in self.by_connection.values()))

    def subscribe(self, wanted: Iterable[Subscription]) -> bool:
        """Take over what a heartbeat subscribes to; says whether there are other topics now."""
        given = {each.topic: each for each in wanted}
        has_changed = given.keys() != self.subscriptions.keys()
        for topic, known in self.subscriptions.items():
            if topic in given and given[topic].sub_version <= known.sub_version:
                given[topic] = known
        self.subscriptions = given
        return has_changed


class ClientTable:
    """Who is connected, by group and connection; belongs to one event loop.

    Clients tell of themselves by heartbeats and are forgotten when they take leave, when their
    connection is lost or when no heartbeat comes for a while. When the members of a consumer
    group change, or the topics it subscribes to, all members are told, so that they share the
    queues anew.
    """

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        groups: GroupTable,
        now: Callable[[], float] = time.time,
        notify: Notify = lambda connection, group: None,
    ) -> None:
        self._cell = cell
        self._groups = groups
        self._now = now
        self._notify = notify
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, Members] = {}
        self._places: dict[Connection, _Place] = {}
        self._producer_places: dict[str, Connection] = {}  # where a client was heard of last
        self._listeners: list[Callable[[str], None]] = []

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Have `listener` called with a consumer group that consumes or subscribes otherwise, or
        that has its first or no more members."""
        self._listeners.append(listener)

    # ---- asking

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        return self._consumers.get(group)

    def consumer_ids(self, group: str) -> list[str]:
        found = self._consumers.get(group)
        return found.client_ids if found else []

    def subscription(self, group: str, topic: str) -> Subscription | None:
        found = self._consumers.get(group)
        return found.subscriptions.get(topic) if found else None

    def wants(self, group: str, topic: str) -> bool:
        """False if consumers of the group are online and subscribe to other topics only."""
        found = self._consumers.get(group)
        return found is None or not found.subscriptions or topic in found.subscriptions

    def subscribers(self, topic: str) -> set[str]:
        """The groups whose consumers subscribe to a topic."""
        groups = self._consumers.values()
        return {group.name for group in groups if topic in group.subscriptions}

    def find_consumer(self, group: str, client_id: str) -> Connection | None:
        """The connection of a client in a group, the newest if it has several."""
        found = self._consumers.get(group)
        members = reversed(found.by_connection.values()) if found else ()
        return next((each.connection for each in members if each.client_id == client_id), None)

    def producers(self, group: str) -> list[Member]:
        return list(self._producers.get(group, {}).values())

    def find_producer(self, client_id: str) -> Connection | None:
        """The connection of a client that has producers, whatever their groups are."""
        return self._producer_places.get(client_id)

    def producer_groups(self) -> list[str]:
        return list(self._producers)

    # ---- heartbeats

    def needs_subscriptions(self, beat: Heartbeat) -> bool:
        """Whether the client must send its subscriptions with the next heartbeat; ask before
        `heartbeat`. Plain ones always do, those of the second version only after a change."""
        if not beat.heartbeat_fingerprint:
            return True
        groups = [self._consumers.get(each.group_name) for each in beat.consumer_data_set]
        return any(
            beat.without_sub if group is None else _has_changed(group, beat.heartbeat_fingerprint)
            for group in groups
        )

    def heartbeat(
        self, beat: Heartbeat, connection: Connection, language: str, version: int
    ) -> bool:
        """Note that a client is there and what it wants; says whether a consumer group changed.

        Groups that do not exist and may not be created are passed over.
        """
        member = Member(beat.client_id, connection, language, version, self._now())
        changed = [self._consume(data, member, beat) for data in beat.consumer_data_set]
        for data in beat.producer_data_set:
            if connection not in self._producers.setdefault(data.group_name, {}):
                log.info("producer %s of %s joins", beat.client_id, data.group_name)
            self._producers[data.group_name][connection] = member
            self._place(connection).producers.add(data.group_name)
        if beat.producer_data_set:
            self._producer_places[beat.client_id] = connection
            self._place(connection).producer_ids.add(beat.client_id)
        return any(changed)

    def _consume(self, data: bodies.ConsumerGroup, member: Member, beat: Heartbeat) -> bool:
        if not self._may_consume(data):
            return False
        name = data.group_name
        is_new = name not in self._consumers
        group = self._consumers.setdefault(name, ConsumerGroup(name))
        before = group.ways
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        group.fingerprint = beat.heartbeat_fingerprint
        changed = self._join(group, member)
        if not beat.without_sub:
            changed |= group.subscribe(data.subscription_data_set)
        if is_new or group.ways != before:
            self._changed(name)
        if changed:
            self._tell(group)
        return changed

    def _may_consume(self, data: bodies.ConsumerGroup) -> bool:
        active = data.consume_type is ConsumeType.CONSUME_ACTIVELY
        if active and self._cell.value.reject_pull_consumer_enable:
            return False
        return data.group_name in self._groups

    def _join(self, group: ConsumerGroup, member: Member) -> bool:
        known = group.by_connection.get(member.connection)
        if known is None:
            log.info("consumer %s of %s joins", member.client_id, group.name)
        elif known.client_id != member.client_id:
            log.error(
                "%s and %s of group %s share the connection of %s: use one client name on it",
                known.client_id, member.client_id, group.name, member.connection.peer,
            )  # fmt: skip
        group.by_connection[member.connection] = member
        self._place(member.connection).consumers.add(group.name)
        return known is None

    # ---- leaving

    def unregister(
        self,
        client_id: str,
        producer_group: str | None,
        consumer_group: str | None,
        connection: Connection,
    ) -> None:
        """A client takes leave of its groups."""
        log.info("%s leaves producers %s, consumers %s", client_id, producer_group, consumer_group)
        if producer_group is not None:
            self._leave_producers(producer_group, connection)
        if consumer_group is not None:
            self._leave_consumers(consumer_group, connection)

    def lost(self, connection: Connection) -> None:
        """A connection is gone, and with it all that was on it."""
        place = self._places.get(connection)
        if place is None:
            return
        for group in list(place.producers):
            self._leave_producers(group, connection)
        for group in list(place.consumers):
            self._leave_consumers(group, connection)

    def expire(self) -> None:
        """Forget clients without heartbeats, and close their connections."""
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
        """A client that gave up one group without a word may still be alive in another."""
        log.warning("no heartbeat of %s for long", member.client_id)
        if member.connection not in self._places:
            member.connection.close()

    def _leave_producers(self, name: str, connection: Connection) -> None:
        members = self._producers.get(name, {})
        member = members.pop(connection, None)
        if not members:
            self._producers.pop(name, None)
        if member is not None:
            place = self._places[connection]
            place.producers.discard(name)
            if not place.producers:
                self._forget_producers(connection, place)
            self._tidy(connection)

    def _leave_consumers(self, name: str, connection: Connection) -> None:
        group = self._consumers.get(name)
        member = group.by_connection.pop(connection, None) if group else None
        if group is None or member is None:
            return
        if not group.by_connection:
            del self._consumers[name]
            self._changed(name)
        self._places[connection].consumers.discard(name)
        self._tidy(connection)
        self._tell(group)

    # ---- inside

    def _changed(self, group: str) -> None:
        for listener in self._listeners:
            listener(group)

    def _tell(self, group: ConsumerGroup) -> None:
        config = self._groups.find(group.name)
        if group.message_model is MessageModel.BROADCASTING:
            return
        if not self._cell.value.notify_consumer_ids_changed_enable:
            return
        if config is None or config.notify_consumer_ids_changed_enable:
            for connection in list(group.by_connection):
                self._notify(connection, group.name)

    def _place(self, connection: Connection) -> "_Place":
        """The place of a client that is in a group or about to be."""
        return self._places.setdefault(connection, _Place())

    def _forget_producers(self, connection: Connection, place: "_Place") -> None:
        for client_id in place.producer_ids:
            if self._producer_places.get(client_id) is connection:
                del self._producer_places[client_id]
        place.producer_ids.clear()

    def _tidy(self, connection: Connection) -> None:
        """Forget a connection that nobody is on any more."""
        place = self._places[connection]
        if not place.producers and not place.consumers:
            del self._places[connection]


@dataclass(slots=True)
class _Place:
    """The groups that clients on a connection are in."""

    producers: set[str] = field(default_factory=set)
    consumers: set[str] = field(default_factory=set)
    producer_ids: set[str] = field(default_factory=set)
    """What the clients with producers call themselves."""


def _has_changed(group: ConsumerGroup, fingerprint: int) -> bool:
    return group.fingerprint is not None and group.fingerprint != fingerprint


def _silent(members: Members, oldest: float) -> list[Member]:
    return [member for member in members.values() if member.last_seen < oldest]
