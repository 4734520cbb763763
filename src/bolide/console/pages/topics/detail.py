"""The page of one topic: overview, queues, groups, messages and settings."""

from collections.abc import Callable
from urllib.parse import quote

from nicegui import ui

from bolide.console.pages.declaration import page
from bolide.console.pages.topics.forms import confirm_deletion, open_update_form
from bolide.console.pages.topics.names import (
    kind_name,
    permission_name,
    permission_tone,
    setting_name,
    setting_text,
)
from bolide.console.pages.topics.send_form import message_path, open_send_form
from bolide.console.ui import formats
from bolide.console.ui.charts import Line, TimeChart
from bolide.console.ui.layout import Figure, page_header, section_title, tabs
from bolide.console.ui.panels import Panel, Poll, failures_note, note
from bolide.console.ui.tables import Column, DataTable, ListRequest, Row, simple_table
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.model.names import dead_letter_topic, is_dead_letter_topic, retrying_group
from bolide.operations.dashboard import series
from bolide.operations.declaration import Role
from bolide.operations.history.figures import Measure, Range, Series
from bolide.operations.messages.search import search_messages
from bolide.operations.messages.views import MessageList, Order
from bolide.operations.topics.detail import (
    TopicBroker,
    TopicDetail,
    TopicGroup,
    TopicQueue,
    list_groups,
    list_queues,
    show_topic,
)
from bolide.operations.topics.table import MESSAGE_TYPE, TopicKind, TopicPermission, kind_of
from bolide.operations.views import Page

EVERY = 5.0
NEWEST = 20
"""Messages that the page of a topic shows itself."""


@page("/topics/{topic}", title="Topic")
def topic_page(view: View, topic: str) -> None:
    """One topic."""
    _TopicPage(view, topic)


