"""Dead letters: which groups have how many, which these are, and why they were given up.

A list of dead letters goes by a cursor, not by page numbers: topics of dead letters can be long,
and are read from the newest message back, until the page is full or a limit of messages is read.
`redrives` sends them again.
"""

from collections.abc import Iterable

from bolide.admin.dead_letters import DeadLetter, Extent, NoDeadLetters, Outcome, Selection
from bolide.admin.errors import MessageNotFound
from bolide.admin.servers import OnFailure, gather_answers, gather_by_key
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.names import dead_letter_topic
from bolide.operations.cluster import Cluster
from bolide.operations.dead_letters.views import (
    Attempt,
    DeadLetterGroup,
    LetterDetail,
    Letters,
    LetterState,
    Reason,
    Reasons,
    attempt_view,
    body_text,
    check_position,
    decode_cursor,
    encode_cursor,
    letter_view,
    selection_of,
)
from bolide.operations.declaration import read
from bolide.operations.errors import BadInput, NotFound, Unknown
from bolide.operations.servers.missing import missing_brokers, names_of
from bolide.operations.views import Failure, Page, page_of, reason_of, unknown_last
from bolide.operations.visibility import visible_groups
from bolide.remoting.errors import RemotingError

MAX_COUNTED = 200
"""Up to so many groups are all counted for a list that is sorted by figures."""
SCAN_LIMIT = 5_000
"""Messages that one request for a list reads at most."""
_CHUNK = 200
_SORTS = ("", "group", "messages", "oldest", "newest")


@read("/dead-letters")
async def list_dead_letter_groups(
    cluster: Cluster,
    *,
    search: str = "",
    sort: str = "",
    descending: bool = True,
    page: int = 1,
    size: int = 50,
) -> Page[DeadLetterGroup]:
    """List the groups that have a topic of dead letters, with counts and ages.

    `sort` is group, messages, oldest or newest. By default the groups with the newest dead letters
    come first; if there are more than 200 groups, they are sorted by name, for it takes a request
    per group to know, and `messages` sorts by the figures of the last minute.
    """
    if sort not in _SORTS:
        raise BadInput("sort", f"{sort!r} is none of {', '.join(_SORTS[1:])}")
    names = await cluster.shared("dead letter groups", cluster.admin.dead_letters.groups, seconds=5)
    found = [name for name in names if search.lower() in name.lower()]
    if len(found) <= MAX_COUNTED:
        rows, failures = await _counted(cluster, found)
        ordered = _ordered(rows, sort or "newest", descending=descending)
        failures += await missing_brokers(cluster)
        return page_of(ordered, page=page, size=size, failures=failures)
    cut = page_of(await _ordered_names(cluster, found, sort, descending), page=page, size=size)
    rows, failures = await _counted(cluster, cut.items)
    failures += await missing_brokers(cluster)
    return Page(items=rows, total=cut.total, page=cut.page, size=cut.size, failures=failures)


@read("/dead-letters/{group}")
async def show_dead_letter_group(cluster: Cluster, *, group: str) -> DeadLetterGroup:
    """Count the dead letters of a group, and tell when the oldest and the newest were given up."""
    row, _ = await _count(cluster, group)
    return row


