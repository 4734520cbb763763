"""Messages: the search form. All of it is in the URL, so that a search can be passed on."""

import asyncio
import json
from dataclasses import replace

from nicegui import background_tasks, ui

from bolide.console.pages.declaration import Section, page
from bolide.console.pages.messages.query import (
    CUSTOM,
    By,
    MessageQuery,
    local_text,
    milliseconds_text,
)
from bolide.console.pages.messages.results import Results
from bolide.console.ui import fields
from bolide.console.ui.layout import page_header
from bolide.console.ui.panels import Poll
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.operations.errors import NotFound
from bolide.operations.messages.places import locate_message, message_queues, suggest_topics
from bolide.operations.messages.views import Order

_FILTERED = {By.TIME, By.KEY, By.QUEUE, By.TAIL}
_TIMED = {By.TIME, By.KEY}
_TYPING = 0.3
"""Seconds between two keys, at most."""


@page("/messages", title="Messages", section=Section.MESSAGING, icon="mail", order=4)
def messages_page(view: View) -> None:
    """Search, browse and follow the messages of a topic."""
    page_header(view, view.t("Messages"))
    _Search(view)


class _Search:
    """The form; `results` shows what it finds."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._t = view.t
        self._query = MessageQuery.of(view.query)
        with ui.element("form").classes("panel message-form").props('onsubmit="return false"'):
            self._build_head()
            self._build_filters()
            self._build_buttons()
        self._results = Results(view, self._turn)
        self._show_fields()
        # Suggestions and queues are asked for when they are needed: the messages come first.
        self._topic.on("focus", self._topic_changed)
        self._by.on_value_change(self._topic_changed)
        if self._query.topic:
            self._results.start(self._query)
            if self._query.by == By.QUEUE:
                Poll(view, self._load_queues, self._set_queues, on_error=lambda _: None)
        elif self._query.id:
            Poll(view, self._locate, lambda _: None)

    # ---- fields

    def _build_head(self) -> None:
        t, query = self._t, self._query
        with ui.element("div").classes("filters"):
            self._topic = fields.text(t("Topic"), query.topic)
            self._topic.on_value_change(self._topic_changed)
            self._topic.on("keydown.enter", self._search)
            ways = {
                By.TIME: t("Time"),
                By.KEY: t("Key"),
                By.ID: t("Message id"),
                By.QUEUE: t("Queue and offset"),
                By.TAIL: t("Live tail"),
            }
            self._by = fields.choice(
                t("Find by"), ways, By(query.by), on_change=lambda _: self._show_fields()
            )
            self._id = self._text_field(t("Message id"), query.id)
            self._indexed_key = self._text_field(t("Key"), query.key if query.by == By.KEY else "")
            self._queue = fields.choice(t("Queue"), self._queue_options([]), query.queue)
            self._offset = self._text_field(t("From offset"), query.offset)
            ranges = {
                "": t("All times"),
                "15m": t("Last 15 minutes"),
                "1h": t("Last hour"),
                "6h": t("Last 6 hours"),
                "1d": t("Last 24 hours"),
                "7d": t("Last 7 days"),
                CUSTOM: t("From … to …"),
            }
            chosen = query.range if query.range in ranges else ""
            self._range = fields.choice(
                t("Stored"), ranges, chosen, on_change=lambda _: self._show_fields()
            )
            zone = self._view.time_zone
            self._begin = fields.text(t("From"), local_text(query.begin, zone))
            self._end = fields.text(t("To"), local_text(query.end, zone))
            for field in (self._begin, self._end):
                field.props("type=datetime-local step=1 stack-label")
            orders = {Order.NEWEST: t("Newest first"), Order.OLDEST: t("Oldest first")}
            self._order = fields.choice(t("Order"), orders, Order(query.order))

    def _build_filters(self) -> None:
        t, query = self._t, self._query
        is_open = bool(query.filters) and query.by != By.KEY
        self._more = ui.expansion(t("Filters"), icon="filter_alt", value=is_open)
        self._more.props("dense").classes("message-filters")
        with self._more, ui.element("div").classes("filters"):
            self._tags = self._text_field(t("Tags"), query.tags, "TagA || TagB")
            self._key = self._text_field(t("Key"), query.key)
            self._property = self._text_field(t("Properties"), query.prop, "name=value; name")
            self._body = self._text_field(t("Text in the body"), query.text)
            self._path = self._text_field(t("JSON path"), query.path, "$.order.total > 100")
            self._sql = self._text_field("SQL92", query.sql, "a > 5 AND b = 'x'")

    def _build_buttons(self) -> None:
        t = self._t
        with ui.element("div").classes("button-row"):
            ui.button(t("Search"), icon="search", on_click=self._search).props(
                "unelevated no-caps type=submit"
            )
            ui.button(t("Copy link"), icon="link", on_click=self._copy_link).props("flat no-caps")
            ui.button(t("Copy as API call"), icon="code", on_click=self._copy_call).props(
                "flat no-caps"
            )

    def _text_field(self, label: str, value: str, placeholder: str = "") -> ui.input:
        field = fields.text(label, value, placeholder=placeholder)
        field.on("keydown.enter", self._search)
        return field

    def _show_fields(self) -> None:
        """Show the fields that matter for the chosen way."""
        by = By(self._by.value)
        is_custom = self._range.value == CUSTOM and by in _TIMED
        shown = {
            self._id: by is By.ID,
            self._indexed_key: by is By.KEY,
            self._key: by is not By.KEY,
            self._property: by is not By.KEY,
            self._sql: by is not By.KEY,
            self._queue: by is By.QUEUE,
            self._offset: by is By.QUEUE,
            self._range: by in _TIMED,
            self._begin: is_custom,
            self._end: is_custom,
            self._order: by in {By.TIME, By.QUEUE},
            self._more: by in _FILTERED,
        }
        for element, is_shown in shown.items():
            element.set_visibility(is_shown)

    # ---- what the user does

    def _read(self) -> MessageQuery:
        """The fields of the form that matter, without a cursor."""
        zone = self._view.time_zone
        by = By(self._by.value)
        found = MessageQuery(topic=(self._topic.value or "").strip(), by=by)
        if by is By.ID:
            return replace(found, id=(self._id.value or "").strip())
        key = self._indexed_key if by is By.KEY else self._key
        found = replace(
            found,
            tags=(self._tags.value or "").strip(),
            key=(key.value or "").strip(),
            text=self._body.value or "",
            path=(self._path.value or "").strip(),
        )
        if by is not By.KEY:
            found = replace(
                found,
                prop=(self._property.value or "").strip(),
                sql=(self._sql.value or "").strip(),
            )
        if by in {By.TIME, By.QUEUE}:
            found = replace(found, order=str(self._order.value))
        if by is By.QUEUE:
            offset = (self._offset.value or "").strip()
            return replace(found, queue=self._queue.value or "", offset=offset)
        if by in _TIMED and self._range.value:
            found = replace(found, range=self._range.value)
            if found.range == CUSTOM:
                found = replace(
                    found,
                    begin=milliseconds_text(self._begin.value, zone),
                    end=milliseconds_text(self._end.value, zone),
                )
        return found

    def _search(self) -> None:
        query = self._read()
        problem = self._problem(query)
        if problem:
            self._view.tell_error(problem)
            return
        if not query.topic:
            self._query = query
            background_tasks.create(self._locate_now(), name="locate", context=self._more)
            return
        self._turn(query)

    def _problem(self, query: MessageQuery) -> str:
        """What is missing in the form."""
        t = self._t
        if query.by == By.ID and not query.id:
            return t("Give the id of a message.")
        if query.by != By.ID and not query.topic:
            return t("Give a topic.")
        if query.by == By.KEY and not query.key:
            return t("Give the key that the sender set.")
        if query.offset and not query.offset.isdecimal():
            return t("An offset is a number.")
        if query.offset and not query.queue:
            return t("Choose the queue of the offset.")
        return ""

    def _turn(self, query: MessageQuery, *, push: bool = True) -> None:
        """Search for something else, or go on elsewhere."""
        self._query = query
        blank = dict.fromkeys(self._view.query)
        self._view.set_query(push=push, **{**blank, **query.to_url()})
        self._results.start(query)

    def _copy_link(self) -> None:
        self._copy(self._read().path_of_page)

    def _copy_call(self) -> None:
        self._copy(self._read().api_call)

    def _copy(self, path: str) -> None:
        """Copy a path of this site with its origin, which only the browser knows."""
        with self._view.client:
            ui.run_javascript(
                "navigator.clipboard &&"
                f" navigator.clipboard.writeText(location.origin + {json.dumps(path)})"
            )
            ui.notify(self._t("Copied"), position="top-right", timeout=1500)

    # ---- what the form asks

    async def _suggest(self) -> list[str]:
        search = (self._topic.value or "").strip()
        return await self._view.run(suggest_topics, search=search)

    def _offer(self, names: list[str]) -> None:
        self._topic.set_autocomplete(names)

    async def _topic_changed(self) -> None:
        """Suggest names once nothing was typed for a moment.

        The field itself is not debounced: a search right after typing would miss its end.
        """
        typed = self._topic.value
        await asyncio.sleep(_TYPING)
        if self._topic.is_deleted or self._topic.value != typed:
            return
        try:
            self._offer(await self._suggest())
            if self._by.value == By.QUEUE and self._topic.value:
                self._set_queues(await self._load_queues())
        except BolideError:
            return  # only suggestions; the search tells what is wrong

    async def _load_queues(self) -> list[str]:
        topic = (self._topic.value or "").strip()
        found = await self._view.run(message_queues, topic=topic)
        return [f"{each.broker}/{each.queue_id}" for each in found.queues]

    def _set_queues(self, names: list[str]) -> None:
        self._queue.set_options(self._queue_options(names), value=self._queue.value)

    def _queue_options(self, names: list[str]) -> dict[str, str]:
        chosen = [self._query.queue] if self._query.queue else []
        return {"": self._t("All queues"), **{each: each for each in [*names, *chosen]}}

    async def _locate(self) -> None:
        """Find the topic of an id that came without one."""
        try:
            place = await self._view.run(locate_message, message_id=self._query.id)
        except NotFound:
            self._results.show_unknown_topic()
            return
        if self._topic.is_deleted:  # the user has left
            return
        self._topic.value = place.topic
        # Back does not lead to the URL without the topic, which would lead here again.
        is_of_url = self._view.query.get("id") == self._query.id
        self._turn(replace(self._query, topic=place.topic), push=not is_of_url)

    async def _locate_now(self) -> None:
        try:
            await self._locate()
        except BolideError as error:
            self._view.tell_error(error)
