"""Dead letters: the groups that have some, and those of one group with filters and actions."""

from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from nicegui import ui

from bolide.console.pages.dead_letters.detail import RedriveDialog
from bolide.console.pages.dead_letters.jobs import jobs_panel, letter_path
from bolide.console.pages.declaration import Section, page
from bolide.console.ui.cursor_tables import CursorTable, Part
from bolide.console.ui.dialogs import confirm_and_run
from bolide.console.ui.formats import ago, count, moment, size
from bolide.console.ui.layout import Figure, page_header, section_title, tabs
from bolide.console.ui.panels import Panel, Poll, failures_note, note
from bolide.console.ui.props import set_props
from bolide.console.ui.tables import Column, DataTable, ListRequest, Row, simple_table
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.operations.dead_letters.listing import (
    dead_letter_reasons,
    list_dead_letter_groups,
    list_dead_letters,
    show_dead_letter_group,
)
from bolide.operations.dead_letters.redrives import purge_dead_letters
from bolide.operations.dead_letters.views import (
    DeadLetterGroup,
    Letter,
    LetterState,
    Reasons,
)
from bolide.operations.declaration import Role
from bolide.operations.errors import BadInput
from bolide.operations.views import Page

_TEXT_FILTERS = ("text", "reason", "key", "tags", "topic", "message_id")
_TIME_FILTERS = ("begin", "end")


@page("/dead-letters", title="Dead letters", section=Section.MESSAGING, icon="report", order=5)
def dead_letters_page(view: View) -> None:
    """All groups with counts and ages."""
    t = view.t
    page_header(
        view,
        t("Dead letters"),
        subtitle=t("Messages that consumers gave up after too many tries."),
    )

    async def load(request: ListRequest) -> Page[DeadLetterGroup]:
        # Without a choice the operation sorts as it can: by time, or by name if there are many.
        chosen = "" if request.sort == "newest" and request.descending else request.sort
        try:
            return await ask(request, chosen)
        except BadInput as error:
            view.tell_error(error)
            return await ask(request, "")

    async def ask(request: ListRequest, sort: str) -> Page[DeadLetterGroup]:
        return await view.run(
            list_dead_letter_groups,
            search=request.search,
            sort=sort,
            descending=request.descending,
            page=request.page,
            size=request.size,
        )

    columns = [
        Column(name="group", label=t("Group"), kind="link", sortable=True),
        Column(name="messages", label=t("Messages"), kind="number", sortable=True),
        Column(name="oldest", label=t("Oldest"), sortable=True),
        Column(name="newest", label=t("Newest"), sortable=True),
        Column(name="partial", label="", kind="badge"),
    ]
    DataTable(
        view,
        columns,
        load,
        lambda each: _group_row(view, each),
        label=t("Groups with dead letters"),
        search=t("Search groups"),
        sort="newest",
        descending=True,
        every=5.0,
        empty=t("No consumer group has dead letters."),
        empty_hint=t("The first message that a group gives up creates its topic of dead letters."),
    )
    section_title(t("Jobs"))
    jobs_panel(view)


def _group_row(view: View, each: DeadLetterGroup) -> Row:
    row: Row = {
        "key": each.group,
        "group": each.group,
        "group_href": f"/dead-letters/{quote(each.group, safe='')}",
        "messages": count(each.messages),
        "oldest": ago(view, each.oldest_ms),
        "newest": ago(view, each.newest_ms),
        "partial": "",
    }
    if each.oldest_ms is not None:
        row["oldest_hint"] = moment(view, each.oldest_ms)
    if each.newest_ms is not None:
        row["newest_hint"] = moment(view, each.newest_ms)
    if each.is_partial:
        row |= {"partial": view.t("incomplete"), "partial_tone": "warning"}
        row["partial_hint"] = view.t("A broker did not answer: there may be more.")
    return row


@page("/dead-letters/{group}", title="Dead letters of a group")
def dead_letter_group_page(view: View, group: str) -> None:
    """The dead letters of one group."""
    _GroupPage(view, group)