@read("/dead-letters/{group}/letters")
async def list_dead_letters(  # noqa: PLR0913  filters
    cluster: Cluster,
    *,
    group: str,
    topic: str = "",
    key: str = "",
    message_id: str = "",
    tags: str = "",
    reason: str = "",
    text: str = "",
    begin_ms: int | None = None,
    end_ms: int | None = None,
    oldest_first: bool = False,
    state: bool = False,
    cursor: str = "",
    size: int = 50,
) -> Letters:
    """List the dead letters of a group, newest first.

    All filters have to fit: `topic` that the message was sent to, one of its keys, an id of any
    kind, its tag, a part of the `reason`, a `text` in its body, keys or properties, and the time in
    milliseconds at which it was given up, from `begin_ms` to before `end_ms`. `state` also looks
    up whether each was sent again. One call reads at most 5,000 messages: pass `next` as `cursor`
    to go on, even after a part without items, until it is empty.
    """
    selection = selection_of(
        group, topic=topic, key=key, message_id=message_id, tags=tags, reason=reason, text=text,
        begin_ms=begin_ms, end_ms=end_ms,
    )  # fmt: skip
    failures: list[Failure] = []
    if cursor:
        total, extent = decode_cursor(cursor, group)
    else:
        extent = await extent_of(cluster, selection, failures)
        total = extent.messages
    browsed = await cluster.admin.dead_letters.browse(
        selection,
        extent,
        count=min(max(size, 1), _CHUNK),
        budget=SCAN_LIMIT,
        oldest_first=oldest_first,
    )
    states: dict[str, tuple[LetterState | None, str]] = {}
    if state:
        states = await _states(cluster, [letter for letter, _ in browsed.letters])
    items = [
        letter_view(letter, message, *states.get(letter.position, (None, "")))
        for letter, message in browsed.letters
    ]
    rest = browsed.rest
    return Letters(
        items=items,
        next=encode_cursor(total, rest) if rest.messages else "",
        total=total,
        scanned=browsed.scanned,
        failures=failures,
    )


@read("/dead-letters/{group}/reasons")
async def dead_letter_reasons(
    cluster: Cluster, *, group: str, begin_ms: int | None = None, end_ms: int | None = None
) -> Reasons:
    """Count the newest 5,000 dead letters of a group by their reasons."""
    selection = selection_of(group, begin_ms=begin_ms, end_ms=end_ms)
    failures: list[Failure] = []
    extent = await extent_of(cluster, selection, failures)
    found: dict[str, list[int]] = {}
    scanned, rest = 0, extent
    while scanned < SCAN_LIMIT and rest.messages:
        part = await cluster.admin.dead_letters.browse(selection, rest, count=_CHUNK, budget=_CHUNK)
        for letter, _ in part.letters:
            found.setdefault(letter.reason, []).append(letter.died_ms)
        scanned, rest = scanned + part.scanned, part.rest
        if not part.scanned:
            break
    reasons = [
        Reason(reason=text, messages=len(at), oldest_ms=min(at), newest_ms=max(at))
        for text, at in found.items()
    ]
    return Reasons(
        items=sorted(reasons, key=lambda each: (-each.messages, each.reason)),
        scanned=scanned,
        total=extent.messages,
        failures=failures,
    )


@read("/dead-letters/{group}/letter")
async def show_dead_letter(cluster: Cluster, *, group: str, position: str) -> LetterDetail:
    """Show a dead letter with its body, its properties, and its tries so far.

    `position` is as listed. The tries are the copies in the topic and in the retry topics of the
    group that are still stored and that a key index finds.
    """
    letter, message = await letter_at(cluster, group, position)
    states = await _states(cluster, [letter])
    history, failure = list[Attempt](), ""
    try:
        copies = await cluster.admin.dead_letters.history(letter)
        history = [attempt_view(each) for each in copies]
    except BolideError as error:
        failure = reason_of(error)
    body, body_format = body_text(message.body)
    return LetterDetail(
        letter=letter_view(letter, message, *states[letter.position]),
        body=body,
        body_format=body_format,
        properties=dict(message.properties),
        history=history,
        history_failure=failure,
    )


async def extent_of(cluster: Cluster, selection: Selection, failures: list[Failure]) -> Extent:
    """What there is now to be read; raises NotFound."""
    try:
        return await cluster.admin.dead_letters.extent(selection, on_failure=_into(failures))
    except NoDeadLetters as error:
        raise await _no_dead_letters(cluster, error) from error


async def _no_dead_letters(cluster: Cluster, error: NoDeadLetters) -> NotFound:
    """What to raise: brokers that are away may have some."""
    away = await missing_brokers(cluster)
    if not away:
        return NotFound(reason_of(error))
    return Unknown(f"{reason_of(error)}, but {names_of(away)} is away ({away[0].reason})")


async def letter_at(
    cluster: Cluster, group: str, position: str
) -> tuple[DeadLetter, StoredMessage]:
    """The dead letter at a position; raises BadInput or NotFound."""
    check_position(group, position)
    try:
        return await cluster.admin.dead_letters.at(group, position)
    except (NoDeadLetters, MessageNotFound) as error:
        raise NotFound(reason_of(error)) from error


