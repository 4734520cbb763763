"""Dead letters: listDeadLetters, redriveDeadLetters; not part of RocketMQ."""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from bolide.admin import AdminClient
from bolide.admin.dead_letters import (
    DeadLetter,
    DeadLetterCount,
    NoDeadLetters,
    Outcome,
    Redriven,
    Selection,
)
from bolide.admin.messages import DEFAULT_LIMIT
from bolide.cli.admin.confirmation import DryRun, Effect, Yes, confirm
from bolide.cli.admin.output import time_text
from bolide.cli.admin.progress import print_cut, progress_bar
from bolide.cli.admin.sending import producer_of
from bolide.cli.admin.session import AsDocument, Group, NameServer, pass_over, run
from bolide.cli.admin.times import TIME_FORMATS, parse_time
from bolide.cli.command_line import FAILED
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.errors import BolideError
from bolide.logs import one_line

if TYPE_CHECKING:
    from bolide.client.producer.producer import Producer

_FAILURES_IN_A_ROW = 5
_UNSENT = (Outcome.FAILED, Outcome.NOT_SENDABLE, Outcome.NOT_KNOWN)
_ROW = "{:<12}  {:<32}  {:<40}  {:<24}  {}"
_TITLES = ("#Outcome", "#MessageId", "#DeadLetter", "#Topic", "#Detail")

OfTopic = Annotated[
    str | None, typer.Option("-t", "--topic", help="Only messages that were sent to this topic.")
]
Key = Annotated[str | None, typer.Option("-k", "--key", help="Only messages with this key.")]
MessageId = Annotated[
    str | None, typer.Option("-i", "--msgId", help="Only this message, by an id of any kind.")
]
Begin = Annotated[
    str | None,
    typer.Option("-b", "--begin", help=f"Only dead letters of this time on: {TIME_FORMATS}."),
]
End = Annotated[
    str | None, typer.Option("-e", "--end", help="Only dead letters of before this time.")
]


