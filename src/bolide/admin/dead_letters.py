"""Dead letters: messages that a group failed to process too often, and how they are sent again.

A dead letter stays in its topic when it is sent again. Its copy has the property REPLAYED_FROM with
the position of the dead letter, and keeps its unique id, under which the key index of the brokers
finds the copy: what was sent before is found there, and not sent once more. So a re-drive that was
interrupted is repeated, whatever it had got to. A copy is missed if it was sent in the last moments
before a crash, or if brokers have no key index: then it is sent twice, as with any retry.
"""

import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from bolide.admin.dead_letter_records import (
    DeadLetter,
    Extent,
    Selection,
    copy_of,
    dead_letter,
)
from bolide.admin.errors import AdminError, MessageNotFound
from bolide.admin.messages import Messages
from bolide.admin.offsets import Offsets
from bolide.admin.queue_reader import QueueReader
from bolide.admin.servers import OnFailure, Servers, gather_by_key, gather_reachable
from bolide.admin.topics import Topics
from bolide.errors import BolideError
from bolide.model.message import Message, StoredMessage
from bolide.model.names import (
    DEAD_LETTER_PREFIX,
    READ,
    dead_letter_topic,
    is_dead_letter_topic,
    is_reserved,
    pop_retry_topics,
    retry_topic,
)
from bolide.model.properties import REPLAYED_FROM
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.refusals import TopicNotFound

if TYPE_CHECKING:
    from bolide.client.producer.producer import Producer

_CLOCKS_MS = 3_600_000
"""How much the clocks of two brokers may differ: a copy is looked for from this long before."""
_BATCH = 32
_NONE_KNOWN: Mapping[tuple[str, str], str] = {}


__all__ = [
    "Browsed",
    "DeadLetter",
    "DeadLetterCount",
    "DeadLetters",
    "Extent",
    "NoDeadLetters",
    "NoTarget",
    "NotReadable",
    "Outcome",
    "Redriven",
    "Selection",
    "copy_of",
    "dead_letter",
]


class NoDeadLetters(AdminError):
    """The group has no topic of dead letters, which the first of them creates."""

    def __init__(self, group: str) -> None:
        super().__init__(f"no message of group {group!r} ever became a dead letter")
        self.group = group


class NotReadable(AdminError):
    """Brokers before 4.9.2 create topics of dead letters without read permission."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"topic {topic!r} may not be read: allow it with"
            f" `mqadmin updateTopicPerm -c CLUSTER -t {topic} -p 6`"
        )
        self.topic = topic


class NoTarget(AdminError):
    """Dead letters are not sent to a topic of the brokers or of one group."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"topic {topic!r} is not one that producers send to: give another one, or the group's"
            " own retry topic with --to-group"
        )
        self.topic = topic


@dataclass(frozen=True, slots=True)
class DeadLetterCount:
    """The dead letters of a group; `oldest_ms` and `newest_ms` are None without any."""

    group: str
    messages: int
    oldest_ms: int | None
    newest_ms: int | None


@dataclass(frozen=True, slots=True)
class Browsed:
    """Some dead letters with their messages, and what of the extent was not read."""

    letters: list[tuple[DeadLetter, StoredMessage]]
    scanned: int
    rest: Extent


class Outcome(StrEnum):
    """What became of a dead letter in a re-drive."""

    PLANNED = "PLANNED"
    """It would be sent: nothing is in a dry run."""
    SENT = "SENT"
    SENT_BEFORE = "SENT_BEFORE"
    NOT_SENDABLE = "NOT_SENDABLE"
    """It has no topic to go to, or has expired; nothing was tried."""
    NOT_KNOWN = "NOT_KNOWN"
    """Whether it was sent before cannot be found out; nothing was tried."""
    FAILED = "FAILED"
    """The send failed: its copy may be stored or not."""