def _into(failures: list[Failure]) -> OnFailure:
    """Has brokers that cannot be reached added to a list."""
    return lambda error: failures.append(_remoting_failure(error))


def _remoting_failure(error: RemotingError) -> Failure:
    server = getattr(error, "address", None) or getattr(error, "peer", None) or "?"
    return Failure(server=str(server), reason=reason_of(error))


async def _counted(
    cluster: Cluster, groups: Iterable[str]
) -> tuple[list[DeadLetterGroup], list[Failure]]:
    found = await gather_by_key(groups, lambda group: _shared_count(cluster, group))
    failures = {each.server: each for _, part in found.values() for each in part}
    return [row for row, _ in found.values()], list(failures.values())


async def _shared_count(cluster: Cluster, group: str) -> tuple[DeadLetterGroup, list[Failure]]:
    try:
        return await cluster.shared(
            f"dead letters {group}", lambda: _count(cluster, group), seconds=5
        )
    except Unknown:
        return DeadLetterGroup(group=group, topic=dead_letter_topic(group), messages=None), []
    except NotFound:  # deleted meanwhile
        return DeadLetterGroup(group=group, topic=dead_letter_topic(group), messages=0), []
    except BolideError as error:
        row = DeadLetterGroup(group=group, topic=dead_letter_topic(group), messages=None)
        if isinstance(error, RemotingError):
            return row, [_remoting_failure(error)]
        return row, [Failure(server=group, reason=reason_of(error))]


async def _count(cluster: Cluster, group: str) -> tuple[DeadLetterGroup, list[Failure]]:
    failures: list[Failure] = []
    try:
        count = await cluster.admin.dead_letters.count(group, on_failure=_into(failures))
    except NoDeadLetters as error:
        raise await _no_dead_letters(cluster, error) from error
    away = await missing_brokers(cluster)
    row = DeadLetterGroup(
        group=group,
        topic=dead_letter_topic(group),
        messages=count.messages or (None if away else count.messages),
        oldest_ms=count.oldest_ms,
        newest_ms=count.newest_ms,
        is_partial=bool(failures or away),
    )
    return row, failures


def _ordered(rows: list[DeadLetterGroup], sort: str, *, descending: bool) -> list[DeadLetterGroup]:
    by_name = sorted(rows, key=lambda row: row.group)
    if sort == "group":
        return by_name[::-1] if descending else by_name

    def figure(row: DeadLetterGroup) -> int | None:
        figures = {"messages": row.messages, "oldest": row.oldest_ms, "newest": row.newest_ms}
        return figures[sort]

    return sorted(by_name, key=unknown_last(figure, descending=descending), reverse=descending)


async def _ordered_names(
    cluster: Cluster, names: list[str], sort: str, descending: bool
) -> list[str]:
    """Names in order without asking about each; by their counts as far as the history has them."""
    if sort in {"oldest", "newest"}:
        text = f"there are {len(names)} groups, too many to sort by time: search for fewer"
        raise BadInput("sort", text)
    if sort != "messages" or cluster.history is None:
        return sorted(names, reverse=sort == "group" and descending)
    figures = cluster.history.group_figures()
    seen = {*await visible_groups(cluster, names)}
    counts = {
        name: figures[name].dead_letters for name in names if name in figures and name in seen
    }
    return sorted(names, key=unknown_last(counts.get, descending=descending), reverse=descending)


async def _states(
    cluster: Cluster, letters: list[DeadLetter]
) -> dict[str, tuple[LetterState | None, str]]:
    checks = [(letter, letter.origin_topic) for letter in letters]
    found, _ = await gather_answers(checks, cluster.admin.dead_letters.obstacle)
    states: dict[str, tuple[LetterState | None, str]] = {}
    for check in checks:
        letter = check[0]
        states[letter.position] = (None, "")
        if check not in found:
            continue
        obstacle = found[check]
        if obstacle is None:
            states[letter.position] = (LetterState.NEW, "")
        elif obstacle.outcome is Outcome.SENT_BEFORE:
            states[letter.position] = (LetterState.RESENT, obstacle.detail)
        elif obstacle.outcome is Outcome.NOT_SENDABLE:
            states[letter.position] = (LetterState.STUCK, "")
    return states
