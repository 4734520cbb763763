"""The page of one message: its permalink."""

import base64
from contextlib import suppress
from urllib.parse import quote, urlencode

from nicegui import ui

from bolide.console.pages.declaration import page
from bolide.console.pages.messages.body import body_view
from bolide.console.pages.messages.resending import ask_for_consumer, ask_for_copy
from bolide.console.pages.messages.results import exact_time, no_such_id
from bolide.console.ui.formats import UNKNOWN, count, size
from bolide.console.ui.layout import facts, page_header, section_title
from bolide.console.ui.panels import Panel, note
from bolide.console.ui.tables import Column, DataTable, ListRequest, Row, simple_table
from bolide.console.ui.view import View, attempt
from bolide.operations.declaration import Role
from bolide.operations.errors import NotFound
from bolide.operations.messages.bodies import printable
from bolide.operations.messages.consumption import message_groups
from bolide.operations.messages.detail import message_body, view_message, view_message_at
from bolide.operations.messages.downloads import download_one
from bolide.operations.messages.views import (
    GroupState,
    MessageDetail,
    MessageInGroup,
    StateReason,
)
from bolide.operations.views import Page

TONES = {
    GroupState.CONSUMED: "good",
    GroupState.PENDING: "info",
    GroupState.FILTERED: "quiet",
    GroupState.RETRYING: "warning",
    GroupState.DEAD: "danger",
    GroupState.UNKNOWN: "quiet",
}


@page("/messages/{topic}/{message_id}", title="Message")
def message_page(view: View, topic: str, message_id: str) -> None:
    """One message: body, properties, and what became of it."""
    _MessagePage(view, topic, message_id)


