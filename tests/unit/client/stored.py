"""Messages as a consumer gets them."""

from bolide.model.message import StoredMessage


def stored(queue_offset: int, body: bytes = b"body", **given: object) -> StoredMessage:
    """One of topic T at this offset."""
    values: dict[str, object] = {"broker_name": "broker-a", "queue_offset": queue_offset}
    properties = {"UNIQ_KEY": f"ID{queue_offset}"}
    topic = given.pop("topic", "T")
    return StoredMessage(topic, body, properties, **(values | given))  # type: ignore[arg-type]
