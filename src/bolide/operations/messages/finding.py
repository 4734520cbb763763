"""The stored messages behind an id."""

from msgspec import structs

from bolide.admin.errors import MessageNotFound
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.operations.cluster import Cluster
from bolide.operations.errors import BadInput, NotFound
from bolide.operations.views import Failure, failure_of
from bolide.protocol.message_id import BadMessageId

_LONGEST_ID = 255


async def messages_of_id(
    cluster: Cluster, topic: str, message_id: str
) -> tuple[list[StoredMessage], list[Failure]]:
    """The messages with an id, oldest first, with the names of their brokers; raises NotFound."""
    message_id = message_id.strip()
    if not message_id or len(message_id) > _LONGEST_ID:
        raise BadInput("message_id", "give the id of a message")
    admin, failures = cluster.admin, list[Failure]()

    def failed(error: BolideError) -> None:
        failures.append(failure_of("broker", error))

    try:
        found = await admin.messages.by_unique_id(topic, message_id, on_failure=failed)
    except MessageNotFound:
        try:
            found = [await admin.messages.find(topic, message_id, on_failure=failed)]
        except MessageNotFound as exc:
            raise NotFound(
                f"no message of topic {topic!r} has the id {message_id}: it was never stored,"
                " has been deleted with its log file, or is not in the index yet"
            ) from exc
        except BadMessageId as exc:
            raise BadInput("message_id", str(exc)) from exc
    if any(each.topic != topic for each in found):
        actual = found[0].topic
        raise NotFound(f"message {message_id} is not of topic {topic!r} but of {actual!r}")
    return [await named(cluster, each) for each in found], failures


async def message_of(cluster: Cluster, topic: str, message_id: str) -> StoredMessage:
    """The oldest message with an id of either kind; raises NotFound."""
    found, _ = await messages_of_id(cluster, topic, message_id)
    return found[0]


async def named(cluster: Cluster, message: StoredMessage) -> StoredMessage:
    """The message with the name of its broker, which a look-up by offset id does not tell."""
    if message.broker_name:
        return message
    brokers = await cluster.shared("brokers", cluster.admin.clusters.info, seconds=2)
    stored_at = str(message.store_host)
    for name, broker in brokers.broker_addr_table.items():
        if stored_at in broker.broker_addrs.values():
            return structs.replace(message, broker_name=name)
    return message
