"""Traces: search by key or id, and the time line of one message as a waterfall."""

from urllib.parse import quote, urlencode

from nicegui import ui

from bolide.console.pages.declaration import Section, page
from bolide.console.pages.messages.results import exact_time, path_of_message
from bolide.console.ui import fields
from bolide.console.ui.formats import UNKNOWN, count
from bolide.console.ui.layout import facts, page_header, section_title
from bolide.console.ui.panels import Panel, empty_state, failures_note, note
from bolide.console.ui.tables import Column, DataTable, ListRequest, Row
from bolide.console.ui.view import View
from bolide.model.names import TRACE_TOPIC
from bolide.operations.traces import (
    MessageTrace,
    TraceEvent,
    TraceSummary,
    find_traces,
    view_trace,
)
from bolide.operations.views import Page

_TONES = {"success": "good", "failed": "danger"}
_LEAST_WIDTH = 0.6
"""Percent of the waterfall: a bar of an instant is still seen."""


@page("/traces", title="Traces", section=Section.MESSAGING, icon="timeline", order=6)
def traces_page(view: View) -> None:
    """Search for traced messages."""
    page_header(view, view.t("Traces"))
    _Search(view)


class _Search:
    def __init__(self, view: View) -> None:
        self._view = view
        t = view.t
        query = view.query
        with ui.element("form").classes("panel message-form").props('onsubmit="return false"'):
            with ui.element("div").classes("filters"):
                self._key = fields.text(t("Key or message id"), query.get("key", ""))
                self._topic = fields.text(t("Topic"), query.get("topic", ""))
                self._trace_topic = fields.text(
                    t("Trace topic"), query.get("trace_topic", TRACE_TOPIC)
                )
            for field in (self._key, self._topic, self._trace_topic):
                field.on("keydown.enter", self._search)
            with ui.element("div").classes("button-row"):
                ui.button(t("Search"), icon="search", on_click=self._search).props(
                    "unelevated no-caps type=submit"
                )
        self._place = ui.element("div")
        with self._place:
            self._show()

    def _search(self) -> None:
        trace_topic = (self._trace_topic.value or "").strip()
        self._view.set_query(
            push=True,
            key=(self._key.value or "").strip(),
            topic=(self._topic.value or "").strip(),
            trace_topic=None if trace_topic == TRACE_TOPIC else trace_topic,
            page=None,
        )
        self._place.clear()
        with self._place:
            self._show()

    def _show(self) -> None:
        t = self._view.t
        if not self._view.query.get("key"):
            with ui.element("section").classes("panel"):
                empty_state(
                    t("Give a key or the id of a message."),
                    hint=t("Messages are traced if their clients have traces switched on."),
                )
            return
        DataTable(
            self._view,
            [
                Column(name="id", label=t("Message id"), kind="link"),
                Column(name="topic", label=t("Topic")),
                Column(name="tags", label=t("Tags"), kind="badge"),
                Column(name="keys", label=t("Keys")),
                Column(name="sent", label=t("Sent")),
                Column(name="attempts", label=t("Attempts to consume"), kind="number"),
                Column(name="failed", label=t("Failed"), kind="number"),
                Column(name="groups", label=t("Groups")),
            ],
            self._load,
            self._row,
            label=t("Traced messages"),
            empty=t("No trace has this key."),
            empty_hint=t("The clients may write no traces, or their trace is not stored yet."),
        )

    async def _load(self, wanted: ListRequest) -> Page[TraceSummary]:
        query = self._view.query
        return await self._view.run(
            find_traces,
            key=query.get("key", ""),
            topic=query.get("topic", ""),
            trace_topic=query.get("trace_topic", TRACE_TOPIC),
            page=wanted.page,
            size=wanted.size,
        )

    def _row(self, found: TraceSummary) -> Row:
        trace_topic = self._view.query.get("trace_topic", "")
        pairs = {"topic": found.topic or "", "trace_topic": trace_topic}
        query = urlencode({name: value for name, value in pairs.items() if value})
        return {
            "key": found.message_id,
            "id": found.message_id,
            "id_href": f"/traces/{quote(found.message_id, safe='')}?{query}",
            "topic": found.topic or UNKNOWN,
            "tags": found.tags or "",
            "tags_tone": "info",
            "keys": ", ".join(found.keys),
            "sent": exact_time(self._view, found.sent_ms),
            "attempts": count(found.attempts),
            "failed": count(found.failed_attempts),
            "groups": ", ".join(found.groups),
        }


