"""Dialogs that create, change and delete a topic."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nicegui import ui

from bolide.console.pages.topics.names import permission_name, setting_name, setting_text
from bolide.console.ui import fields, formats
from bolide.console.ui.dialogs import FormDialog, confirm_and_run
from bolide.console.ui.layout import facts
from bolide.console.ui.panels import note
from bolide.console.ui.tables import Column, simple_table
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.model.names import ALLOWED_NAME, MAX_TOPIC_LENGTH
from bolide.operations.errors import BadInput
from bolide.operations.topics.changes import (
    ClusterBrokers,
    MessageType,
    TopicDeletionImpact,
    create_topic,
    delete_topic,
    list_placement,
)
from bolide.operations.topics.detail import TopicDetail
from bolide.operations.topics.table import MESSAGE_TYPE, TopicPermission
from bolide.operations.topics.updates import (
    TopicUpdatePlan,
    TopicWarning,
    WarningKind,
    update_topic,
)
from bolide.protocol.bodies.topics import MAX_QUEUES

_SETTABLE = [each for each in TopicPermission if each is not TopicPermission.DIFFERS]


async def open_create_form(view: View, *, on_done: Callable[[str], None]) -> None:
    """Ask for the settings of a new topic, and create it."""
    t = view.t
    try:
        clusters = await view.run(list_placement)
    except BolideError as error:
        view.tell_error(error)
        return
    with FormDialog(view, t("Create topic"), t("Create")) as form:
        name = fields.text(
            t("Name"),
            check=lambda text: _wrong_name(view, text),
            hint=t("Letters, digits and - _ % |, at most {count}", count=MAX_TOPIC_LENGTH),
        )
        place = _place_field(view, clusters)
        settings = _SettingFields(view)
    form.check(name, settings.writes, settings.reads)

    async def submit() -> None:
        topic = name.value.strip()
        chosen = place.value or []
        done = await view.run(
            create_topic,
            topic=topic,
            clusters=[each[1:] for each in chosen if each[0] == _OF_CLUSTER],
            brokers=[each[1:] for each in chosen if each[0] == _OF_BROKER],
            read_queues=int(settings.reads.value),
            write_queues=int(settings.writes.value),
            permission=settings.permission.value,
            message_type=settings.message_type(),
            is_ordered=settings.ordered.value,
            attributes=settings.attributes(),
        )
        for failure in done.failures:
            view.tell_error(f"{failure.server}: {failure.reason}")
        view.tell(t("Topic {topic} was created.", topic=topic))
        on_done(topic)

    form.on_submit(submit)
    form.open()


def open_update_form(view: View, detail: TopicDetail, *, on_done: Callable[[], None]) -> None:
    """Ask for changed settings, show what they change, and change them."""
    t = view.t
    topic, first = detail.topic, next((b for b in detail.brokers if b.read_queues), None)
    if first is None:
        view.tell_error(t("No broker told the settings of this topic."))
        return
    names = [each.broker for each in detail.brokers if each.has_master]
    with FormDialog(view, t("Change topic {topic}", topic=topic), t("Preview")) as form:
        if detail.differing:
            note(
                t("The brokers differ; the form shows {broker}.", broker=first.broker),
                kind="warning",
                icon="warning_amber",
            )
        brokers = fields.choice(t("Brokers"), names, names, multiple=True)
        settings = _SettingFields(
            view,
            reads=first.read_queues or 0,
            writes=first.write_queues or 0,
            permission=first.permission or TopicPermission.READ_WRITE,
            message_type=first.message_type,
            is_ordered=bool(first.is_ordered),
            attributes=first.attributes,
        )
    form.check(settings.writes, settings.reads)

    async def submit() -> None:
        wanted = settings.attributes()
        removed = [k for k in first.attributes if k not in wanted and k != MESSAGE_TYPE]
        if not settings.type.value and first.message_type:
            removed.append(MESSAGE_TYPE)
        arguments: dict[str, Any] = {
            "topic": topic,
            "brokers": list(brokers.value or names),
            "read_queues": int(settings.reads.value),
            "write_queues": int(settings.writes.value),
            "permission": settings.permission.value,
            "message_type": settings.message_type(first.message_type),
            "is_ordered": settings.ordered.value,
            "attributes": wanted,
            "removed_attributes": removed,
        }
        plan, _ = await view.preview(update_topic, **arguments)  # its errors belong to the form
        if not plan.changes:
            raise BadInput(t("Settings"), t("nothing is different"))
        await confirm_and_run(
            view,
            update_topic,
            arguments,
            title=t("Change topic {topic}?", topic=topic),
            button=t("Change"),
            danger=bool(plan.warnings),
            show_effect=lambda effect: show_plan(view, effect),
            done=t("Topic {topic} was changed.", topic=topic),
            on_done=lambda _: on_done(),
        )

    form.on_submit(submit)
    form.open()


async def confirm_deletion(view: View, topic: str, *, on_done: Callable[[], None]) -> None:
    """Show what is lost with a topic, and delete it once its name was typed."""
    t = view.t

    def deleted(done: Any) -> None:
        for failure in done.failures:
            view.tell_error(f"{failure.server}: {failure.reason}")
        on_done()

    await confirm_and_run(
        view,
        delete_topic,
        {"topic": topic},
        title=t("Delete topic {topic}?", topic=topic),
        button=t("Delete"),
        show_effect=lambda impact: show_impact(view, impact),
        typed_name=topic,
        done=t("Topic {topic} was deleted.", topic=topic),
        on_done=deleted,
    )


def show_plan(view: View, plan: TopicUpdatePlan) -> None:
    """Settings before and after, and what that may do."""
    t = view.t
    rows = [
        {
            "key": f"{each.broker} {each.setting}",
            "broker": each.broker,
            "setting": setting_name(view, each.setting),
            "before": setting_text(view, each.setting, each.before),
            "after": setting_text(view, each.setting, each.after),
        }
        for each in plan.changes
    ]
    columns = [
        Column(name="broker", label=t("Broker")),
        Column(name="setting", label=t("Setting")),
        Column(name="before", label=t("Before")),
        Column(name="after", label=t("After")),
    ]
    simple_table(columns, rows, label=t("Changes"))
    for text in dict.fromkeys(warning_text(view, each) for each in plan.warnings):
        note(text, kind="warning", icon="warning_amber")


def show_impact(view: View, impact: TopicDeletionImpact) -> None:
    """What is lost with a topic."""
    t = view.t
    never = impact.last_write_ms is None
    facts(
        {
            t("Clusters"): ", ".join(impact.clusters),
            t("Messages lost"): formats.count(impact.messages),
            t("Queues"): formats.count(impact.queues),
            t("Last write"): t("never written")
            if never
            else formats.ago(view, impact.last_write_ms),
        }
    )
    if not impact.groups:
        note(t("No group consumes this topic."))
        return
    members = sum(each.members for each in impact.groups)
    if members:
        text = t("{count} connected consumers will get nothing any more.", count=members)
        note(text, kind="danger", icon="warning_amber")
    rows = [
        {
            "key": each.group,
            "group": each.group,
            "members": formats.count(each.members),
            "backlog": formats.count(each.backlog),
        }
        for each in impact.groups
    ]
    columns = [
        Column(name="group", label=t("Group")),
        Column(name="members", label=t("Connected consumers"), kind="number"),
        Column(name="backlog", label=t("Backlog"), kind="number"),
    ]
    simple_table(columns, rows, label=t("Groups that consume it"))


def warning_text(view: View, warning: TopicWarning) -> str:
    """A warning in the language of the page."""
    t = view.t
    texts = {
        WarningKind.WRITE_QUEUES_SHRINK: t(
            "Nothing is sent to queues {low} to {high} of {broker} any more."
        ),
        WarningKind.READ_QUEUES_SHRINK: t(
            "Consumers no longer get what is in queues {low} to {high} of {broker}: {messages}"
            " messages. Shrink the write queues first, and the read queues when all is consumed."
        ),
        WarningKind.UNREAD_QUEUES: t(
            "Nobody gets what is sent to queues {low} to {high} of {broker}: they are written but"
            " not read."
        ),
        WarningKind.ORDER_MOVES: t(
            "Messages of one sharding key go to another queue: their order may break while the old"
            " ones are consumed."
        ),
        WarningKind.NO_WRITE: t("Producers are refused."),
        WarningKind.NO_READ: t("Consumers get nothing any more."),
        WarningKind.TYPE_CHANGES: t("Proxies refuse messages of another type than the new one."),
    }
    return texts[warning.kind].format(
        low=warning.after,
        high=(warning.before or 0) - 1,
        broker=warning.broker,
        messages=formats.count(warning.messages),
    )


class _SettingFields:
    """The fields that creating and changing a topic share."""

    def __init__(  # noqa: PLR0913  the settings of a topic
        self,
        view: View,
        *,
        reads: int = 8,
        writes: int = 8,
        permission: TopicPermission = TopicPermission.READ_WRITE,
        message_type: str | None = None,
        is_ordered: bool = False,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        t = view.t
        self._view = view
        with ui.element("div").classes("field-pair"):
            self.writes = _queues_field(view, t("Write queues per broker"), writes)
            self.reads = _queues_field(view, t("Read queues per broker"), reads)
        names = {each: permission_name(view, each) for each in _SETTABLE}
        self.permission = fields.choice(t("Permission"), names, permission)
        types = {"": t("Not set (normal)"), **{each.value: each.value for each in MessageType}}
        if message_type and message_type not in types:
            types[message_type] = message_type
        self.type = fields.choice(t("Message type"), types, message_type or "")
        self.ordered = fields.switch(t("Fixed order: the NameServers keep the number of queues"))
        self.ordered.value = is_ordered
        others = {k: v for k, v in (attributes or {}).items() if k != MESSAGE_TYPE}
        text = "\n".join(f"{name}={value}" for name, value in others.items())
        with ui.expansion(t("More attributes"), value=bool(others)).classes("full"):
            self._attributes = fields.area(
                t("Attributes"), text, rows=3, hint=t("One name=value per line")
            )

    def message_type(self, before: str | None = None) -> MessageType | None:
        """The chosen one; None if there is none, or it is as before."""
        chosen = self.type.value
        return MessageType(chosen) if chosen and chosen != before else None

    def attributes(self) -> dict[str, str]:
        """The attributes but the message type; raises BadInput."""
        return name_values(self._view, self._view.t("Attributes"), self._attributes.value or "")


def name_values(view: View, label: str, text: str) -> dict[str, str]:
    """Lines of name=value; raises BadInput."""
    found = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise BadInput(label, view.t("“{line}” is not name=value", line=line))
        found[name.strip()] = value.strip()
    return found


_OF_CLUSTER, _OF_BROKER = "c", "b"


def _place_field(view: View, clusters: Sequence[ClusterBrokers]) -> ui.select:
    """Clusters and brokers to choose from; the value is a list of marked names."""
    t = view.t
    options = {
        _OF_CLUSTER + each.cluster: t("Cluster {name}", name=each.cluster) for each in clusters
    }
    options |= {
        _OF_BROKER + broker: t("Broker {name}", name=broker)
        for each in clusters
        for broker in each.brokers
    }
    chosen = [_OF_CLUSTER + clusters[0].cluster] if len(clusters) == 1 else []
    return fields.choice(t("Where"), options, chosen, multiple=True).props("use-chips")


def _queues_field(view: View, label: str, value: int) -> ui.number:
    field = fields.number(label, value, minimum=1, maximum=MAX_QUEUES)
    wrong = view.t("From 1 to {count}", count=MAX_QUEUES)
    field.validation = {wrong: lambda given: given is not None and 1 <= given <= MAX_QUEUES}
    return field


def _wrong_name(view: View, text: str | None) -> str | None:
    t = view.t
    name = (text or "").strip()
    if not name:
        return t("A name is needed.")
    if not ALLOWED_NAME.fullmatch(name):
        bad = "".join(sorted({c for c in name if not re.fullmatch(ALLOWED_NAME, c)}))
        return t("Not allowed: {characters}", characters=bad)
    if len(name) > MAX_TOPIC_LENGTH:
        return t("At most {count} characters", count=MAX_TOPIC_LENGTH)
    return None
