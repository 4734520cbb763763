"""Dialogs that hand a message to a consumer again, or send it as a new message."""

from typing import Any
from urllib.parse import quote

from nicegui import ui

from bolide.console.ui import fields
from bolide.console.ui.dialogs import FormDialog, confirm_and_run
from bolide.console.ui.formats import size
from bolide.console.ui.layout import facts
from bolide.console.ui.panels import note
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.operations.errors import BadInput
from bolide.operations.messages.consumption import message_groups
from bolide.operations.messages.detail import view_message
from bolide.operations.messages.resending import CopyChanges, consume_message, send_copy
from bolide.operations.messages.sending import BodyFormat, SentMessage
from bolide.operations.messages.views import (
    BodyKind,
    ConsumePreview,
    ConsumeResult,
    CopyPreview,
    MessageDetail,
)


async def ask_for_consumer(view: View, topic: str, message_id: str) -> None:
    """Choose a group, see which consumer gets the message, and hand it over."""
    t = view.t
    try:
        groups = await view.run(message_groups, topic=topic, message_id=message_id, size=50)
    except BolideError as error:
        view.tell_error(error)
        return
    online = {each.group: each.clients for each in groups.items if each.clients}
    form = FormDialog(view, t("Hand to a consumer"), t("Continue"))
    with form:
        ui.label(t("A connected consumer handles the message again; no offset changes."))
        if not online:
            note(t("No group of this topic has a connected consumer."), kind="warning")
        first = next(iter(online), "")
        group = fields.choice(t("Group"), [*online], first or None)
        client = fields.choice(t("Consumer"), [*online.get(first, [])], None)

        def choose() -> None:
            clients = online.get(group.value, [])
            client.set_options(clients, value=clients[0] if clients else None)

        group.on_value_change(lambda _: choose())
        choose()
    form.button.set_enabled(bool(online))

    async def submit() -> None:
        await confirm_and_run(
            view,
            consume_message,
            {
                "topic": topic,
                "message_id": message_id,
                "group": group.value,
                "client_id": client.value or "",
            },
            title=t("Hand the message to this consumer?"),
            button=t("Hand over"),
            danger=False,
            show_effect=lambda effect: _show_consumer(view, effect),
            on_done=lambda result: _tell_consumed(view, result),
        )

    form.on_submit(submit)
    form.open()


def _show_consumer(view: View, effect: ConsumePreview) -> None:
    t = view.t
    facts(
        {
            t("Group"): effect.group,
            t("Consumer"): effect.client_id,
            t("Message"): effect.message.message_id,
            t("Body"): effect.message.preview[:120],
        }
    )
    note(t("It is handled once more, now. Nothing is stored, and no offset changes."))


def _tell_consumed(view: View, result: ConsumeResult) -> None:
    t = view.t
    if result.succeeded:
        view.tell(
            t("Consumed in {time} ms by {client}", time=result.took_ms, client=result.client_id)
        )
        return
    reason = result.remark or result.result or t("unknown")
    view.tell_error(t("The consumer failed on it: {reason}", reason=reason))


async def ask_for_copy(view: View, topic: str, message_id: str) -> None:
    """Edit a message, see what would be sent, and send it."""
    try:
        found = await view.run(view_message, topic=topic, message_id=message_id)
    except BolideError as error:
        view.tell_error(error)
        return
    _CopyForm(view, topic, message_id, found)


class _CopyForm:
    def __init__(self, view: View, topic: str, message_id: str, found: MessageDetail) -> None:
        self._view = view
        self._t = t = view.t
        self._named = {"topic": topic, "message_id": message_id}
        self._found = found
        form = FormDialog(view, t("Send as a new message"), t("Continue"), wide=True)
        with form:
            ui.label(t("All groups of the topic get it. It has a new id, and no delay."))
            with ui.element("div").classes("filters"):
                self._topic = fields.text(t("Topic"), topic)
                self._tags = fields.text(t("Tags"), found.row.tags or "")
                self._keys = fields.text(
                    t("Keys"), " ".join(found.row.keys), hint=t("separated by blanks")
                )
            self._properties = fields.area(
                t("Properties"),
                "\n".join(f"{name}={value}" for name, value in self._own.items()),
                hint=t("one name=value in each line"),
                rows=3,
            )
            self._body: ui.textarea | None = None
            if found.body.text is not None and not found.body.is_cut:
                self._body = fields.area(t("Body"), found.body.text, rows=8)
            else:
                note(t("The body is binary or too large to edit; it is sent as it is."))
        form.on_submit(self._continue)
        form.open()

    @property
    def _own(self) -> dict[str, str]:
        pairs = self._found.properties
        return {name: value for name, value in pairs.items() if name != "REPLAYED_FROM"}

    async def _continue(self) -> None:
        t = self._t
        await confirm_and_run(
            self._view,
            send_copy,
            {**self._named, "changes": self._changes()},
            title=t("Send this message?"),
            button=t("Send"),
            danger=False,
            show_effect=self._show_copy,
            on_done=self._tell_sent,
        )

    def _changes(self) -> CopyChanges:
        """Only what differs, so that the rest is copied byte by byte."""
        found, row = self._found, self._found.row
        keys = (self._keys.value or "").split()
        tags, topic = (self._tags.value or "").strip(), (self._topic.value or "").strip()
        properties = self._read_properties()
        changed: dict[str, Any] = {}
        if topic != row.topic:
            changed["topic"] = topic
        if tags != (row.tags or ""):
            changed["tags"] = tags
        if keys != row.keys:
            changed["keys"] = keys
        if properties != self._own:
            changed["properties"] = properties
        if self._body is not None and self._body.value != found.body.text:
            is_json = found.body.kind is BodyKind.JSON
            changed["body"] = self._body.value or ""
            changed["body_format"] = BodyFormat.JSON if is_json else BodyFormat.TEXT
        return CopyChanges(**changed)

    def _read_properties(self) -> dict[str, str]:
        pairs = {}
        for line in (self._properties.value or "").splitlines():
            name, sign, value = line.partition("=")
            if line.strip() and not sign:
                raise BadInput("properties", f"{line!r} is not name=value")
            if line.strip():
                pairs[name.strip()] = value
        return pairs

    def _show_copy(self, effect: CopyPreview) -> None:
        t = self._t
        pairs = {
            t("Topic"): effect.topic,
            t("Tags"): effect.tags or "—",
            t("Keys"): " ".join(effect.keys) or "—",
            t("Size"): size(effect.size),
            t("Changed"): ", ".join(effect.changed) or t("nothing"),
        }
        facts(pairs)
        ui.label(effect.body_preview).classes("mono body-text")
        for name, value in effect.properties.items():
            ui.label(f"{name} = {value}").classes("mono")

    def _tell_sent(self, sent: SentMessage) -> None:
        self._view.tell(self._t("Sent as {id}", id=sent.message_id))
        topic, message_id = quote(sent.topic, safe=""), quote(sent.offset_message_id, safe="")
        self._view.open(
            f"/messages/{topic}/{message_id}?at={quote(sent.broker)}/{sent.queue}/{sent.queue_offset}"
        )
