"""What is wrong with a consumer group, as far as its figures show it."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from bolide.model.message_queue import MessageQueue
from bolide.operations.consumer_directory import KnownGroup
from bolide.operations.consumer_figures import LiveGroup
from bolide.operations.consumer_members import MemberReports


class WarningKind(StrEnum):
    """A reason to look at a group."""

    PAUSED = "paused"
    """No broker lets it consume."""
    PARTLY_PAUSED = "partly_paused"
    """Some brokers do not let it consume."""
    FORBIDDEN_TOPIC = "forbidden_topic"
    SETTINGS_DIFFER = "settings_differ"
    """Its brokers have different settings for it."""
    NO_SETTINGS = "no_settings"
    """It has offsets or members, but no broker has settings for it."""
    OFFLINE_WITH_LAG = "offline_with_lag"
    DEAD_LETTERS = "dead_letters"
    SUBSCRIPTIONS_DIFFER = "subscriptions_differ"
    """Its members do not subscribe alike: messages are lost."""
    STALLED = "stalled"
    """A member has messages of a queue, but does not consume them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWarning:
    """Something to look at; the text is in English and has the names and figures."""

    kind: WarningKind
    text: str


def warnings_of(
    group: KnownGroup, live: LiveGroup, dead_letters: int | None, reports: MemberReports | None
) -> list[GroupWarning]:
    """The most serious first; without reports nothing about the members."""
    found: list[tuple[WarningKind, str]] = []
    if reports is not None:
        found += [
            (WarningKind.SUBSCRIPTIONS_DIFFER, f"members subscribe differently to {each.topic}")
            for each in reports.status.differences()
        ]
        found += [
            (WarningKind.STALLED, f"{each.client_id}, {_name(each.queue)}: {each.text}")
            for each in reports.status.problems()
        ]
    found += _of_settings(group)
    if live.client_count == 0 and live.lag:
        found.append((WarningKind.OFFLINE_WITH_LAG, f"{live.lag} messages wait, and no member"))
    if dead_letters:
        found.append((WarningKind.DEAD_LETTERS, f"{dead_letters} dead letters"))
    return [GroupWarning(kind=kind, text=text) for kind, text in found]


def _of_settings(group: KnownGroup) -> list[tuple[WarningKind, str]]:
    paused = sorted(name for name, each in group.configs.items() if not each.consume_enable)
    if not group.configs:
        return [(WarningKind.NO_SETTINGS, "no broker has settings for it")]
    found: list[tuple[WarningKind, str]] = []
    if len(paused) == len(group.configs):
        found.append((WarningKind.PAUSED, "consuming is switched off"))
    elif paused:
        text = f"consuming is switched off on {', '.join(paused)}"
        found.append((WarningKind.PARTLY_PAUSED, text))
    for broker, topics in sorted(group.forbidden.items()):
        text = f"may not read {', '.join(sorted(topics))} on {broker}"
        found.append((WarningKind.FORBIDDEN_TOPIC, text))
    settings = {
        msgspec.json.encode(msgspec.structs.replace(each, consume_enable=True), order="sorted")
        for each in group.configs.values()
    }
    if len(settings) > 1:
        found.append((WarningKind.SETTINGS_DIFFER, "its brokers have different settings for it"))
    return found


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.broker_name}:{queue.queue_id}"
