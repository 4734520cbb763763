"""Checks of a target topic: its existence, its permission and its deduplication window."""

from contextlib import suppress

from bolide.admin.client import AdminClient
from bolide.arrow.cluster import Connection
from bolide.broker.metadata.topic_attributes import DEDUP_WINDOW
from bolide.client.errors import RouteNotFound
from bolide.client.instance.routes import WRITE
from bolide.errors import BolideError
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.refusals import TopicNotFound


class NoDedupWindow(BolideError):
    """Deduplication is requested, but a broker has no deduplication window for the topic."""

    def __init__(self, topic: str, broker: str) -> None:
        super().__init__(
            f"dedup: topic {topic!r} has no attribute {DEDUP_WINDOW} on broker {broker!r}, so rows"
            f" that come a second time would be stored again: set it (mqadmin updateTopic -t"
            f" {topic} -a +{DEDUP_WINDOW}=10m …), or set dedup=false"
        )
        self.topic, self.broker = topic, broker

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.topic, self.broker)


async def require_dedup_window(connection: Connection, topic: str) -> None:
    """Raises NoDedupWindow, or the error of the lookup."""
    wire = connection.settings().wrap(topic)
    async with open_admin(connection) as admin:
        try:
            route = await admin.topics.route(wire)
        except TopicNotFound as exc:
            raise RouteNotFound(topic) from exc
        for broker in route.broker_datas:
            address = broker.broker_addrs.get(0)
            if address is None:
                continue
            config = await admin.topics.config(address, wire)
            if not config.attributes.get(DEDUP_WINDOW):
                raise NoDedupWindow(topic, broker.broker_name)


def open_admin(connection: Connection) -> AdminClient:
    """An admin client for `async with`."""
    return AdminClient(
        connection.name_server,
        timeout=connection.call_timeout,
        access_key=connection.access_key,
        secret_key=connection.secret_key,
        tls=connection.tls,
    )


class TopicAbsent(BolideError):
    """The reachable brokers do not have the topic, or have no writable queue of it."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"topic {topic!r}: {reason}")
        self.topic, self.reason = topic, reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.topic, self.reason)


async def refuse_absent_topic(connection: Connection, topic: str) -> None:
    """Raises TopicAbsent if the topic is certainly absent, not if no broker answers."""
    wire = connection.settings().wrap(topic)
    reason = None
    with suppress(BolideError):
        async with open_admin(connection) as admin:
            try:
                reason = _closed(await admin.topics.route(wire))
            except TopicNotFound:
                reason = _missing(wire, sorted((await admin.clusters.info()).broker_addr_table))
    if reason is not None:
        raise TopicAbsent(topic, reason)


def _missing(wire: str, brokers: list[str]) -> str | None:
    """NameServers forget the topics of an absent broker, so without brokers nothing is certain."""
    if not brokers:
        return None
    return (
        f"none of the brokers that are there ({', '.join(brokers)}) has it: create it (mqadmin"
        f" updateTopic -t {wire} …), or start the broker that has it"
    )


def _closed(route: TopicRoute) -> str | None:
    """None while a broker lacks a master, as a new master may be elected."""
    has_masters = all(0 in broker.broker_addrs for broker in route.broker_datas)
    if not has_masters or any(queues.perm & WRITE for queues in route.queue_datas):
        return None
    return "none of its queues is writable: allow it (mqadmin updateTopicPerm -p 6 …)"
