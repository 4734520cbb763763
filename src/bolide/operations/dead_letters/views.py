"""What operations on dead letters take and return: views, filters and cursors."""

import base64
import json
from codecs import getincrementaldecoder
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from bolide.admin.dead_letters import DeadLetter, Extent, Selection
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.model.names import dead_letter_topic
from bolide.model.properties import REPLAYED_FROM
from bolide.operations.errors import BadInput
from bolide.operations.messages.sending import BodyFormat
from bolide.operations.views import Failure

_PREVIEW = 200
"""Characters of a body in a list."""


class LetterState(StrEnum):
    """Whether a dead letter was sent again to the topic that it came from."""

    NEW = "new"
    RESENT = "resent"
    STUCK = "stuck"
    """It cannot be: it does not tell its topic, or that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup:
    """The dead letters of a group; times are milliseconds since 1970."""

    group: str
    topic: str
    messages: int | None
    """None if no broker tells."""
    oldest_ms: int | None = None
    """When the oldest one was given up; None without any, or if unknown."""
    newest_ms: int | None = None
    is_partial: bool = False
    """A broker did not answer, so there may be more than `messages`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A message that a group has given up."""

    position: str
    """Where it is, topic/broker/queue@offset; names it in other operations."""
    message_id: str
    offset_message_id: str
    origin_topic: str | None
    """The topic that it was sent to; None if the message does not tell."""
    origin_message_id: str | None
    keys: list[str]
    tags: str | None
    tries: int
    born_ms: int
    died_ms: int
    reason: str
    """What its consumer wrote into a property, else after how many tries it was given up."""
    size: int
    """Bytes of the body."""
    body_preview: str
    state: LetterState | None = None
    """None if unknown, or if it was not asked for."""
    resent_as: str = ""
    """The offset message id of its copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letters:
    """A part of a list of dead letters."""

    items: list[Letter]
    next: str
    """Cursor of the next part; empty after the last."""
    total: int
    """Dead letters in the time that was chosen, before other filters."""
    scanned: int
    """How many were read for this part: with filters, more than `items`."""
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A copy of a message that was stored for a try to consume it."""

    topic: str
    """The topic of the first send, or a retry topic of the group."""
    tries_before: int
    stored_ms: int
    """The first copy: when it was sent; others: when the next try could begin."""
    offset_message_id: str
    is_resent: bool = False
    """It is the copy of a dead letter that was sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterDetail:
    """A dead letter with all that is known of it."""

    letter: Letter
    body: str
    body_format: BodyFormat
    """TEXT, or HEX for bytes that are no UTF-8 text."""
    properties: dict[str, str]
    history: list[Attempt]
    """The tries whose copies are still stored, by time."""
    history_failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Dead letters with one reason."""

    reason: str
    messages: int
    oldest_ms: int
    newest_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """The reasons of the newest dead letters, the most frequent first."""

    items: list[Reason]
    scanned: int
    total: int
    """Dead letters in the time that was chosen; the rest of them was not read."""
    failures: list[Failure] = field(default_factory=list)


def selection_of(  # noqa: PLR0913  filters
    group: str,
    *,
    topic: str = "",
    key: str = "",
    message_id: str = "",
    tags: str = "",
    reason: str = "",
    text: str = "",
    begin_ms: int | None = None,
    end_ms: int | None = None,
    positions: Iterable[str] = (),
) -> Selection:
    """The selection that filters stand for; raises BadInput."""
    if begin_ms is not None and end_ms is not None and begin_ms >= end_ms:
        raise BadInput("end_ms", "it is not after begin_ms")
    chosen = frozenset(positions)
    for each in chosen:
        check_position(group, each)
    return Selection(
        group=group,
        topic=topic or None,
        key=key or None,
        message_id=message_id or None,
        begin_ms=begin_ms,
        end_ms=end_ms,
        tags=tags or None,
        reason=reason or None,
        text=text or None,
        positions=chosen or None,
    )


def letter_view(
    letter: DeadLetter,
    message: StoredMessage,
    state: LetterState | None = None,
    resent_as: str = "",
) -> Letter:
    return Letter(
        position=letter.position,
        message_id=letter.message_id,
        offset_message_id=letter.offset_message_id,
        origin_topic=letter.origin_topic,
        origin_message_id=letter.origin_message_id,
        keys=list(letter.keys),
        tags=letter.tags,
        tries=letter.tries,
        born_ms=letter.born_ms,
        died_ms=letter.died_ms,
        reason=letter.reason,
        size=len(message.body),
        body_preview=body_preview(message.body),
        state=state,
        resent_as=resent_as,
    )


def body_text(body: bytes) -> tuple[str, BodyFormat]:
    """A body as text, or in hexadecimal digits if it is no UTF-8."""
    try:
        return body.decode(), BodyFormat.TEXT
    except UnicodeDecodeError:
        return body.hex(), BodyFormat.HEX


def body_preview(body: bytes) -> str:
    """The beginning of a body, which may end inside a character."""
    beginning = body[: _PREVIEW * 4]
    try:
        return getincrementaldecoder("utf-8")().decode(beginning)[:_PREVIEW]
    except UnicodeDecodeError:
        return beginning.hex()[:_PREVIEW]


def attempt_view(message: StoredMessage) -> Attempt:
    return Attempt(
        topic=message.topic,
        tries_before=message.reconsume_times,
        stored_ms=message.store_timestamp,
        offset_message_id=message.offset_message_id,
        is_resent=REPLAYED_FROM in message.properties,
    )


def check_position(group: str, position: str) -> None:
    queue, _, offset = position.rpartition("@")
    parts = queue.split("/")
    if len(parts) < 3 or parts[0] != dead_letter_topic(group) or not offset.isdecimal():
        raise BadInput("position", f"{position!r} is not one of group {group}, as it is listed")


def encode_cursor(total: int, extent: Extent) -> str:
    spans = [
        [queue.broker_name, queue.queue_id, *span]
        for queue, span in extent.spans.items()
        if span[0] < span[1]
    ]
    return base64.urlsafe_b64encode(json.dumps([total, spans]).encode()).decode()


def decode_cursor(cursor: str, group: str) -> tuple[int, Extent]:
    topic = dead_letter_topic(group)
    try:
        total, spans = json.loads(base64.urlsafe_b64decode(cursor))
        parts = {
            MessageQueue(topic, str(broker), int(number)): (int(begin), int(end))
            for broker, number, begin, end in spans
        }
        return int(total), Extent(parts)
    except (ValueError, TypeError) as error:
        raise BadInput("cursor", "it is not the `next` of a list") from error