class _MessagePage:
    def __init__(self, view: View, topic: str, message_id: str) -> None:
        self._view = view
        self._t = t = view.t
        self._topic = topic
        self._id = message_id
        self._named = {"topic": topic, "message_id": message_id}
        crumbs = [
            (t("Messages"), "/messages"),
            (topic, f"/messages?{urlencode({'topic': topic})}"),
        ]
        page_header(view, message_id, crumbs=crumbs, actions=self._actions)
        Panel(view, self._load, self._render)
        with ui.element("div") as self._groups:
            section_title(t("In the consumer groups"))
            self._group_table()

    def _group_table(self) -> None:
        t = self._t
        DataTable(
            self._view,
            [
                Column(name="group", label=t("Group"), kind="link"),
                Column(name="state", label=t("State"), kind="badge"),
                Column(name="reason", label=t("Why")),
                Column(name="offset", label=t("Committed offset"), kind="number"),
                Column(name="tries", label=t("Failed tries"), kind="number"),
                Column(name="clients", label=t("Connected consumers")),
            ],
            self._load_groups,
            self._group_row,
            label=t("In the consumer groups"),
            search=t("Search groups"),
            empty=t("No group consumes this topic."),
            prefix="g_",
        )

    def _actions(self) -> None:
        t = self._t
        trace = f"/traces/{quote(self._id, safe='')}?{urlencode({'topic': self._topic})}"
        ui.button(t("Trace"), icon="timeline", on_click=lambda: self._view.open(trace)).props(
            "outline no-caps"
        )
        ui.button(t("Download"), icon="download", on_click=self._download).props("outline no-caps")
        if self._view.may(Role.OPERATOR):
            ui.button(
                t("Hand to a consumer"),
                icon="replay",
                on_click=lambda: ask_for_consumer(self._view, self._topic, self._id),
            ).props("outline no-caps")
            ui.button(
                t("Send as a new message"),
                icon="forward_to_inbox",
                on_click=lambda: ask_for_copy(self._view, self._topic, self._id),
            ).props("outline no-caps")

    # ---- the message

    async def _load(self) -> MessageDetail | None:
        """The message; None if there is no such one."""
        with suppress(NotFound):
            return await self._view.run(view_message, topic=self._topic, message_id=self._id)
        place = _place_of(self._view.query.get("at", ""))
        if place is None:
            return None
        broker, queue_id, offset = place
        with suppress(NotFound):
            return await self._view.run(
                view_message_at, topic=self._topic, broker=broker, queue_id=queue_id, offset=offset
            )
        return None

    def _render(self, found: MessageDetail | None) -> None:
        self._groups.set_visibility(found is not None)
        if found is None:
            no_such_id(self._view)
        else:
            self._show(found)

    def _show(self, found: MessageDetail) -> None:
        t, row = self._t, found.row
        if found.copies > 1:
            by_id = urlencode({"topic": self._topic, "by": "id", "id": row.message_id})
            note(t("{count} stored messages have this id.", count=count(found.copies)))
            ui.link(t("Show all of them"), f"/messages?{by_id}")
        facts(
            {
                t("Stored"): exact_time(self._view, row.stored_ms),
                t("Made by the sender"): exact_time(self._view, row.born_ms),
                t("Queue and offset"): f"{row.broker}/{row.queue_id} @ {row.queue_offset}",
                t("Keys"): printable(", ".join(row.keys)) or UNKNOWN,
                t("Tags"): printable(row.tags or "") or UNKNOWN,
                t("Sender"): found.born_host,
                t("Broker"): found.store_host,
                t("Unique id"): row.message_id,
                t("Offset message id"): row.offset_message_id,
                t("Size"): size(row.size),
                t("Size of the record"): size(found.stored_size),
                t("Deliveries before"): count(row.reconsume_times),
                t("Transaction"): found.transaction or t("none"),
            }
        )
        section_title(t("Body"))
        body_view(self._view, found.body)
        if found.body.is_cut or found.body.text is None:
            ui.button(t("Download the body"), icon="download", on_click=self._download_body).props(
                "flat dense no-caps"
            )
        self._properties(found)

    def _properties(self, found: MessageDetail) -> None:
        t = self._t
        section_title(t("Properties"))
        rows = [
            {
                "key": name,
                "name": printable(name),
                "value": printable(value),
                "of": of,
                "of_tone": tone,
            }
            for pairs, of, tone in (
                (found.properties, t("sender"), "info"),
                (found.system_properties, t("system"), "quiet"),
            )
            for name, value in pairs.items()
        ]
        if not rows:
            ui.label(t("It has none.")).classes("page-subtitle")
            return
        columns = [
            Column(name="name", label=t("Name"), kind="code"),
            Column(name="value", label=t("Value"), kind="code"),
            Column(name="of", label=t("Set by"), kind="badge"),
        ]
        simple_table(columns, rows, label=t("Properties")).classes("property-table")

    async def _download(self) -> None:
        await attempt(self._view, self._save_line())

    async def _save_line(self) -> None:
        found = await self._view.run(download_one, topic=self._topic, message_id=self._id)
        with self._view.client:
            ui.download.content(found.lines, f"{_file_name(self._id)}.json")

    async def _download_body(self) -> None:
        await attempt(self._view, self._save_body())

    async def _save_body(self) -> None:
        found = await self._view.run(message_body, topic=self._topic, message_id=self._id)
        with self._view.client:
            ui.download.content(base64.b64decode(found.base64), f"{_file_name(self._id)}.bin")

    # ---- its groups

    async def _load_groups(self, wanted: ListRequest) -> Page[MessageInGroup]:
        return await self._view.run(
            message_groups,
            topic=self._topic,
            message_id=self._id,
            search=wanted.search,
            page=wanted.page,
            size=wanted.size,
        )

    def _group_row(self, found: MessageInGroup) -> Row:
        t = self._t
        clients = ", ".join(found.clients[:3])
        if len(found.clients) > 3:
            clients += " " + t("and {count} more", count=len(found.clients) - 3)
        states = {
            GroupState.CONSUMED: t("consumed"),
            GroupState.PENDING: t("not yet consumed"),
            GroupState.FILTERED: t("filtered out"),
            GroupState.RETRYING: t("being retried"),
            GroupState.DEAD: t("dead letter"),
            GroupState.UNKNOWN: t("unknown"),
        }
        offline = {None: UNKNOWN, False: t("none")}
        return {
            "key": found.group,
            "group": found.group,
            "group_href": f"/consumers/{quote(found.group, safe='')}",
            "state": states[found.state],
            "state_tone": TONES[found.state],
            "reason": self._reason(found),
            "offset": count(found.committed_offset),
            "tries": count(found.tries),
            "clients": clients or (UNKNOWN if found.online else offline[found.online]),
        }

    def _reason(self, found: MessageInGroup) -> str:
        """Why it is in its state, in the language of the page."""
        t = self._t
        named = {
            "offset": count(found.committed_offset),
            "filter": printable(found.filter or ""),
            "tries": count(found.tries),
            "distance": count(found.distance),
            "problem": found.problem or "",
        }
        texts = {
            StateReason.BROADCASTS: t(
                "The group broadcasts: each client gets every message and keeps its own offset."
            ),
            StateReason.OFFSET_NOT_TOLD: t("Its offset is not known: {problem}", **named),
            StateReason.OFFSETS_OUTSIDE: t(
                "The group pulls, and keeps its offsets outside of the brokers."
            ),
            StateReason.NO_OFFSET: t(
                "The group has no offset in this queue: it has consumed nothing there, or its"
                " consumers keep their offsets themselves."
            ),
            StateReason.NEXT: t("It is the next message of the group in this queue."),
            StateReason.AHEAD: t(
                "The group's offset {offset} is before it, {distance} messages away.", **named
            ),
            StateReason.NO_MATCH: t("The group's filter {filter} does not match it.", **named),
            StateReason.PASSED: t(
                "The group's offset {offset} is past it; what it subscribes to is not known while"
                " no consumer is connected.",
                **named,
            ),
            StateReason.PASSED_NOT_TRIED: t(
                "The group's offset {offset} is past it; its filter of type {filter} is not tried.",
                **named,
            ),
            StateReason.PASSED_AND_MATCHES: t(
                "The group's offset {offset} is past it, and its filter {filter} matches.", **named
            ),
            StateReason.PASSED_NO_MATCH: t(
                "The group's offset {offset} is past it, and its filter {filter} does not match.",
                **named,
            ),
            StateReason.AMONG_DEAD_LETTERS: t(
                "A copy is among the dead letters of the group; failed tries: {tries}.", **named
            ),
            StateReason.CONSUMED_AT_RETRY: t(
                "It was consumed from the retry topic; failed tries before: {tries}.", **named
            ),
            StateReason.AMONG_RETRIES: t(
                "A copy waits in the retry topic of the group; failed tries: {tries}.", **named
            ),
        }
        return texts[found.reason_code]


def _place_of(text: str) -> tuple[str, int, int] | None:
    """broker/queue/offset, as it is in the URL."""
    broker, _, rest = text.partition("/")
    queue_id, _, offset = rest.partition("/")
    if broker and queue_id.isdecimal() and offset.isdecimal():
        return broker, int(queue_id), int(offset)
    return None


def _file_name(text: str) -> str:
    return "".join(each for each in text if each.isalnum())[:80] or "message"
