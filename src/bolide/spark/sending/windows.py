"""Whether a topic knows repeats: the attribute by which its brokers have a window."""

from bolide.admin.client import AdminClient
from bolide.arrow.cluster import Connection
from bolide.broker.metadata.topic_attributes import DEDUP_WINDOW
from bolide.client.errors import RouteNotFound
from bolide.errors import BolideError
from bolide.protocol.refusals import TopicNotFound


class NoWindow(BolideError):
    """Rows are to be stored once, and a broker does not see to it."""

    def __init__(self, topic: str, broker: str) -> None:
        super().__init__(
            f"dedup: topic {topic!r} has no attribute {DEDUP_WINDOW} on broker {broker!r}, so rows"
            f" that come a second time would be stored again: set it (mqadmin updateTopic -t"
            f" {topic} -a +{DEDUP_WINDOW}=10m …), or say dedup=false"
        )
        self.topic, self.broker = topic, broker

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.topic, self.broker)


async def require_window(connection: Connection, topic: str) -> None:
    """Raises NoWindow, or what keeps the brokers from being asked."""
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
                raise NoWindow(topic, broker.broker_name)


def open_admin(connection: Connection) -> AdminClient:
    """To be used in `async with`."""
    return AdminClient(
        connection.name_server,
        timeout=connection.call_timeout,
        access_key=connection.access_key,
        secret_key=connection.secret_key,
        tls=connection.tls,
    )