class _GroupPage:
    def __init__(self, view: View, group: str) -> None:
        self._view = view
        self._t = t = view.t
        self._group = group
        self._filters: dict[str, str] = {}
        self._selected: list[str] = []
        self._send: ui.button | None = None
        self._table: CursorTable[Letter] | None = None
        page_header(
            view,
            group,
            subtitle=t("Dead letters of a group"),
            crumbs=[(t("Dead letters"), "/dead-letters")],
            actions=self._actions,
        )
        with ui.element("div").classes("figures"):
            self._messages = Figure(t("Dead letters"))
            self._oldest = Figure(t("Oldest"))
            self._newest = Figure(t("Newest"))
        Poll(view, self._load_group, self._show_group, on_error=self._no_group, every=5.0)
        names = {"letters": t("Messages"), "reasons": t("Reasons"), "jobs": t("Jobs")}
        tabs(view, names, self._build_tab)

    def _actions(self) -> None:
        t = self._t
        place = f"/consumers/{quote(self._group, safe='')}"
        ui.button(t("Consumer group"), on_click=lambda: self._view.open(place)).props(
            "outline no-caps icon=groups"
        )
        if self._view.may(Role.OPERATOR):
            ui.button(t("Delete all"), on_click=self._purge).props(
                "outline no-caps color=negative icon=delete_sweep"
            )

    async def _load_group(self) -> DeadLetterGroup:
        return await self._view.run(show_dead_letter_group, group=self._group)

    def _show_group(self, group: DeadLetterGroup) -> None:
        view, t = self._view, self._t
        hint = t("incomplete") if group.is_partial else ""
        self._messages.set(
            count(group.messages), hint=hint, tone="danger" if group.messages else ""
        )
        self._oldest.set(ago(view, group.oldest_ms), hint=_moment_or_nothing(view, group.oldest_ms))
        self._newest.set(ago(view, group.newest_ms), hint=_moment_or_nothing(view, group.newest_ms))

    def _no_group(self, _: BolideError) -> None:
        """The list below tells why."""
        for figure in (self._messages, self._oldest, self._newest):
            figure.set("—")

    def _build_tab(self, name: str) -> None:
        if name == "letters":
            self._build_letters()
        elif name == "reasons":
            self._build_reasons()
        else:
            jobs_panel(self._view, target=self._group)

    def _build_letters(self) -> None:
        t = self._t
        query = self._view.query
        names = (*_TEXT_FILTERS, *_TIME_FILTERS)
        self._filters = {name: query[name] for name in names if query.get(name)}
        self._selected = []
        self._filter_row()
        columns = [
            Column(name="died", label=t("Given up")),
            Column(name="message", label=t("Message"), kind="link"),
            Column(name="reason", label=t("Reason")),
            Column(name="keys", label=t("Keys")),
            Column(name="tags", label=t("Tag")),
            Column(name="topic", label=t("Topic")),
            Column(name="tries", label=t("Tries"), kind="number"),
            Column(name="state", label=t("State"), kind="badge"),
            Column(name="body", label=t("Body"), kind="code"),
        ]
        self._table = CursorTable(
            self._view,
            columns,
            self._load_letters,
            self._row,
            label=t("Dead letters"),
            empty=t("No dead letter matches."),
            on_select=self._select if self._view.may(Role.OPERATOR) else None,
            toolbar=self._toolbar,
        )

    def _filter_row(self) -> None:
        t = self._t
        labels = {
            "text": t("Text in body, keys or properties"),
            "reason": t("Reason"),
            "key": t("Key"),
            "tags": t("Tag"),
            "topic": t("Topic"),
            "message_id": t("Message id"),
        }
        with ui.element("section").classes("panel filters"):
            for name in _TEXT_FILTERS:
                self._filter(name, labels[name])
            self._filter("begin", t("Given up from"), kind="datetime-local")
            self._filter("end", t("Given up before"), kind="datetime-local")

    def _filter(self, name: str, label: str, *, kind: str = "text") -> None:
        field = ui.input(label=label, value=self._filters.get(name, ""))
        field.props("outlined dense clearable debounce=400 autocomplete=off")
        set_props(field, type=kind)
        if kind != "text":
            field.props("stack-label step=1")

        def changed(event: Any) -> None:
            value = str(event.value or "").strip()
            if value == self._filters.get(name, ""):
                return
            self._filters.pop(name, None)
            if value:
                self._filters[name] = value
            self._view.set_query(push=False, **{name: value})
            if self._table is not None:
                self._table.first_page()
            self._label_buttons()

        field.on_value_change(changed)

    def _toolbar(self) -> None:
        t = self._t
        if self._view.may(Role.OPERATOR):
            self._send = ui.button(on_click=self._redrive).props(
                "unelevated no-caps color=primary icon=replay"
            )
            self._label_buttons()
        ui.button(t("Refresh"), on_click=self._reload).props("flat no-caps icon=refresh")
        with ui.button(t("Export")).props("flat no-caps icon=download"), ui.menu():
            ui.menu_item("CSV", on_click=lambda: self._export("csv"))
            ui.menu_item("JSON", on_click=lambda: self._export("json"))

    def _label_buttons(self) -> None:
        if self._send is None:
            return
        t = self._t
        if self._selected:
            self._send.text = t("Send {count} selected again", count=count(len(self._selected)))
        elif self._filters:
            self._send.text = t("Send all that match again")
        else:
            self._send.text = t("Send all again")

    def _select(self, rows: list[Row]) -> None:
        self._selected = [row["key"] for row in rows]
        self._label_buttons()

    def _arguments(self) -> dict[str, Any]:
        """The filters as parameters of operations; raises BadInput."""
        found: dict[str, Any] = {
            name: value for name, value in self._filters.items() if name in _TEXT_FILTERS
        }
        for name in _TIME_FILTERS:
            if value := self._filters.get(name):
                found[f"{name}_ms"] = _milliseconds(self._view, name, value)
        return found

    async def _load_letters(self, cursor: str, wanted: int) -> Part[Letter]:
        t = self._t
        found = await self._view.run(
            list_dead_letters,
            group=self._group,
            state=True,
            cursor=cursor,
            size=wanted,
            **self._arguments(),
        )
        summary = t(
            "{shown} shown; {scanned} of {total} read for this",
            shown=count(len(found.items)),
            scanned=count(found.scanned),
            total=count(found.total),
        )
        return Part(items=found.items, next=found.next, summary=summary, failures=found.failures)

    def _row(self, each: Letter) -> Row:
        view = self._view
        text, tone = state_of(view, each)
        return {
            "key": each.position,
            "died": moment(view, each.died_ms),
            "died_hint": ago(view, each.died_ms),
            "message": each.message_id,
            "message_href": letter_path(self._group, each.position),
            "state": text,
            "state_tone": tone,
            "topic": each.origin_topic or "—",
            "keys": " ".join(each.keys),
            "tags": each.tags or "",
            "tries": count(each.tries),
            "reason": each.reason[:60],
            "reason_hint": each.reason,
            "body": each.body_preview[:60],
            "body_hint": size(each.size),
        }

    def _redrive(self) -> None:
        try:
            arguments = {"positions": self._selected} if self._selected else self._arguments()
        except BadInput as error:
            self._view.tell_error(error)
            return
        RedriveDialog(self._view, self._group, arguments).open()

    def _reload(self) -> None:
        if self._table is not None:
            self._table.reload()

    def _export(self, to: str) -> None:
        try:
            arguments = self._arguments()
        except BadInput as error:
            self._view.tell_error(error)
            return
        query = urlencode({"format": to} | arguments)
        path = f"/api/v1/dead-letters/{quote(self._group, safe='')}/export?{query}"
        with self._view.client:
            ui.download.from_url(path)

    def _build_reasons(self) -> None:
        async def load() -> Reasons:
            return await self._view.run(dead_letter_reasons, group=self._group)

        Panel(
            self._view,
            load,
            self._render_reasons,
            is_empty=lambda found: not found.items,
            empty=self._t("There are no dead letters now."),
        )

    def _render_reasons(self, found: Reasons) -> None:
        view, t = self._view, self._t
        failures_note(view, found.failures)
        if found.scanned < found.total:
            text = t(
                "Only the newest {scanned} of {total} dead letters were read.",
                scanned=count(found.scanned),
                total=count(found.total),
            )
            note(text)
        columns = [
            Column(name="reason", label=t("Reason"), kind="link"),
            Column(name="messages", label=t("Messages"), kind="number"),
            Column(name="oldest", label=t("Oldest")),
            Column(name="newest", label=t("Newest")),
        ]
        path = f"/dead-letters/{quote(self._group, safe='')}"
        rows = [
            {
                "key": each.reason,
                "reason": each.reason,
                "reason_href": f"{path}?{urlencode({'reason': each.reason})}",
                "messages": count(each.messages),
                "oldest": moment(view, each.oldest_ms),
                "newest": moment(view, each.newest_ms),
            }
            for each in found.items
        ]
        simple_table(columns, rows, label=t("Reasons"))

    async def _purge(self) -> None:
        t = self._t

        def show(effect: DeadLetterGroup) -> None:
            text = t(
                "{count} dead letters are deleted for good. They cannot be restored.",
                count=count(effect.messages),
            )
            note(text, kind="danger", icon="warning_amber")

        await confirm_and_run(
            self._view,
            purge_dead_letters,
            {"group": self._group},
            title=t("Delete all dead letters of {group}?", group=self._group),
            button=t("Delete"),
            show_effect=show,
            typed_name=self._group,
            done=t("The dead letters of {group} are deleted.", group=self._group),
            on_done=lambda _: self._view.open("/dead-letters"),
        )


def state_of(view: View, letter: Letter) -> tuple[str, str]:
    """Whether a dead letter was sent again, as the text and the tone of a badge."""
    t = view.t
    states = {
        LetterState.NEW: (t("not sent again"), "quiet"),
        LetterState.RESENT: (t("sent again"), "good"),
        LetterState.STUCK: (t("no topic to go to"), "warning"),
    }
    return states[letter.state] if letter.state is not None else ("—", "quiet")


def _moment_or_nothing(view: View, at: int | None) -> str:
    return "" if at is None else moment(view, at)


def _milliseconds(view: View, name: str, text: str) -> int:
    """A time as an input of a browser gives it, in the time zone of the page."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(name, view.t("{text} is not a time", text=text)) from None
    return int(at.replace(tzinfo=view.time_zone).timestamp() * 1000)
