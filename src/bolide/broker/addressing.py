"""Where a message goes at first: where it says, or to the topic of those that wait."""

from bolide.broker.timers.timetable import ASKING, Timetable, waiting_draft
from bolide.model.message import TransactionType, transaction_type, with_transaction_type
from bolide.model.names import SCHEDULE_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import RecordDraft
from bolide.protocol.refusals import NoPermission

_MOST_DIGITS = 9
_NOT_DELIVERED = (TransactionType.PREPARED, TransactionType.ROLLBACK)


def address(
    draft: RecordDraft, properties: dict[str, str], max_level: int, timetable: Timetable
) -> RecordDraft:
    """The draft with its properties written, sent to wait if it has a delay level or a time.

    Raises:
        MessageIllegal, ServerError: it asks for a time that the broker does not take.
    """
    level = delay_level(properties)
    if level > 0:
        return delayed(draft, properties, min(level, max_level))
    due = timetable.due(properties)
    if due is not None:
        return waiting_draft(draft, properties, due)
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
    kept = {name: text for name, text in properties.items() if name not in ASKING}
    kept[PropertyName.DELAY_LEVEL] = str(level)
    kept[PropertyName.REAL_TOPIC] = draft.topic.decode()
    kept[PropertyName.REAL_QUEUE_ID] = str(draft.queue_id)
    return draft._replace(
        topic=SCHEDULE_TOPIC.encode(),
        queue_id=level - 1,
        properties=encode_properties(kept).encode(),
    )


def is_half(draft: RecordDraft, properties: dict[str, str]) -> bool:
    """Whether a message is sent in a transaction."""
    return _says_half(properties) and not _is_tried_again(draft, properties)


def without_transaction(draft: RecordDraft, properties: dict[str, str]) -> RecordDraft:
    """The draft as a plain message; half messages and their ends would never be delivered.

    Raises:
        NoPermission: it is of a transaction, and cannot be.
    """
    if not _says_half(properties) and transaction_type(draft.sys_flag) not in _NOT_DELIVERED:
        return draft
    if _is_tried_again(draft, properties):
        plain = with_transaction_type(draft.sys_flag, TransactionType.NONE)
        return draft._replace(sys_flag=plain)
    raise NoPermission(
        "a message is sent in a transaction by itself, with property TRAN_MSG=true: this one is in"
        " a batch, or has the sysFlag of a transaction without that property"
    )


def _says_half(properties: dict[str, str]) -> bool:
    return properties.get(PropertyName.TRANSACTION_PREPARED, "").lower() == "true"


def _is_tried_again(draft: RecordDraft, properties: dict[str, str]) -> bool:
    """Clients before 4.6.1 leave the marks on a message they send to their retry topic."""
    return draft.reconsume_times > 0 and delay_level(properties) > 0