class _TopicPage:
    def __init__(self, view: View, topic: str) -> None:
        self._view = view
        self._t = t = view.t
        self._topic = topic
        self._kind = kind_of(topic)  # by its name; what the brokers tell is in the overview
        self._reload: Callable[[], None] = lambda: None
        page_header(
            view,
            topic,
            crumbs=[(t("Topics"), "/topics")],
            actions=self._buttons,
        )
        self._link_group()
        names = {
            "overview": t("Overview"),
            "queues": t("Queues"),
            "groups": t("Groups"),
            "messages": t("Messages"),
            "settings": t("Settings"),
        }
        tabs(view, names, self._build)

    def _buttons(self) -> None:
        t = self._t
        ui.link(t("Browse messages"), messages_path(self._topic)).classes("button-link")
        if not self._view.may(Role.OPERATOR) or self._kind is TopicKind.SYSTEM:
            return
        ui.button(t("Send a message"), icon="send", on_click=self._send).props("unelevated no-caps")
        ui.button(t("Change"), icon="tune", on_click=self._change).props("outline no-caps")
        ui.button(t("Delete"), icon="delete_outline", on_click=self._delete).props(
            "outline no-caps color=negative"
        )

    def _link_group(self) -> None:
        """The topics of a group lead to it."""
        t = self._t
        if self._kind is TopicKind.RETRY:
            group = retrying_group(self._topic)
            text = t("Messages that the group {group} consumes again.", group=group)
            path = group_path(group)
        elif self._kind is TopicKind.DEAD_LETTER and is_dead_letter_topic(self._topic):
            group = self._topic.removeprefix(dead_letter_topic(""))
            text = t("Dead letters of the group {group}.", group=group)
            path = f"/dead-letters/{quote(group, safe='')}"
        else:
            return
        with ui.element("div").classes("note note-info"):
            ui.icon("info_outline").props("aria-hidden=true")
            ui.link(text, path)

    def _build(self, tab: str) -> None:
        self._reload = {
            "overview": self._overview,
            "queues": self._queues,
            "groups": self._groups,
            "messages": self._messages,
            "settings": self._settings,
        }[tab]()

    async def _load(self) -> TopicDetail:
        return await self._view.run(show_topic, topic=self._topic)

    # Overview

    def _overview(self) -> Callable[[], None]:
        t = self._t
        with ui.element("div").classes("figures"):
            figures = {
                "kind": Figure(t("Kind")),
                "rate": Figure(t("Messages/s")),
                "messages": Figure(t("Stored messages")),
                "size": Figure(t("Size")),
                "last": Figure(t("Last write")),
                "queues": Figure(t("Queues")),
            }

        def show_figures(detail: TopicDetail) -> None:
            self._show_figures(figures, detail)

        def no_figures(_: BolideError) -> None:  # the panel below tells why
            for figure in figures.values():
                figure.set(formats.UNKNOWN)

        shown = Poll(self._view, self._load, show_figures, on_error=no_figures, every=EVERY)
        panel = Panel(self._view, self._load, self._show_brokers, every=2 * EVERY)
        self._add_trend()

        def reload() -> None:
            shown.now()
            panel.reload()

        return reload

    def _add_trend(self) -> None:
        """The rate over the last hour; nothing if the history has none."""
        t = self._t
        label = t("Messages stored per second, in the last hour")
        with ui.element("section").classes("panel") as panel:
            ui.label(label).classes("figure-name")
            chart = TimeChart(label, area=True, height=200)
        panel.set_visibility(False)

        async def load() -> list[Series]:
            return await self._view.run(
                series, measure=Measure.TOPIC_RATE_IN, names=[self._topic], over=Range.HOUR
            )

        def show(found: list[Series]) -> None:
            points = [(at.time_ms, at.value) for each in found for at in each.points]
            panel.set_visibility(any(value is not None for _, value in points))
            chart.show([Line(name=t("Messages/s"), points=points)])

        def no_history(_: BolideError) -> None:
            panel.set_visibility(False)

        Poll(self._view, load, show, on_error=no_history, every=4 * EVERY)

    def _show_figures(self, figures: dict[str, Figure], detail: TopicDetail) -> None:
        t, view = self._t, self._view
        figures["kind"].set(kind_name(view, detail.kind))
        figures["rate"].set(formats.rate(detail.rate_in))
        stored = formats.short_count(detail.messages)
        exact = formats.count(detail.messages)
        figures["messages"].set(stored, hint="" if exact == stored else exact)
        average = detail.average_bytes
        hint = "" if average is None else t("{size} each", size=formats.size(average))
        about = "≈ " if detail.is_estimated else ""
        figures["size"].set(
            formats.UNKNOWN if detail.bytes is None else about + formats.size(detail.bytes),
            hint=hint,
        )
        if detail.last_write_ms is None and detail.messages == 0:
            figures["last"].set(t("never written"))
        else:
            figures["last"].set(
                formats.ago(view, detail.last_write_ms),
                hint=formats.moment(view, detail.last_write_ms) if detail.last_write_ms else "",
            )
        writes = [each.write_queues for each in detail.brokers]
        reads = [each.read_queues for each in detail.brokers]
        known = bool(writes) and None not in writes and None not in reads
        hint = t("{count} to read", count=sum(filter(None, reads)))
        figures["queues"].set(
            formats.count(sum(filter(None, writes)) if known else None),
            hint=hint if known and reads != writes else "",
        )

    def _show_brokers(self, detail: TopicDetail) -> None:
        t, view = self._t, self._view
        failures_note(view, detail.failures)
        self._show_remarks(detail)
        columns = [
            Column(name="broker", label=t("Broker"), kind="link"),
            Column(name="cluster", label=t("Cluster")),
            Column(name="address", label=t("Address"), kind="code"),
            Column(name="queues", label=t("Queues to write / read"), kind="number"),
            Column(name="permission", label=t("Permission"), kind="badge"),
            Column(name="rate", label=t("Messages/s"), kind="number"),
            Column(name="messages", label=t("Stored messages"), kind="number"),
            Column(name="last_write", label=t("Last write")),
        ]
        simple_table(columns, map(self._broker_row, detail.brokers), label=t("Brokers"))

    def _broker_row(self, each: TopicBroker) -> Row:
        view = self._view
        known = each.write_queues is not None
        return {
            "key": each.broker,
            "broker": each.broker,
            "broker_href": f"/cluster/brokers/{quote(each.broker, safe='')}/0",
            "cluster": each.cluster,
            "address": each.address,
            "queues": f"{each.write_queues} / {each.read_queues}" if known else formats.UNKNOWN,
            "permission": permission_name(view, each.permission),
            "permission_tone": permission_tone(each.permission),
            "rate": formats.rate(each.rate_in),
            "messages": formats.count(each.messages),
            "last_write": formats.moment(view, each.last_write_ms),
        }

    def _show_remarks(self, detail: TopicDetail) -> None:
        t, view = self._t, self._view
        if detail.differing:
            names = ", ".join(setting_name(view, each) for each in detail.differing)
            text = t("The brokers differ in: {names}", names=names)
            note(text, kind="warning", icon="warning_amber")
        for each in detail.brokers:
            if not each.has_master:
                text = t("{broker} has no master: nothing can be sent there.", broker=each.broker)
                note(text, kind="danger", icon="error_outline")
            drained = each.route_permission is not None and each.permission is not None
            if drained and each.route_permission != each.permission:
                told = permission_name(view, each.route_permission)
                text = t("Clients are told of {broker}: {permission}. It is drained.",
                         broker=each.broker, permission=told)  # fmt: skip
                note(text, kind="warning", icon="warning_amber")
        if detail.is_static:
            note(t("A static topic: its queues are logical ones, mapped to those of brokers."))

    # Queues

    def _queues(self) -> Callable[[], None]:
        t = self._t
        table = DataTable(
            self._view,
            [
                Column(name="broker", label=t("Broker")),
                Column(name="queue", label=t("Queue"), kind="link"),
                Column(name="first", label=t("First offset"), kind="number"),
                Column(name="end", label=t("End offset"), kind="number"),
                Column(name="messages", label=t("Stored messages"), kind="number"),
                Column(name="last_write", label=t("Last write")),
                Column(name="access", label=t("Permission"), kind="badge"),
            ],
            self._load_queues,
            self._queue_row,
            label=t("Queues"),
            every=EVERY,
            empty=t("No broker told of a queue."),
        )
        return table.reload

    async def _load_queues(self, request: ListRequest) -> Page[TopicQueue]:
        return await self._view.run(
            list_queues, topic=self._topic, page=request.page, size=request.size
        )

    def _queue_row(self, each: TopicQueue) -> Row:
        view, t = self._view, self._t
        bits = {
            (True, True): TopicPermission.READ_WRITE,
            (True, False): TopicPermission.READ,
            (False, True): TopicPermission.WRITE,
        }
        permission = bits.get((each.is_readable, each.is_writable), TopicPermission.NONE)
        never = each.last_write_ms is None and each.max_offset == 0
        return {
            "key": f"{each.broker} {each.queue}",
            "broker": each.broker,
            "queue": str(each.queue),
            "queue_href": messages_path(self._topic, each.broker, each.queue),
            "queue_hint": t("Browse messages"),
            "first": formats.count(each.min_offset),
            "end": formats.count(each.max_offset),
            "messages": formats.count(each.messages),
            "last_write": t("never written") if never else formats.moment(view, each.last_write_ms),
            "access": permission_name(view, permission),
            "access_tone": permission_tone(permission),
        }

    # Groups

    def _groups(self) -> Callable[[], None]:
        t = self._t
        columns = [
            Column(name="group", label=t("Group"), kind="link"),
            Column(name="members", label=t("Connected consumers"), kind="number"),
            Column(name="lag", label=t("Backlog"), kind="number"),
            Column(name="delay", label=t("Time behind")),
            Column(name="consumed", label=t("Consumed until")),
            Column(name="offsets", label=t("Offsets"), kind="link"),
        ]
        table = DataTable(
            self._view,
            columns,
            self._load_groups,
            self._group_row,
            label=t("Groups that consume it"),
            search=t("Search by name"),
            every=EVERY,
            empty=t("No group consumes this topic."),
        )
        return table.reload

    async def _load_groups(self, request: ListRequest) -> Page[TopicGroup]:
        return await self._view.run(
            list_groups,
            topic=self._topic,
            search=request.search,
            page=request.page,
            size=request.size,
        )

    def _group_row(self, each: TopicGroup) -> Row:
        view = self._view
        delay = None if each.delay_ms is None else each.delay_ms / 1000
        topic = quote(self._topic, safe="")
        return {
            "key": each.group,
            "group": each.group,
            "group_href": group_path(each.group),
            "members": formats.count(each.members),
            "lag": formats.count(each.lag),
            "delay": formats.duration(view, delay),
            "consumed": formats.moment(view, each.last_consumed_ms),
            "offsets": self._t("Reset or skip"),
            "offsets_href": f"{group_path(each.group)}?tab=offsets&topic={topic}",
        }

    # Messages

    def _messages(self) -> Callable[[], None]:
        t = self._t
        section_title(t("Newest messages"))
        panel = Panel(
            self._view,
            self._load_messages,
            self._show_messages,
            every=2 * EVERY,
            is_empty=lambda found: not found.items and not found.failures,
            empty=t("No messages are stored."),
        )
        return panel.reload

    async def _load_messages(self) -> MessageList:
        return await self._view.run(
            search_messages, topic=self._topic, size=NEWEST, order=Order.NEWEST
        )

    def _show_messages(self, found: MessageList) -> None:
        t, view = self._t, self._view
        failures_note(view, found.failures)
        columns = [
            Column(name="stored", label=t("Stored at"), kind="link"),
            Column(name="queue", label=t("Queue")),
            Column(name="offset", label=t("Offset"), kind="number"),
            Column(name="tags", label=t("Tag"), kind="badge"),
            Column(name="keys", label=t("Keys")),
            Column(name="size", label=t("Size"), kind="number"),
            Column(name="body", label=t("Body"), kind="code"),
        ]
        rows = [
            {
                "key": each.offset_message_id,
                "stored": formats.moment(view, each.stored_ms),
                "stored_href": message_path(each.topic, each.message_id),
                "stored_hint": each.message_id,
                "queue": f"{each.broker} {each.queue_id}",
                "offset": formats.count(each.queue_offset),
                "tags": each.tags or "",
                "keys": ", ".join(each.keys),
                "size": formats.size(each.size),
                "body": each.preview[:80],
            }
            for each in found.items
        ]
        simple_table(columns, rows, label=t("Newest messages"))

    # Settings

    def _settings(self) -> Callable[[], None]:
        return Panel(self._view, self._load, self._show_settings).reload

    def _show_settings(self, detail: TopicDetail) -> None:
        t, view = self._t, self._view
        failures_note(view, detail.failures)
        self._show_remarks(detail)
        settings = {each.broker: _settings_of(each) for each in detail.brokers}
        names = list(dict.fromkeys(name for values in settings.values() for name in values))
        columns = [Column(name="setting", label=t("Setting"))]
        columns += [
            Column(name=f"b{number}", label=broker) for number, broker in enumerate(settings)
        ]
        rows = []
        for name in names:
            row: Row = {"key": name, "setting": setting_name(view, name)}
            for number, values in enumerate(settings.values()):
                known = bool(values)
                text = setting_text(view, name, values.get(name)) if known else formats.UNKNOWN
                row[f"b{number}"] = text
            rows.append(row)
        simple_table(columns, rows, label=t("Settings"))
        if detail.order_conf:
            note(t("Order in the NameServers: {conf}", conf=detail.order_conf))

    # Changes

    async def _send(self) -> None:
        await open_send_form(self._view, self._topic, on_sent=self._reload)

    async def _change(self) -> None:
        try:
            detail = await self._load()
        except BolideError as error:
            self._view.tell_error(error)
            return
        open_update_form(self._view, detail, on_done=self._reload)

    async def _delete(self) -> None:
        await confirm_deletion(self._view, self._topic, on_done=lambda: self._view.open("/topics"))


def messages_path(topic: str, broker: str = "", queue: int | None = None) -> str:
    """The page that browses the messages of a topic, or of one queue."""
    path = f"/messages?topic={quote(topic, safe='')}"
    if queue is None:
        return path
    return f"{path}&by=queue&queue={quote(f'{broker}/{queue}', safe='')}"


def group_path(group: str) -> str:
    """The page of a consumer group."""
    return f"/consumers/{quote(group, safe='')}"


def _settings_of(each: TopicBroker) -> dict[str, str]:
    """As `setting_name` and `setting_text` take them; empty if the broker did not tell."""
    if each.permission is None:
        return {}
    return {
        "write_queues": str(each.write_queues),
        "read_queues": str(each.read_queues),
        "permission": each.permission.value,
        "order": str(bool(each.is_ordered)).lower(),
        **({} if MESSAGE_TYPE in each.attributes else {MESSAGE_TYPE: "NORMAL"}),
        **each.attributes,
    }