@dataclass(frozen=True, slots=True)
class Redriven:
    """A dead letter, and what became of it."""

    letter: DeadLetter
    outcome: Outcome
    target: str | None
    """The topic that it goes to."""
    detail: str = ""
    """Where its copy is, as an offset message id, or why there is none."""


class DeadLetters:
    """The dead letters of the groups of a cluster."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._topics = Topics(servers)
        self._messages = Messages(servers)
        self._offsets = Offsets(servers)

    async def groups(self) -> list[str]:
        """The groups that have a topic of dead letters, sorted."""
        names = await self._topics.names()
        return sorted(
            name.removeprefix(DEAD_LETTER_PREFIX) for name in names if is_dead_letter_topic(name)
        )

    async def count(self, group: str, *, on_failure: OnFailure | None = None) -> DeadLetterCount:
        """How many dead letters a group has, and since when; raises NoDeadLetters.

        Brokers that cannot be reached are left to `on_failure`, if it is given.
        """
        topic = dead_letter_topic(group)
        try:
            stats = await self._topics.stats(topic, on_failure=on_failure)
        except TopicNotFound as exc:
            raise NoDeadLetters(group) from exc
        filled = {q: at for q, at in stats.offset_table.items() if at.max_offset > at.min_offset}
        oldest = await gather_by_key(filled, self._offsets.earliest_time)
        return DeadLetterCount(
            group=group,
            messages=sum(at.max_offset - at.min_offset for at in filled.values()),
            oldest_ms=min(oldest.values(), default=None),
            newest_ms=max((at.last_update_timestamp for at in filled.values()), default=None),
        )

    async def extent(self, selection: Selection, *, on_failure: OnFailure | None = None) -> Extent:
        """The part of the topic that holds the selected dead letters of now.

        Brokers that cannot be reached are left to `on_failure`, if it is given.

        Raises:
            NoDeadLetters: the group has none.
            NotReadable: the topic may not be read.
        """
        topic = dead_letter_topic(selection.group)
        try:
            route = await self._topics.route(topic)
        except TopicNotFound as exc:
            raise NoDeadLetters(selection.group) from exc
        if any(not data.perm & READ for data in route.queue_datas):
            raise NotReadable(topic)
        queues = await self._topics.queues(topic)

        async def span(queue: MessageQueue) -> tuple[int, int]:
            begin, end = selection.begin_ms, selection.end_ms
            wanted = selection.offsets_in(queue)
            if wanted is not None:
                return (wanted[0], wanted[-1] + 1) if wanted else (0, 0)
            first = await self._offsets.min(queue)
            if begin is not None:
                first = max(first, await self._offsets.search(queue, begin))
            if end is not None:
                return first, await self._offsets.search(queue, end)
            return first, await self._offsets.max(queue)

        return Extent(await gather_reachable(queues, span, on_failure))

    async def read(
        self,
        selection: Selection,
        extent: Extent | None = None,
        *,
        on_scanned: Callable[[int], None] = lambda _: None,
    ) -> AsyncIterator[DeadLetter]:
        """The selected dead letters of all queues, oldest first.

        Args:
            selection: which ones.
            extent: what is read, from `extent`.
            on_scanned: called with the number of messages read.

        Raises:
            NoDeadLetters: the group has none.
            NotReadable: the topic may not be read.
        """
        known = extent or await self.extent(selection)

        async def letters(part: Extent) -> AsyncIterator[DeadLetter]:
            async for batch in self._batches(selection, part, on_scanned):
                for letter, _ in batch:
                    yield letter

        parts = [letters(Extent({queue: span})) for queue, span in known.spans.items()]
        heads = [(await anext(part, None), part) for part in parts]
        while waiting := [(each, part) for each, part in heads if each is not None]:
            oldest, of = min(waiting, key=lambda head: head[0].died_ms)
            yield oldest
            heads = [
                (await anext(part, None) if part is of else each, part) for each, part in waiting
            ]

    async def browse(
        self,
        selection: Selection,
        extent: Extent,
        *,
        count: int,
        budget: int,
        oldest_first: bool = False,
    ) -> Browsed:
        """Read an extent by time until `count` dead letters are found or `budget` are scanned.

        The next call goes on with the `rest`.
        """
        readers = [
            QueueReader(self._messages, queue, begin, end, oldest_first)
            for queue, (begin, end) in extent.spans.items()
        ]
        found: list[tuple[DeadLetter, StoredMessage]] = []
        scanned = 0
        while len(found) < count and scanned < budget:
            await gather_by_key(readers, QueueReader.fill)
            filled = [reader for reader in readers if reader.buffer]
            if not filled:
                break
            choose = min if oldest_first else max
            reader = choose(filled, key=lambda reader: reader.buffer[0].store_timestamp)
            message = reader.take()
            scanned += 1
            letter = dead_letter(selection.group, reader.queue, message)
            if selection.matches(letter) and selection.matches_text(message):
                found.append((letter, message))
        rest = {reader.queue: (reader.begin, reader.end) for reader in readers}
        return Browsed(found, scanned, Extent(rest))

    async def at(self, group: str, position: str) -> tuple[DeadLetter, StoredMessage]:
        """The dead letter at a position; raises MessageNotFound, or NoDeadLetters."""
        selection = Selection(group=group, positions=frozenset({position}))
        async for batch in self._batches(selection, None, lambda _: None):
            for pair in batch:
                return pair
        raise MessageNotFound(dead_letter_topic(group), f"position {position}")

    async def history(self, letter: DeadLetter) -> list[StoredMessage]:
        """The copies of a dead letter in its topic and in the retry topics of its group, by time.

        There is one for each try whose copy is still stored; brokers find them by the unique id.
        """
        origin = letter.origin_topic
        topics = [retry_topic(letter.group)]
        if origin is not None:
            topics += [origin, *pop_retry_topics(letter.group, origin)]

        async def copies(topic: str) -> list[StoredMessage]:
            try:
                return (await self._messages.every_of_unique_id(topic, letter.message_id))[0]
            except TopicNotFound:
                return []

        found = await gather_by_key(dict.fromkeys(topics), copies)
        return sorted(
            (message for part in found.values() for message in part),
            key=lambda message: message.store_timestamp,
        )

    async def redrive(  # noqa: PLR0913  what is sent, how and where
        self,
        selection: Selection,
        producer: "Producer | None",
        *,
        to: str | None = None,
        to_group: bool = False,
        extent: Extent | None = None,
        on_scanned: Callable[[int], None] = lambda _: None,
        limit: int | None = None,
        on_cut: Callable[[], None] = lambda: None,
        known_copies: Mapping[tuple[str, str], str] = _NONE_KNOWN,
    ) -> AsyncIterator[Redriven]:
        """Send the selected dead letters again, in order; yields what became of each.

        A copy keeps its body, keys, tags, unique id and user properties. A dead letter whose copy
        is in the target topic already is not sent again.

        Args:
            selection: which ones.
            producer: an open producer; None sends nothing.
            to: send to this topic instead of the one that each was sent to first.
            to_group: send to the retry topic of the group, which no other group reads; consumers
                that pop do not read it either.
            extent: what is read, from `extent`.
            on_scanned: called with the number of messages read.
            limit: end when this many have been sent, or would be.
            on_cut: called if another one would be sent without the limit.
            known_copies: offset message ids of copies, by that of the dead letter and the topic:
                copies that the index may not have yet.

        Raises:
            NoTarget: the topic `to` is one of the brokers or of one group.
            NoDeadLetters: the group has none.
            NotReadable: the topic may not be read.
        """
        if to is not None and is_reserved(to):
            raise NoTarget(to)
        left = limit

        def target_of(letter: DeadLetter) -> str | None:
            return retry_topic(selection.group) if to_group else to or letter.origin_topic

        async for batch in self._batches(selection, extent, on_scanned):
            targets = {letter.position: target_of(letter) for letter, _ in batch}
            checks = await gather_by_key(
                [(letter, targets[letter.position]) for letter, _ in batch], self.obstacle
            )
            for letter, message in batch:
                target = targets[letter.position]
                obstacle = checks[letter, target]
                if known := known_copies.get((letter.offset_message_id, target or "")):
                    obstacle = Redriven(letter, Outcome.SENT_BEFORE, target, known)
                if obstacle is not None:
                    yield obstacle
                    continue
                assert target is not None
                if left == 0:
                    on_cut()
                    return
                done = await _sent(producer, letter, copy_of(message, letter, target))
                if left is not None and done.outcome in {Outcome.PLANNED, Outcome.SENT}:
                    left -= 1
                yield done

    async def obstacle(self, checked: tuple[DeadLetter, str | None]) -> Redriven | None:
        """Why a dead letter is not sent to a topic, such as that it was before; None if it is."""
        letter, target = checked
        if target is None:
            text = "the message does not tell its topic: give one to send it to"
            return Redriven(letter, Outcome.NOT_SENDABLE, target, text)
        try:
            copies, are_all = await self._messages.every_of_unique_id(
                target, letter.message_id, begin=max(letter.died_ms - _CLOCKS_MS, 0)
            )
        except TopicNotFound:
            text = f"topic {target!r} does not exist: create it, or give another one"
            return Redriven(letter, Outcome.NOT_SENDABLE, target, text)
        for copy in copies:
            if copy.properties.get(REPLAYED_FROM) == letter.position:
                return Redriven(letter, Outcome.SENT_BEFORE, target, copy.offset_message_id)
        if are_all:
            return None
        text = f"its copy may be among more than {len(copies)} messages of {target} with its id"
        return Redriven(letter, Outcome.NOT_KNOWN, target, text)

    async def _batches(
        self, selection: Selection, extent: Extent | None, on_scanned: Callable[[int], None]
    ) -> AsyncIterator[list[tuple[DeadLetter, StoredMessage]]]:
        known = extent or await self.extent(selection)
        for queue, (begin, end) in known.spans.items():
            at, wanted = begin, selection.offsets_in(queue)
            while at < end:
                pulled = await self._messages.pull(queue, at, min(end - at, _BATCH))
                pairs = [
                    (dead_letter(selection.group, queue, message), message)
                    for message in pulled.messages
                    if message.queue_offset < end and selection.matches_text(message)
                ]
                yield [pair for pair in pairs if selection.matches(pair[0])]
                if pulled.next_offset <= at:
                    break
                goes_on = _next_wanted(wanted, min(pulled.next_offset, end), end)
                on_scanned(goes_on - at)
                at = goes_on


async def _sent(producer: "Producer | None", letter: DeadLetter, copy: Message) -> Redriven:
    expiry = copy.expires_at
    if expiry is not None and expiry <= time.time():
        text = "it has expired: consumers would not get it"
        return Redriven(letter, Outcome.NOT_SENDABLE, copy.topic, text)
    if producer is None:
        return Redriven(letter, Outcome.PLANNED, copy.topic)
    try:
        if copy.sharding_key is None:
            result = await producer.send(copy)
        else:  # to the queue of its key, as Java's clients choose it
            result = await producer.send(copy, key=copy.sharding_key)
    except BolideError as exc:
        return Redriven(letter, Outcome.FAILED, copy.topic, str(exc))
    return Redriven(letter, Outcome.SENT, copy.topic, result.offset_message_id)


def _next_wanted(wanted: list[int] | None, at: int, end: int) -> int:
    """The first wanted offset from `at` on, or the end."""
    if wanted is None:
        return at
    index = bisect_left(wanted, at)
    return wanted[index] if index < len(wanted) else end
