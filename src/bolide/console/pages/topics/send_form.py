"""The dialog that sends a message of any kind to a topic."""

import time
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from urllib.parse import quote

from nicegui import ui

from bolide.console.pages.topics.forms import name_values
from bolide.console.ui import fields, formats
from bolide.console.ui.dialogs import FormDialog
from bolide.console.ui.panels import note
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.operations.errors import BadInput
from bolide.operations.messages.sending import (
    MAX_COUNT,
    BodyFormat,
    Draft,
    Sending,
    SendingOptions,
    SentMessage,
    TransactionEnd,
    send_message,
    sending_options,
)


class SendKind(StrEnum):
    """What is special about a message."""

    NORMAL = "normal"
    ORDERED = "ordered"
    LEVEL = "level"
    DELAY = "delay"
    AT = "at"
    TRANSACTION = "transaction"


_BY_TYPE = {
    "FIFO": SendKind.ORDERED,
    "DELAY": SendKind.LEVEL,
    "TRANSACTION": SendKind.TRANSACTION,
}


async def open_send_form(
    view: View,
    topic: str,
    *,
    draft: Draft | None = None,
    on_sent: Callable[[], object] = lambda: None,
) -> None:
    """Ask for a message and send it; the dialog stays for more, and shows where each is stored.

    Args:
        view: the page.
        topic: where it goes.
        draft: what the fields have at first, for a message that is edited and sent again.
        on_sent: called after each send.
    """
    try:
        options = await view.run(sending_options, topic=topic)
    except BolideError as error:
        view.tell_error(error)
        return
    _SendForm(view, options, draft or Draft(body=""), on_sent)


