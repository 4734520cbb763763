"""Parked keys: listParked, resumeParked, deadLetterParked; not part of RocketMQ."""

from typing import Annotated

import typer

from bolide.admin.parked import ParkedKeySummary
from bolide.cli.admin.output import time_text
from bolide.cli.admin.session import AsDocument, Group, NameServer, run
from bolide.cli.documents import print_document
from bolide.cli.tables import Table

OfTopic = Annotated[str | None, typer.Option("-t", "--topic", help="Only keys of this topic.")]
Key = Annotated[
    str | None, typer.Option("-k", "--key", help="Only this key; '' for messages without a key.")
]
AllKeys = Annotated[bool, typer.Option("-a", "--all", help="All parked keys.")]


def list_parked(
    group: Group,
    topic: OfTopic = None,
    key: Key = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """List the keys that the ordered consumers of a group have parked."""
    _show(
        run(name_server, lambda admin: admin.parked.keys(group, topic=topic, key=key)), as_document
    )


def resume_parked(
    group: Group,
    topic: OfTopic = None,
    key: Key = None,
    all_keys: AllKeys = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Resume parked keys.

    Their parked messages are handled in order, followed by later messages.
    """
    _require_choice(key, all_keys)
    found = run(name_server, lambda admin: admin.parked.resume(group, topic=topic, key=key))
    _show(found, as_document)
    _print_outcome(found, as_document, "will be handled again")


def dead_letter_parked(
    group: Group,
    topic: OfTopic = None,
    key: Key = None,
    all_keys: AllKeys = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Send the messages of parked keys to the dead-letter topic.

    Later messages of these keys are handled normally.
    """
    _require_choice(key, all_keys)
    found = run(name_server, lambda admin: admin.parked.dead_letter(group, topic=topic, key=key))
    _show(found, as_document)
    _print_outcome(found, as_document, "will be dead letters")


def _require_choice(key: str | None, all_keys: bool) -> None:
    if (key is None) != all_keys:
        raise typer.BadParameter("give either -k, one key, or -a, all of them")


def _print_outcome(found: list[ParkedKeySummary], as_document: bool, outcome: str) -> None:
    """Print what the consumers of the queues will do; the table shows the state before."""
    if not as_document:
        count = f"{len(found)} {'key' if len(found) == 1 else 'keys'}"
        print(f"{count} {outcome}, by the consumers online")


def _show(found: list[ParkedKeySummary], as_document: bool) -> None:
    if as_document:
        print_document([_document(each) for each in found])
        return
    titles = ("#Topic", "#Broker Name", "#QID", "#Key", "#Messages", "#Since", "#State", "#Error")
    table = Table(*titles)
    for each in found:
        queue, since = each.queue, time_text(each.since_ms)
        columns = (queue.topic, queue.broker_name, queue.queue_id)
        table.add(*columns, each.key, each.count, since, _state(each), each.error)
    table.print()


def _state(each: ParkedKeySummary) -> str:
    return "resuming" if each.is_resuming else "parked"


def _document(each: ParkedKeySummary) -> dict[str, object]:
    return {
        "topic": each.queue.topic,
        "brokerName": each.queue.broker_name,
        "queueId": each.queue.queue_id,
        "key": each.key,
        "messages": each.count,
        "since": each.since_ms,
        "state": _state(each),
        "error": each.error,
        "firstOffset": each.first_offset,
        "lastOffset": each.last_offset,
    }