def list_dead_letters(
    group: Annotated[
        str | None,
        typer.Option("-g", "--groupName", help="Messages of one group; by default all groups."),
    ] = None,
    topic: OfTopic = None,
    key: Key = None,
    message_id: MessageId = None,
    begin: Begin = None,
    end: End = None,
    limit: Annotated[
        int, typer.Option("-m", "--limit", min=1, help="Maximum number of messages.")
    ] = DEFAULT_LIMIT,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """List the dead letters of a group with their reasons, or count those of all groups."""
    if group is None:
        if any(each is not None for each in (topic, key, message_id, begin, end)):
            raise typer.BadParameter("-t, -k, -i, -b and -e need -g, one group")
        run(name_server, lambda admin: _show_groups(admin, as_document))
        return
    selection = _selection(group, (topic, key, message_id), (begin, end))

    async def act(admin: AdminClient) -> None:
        extent = await admin.dead_letters.extent(selection, on_failure=pass_over)
        found: list[DeadLetter] = []
        cut = None
        with progress_bar("dead letters", extent.messages) as advance:
            async for letter in admin.dead_letters.read(selection, extent, on_scanned=advance):
                if len(found) == limit:
                    cut = letter
                    break
                found.append(letter)
        _show_letters(found, as_document)
        if cut is not None:
            goes_on = f"-m {limit * 2} shows more{_next_page(found, cut)}"
            print_cut(limit, f"of {extent.messages} dead letters", goes_on)

    run(name_server, act)


def _next_page(shown: list[DeadLetter], cut: DeadLetter) -> str:
    """The option that goes on where a listing was cut, if there is one."""
    if shown[0].died_ms == cut.died_ms:  # which would show the same ones
        return ""
    repeats = ", with some of these again" if shown[-1].died_ms == cut.died_ms else ""
    return f", -b {cut.died_ms} goes on{repeats}"


def redrive_dead_letters(
    group: Group,
    topic: OfTopic = None,
    key: Key = None,
    message_id: MessageId = None,
    begin: Begin = None,
    end: End = None,
    limit: Annotated[
        int | None, typer.Option("-m", "--limit", min=1, help="Send no more than this many.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", help="Topic to send to; by default the one each was sent to."),
    ] = None,
    to_group: Annotated[
        bool,
        typer.Option("--to-group", help="Only to this group: to its retry topic; not for POP."),
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Send dead letters of a group again.

    They stay where they are. What was sent before is not sent again, so that the command can be
    repeated after a failure.
    """
    if to is not None and to_group:
        raise typer.BadParameter("--to and --to-group exclude each other")
    selection = _selection(group, (topic, key, message_id), (begin, end))
    job = _Redrive(selection, limit, to, to_group)
    if dry_run or not yes:
        plan = run(name_server, job.plan)
        confirm(
            f"Send {plan.outcomes[Outcome.PLANNED]} dead letters of group {group} again?",
            plan.effect(with_letters=dry_run),
            [_redriven_document(each) for each in plan.found],
            yes=yes,
            dry_run=dry_run,
            as_document=as_document,
        )
    outcomes = run(name_server, lambda admin: job.send(admin, as_document))
    if not as_document:
        print(_summary(outcomes))
    if any(outcomes[each] for each in _UNSENT):
        raise typer.Exit(FAILED)


@dataclass(slots=True)
class _Plan:
    """What a re-drive would do, and which groups read the topics that it sends to."""

    found: list[Redriven] = field(default_factory=list)
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    readers: dict[str, str] = field(default_factory=dict)

    def effect(self, *, with_letters: bool) -> Effect:
        lines: list[Table | str] = []
        if with_letters and self.found:
            table = Table(*_TITLES)
            for each in self.found:
                table.add(*_cells(each))
            lines.append(table)
        targets = Counter(each.target for each in self.found if each.outcome is Outcome.PLANNED)
        for target, count in targets.items():
            lines.append(f"{count} go to topic {target}, read by {self.readers[target or '']}")
        return [*lines, _summary(self.outcomes)]


@dataclass(frozen=True, slots=True)
class _Redrive:
    """One re-drive: which dead letters go where."""

    selection: Selection
    limit: int | None
    to: str | None
    to_group: bool

    async def plan(self, admin: AdminClient) -> _Plan:
        plan = _Plan()
        plan.outcomes = await self._run(admin, None, plan.found.append)
        for target in {each.target for each in plan.found if each.outcome is Outcome.PLANNED}:
            assert target is not None
            readers = [] if self.to_group else await admin.topics.groups(target)
            only = f"group {self.selection.group} only"
            plan.readers[target] = only if self.to_group else ", ".join(readers) or "no group yet"
        return plan

    async def send(self, admin: AdminClient, as_document: bool) -> Counter[Outcome]:
        """Send, and print what becomes of each."""

        titled = as_document

        def show(each: Redriven) -> None:
            nonlocal titled
            if as_document:
                print_document(_redriven_document(each))
                return
            if not titled:
                titled = True
                print(_ROW.format(*_TITLES))
            print(one_line(_ROW.format(*_cells(each))), flush=True)

        async with producer_of(admin) as producer:
            return await self._run(admin, producer, show)

    async def _run(
        self,
        admin: AdminClient,
        producer: "Producer | None",
        note: Callable[[Redriven], object],
    ) -> Counter[Outcome]:
        outcomes = Counter[Outcome]()
        failures = 0
        is_cut = False

        def note_cut() -> None:
            nonlocal is_cut
            is_cut = True

        extent = await admin.dead_letters.extent(self.selection)
        prints = producer is not None
        with progress_bar("dead letters", extent.messages, prints=prints) as advance:
            async for each in admin.dead_letters.redrive(
                self.selection,
                producer,
                to=self.to,
                to_group=self.to_group,
                extent=extent,
                on_scanned=advance,
                limit=self.limit,
                on_cut=note_cut,
            ):
                note(each)
                outcomes[each.outcome] += 1
                failures = failures + 1 if each.outcome is Outcome.FAILED else 0
                if failures == _FAILURES_IN_A_ROW:
                    text = f"stopped after {failures} failures in a row; repeat it to go on"
                    print(text, file=sys.stderr)
                    return outcomes
        done = outcomes[Outcome.PLANNED if producer is None else Outcome.SENT]
        if is_cut:
            of = f"of {extent.messages} dead letters of this time"
            print_cut(done, of, "repeat it to send the next ones")
        return outcomes


def _selection(
    group: str,
    what: tuple[str | None, str | None, str | None],
    times: tuple[str | None, str | None],
) -> Selection:
    """What the options choose: topic, key and id, and two times."""
    topic, key, message_id = what
    begin, end = (None if each is None else parse_time(each) for each in times)
    return Selection(
        group=group, topic=topic, key=key, message_id=message_id, begin_ms=begin, end_ms=end
    )


def _summary(outcomes: Counter[Outcome]) -> str:
    texts = {
        Outcome.PLANNED: "to send",
        Outcome.SENT: "sent",
        Outcome.SENT_BEFORE: "sent before",
        Outcome.NOT_SENDABLE: "not sendable",
        Outcome.NOT_KNOWN: "perhaps sent before",
        Outcome.FAILED: "failed",
    }
    parts = [f"{outcomes[each]} {text}" for each, text in texts.items() if outcomes[each]]
    return f"{outcomes.total()} dead letters{': ' if parts else ''}{', '.join(parts)}"


def _cells(each: Redriven) -> tuple[str, ...]:
    letter = each.letter
    target = each.target or "-"
    return each.outcome.value, letter.message_id, letter.position, target, each.detail


async def _show_groups(admin: AdminClient, as_document: bool) -> None:
    counts: list[DeadLetterCount | str] = []
    groups = await admin.dead_letters.groups()
    with progress_bar("groups", len(groups)) as advance:
        for group in groups:
            try:
                counts.append(await admin.dead_letters.count(group))
            except NoDeadLetters:  # deleted in the meantime
                pass
            except BolideError as exc:
                pass_over(exc)
                counts.append(group)
            advance(1)
    if as_document:
        print_document([_count_document(each) for each in counts])
        return
    table = Table("#Group", "#Messages", "#Oldest", "#Newest")
    for each in counts:
        if isinstance(each, str):
            table.add(each, "N/A", "N/A", "N/A")
        else:
            times = (each.oldest_ms, each.newest_ms)
            texts = ("" if at is None else time_text(at, millis=False) for at in times)
            table.add(each.group, each.messages, *texts)
    table.print()


def _count_document(count: DeadLetterCount | str) -> dict[str, object]:
    if isinstance(count, str):
        return {"group": count, "messages": None, "oldest": None, "newest": None}
    return {
        "group": count.group,
        "messages": count.messages,
        "oldest": count.oldest_ms,
        "newest": count.newest_ms,
    }


def _show_letters(found: list[DeadLetter], as_document: bool) -> None:
    if as_document:
        print_document([_letter_document(each) for each in found])
        return
    table = Table(
        "#MessageId", "#Topic", "#Died", "#Tries", "#Keys", "#Reason", "#Broker Name", "#QID",
        "#Offset",
    )  # fmt: skip
    for each in found:
        died, keys = time_text(each.died_ms, millis=False), " ".join(each.keys)
        place = (each.queue.broker_name, each.queue.queue_id, each.queue_offset)
        topic = each.origin_topic or "-"
        table.add(each.message_id, topic, died, each.tries, keys, each.reason, *place)
    table.print()


def _letter_document(letter: DeadLetter) -> dict[str, object]:
    return {
        "group": letter.group,
        "messageId": letter.message_id,
        "offsetMessageId": letter.offset_message_id,
        "originTopic": letter.origin_topic,
        "originMessageId": letter.origin_message_id,
        "keys": " ".join(letter.keys),
        "tags": letter.tags,
        "tries": letter.tries,
        "bornTimestamp": letter.born_ms,
        "diedTimestamp": letter.died_ms,
        "reason": letter.reason,
        "brokerName": letter.queue.broker_name,
        "queueId": letter.queue.queue_id,
        "queueOffset": letter.queue_offset,
    }


def _redriven_document(each: Redriven) -> dict[str, object]:
    outcome = {"outcome": each.outcome.value, "target": each.target, "detail": each.detail}
    return outcome | _letter_document(each.letter)
