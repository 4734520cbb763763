"""What a search has found, how far it got, and how it goes on."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from nicegui import ui

from bolide.console.pages.messages.body import body_view
from bolide.console.pages.messages.query import By, MessageQuery
from bolide.console.ui.formats import UNKNOWN, count, moment, size
from bolide.console.ui.panels import (
    Poll,
    empty_state,
    error_state,
    failures_note,
    loading,
    note,
)
from bolide.console.ui.tables import Action, Column, Row, simple_table
from bolide.console.ui.view import View, attempt
from bolide.errors import BolideError
from bolide.operations.errors import NotFound
from bolide.operations.messages.detail import view_message
from bolide.operations.messages.downloads import download_messages
from bolide.operations.messages.lookup import find_by_id, find_by_key
from bolide.operations.messages.search import search_messages
from bolide.operations.messages.tail import tail_messages
from bolide.operations.messages.views import MessageList, MessageRow, TailBatch
from bolide.operations.views import Failure

_SIZE = 50
_TAIL_ROWS = 200
_SHORTEN = 80
_NOTHING = MessageList(items=[], next=None, previous=None, scanned=0, remaining=0, reached_ms=None)


class Results:
    """The messages of the present search; a selective one goes on until it has a page full."""

    def __init__(self, view: View, turn: Callable[[MessageQuery], None]) -> None:
        """Create it in the current place; `turn` goes to another part of the search."""
        self._view = view
        self._t = view.t
        self._turn = turn
        self._query = MessageQuery()
        self._search_number = 0
        self._is_stopped = False
        self._rows: list[MessageRow] = []
        self._tail_cursor = ""
        self._skipped = 0
        with ui.element("section").classes("data-table") as self.element:
            self.element.props["aria-label"] = view.t("Found messages")
            with ui.element("div").classes("toolbar") as self._toolbar:
                self._progress = ui.label("").classes("message-progress").props("role=status")
                self._stop = ui.button(view.t("Stop"), icon="stop", on_click=self._stop_now)
                self._stop.props("flat dense no-caps")
                self._pause = ui.button(view.t("Pause"), icon="pause", on_click=self._pause_now)
                self._pause.props("flat dense no-caps")
                ui.space()
                self._download = ui.button(
                    view.t("Download found"), icon="download", on_click=self._download_now
                )
                self._download.props("flat dense no-caps")
            self._body = ui.element("div").classes("table-body")
            self._footer = ui.element("div").classes("table-footer")
        self._show_buttons()
        with self._body:
            empty_state(
                view.t("Choose a topic."), hint=view.t("Its newest messages are shown at once.")
            )
        self._poll: Poll[Any] | None = None
        self._follow: Poll[Any] | None = None

    def start(self, query: MessageQuery) -> None:
        """Show the results of another search."""
        self._search_number += 1
        self._query, self._is_stopped = query, False
        self._rows, self._tail_cursor, self._skipped = [], "", 0
        self._footer.clear()
        self._body.clear()
        with self._body:
            loading()
        self._progress.text = ""
        self._show_buttons()
        with self.element:
            if self._poll is None:
                self._poll = Poll(self._view, self._load, self._show, on_error=self._show_error)
            else:
                self._poll.now()
            if query.by == By.TAIL and self._follow is None:
                self._follow = Poll(
                    self._view, self._load_tail, self._show_tail, on_error=self._show_error, every=1
                )

    # ---- searches

    async def _load(self) -> tuple[int, MessageList | None]:
        query, number = self._query, self._search_number
        if query.by == By.TAIL:
            return number, None
        if query.by == By.ID:
            try:
                found = await self._view.run(find_by_id, topic=query.topic, message_id=query.id)
            except NotFound:
                return number, _NOTHING
        elif query.by == By.KEY:
            found = await self._view.run(find_by_key, topic=query.topic, **query.key_arguments())
        else:
            found = await self._view.run(search_messages, size=_SIZE, **query.arguments)
            found = await self._go_on(query, number, found)
        return number, found

    async def _go_on(self, query: MessageQuery, number: int, first: MessageList) -> MessageList:
        """Search on until a page is full, everything was looked at, or the user stops it."""
        found = first
        while (
            len(found.items) < _SIZE
            and found.next
            and not found.failures
            and number == self._search_number
            and not self._is_stopped
            and not self.element.is_deleted
        ):
            self._show_progress(found, is_searching=True)
            arguments = {**query.arguments, "cursor": found.next}
            missing = _SIZE - len(found.items)
            part = await self._view.run(search_messages, size=missing, **arguments)
            found = replace(
                part,
                items=found.items + part.items,
                previous=found.previous,
                scanned=found.scanned + part.scanned,
            )
        return found

    def _show(self, answer: tuple[int, MessageList | None]) -> None:
        number, found = answer
        if number != self._search_number or found is None:
            return
        self._rows = found.items
        self._show_buttons()
        self._body.clear()
        with self._body:
            failures_note(self._view, found.failures)
            self._note_offset(found)
            if found.items:
                self._table(found.items)
            elif found.next:
                empty_state(
                    self._t("Nothing found so far."), hint=self._t("Go on to search further.")
                )
            elif self._query.by == By.ID:
                no_such_id(self._view)
            else:
                empty_state(self._t("No message matches."), hint=self._hint_of_nothing())
        self._show_progress(found, is_searching=False)
        self._show_footer(found)

    def show_unknown_topic(self) -> None:
        """Say that the id that is searched does not lead to a topic."""
        t = self._t
        self._body.clear()
        with self._body:
            empty_state(t("The id alone does not tell the topic."), hint=t("Give a topic."))

    def _note_offset(self, found: MessageList) -> None:
        """Tell if the offset that was asked for is not one of the queue."""
        t, place = self._t, self._query.place
        if self._query.by != By.QUEUE or self._query.cursor or "offset" not in place:
            return
        offset = place["offset"]
        for queue in found.queues:
            if (queue.broker, queue.queue_id) != (place["broker"], place["queue_id"]):
                continue
            if offset >= queue.high:
                last = count(queue.high - 1)
                note(t("The queue ends at offset {last}.", last=last), kind="warning")
            elif offset < queue.low:
                note(t("The queue begins at offset {first}.", first=count(queue.low)))

    def _hint_of_nothing(self) -> str:
        t, query = self._t, self._query
        if query.by == By.KEY:
            return t("Messages of the last second may not be in the index yet.")
        if query.filters or query.times or query.place:
            return t("Everything in this range was looked at.")
        return t("The topic has no messages.")

    def _show_error(self, error: BolideError) -> None:
        self._progress.text = ""
        self._body.clear()
        self._footer.clear()
        with self._body:
            error_state(self._view, error, lambda: self.start(self._query))

    def _show_progress(self, found: MessageList, *, is_searching: bool) -> None:
        t = self._t
        self._stop.set_visibility(is_searching)
        parts = [t("{count} found", count=count(len(found.items)))]
        if self._query.by in {By.TIME, By.QUEUE}:
            parts.append(t("{count} looked at", count=count(found.scanned)))
            if found.remaining is not None and found.remaining > 0:
                parts.append(t("{count} left", count=count(found.remaining)))
            if found.next and found.reached_ms is not None:
                reached = moment(self._view, found.reached_ms)
                parts.append(t("reached {time}", time=reached))
        text = " · ".join(parts)
        self._progress.text = t("Searching: {progress}", progress=text) if is_searching else text

    def _show_footer(self, found: MessageList) -> None:
        t = self._t
        is_newest = self._query.order == "newest"
        back, onwards = (t("Newer"), t("Older")) if is_newest else (t("Older"), t("Newer"))
        self._footer.clear()
        with self._footer:
            if self._query.cursor:
                self._turn_button(t("To the beginning"), "first_page", "")
            if found.previous:
                self._turn_button(back, "chevron_left", found.previous)
            if found.next:
                is_full = len(found.items) >= _SIZE or self._query.by == By.KEY
                text = onwards if is_full else t("Search on")
                self._turn_button(text, "chevron_right", found.next)

    def _turn_button(self, text: str, icon: str, cursor: str) -> None:
        query = replace(self._query, cursor=cursor)
        ui.button(text, icon=icon, on_click=lambda: self._turn(query)).props("flat dense no-caps")

    def _stop_now(self) -> None:
        self._is_stopped = True
        self._stop.set_visibility(False)

    # ---- live tail

    async def _load_tail(self) -> tuple[int, TailBatch | None]:
        number, query = self._search_number, self._query
        if query.by != By.TAIL or self._is_stopped:
            return number, None
        found = await self._view.run(
            tail_messages, topic=query.topic, cursor=self._tail_cursor, **query.filters
        )
        return number, found

    def _show_tail(self, answer: tuple[int, TailBatch | None]) -> None:
        number, batch = answer
        if number != self._search_number or batch is None:
            return
        is_first = not self._tail_cursor
        if self._is_stopped and not is_first:
            return  # it was asked for before the pause; the next batch has it, too
        self._tail_cursor = batch.next
        self._skipped += batch.skipped
        if batch.items or is_first or batch.failures:
            self._rows = [*reversed(batch.items), *self._rows][:_TAIL_ROWS]
            self._body.clear()
            with self._body:
                self._tail_rows(batch.failures)
        self._show_tail_progress()
        self._show_buttons()

    def _show_tail_progress(self) -> None:
        t = self._t
        parts = [
            t("Paused") if self._is_stopped else t("Live"),
            t("{count} shown", count=count(len(self._rows))),
        ]
        if self._skipped:
            parts.append(t("{count} skipped", count=count(self._skipped)))
        self._progress.text = " · ".join(parts)

    def _tail_rows(self, failures: list[Failure]) -> None:
        failures_note(self._view, failures)
        if self._skipped:
            text = self._t("More comes in than is shown; filters make it fewer.")
            note(text, kind="warning", icon="speed")
        if self._rows:
            self._table(self._rows)
        else:
            empty_state(
                self._t("Waiting for messages…"),
                hint=self._t("New ones appear here as they are stored."),
            )

    def _pause_now(self) -> None:
        self._is_stopped = not self._is_stopped
        self._show_buttons()
        self._show_tail_progress()

    def _show_buttons(self) -> None:
        self._pause.text = self._t("Go on") if self._is_stopped else self._t("Pause")
        self._pause.props("icon=play_arrow" if self._is_stopped else "icon=pause")
        is_tail = self._query.by == By.TAIL
        self._stop.set_visibility(False)
        self._pause.set_visibility(is_tail and bool(self._query.topic))
        self._download.set_visibility(bool(self._rows) and self._query.by in {By.TIME, By.QUEUE})

    # ---- rows

    def _table(self, rows: list[MessageRow]) -> None:
        t = self._t
        columns = [
            Column(name="time", label=t("Stored"), kind="link"),
            Column(name="keys", label=t("Keys")),
            Column(name="tags", label=t("Tags"), kind="badge"),
            Column(name="preview", label=t("Body"), kind="code"),
            Column(name="size", label=t("Size"), kind="number"),
            Column(name="place", label=t("Queue and offset"), kind="code"),
        ]
        look = Action(name="look", label=t("Look at"), icon="visibility", handler=self._look)
        table = simple_table(
            columns,
            [self._row(each) for each in rows],
            label=t("Found messages"),
            actions=[look],
            actions_label=t("Actions"),
        )
        table.classes("message-table")

    def _row(self, row: MessageRow) -> Row:
        return {
            "key": f"{row.broker}/{row.queue_id}@{row.queue_offset}",
            "id": row.offset_message_id,
            "topic": row.topic,
            "time": exact_time(self._view, row.stored_ms),
            "time_href": path_of_message(row),
            "time_hint": row.message_id,
            "keys": ", ".join(row.keys)[:_SHORTEN],
            "tags": (row.tags or "")[:_SHORTEN],
            "tags_tone": "info",
            "preview": row.preview,
            "size": size(row.size),
            "place": f"{row.broker}/{row.queue_id} @ {row.queue_offset}",
        }

    async def _look(self, row: Row) -> None:
        await attempt(self._view, self._open_dialog(row))

    async def _open_dialog(self, row: Row) -> None:
        """Show a message without leaving the list."""
        found = await self._view.run(view_message, topic=row["topic"], message_id=row["id"])
        with self._view.client, ui.dialog() as dialog:
            dialog.props["aria-label"] = self._t("Message")
            with ui.card().classes("dialog dialog-wide"):
                ui.label(found.row.message_id).classes("dialog-title mono")
                with ui.element("div").classes("dialog-body"):
                    body_view(self._view, found.body)
                    for name, value in found.properties.items():
                        ui.label(f"{name} = {value}").classes("mono")
                with ui.element("div").classes("dialog-buttons"):
                    ui.link(self._t("Open its page"), row["time_href"])
                    ui.button(self._t("Close"), on_click=dialog.close).props("flat no-caps")
        dialog.on("hide", dialog.delete)
        dialog.open()

    async def _download_now(self) -> None:
        await attempt(self._view, self._save())

    async def _save(self) -> None:
        arguments = {**self._query.arguments}
        found = await self._view.run(download_messages, **arguments)
        with self._view.client:
            ui.download.content(found.lines, f"{_file_name(self._query.topic)}.jsonl")
        text = self._t("{count} messages downloaded", count=count(found.count))
        if found.next:
            text += " · " + self._t("there are more: narrow the search, or use the API")
        self._view.tell(text)


def no_such_id(view: View) -> None:
    """The topic has no such message: not an error."""
    t = view.t
    hint = t("It was never stored, was deleted with its log file, or is not in the index yet.")
    empty_state(t("No message of the topic has this id."), hint=hint)


def exact_time(view: View, milliseconds: int | None) -> str:
    """A time with its milliseconds."""
    if milliseconds is None or milliseconds <= 0:
        return UNKNOWN
    try:
        at = datetime.fromtimestamp(milliseconds / 1000, view.time_zone)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return f"{at:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03d}"


def path_of_message(row: MessageRow) -> str:
    """The page of just this message; its place helps if the index does not know the id."""
    place = urlencode({"at": f"{row.broker}/{row.queue_id}/{row.queue_offset}"})
    topic, message_id = quote(row.topic, safe=""), quote(row.offset_message_id, safe="")
    return f"/messages/{topic}/{message_id}?{place}"


def _file_name(text: str) -> str:
    return "".join(each if each.isalnum() or each in "-_" else "_" for each in text)[:80]
