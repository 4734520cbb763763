"""Topics that nothing can be sent to, however long one waits."""

from contextlib import suppress

from bolide.arrow.cluster import Connection
from bolide.client.instance.routes import WRITE
from bolide.errors import BolideError
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.refusals import TopicNotFound
from bolide.spark.sending.windows import open_admin


class TopicAbsent(BolideError):
    """The brokers that are there do not have the topic, or do not take messages for it."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"topic {topic!r}: {reason}")
        self.topic, self.reason = topic, reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.topic, self.reason)


async def refuse_absent(connection: Connection, topic: str) -> None:
    """Raises TopicAbsent; not while all brokers are away, or nobody can be asked."""
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
    """A NameServer forgets a broker that is away, and its topics: without brokers it may be so."""
    if not brokers:
        return None
    return (
        f"none of the brokers that are there ({', '.join(brokers)}) has it: create it (mqadmin"
        f" updateTopic -t {wire} …), or start the broker that has it"
    )


def _closed(route: TopicRoute) -> str | None:
    """A broker without a master may get one."""
    has_masters = all(0 in broker.broker_addrs for broker in route.broker_datas)
    if not has_masters or any(queues.perm & WRITE for queues in route.queue_datas):
        return None
    return "none of its queues is writable: allow it (mqadmin updateTopicPerm -p 6 …)"
