"""What is wrong with a consumer group, as far as its figures show it."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from bolide.model.message_queue import MessageQueue
from bolide.operations.consumers.directory import KnownGroup
from bolide.operations.consumers.figures import LiveGroup
from bolide.operations.consumers.members import MemberReports


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
    """Something to look at."""

    kind: WarningKind
    text: str
    """In English, with the names and figures."""
    subject: str = ""
    """The topics, brokers or queue that it is about, if not the whole group."""
    count: int | None = None
    """Messages that it is about."""


def warnings_of(
    group: KnownGroup, live: LiveGroup, dead_letters: int | None, reports: MemberReports | None
) -> list[GroupWarning]:
    """The most serious first; without reports nothing about the members."""
    found: list[GroupWarning] = []
    if reports is not None:
        found += _of_members(reports)
    found += _of_settings(group)
    if live.client_count == 0 and live.lag:
        text = f"{live.lag} messages wait, and no member is connected"
        kind = WarningKind.OFFLINE_WITH_LAG
        found.append(GroupWarning(kind=kind, text=text, count=live.lag))
    if dead_letters:
        text = f"{dead_letters} dead letters"
        found.append(GroupWarning(kind=WarningKind.DEAD_LETTERS, text=text, count=dead_letters))
    return found


def _of_members(reports: MemberReports) -> list[GroupWarning]:
    found = [
        GroupWarning(
            kind=WarningKind.SUBSCRIPTIONS_DIFFER,
            text=f"members subscribe differently to {each.topic}",
            subject=each.topic,
        )
        for each in reports.status.differences()
    ]
    for problem in reports.status.problems():
        subject = f"{problem.client_id}, {_name(problem.queue)}"
        text = f"{subject}: {problem.text}"
        found.append(GroupWarning(kind=WarningKind.STALLED, text=text, subject=subject))
    return found


def _of_settings(group: KnownGroup) -> list[GroupWarning]:
    if not group.configs:
        text = "no broker has settings for it"
        return [GroupWarning(kind=WarningKind.NO_SETTINGS, text=text)]
    found: list[GroupWarning] = []
    paused = sorted(name for name, each in group.configs.items() if not each.consume_enable)
    if len(paused) == len(group.configs):
        found.append(GroupWarning(kind=WarningKind.PAUSED, text="consuming is switched off"))
    elif paused:
        where = ", ".join(paused)
        text = f"consuming is switched off on {where}"
        found.append(GroupWarning(kind=WarningKind.PARTLY_PAUSED, text=text, subject=where))
    for broker, topics in sorted(group.forbidden.items()):
        names = ", ".join(sorted(topics))
        text = f"may not read {names} on {broker}"
        subject = f"{names} ({broker})"
        found.append(GroupWarning(kind=WarningKind.FORBIDDEN_TOPIC, text=text, subject=subject))
    settings = {
        msgspec.json.encode(msgspec.structs.replace(each, consume_enable=True), order="sorted")
        for each in group.configs.values()
    }
    if len(settings) > 1:
        text = "its brokers have different settings for it"
        found.append(GroupWarning(kind=WarningKind.SETTINGS_DIFFER, text=text))
    return found


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.broker_name}:{queue.queue_id}"