@page("/traces/{message_id}", title="Trace")
def trace_page(view: View, message_id: str) -> None:
    """The time line of one message."""
    t = view.t
    page_header(view, message_id, crumbs=[(t("Traces"), "/traces")])

    async def load() -> MessageTrace:
        return await view.run(
            view_trace,
            message_id=message_id,
            topic=view.query.get("topic", ""),
            trace_topic=view.query.get("trace_topic", TRACE_TOPIC),
        )

    Panel(view, load, lambda found: _render(view, found))


def _render(view: View, found: MessageTrace) -> None:
    t = view.t
    failures_note(view, found.failures)
    facts(
        {
            t("Topic"): found.topic or UNKNOWN,
            t("Unique id"): found.message_id,
            t("Tags"): found.tags or UNKNOWN,
            t("Keys"): ", ".join(found.keys) or UNKNOWN,
            t("Kind"): found.message_type or UNKNOWN,
            t("Begin"): exact_time(view, found.began_ms),
            t("Known until"): exact_time(view, found.ended_ms),
        }
    )
    if found.message is not None:
        ui.link(t("Open the message"), path_of_message(found.message))
    if found.is_cut:
        note(t("There may be more records than the brokers return."), kind="warning")
    section_title(t("Time line"))
    if found.events:
        _waterfall(view, found)
        ui.label(t("Times are of the clocks of clients and brokers, which may differ.")).classes(
            "page-subtitle small"
        )
    missing = {
        "send": t("The send is unknown: its producer writes no traces, or they were deleted."),
        "store": t("The store is unknown: the message is not found."),
        "consume": t("No attempt to consume is known: none was made, or it was not traced."),
    }
    for each in found.missing:
        note(missing.get(each.partition(":")[0], each), icon="help_outline")


def _waterfall(view: View, found: MessageTrace) -> None:
    begin = found.began_ms
    span = max((found.ended_ms or 0) - (begin or 0), 1)
    with ui.element("div").classes("waterfall").props("role=list"):
        for event in found.events:
            with ui.element("div").classes("waterfall-row").props("role=listitem"):
                _label(view, event)
                with ui.element("div").classes("waterfall-lane").props("aria-hidden=true"):
                    if event.began_ms is not None and begin is not None:
                        left = min((event.began_ms - begin) / span * 100, 100 - _LEAST_WIDTH)
                        width = max((event.took_ms or 0) / span * 100, _LEAST_WIDTH)
                        bar = ui.element("div").classes(f"waterfall-bar bar-{_tone(event)}")
                        bar.style(f"left: {left:.3f}%; width: {min(width, 100 - left):.3f}%")
                _figures(view, event)


def _label(view: View, event: TraceEvent) -> None:
    t = view.t
    names = {
        "send": t("Send"),
        "store": t("Store"),
        "consume": t("Consume"),
        "transaction": t("End of the transaction"),
        "recall": t("Recall"),
    }
    with ui.element("div").classes("waterfall-label"):
        ui.label(names.get(event.kind, event.kind)).classes("waterfall-name")
        who = [each for each in (event.group, event.client, event.broker) if each]
        if event.attempt:
            who.insert(0, t("try {number}", number=event.attempt + 1))
        ui.label(" · ".join(who) or UNKNOWN).classes("small page-subtitle")


def _figures(view: View, event: TraceEvent) -> None:
    t = view.t
    statuses = {
        "success": t("succeeded"),
        "failed": t("failed"),
        "running or unknown": t("running or unknown"),
        "unknown": t("unknown"),
    }
    with ui.element("div").classes("waterfall-figures"):
        status = statuses.get(event.status, event.status)
        ui.label(status).classes(f"badge badge-{_tone(event)}")
        took = UNKNOWN if event.took_ms is None else f"{event.took_ms:,} ms"
        if event.kind == "store":
            took = ""
        since = "" if event.since_begin_ms is None else f"+{event.since_begin_ms:,} ms"
        ui.label(" · ".join(each for each in (since, took) if each)).classes("figure")
        at = exact_time(view, event.began_ms)
        detail = event.detail or ""
        ui.label(" · ".join(each for each in (at, detail) if each)).classes("small page-subtitle")


def _tone(event: TraceEvent) -> str:
    if event.kind == "store":
        return "info"
    if event.kind == "transaction":
        return "warning" if "ROLLBACK" in event.status else "good"
    return _TONES.get(event.status, "quiet")
