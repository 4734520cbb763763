"""Where a message goes at first: where it says, or to the topic of those that wait."""

from bolide.model.message import TransactionType, transaction_type, with_transaction_type
from bolide.model.names import SCHEDULE_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import RecordDraft
from bolide.protocol.refusals import NoPermission, ServerError

_TIMER = (
    PropertyName.TIMER_DELAY_SEC,
    PropertyName.TIMER_DELAY_MS,
    PropertyName.TIMER_DELIVER_MS,
)
_MOST_DIGITS = 9
_NOT_DELIVERED = (TransactionType.PREPARED, TransactionType.ROLLBACK)


def address(draft: RecordDraft, properties: dict[str, str], max_level: int) -> RecordDraft:
    """The draft with its properties written, sent to the delay topic if it has a delay level.

    Raises:
        NoPermission, ServerError: it is of a kind that the broker does not take.
    """
    level = delay_level(properties)
    if level > 0:
        return delayed(draft, properties, min(level, max_level))
    _refuse_timer(properties)
    return draft._replace(properties=encode_properties(properties).encode())


def delay_level(properties: dict[str, str]) -> int:
    """The level a message asks for; 0 for none and for what is no number."""
    text = properties.get(PropertyName.DELAY_LEVEL, "")
    plain = text.removeprefix("-")
    if not (plain.isascii() and plain.isdigit() and len(plain) <= _MOST_DIGITS):
        return 0
    return int(text)


def delayed(draft: RecordDraft, properties: dict[str, str], level: int) -> RecordDraft:
    """The draft as it waits in the queue of its level; its properties say where it belongs."""
    kept = {name: text for name, text in properties.items() if name not in _TIMER}
    kept[PropertyName.DELAY_LEVEL] = str(level)
    kept[PropertyName.REAL_TOPIC] = draft.topic.decode()
    kept[PropertyName.REAL_QUEUE_ID] = str(draft.queue_id)
    return draft._replace(
        topic=SCHEDULE_TOPIC.encode(),
        queue_id=level - 1,
        properties=encode_properties(kept).encode(),
    )


def without_transaction(draft: RecordDraft, properties: dict[str, str]) -> RecordDraft:
    """The draft as a plain message; half messages and their ends would never be delivered.

    Raises:
        NoPermission: it is a half message, or the end of one: this broker keeps none.
    """
    prepared = properties.get(PropertyName.TRANSACTION_PREPARED, "").lower() == "true"
    if not prepared and transaction_type(draft.sys_flag) not in _NOT_DELIVERED:
        return draft
    # Clients before 4.6.1 leave the marks on a message they send to their retry topic.
    if draft.reconsume_times > 0 and delay_level(properties) > 0:
        plain = with_transaction_type(draft.sys_flag, TransactionType.NONE)
        return draft._replace(sys_flag=plain)
    raise NoPermission("this broker takes no transactional messages: send it as a plain one")


def _refuse_timer(properties: dict[str, str]) -> None:
    asked = next((name for name in _TIMER if name in properties), None)
    if asked is not None and PropertyName.TIMER_OUT_MS not in properties:
        raise ServerError(
            f"this broker has no timer for {asked}: use a delay level (property DELAY) instead"
        )
