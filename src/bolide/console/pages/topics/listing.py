"""The list of topics."""

from nicegui import ui

from bolide.console.pages.declaration import Section, page
from bolide.console.pages.topics.forms import confirm_deletion, open_create_form
from bolide.console.pages.topics.names import (
    kind_name,
    kind_tone,
    permission_name,
    permission_tone,
    topic_path,
)
from bolide.console.pages.topics.send_form import open_send_form
from bolide.console.ui import fields, formats
from bolide.console.ui.layout import page_header
from bolide.console.ui.panels import Poll
from bolide.console.ui.tables import Action, Column, DataTable, ListRequest, Row
from bolide.console.ui.view import View
from bolide.operations.declaration import Role
from bolide.operations.topics.listing import (
    TopicCounts,
    TopicRow,
    TopicSort,
    count_topics,
    list_topics,
)
from bolide.operations.topics.table import OF_USERS, TopicKind
from bolide.operations.views import Page

OWN, ALL = "own", "all"
"""Filters for several kinds; the others are the names of kinds."""
EVERY = 10.0


@page("/topics", title="Topics", section=Section.MESSAGING, icon="topic", order=1)
def topics_page(view: View) -> None:
    """All topics, with what can be done with them."""
    _Topics(view)


class _Topics:
    def __init__(self, view: View) -> None:
        self._view = view
        self._t = t = view.t
        self._kind = view.query.get("kind", OWN)
        if self._kind not in {OWN, ALL, *TopicKind}:
            self._kind = OWN
        self._broker = view.query.get("broker", "")
        page_header(view, t("Topics"), actions=self._buttons)
        with ui.element("div").classes("topic-table"):
            self._table = self._make_table()
        Poll(view, self._count, self._show_counts, every=6 * EVERY)

    def _make_table(self) -> DataTable[TopicRow]:
        t = self._t
        actions = [
            Action(name="send", label=t("Send a message"), icon="send", handler=self._send),
            Action(name="delete", label=t("Delete"), icon="delete_outline", handler=self._delete),
        ]
        return DataTable(
            self._view,
            [
                Column(name="topic", label=t("Topic"), kind="link", sortable=True),
                Column(name="kind", label=t("Kind"), kind="badge", sortable=True),
                Column(name="queues", label=t("Queues"), kind="number", sortable=True),
                Column(name="permission", label=t("Permission"), kind="badge"),
                Column(name="rate", label=t("Messages/s"), kind="number", sortable=True),
                Column(name="messages", label=t("Stored messages"), kind="number", sortable=True),
                Column(name="size", label=t("Size"), kind="number", sortable=True),
                Column(name="last_write", label=t("Last write"), sortable=True),
            ],
            self._load,
            self._row,
            label=t("Topics"),
            sort=TopicSort.TOPIC.value,
            search=t("Search by name"),
            actions=actions if self._view.may(Role.OPERATOR) else (),
            every=EVERY,
            empty=t("No topics here."),
            empty_hint=t("Choose other kinds, or create one."),
            toolbar=self._filters,
        )

    def _buttons(self) -> None:
        if self._view.may(Role.OPERATOR):
            ui.button(self._t("Create topic"), icon="add", on_click=self._create).props(
                "unelevated no-caps"
            )

    def _filters(self) -> None:
        t = self._t
        self._choice = fields.choice(t("Kinds"), self._kinds(None), self._kind)
        self._choice.classes("kind-filter").on_value_change(
            lambda event: self._choose(str(event.value))
        )
        if self._broker:
            self._chip = ui.button(
                t("On {broker}", broker=self._broker), icon="close", on_click=self._any_broker
            ).props("outline dense no-caps")

    def _kinds(self, counts: TopicCounts | None) -> dict[str, str]:
        t = self._t
        names = {OWN: t("Topics of applications"), ALL: t("All topics")}
        names |= {kind.value: kind_name(self._view, kind) for kind in TopicKind}
        if counts is None:
            return names
        known = {kind.value: count for kind, count in counts.kinds.items()}
        own = sum(count for kind, count in counts.kinds.items() if kind in OF_USERS)
        known |= {OWN: own, ALL: counts.total}
        # Brokers that are away may have topics: none known is not none.
        nothing = formats.UNKNOWN if counts.failures else "0"

        def text(count: int) -> str:
            return f"{count:,}" if count else nothing

        return {key: f"{name} ({text(known.get(key, 0))})" for key, name in names.items()}

    async def _count(self) -> TopicCounts:
        return await self._view.run(count_topics)

    def _show_counts(self, counts: TopicCounts) -> None:
        options = self._kinds(counts)
        if options != self._choice.options:
            self._choice.set_options(options, value=self._kind)

    def _choose(self, kind: str) -> None:
        if kind != self._kind:
            self._kind = kind
            self._view.set_query(kind=None if kind == OWN else kind)
            self._table.first_page()

    def _any_broker(self) -> None:
        self._broker = ""
        self._view.set_query(broker=None)
        self._chip.delete()
        self._table.first_page()

    async def _load(self, request: ListRequest) -> Page[TopicRow]:
        if self._kind == ALL:
            kinds = None
        elif self._kind == OWN:
            kinds = sorted(OF_USERS)
        else:
            kinds = [TopicKind(self._kind)]
        is_known = request.sort in set(TopicSort)
        return await self._view.run(
            list_topics,
            search=request.search,
            kinds=kinds,
            broker=self._broker,
            sort=TopicSort(request.sort) if is_known else TopicSort.TOPIC,
            descending=request.descending,
            page=request.page,
            size=request.size,
        )

    def _row(self, row: TopicRow) -> Row:
        view = self._view
        return {
            "key": row.topic,
            "topic": row.topic,
            "topic_href": topic_path(row.topic),
            "kind": kind_name(view, row.kind),
            "kind_tone": kind_tone(row.kind),
            "queues": _queues(row),
            "queues_hint": ", ".join(row.brokers),
            "permission": permission_name(view, row.permission),
            "permission_tone": permission_tone(row.permission),
            "rate": formats.rate(row.rate_in),
            "messages": formats.short_count(row.messages),
            "messages_hint": None if row.messages is None else formats.count(row.messages),
            "size": f"≈ {formats.size(row.bytes)}" if row.bytes else formats.size(row.bytes),
            "last_write": _last_write(view, row),
            "last_write_hint": row.last_write_ms and formats.moment(view, row.last_write_ms),
        }

    async def _create(self) -> None:
        await open_create_form(self._view, on_done=self._created)

    def _created(self, topic: str) -> None:
        self._view.open(topic_path(topic))

    async def _send(self, row: Row) -> None:
        await open_send_form(self._view, row["key"], on_sent=self._table.reload)

    async def _delete(self, row: Row) -> None:
        await confirm_deletion(self._view, row["key"], on_done=self._table.reload)


def _queues(row: TopicRow) -> str:
    if row.write_queues is None or row.read_queues is None:
        return formats.UNKNOWN
    if row.write_queues == row.read_queues:
        return formats.count(row.write_queues)
    return f"{row.write_queues} / {row.read_queues}"


def _last_write(view: View, row: TopicRow) -> str:
    if row.last_write_ms is None and row.messages == 0:
        return view.t("never written")
    return formats.ago(view, row.last_write_ms)
