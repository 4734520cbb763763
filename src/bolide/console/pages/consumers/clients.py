"""The clients of a consumer group: what they subscribe to, and what they do."""

from nicegui import ui

from bolide.console.ui import formats
from bolide.console.ui.dialogs import FormDialog
from bolide.console.ui.layout import facts
from bolide.console.ui.panels import Poll, note
from bolide.console.ui.tables import Action, Column, DataTable, ListRequest, Row, simple_table
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.operations.consumers.members import Member, Members, list_members, show_stack
from bolide.operations.views import Page, page_of

EVERY = 10.0


def build_clients(view: View, group: str) -> None:
    """The table of clients, with a warning where they differ."""
    _Clients(view, group)


class _Clients:
    def __init__(self, view: View, group: str) -> None:
        self._view = view
        self._group = group
        self._t = t = view.t
        self._members: dict[str, Member] = {}
        self._shown: object = None
        self._warnings = ui.element("div")
        DataTable(
            view,
            [
                Column(name="client", label=t("Client"), kind="code"),
                Column(name="address", label=t("Address"), kind="code"),
                Column(name="version", label=t("Version")),
                Column(name="type", label=t("Type")),
                Column(name="subscriptions", label=t("Subscriptions")),
                Column(name="queues", label=t("Queues"), kind="number"),
                Column(name="buffered", label=t("Buffered"), kind="number"),
                Column(name="started", label=t("Started")),
            ],
            self._load,
            self._row,
            label=t("Clients"),
            search=t("Search by id or address"),
            actions=[
                Action(
                    name="details",
                    label=t("Details"),
                    icon="info_outline",
                    handler=self._open_details,
                ),
                Action(name="stack", label=t("Stack"), icon="layers", handler=self._open_stack),
            ],
            every=EVERY,
            empty=t("No client is connected."),
        )
        Poll(view, self._ask, self._show_warnings, every=EVERY)

    async def _ask(self) -> Members:
        return await self._view.run(list_members, group=self._group)

    async def _load(self, request: ListRequest) -> Page[Member]:
        found = await self._ask()
        self._members = {each.client_id: each for each in found.members}
        wanted = request.search.lower()
        rows = [
            each
            for each in found.members
            if wanted in each.client_id.lower() or wanted in (each.address or "").lower()
        ]
        return page_of(rows, page=request.page, size=request.size, failures=found.failures)

    def _row(self, member: Member) -> Row:
        t = self._t
        parts = [
            t(member.kind.value) if member.kind else "",
            t("ordered") if member.is_ordered else "",
        ]
        wanted = [
            f"{each.topic} ({each.expression})"
            if each.expression_type == "TAG"
            else f"{each.topic} ({each.expression_type}: {each.expression})"
            for each in member.subscriptions or ()
        ]
        shown = "; ".join(wanted[:2]) + (f" +{len(wanted) - 2}" if len(wanted) > 2 else "")
        return {
            "key": member.client_id,
            "client": member.client_id,
            "address": member.address or formats.UNKNOWN,
            "version": f"{member.language or ''} {member.version}".strip(),
            "type": " · ".join(part for part in parts if part) or formats.UNKNOWN,
            "subscriptions": shown or formats.UNKNOWN,
            "subscriptions_hint": "; ".join(wanted) or member.silence,
            "queues": formats.count(member.queues),
            "buffered": formats.count(member.buffered),
            "started": formats.moment(self._view, member.started_ms),
        }

    def _show_warnings(self, members: Members) -> None:
        shown = (members.differences, members.problems)
        if shown == self._shown:
            return
        self._shown = shown
        t = self._t
        self._warnings.clear()
        with self._warnings:
            if members.differences:
                note(
                    t(
                        "The clients subscribe differently. The brokers keep one subscription of"
                        " a group and share the queues among all clients: messages get lost."
                    ),
                    kind="danger",
                    icon="call_split",
                )
                self._show_differences(members)
            for problem in members.problems:
                where = f"{problem.topic} · {problem.broker}:{problem.queue_id}"
                note(f"{problem.client_id}, {where}: {problem.text}", kind="warning")

    def _show_differences(self, members: Members) -> None:
        t = self._t
        columns = [
            Column(name="topic", label=t("Topic")),
            Column(name="client", label=t("Client"), kind="code"),
            Column(name="expression", label=t("Subscription"), kind="code"),
        ]
        rows = [
            {
                "key": f"{each.topic} {client}",
                "topic": each.topic,
                "client": client,
                "expression": expression or t("none"),
            }
            for each in members.differences
            for client, expression in each.expressions.items()
        ]
        with ui.element("section").classes("panel"):
            simple_table(columns, rows, label=t("Subscriptions"))

    def _open_details(self, row: Row) -> None:
        member = self._members.get(row["key"])
        if member is None:
            return
        t, view = self._t, self._view
        with FormDialog(view, member.client_id, t("Close"), wide=True) as form:
            facts(
                {
                    t("Address"): member.address or formats.UNKNOWN,
                    t("Version"): f"{member.language or ''} {member.version}",
                    t("Started"): formats.moment(view, member.started_ms),
                    t("Threads"): formats.count(member.threads),
                    t("Queues"): formats.count(member.queues),
                    t("Buffered"): formats.count(member.buffered),
                }
            )
            if member.silence:
                note(t("It did not report: {reason}", reason=member.silence), kind="warning")
            self._show_traffic(member)
            if member.properties:
                facts(member.properties)

        async def close() -> None:
            form.close()

        form.on_submit(close)
        form.open()

    def _show_traffic(self, member: Member) -> None:
        t = self._t
        columns = [
            Column(name="topic", label=t("Topic")),
            Column(name="expression", label=t("Subscription"), kind="code"),
            Column(name="consumed", label=t("Consumed/s"), kind="number"),
            Column(name="failed", label=t("Failed/s"), kind="number"),
            Column(name="time", label=t("Time per message"), kind="number"),
        ]
        traffic = {each.topic: each for each in member.traffic}
        rows = []
        for wanted in member.subscriptions or ():
            told = traffic.get(wanted.topic)
            rows.append(
                {
                    "key": wanted.topic,
                    "topic": wanted.topic,
                    "expression": wanted.expression,
                    "consumed": formats.rate(told.consumed_per_second if told else None),
                    "failed": formats.rate(told.failed_per_second if told else None),
                    "time": f"{told.consume_ms:,.1f} ms" if told else formats.UNKNOWN,
                }
            )
        if rows:
            simple_table(columns, rows, label=t("Subscriptions"))

    async def _open_stack(self, row: Row) -> None:
        t, view = self._t, self._view
        try:
            stack = await view.run(show_stack, group=self._group, client_id=row["key"])
        except BolideError as error:
            view.tell_error(error)
            return
        title = t("Stack of {client}", client=row["key"])
        with FormDialog(view, title, t("Copy"), wide=True) as form:
            code = ui.element("pre").classes("body-text").props("tabindex=0")
        with code:
            ui.label(stack.text).classes("mono stack")

        async def copy() -> None:
            view.copy(stack.text)

        form.on_submit(copy)
        form.open()