class _SendForm:
    def __init__(
        self, view: View, options: SendingOptions, draft: Draft, on_sent: Callable[[], object]
    ) -> None:
        self._view = view
        self._t = t = view.t
        self._options = options
        self._on_sent = on_sent
        title = t("Send a message to {topic}", topic=options.topic)
        with FormDialog(view, title, t("Send"), wide=True, stay=True) as form:
            with ui.element("div").classes("columns"):
                with ui.element("div").classes("dialog-body"):
                    self._add_content(draft)
                with ui.element("div").classes("dialog-body"):
                    self._add_kind(draft)
                    self._add_place()
            self._results = ui.element("div").classes("dialog-body").props("aria-live=polite")
        self._form = form
        form.on_submit(self._send)
        form.open()

    def _add_content(self, draft: Draft) -> None:
        t = self._t
        formats_of_body = {
            BodyFormat.TEXT: t("Text"),
            BodyFormat.JSON: "JSON",
            BodyFormat.HEX: t("Hexadecimal"),
        }
        self._format = fields.choice(t("Format of the body"), formats_of_body, draft.body_format)
        self._body = fields.area(t("Body"), draft.body, rows=8)
        self._tags = fields.text(t("Tag"), draft.tags)
        self._keys = fields.text(t("Keys"), " ".join(draft.keys), hint=t("Separated by blanks"))
        lines = "\n".join(f"{name}={value}" for name, value in draft.properties.items())
        self._properties = fields.area(
            t("Properties"), lines, rows=3, hint=t("One name=value per line")
        )

    def _add_kind(self, draft: Draft) -> None:
        t = self._t
        kinds = {
            SendKind.NORMAL: t("Normal"),
            SendKind.ORDERED: t("Ordered, by a sharding key"),
            SendKind.LEVEL: t("Delayed, by a level"),
            SendKind.DELAY: t("Delayed, by seconds"),
            SendKind.AT: t("Delivered at a time"),
            SendKind.TRANSACTION: t("Transactional"),
        }
        first = _kind_of(draft) or _BY_TYPE.get(self._options.message_type or "", SendKind.NORMAL)
        self._kind = fields.choice(t("Kind of message"), kinds, first)
        self._kind.on_value_change(lambda event: self._show_kind(SendKind(event.value)))
        self._sharding_key = fields.text(t("Sharding key"), draft.sharding_key)
        levels = {
            number: t("Level {number}: {delay}", number=number, delay=delay)
            for number, delay in enumerate(self._options.delay_levels, 1)
        }
        self._level = fields.choice(t("Delay level"), levels, draft.delay_level or 1)
        seconds = 10 if draft.delay_ms is None else draft.delay_ms / 1000
        self._delay = ui.number(label=t("Delay in seconds"), value=seconds, min=0)
        self._delay.props("outlined dense").classes("full")
        at = draft.deliver_at_ms or int((time.time() + 60) * 1000)
        text = datetime.fromtimestamp(at / 1000, self._view.time_zone).strftime("%Y-%m-%dT%H:%M:%S")
        self._at = fields.text(t("Time of delivery"), text).props("type=datetime-local step=1")
        self._at.props["hint"] = str(self._view.time_zone)
        ends = {
            TransactionEnd.COMMIT: t("Commit"),
            TransactionEnd.ROLLBACK: t("Roll back"),
            TransactionEnd.OPEN: t("Leave open"),
        }
        self._end = fields.choice(t("Outcome of the transaction"), ends, TransactionEnd.COMMIT)
        self._show_kind(first)

    def _add_place(self) -> None:
        t = self._t
        queues = {"": t("Chosen by the producer")}
        for each in self._options.queues:
            for number in range(min(each.queues, 64)):
                queues[f"{each.broker}\0{number}"] = t(
                    "{broker}, queue {number}", broker=each.broker, number=number
                )
        self._queue = fields.choice(t("Queue"), queues, "")
        self._count = fields.number(t("How many"), 1, minimum=1, maximum=MAX_COUNT)
        if self._options.message_type:
            note(t("Message type of the topic: {type}", type=self._options.message_type))

    def _show_kind(self, kind: SendKind) -> None:
        for field, own in (
            (self._sharding_key, SendKind.ORDERED),
            (self._level, SendKind.LEVEL),
            (self._delay, SendKind.DELAY),
            (self._at, SendKind.AT),
            (self._end, SendKind.TRANSACTION),
        ):
            field.set_visibility(kind is own)

    def _draft(self) -> Draft:
        kind = SendKind(self._kind.value)
        delay = self._delay.value if kind is SendKind.DELAY else None
        if kind is SendKind.ORDERED and not (self._sharding_key.value or "").strip():
            raise BadInput(self._t("Sharding key"), self._t("it is empty"))
        return Draft(
            body=self._body.value or "",
            body_format=BodyFormat(self._format.value),
            tags=self._tags.value or "",
            keys=(self._keys.value or "").split(),
            properties=name_values(self._view, self._t("Properties"), self._properties.value or ""),
            delay_level=int(self._level.value) if kind is SendKind.LEVEL else 0,
            delay_ms=None if delay is None else round(delay * 1000),
            deliver_at_ms=self._deliver_at() if kind is SendKind.AT else None,
            sharding_key=(self._sharding_key.value or "") if kind is SendKind.ORDERED else "",
        )

    def _deliver_at(self) -> int:
        try:
            at = datetime.fromisoformat(self._at.value)
        except ValueError:
            raise BadInput(self._t("Time of delivery"), self._t("it is not a time")) from None
        return round(at.replace(tzinfo=self._view.time_zone).timestamp() * 1000)

    async def _send(self) -> None:
        kind = SendKind(self._kind.value)
        broker, _, number = str(self._queue.value or "").partition("\0")
        done = await self._view.run(
            send_message,
            topic=self._options.topic,
            message=self._draft(),
            broker=broker,
            queue=int(number) if number else None,
            transaction=TransactionEnd(self._end.value) if kind is SendKind.TRANSACTION else None,
            count=int(self._count.value or 1),
        )
        self._show(done)
        self._on_sent()

    def _show(self, done: Sending) -> None:
        self._results.clear()
        with self._results:
            for each in done.messages[:5]:
                self._show_one(each)
            if len(done.messages) > 5:
                text = self._t("and {count} more", count=len(done.messages) - 5)
                ui.label(text).classes("small")
            if done.failure:
                note(done.failure, kind="danger", icon="error_outline")

    def _show_one(self, sent: SentMessage) -> None:
        t = self._t
        is_good = sent.status == "SEND_OK" and sent.transaction_confirmed is not False
        with ui.element("div").classes(f"note note-{'good' if is_good else 'warning'}"):
            ui.icon("check_circle" if is_good else "warning_amber").props("aria-hidden=true")
            with ui.element("div"):
                ui.label(self._outcome(sent))
                with ui.element("div").classes("sent-message"):
                    ui.link(sent.message_id, message_path(sent.topic, sent.message_id)).classes(
                        "mono"
                    )
                    copy = ui.button(
                        icon="content_copy", on_click=lambda: self._view.copy(sent.message_id)
                    )
                    copy.props("flat round dense size=sm")
                    copy.props["aria-label"] = t("Copy")

    def _outcome(self, sent: SentMessage) -> str:
        t = self._t
        if sent.is_duplicate:
            return t("The topic has a message with this key already: it was not stored again.")
        if sent.transaction_end is TransactionEnd.ROLLBACK:
            return t("Rolled back: consumers do not get it.")
        if sent.transaction_end is TransactionEnd.OPEN:
            return t("Left open: the broker asks for the outcome later.")
        place = t(
            "Stored in {broker}, queue {queue}, offset {offset}",
            broker=sent.broker, queue=sent.queue, offset=formats.count(sent.queue_offset),
        )  # fmt: skip
        return place if sent.status == "SEND_OK" else f"{place} ({sent.status})"


def message_path(topic: str, message_id: str) -> str:
    """The path of the page of a message."""
    return f"/messages/{quote(topic, safe='')}/{quote(message_id, safe='')}"


def _kind_of(draft: Draft) -> SendKind | None:
    if draft.delay_level:
        return SendKind.LEVEL
    if draft.delay_ms is not None:
        return SendKind.DELAY
    if draft.deliver_at_ms is not None:
        return SendKind.AT
    return SendKind.ORDERED if draft.sharding_key else None
