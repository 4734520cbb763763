"""Keys that a group has set aside: listParked, resumeParked, deadLetterParked; ours alone."""

from typing import Annotated

import typer

from bolide.admin.parked import ParkedKeySummary
from bolide.cli.admin.output import Table, print_json, time_text
from bolide.cli.admin.session import Group, Json, NameServer, run

OfTopic = Annotated[str | None, typer.Option("-t", "--topic", help="Only keys of this topic.")]
Key = Annotated[
    str | None, typer.Option("-k", "--key", help="Only this key; '' for messages without one.")
]
AllKeys = Annotated[bool, typer.Option("-a", "--all", help="All keys that are parked.")]


def list_parked(
    group: Group,
    topic: OfTopic = None,
    key: Key = None,
    as_json: Json = False,
    name_server: NameServer = None,
) -> None:
    """List the keys that a group's ordered consumers have set aside."""
    _show(run(name_server, lambda admin: admin.parked.keys(group, topic=topic, key=key)), as_json)


def resume_parked(
    group: Group,
    topic: OfTopic = None,
    key: Key = None,
    all_keys: AllKeys = False,
    as_json: Json = False,
    name_server: NameServer = None,
) -> None:
    """Have parked keys handled again.

    Their messages are handled in order, and then what came later.
    """
    _require_choice(key, all_keys)
    found = run(name_server, lambda admin: admin.parked.resume(group, topic=topic, key=key))
    _show(found, as_json)
    _tell(found, as_json, "will be handled again")


def dead_letter_parked(
    group: Group,
    topic: OfTopic = None,
    key: Key = None,
    all_keys: AllKeys = False,
    as_json: Json = False,
    name_server: NameServer = None,
) -> None:
    """Make dead letters of the messages of parked keys.

    What came later is handled.
    """
    _require_choice(key, all_keys)
    found = run(name_server, lambda admin: admin.parked.dead_letter(group, topic=topic, key=key))
    _show(found, as_json)
    _tell(found, as_json, "will be dead letters")


def _require_choice(key: str | None, all_keys: bool) -> None:
    if (key is None) != all_keys:
        raise typer.BadParameter("give either -k, one key, or -a, all of them")


def _tell(found: list[ParkedKeySummary], as_json: bool, fate: str) -> None:
    """The consumer that has their queues does it; the table shows how it found them."""
    if not as_json:
        print(
            f"{len(found)} {'key' if len(found) == 1 else 'keys'} {fate}, by the consumers online"
        )


def _show(found: list[ParkedKeySummary], as_json: bool) -> None:
    if as_json:
        print_json([_document(each) for each in found])
        return
    titles = ("#Topic", "#Broker Name", "#QID", "#Key", "#Messages", "#Since", "#State", "#Error")
    table = Table(*titles)
    for each in found:
        queue, since = each.queue, time_text(each.since_ms)
        place = (queue.topic, queue.broker_name, queue.queue_id)
        table.add(*place, each.key, each.count, since, _state(each), each.error)
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
