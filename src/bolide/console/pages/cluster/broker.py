"""One broker: what it tells of itself, its settings, its replication, and how to drain it."""

from nicegui import ui

from bolide.console.pages.cluster.drain import DrainTab
from bolide.console.pages.cluster.overview import (
    STATE_TONES,
    broker_path,
    choose_master,
    disk_tone,
    members_table,
    state_text,
)
from bolide.console.pages.cluster.settings_table import SettingsTable
from bolide.console.pages.declaration import page
from bolide.console.ui import formats
from bolide.console.ui.charts import Line, TimeChart
from bolide.console.ui.dialogs import confirm_and_run
from bolide.console.ui.layout import Figure, facts, page_header, section_title, tabs
from bolide.console.ui.panels import Panel, Poll, error_state, failures_note, note
from bolide.console.ui.props import set_props
from bolide.console.ui.tables import Column, DataTable, ListRequest, Row, simple_table
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.operations import dashboard
from bolide.operations.declaration import Role
from bolide.operations.history import Measure
from bolide.operations.servers import members as cluster_members
from bolide.operations.servers import replication
from bolide.operations.servers.members import BrokerDetail, BrokerMember, MemberState
from bolide.operations.servers.replication import GroupReplication
from bolide.operations.servers.settings import ServerKind
from bolide.operations.views import Page, page_of

_EVERY = 3.0


@page("/cluster/brokers/{broker_name}/{broker_id}", title="Broker")
def broker_page(view: View, broker_name: str, broker_id: str) -> None:
    """A broker by the name of its group and its id."""
    t = view.t
    page_header(
        view,
        f"{broker_name} ({broker_id})",
        crumbs=[(t("Cluster"), "/cluster")],
    )
    if not broker_id.isdecimal():
        error_state(view, BolideError(t("The id of a broker is a number: {id}", id=broker_id)))
        return
    names = {
        "overview": t("Overview"),
        "settings": t("Settings"),
        "replication": t("Replication"),
        "drain": t("Drain"),
    }

    def build(name: str) -> None:
        match name:
            case "overview":
                _Overview(view, broker_name, int(broker_id))
            case "settings":
                _settings(view, broker_name, int(broker_id))
            case "replication":
                _Replication(view, broker_name)
            case _:
                DrainTab(view, broker_name, int(broker_id))

    tabs(view, names, build)


class _Overview:
    """Live figures, facts, and everything that the broker tells."""

    def __init__(self, view: View, name: str, broker_id: int) -> None:
        self._view, self._name, self._id = view, name, broker_id
        self._address = ""
        t = self._t = view.t
        with ui.element("div").classes("figures"):
            self._in = Figure(t("Messages in per second"))
            self._out = Figure(t("Messages out per second"))
            self._disk = Figure(t("Disk"))
            self._lag = Figure(t("Replication"))
            self._waiting = Figure(t("Requests that wait"))
        self._facts = Panel(view, self._load, self._render, every=_EVERY)
        _RateChart(view, name, broker_id)
        section_title(t("All runtime figures"))
        self._table = DataTable(
            view,
            [
                Column(name="name", label=t("Name"), kind="code"),
                Column(name="value", label=t("Value"), kind="code"),
            ],
            self._figures,
            self._figure_row,
            label=t("All runtime figures"),
            search=t("Search figures"),
            every=10,
            empty=t("The broker tells no figures."),
        )

    async def _load(self) -> tuple[BrokerMember, dict[str, str], list[tuple[str, str]]]:
        detail = await self._view.run(
            cluster_members.show_broker, broker_name=self._name, broker_id=self._id
        )
        self._set_figures(detail)
        member, t, view = detail.member, self._t, self._view
        texts = {
            t("Address"): member.address,
            t("Cluster"): member.cluster,
            t("Role"): t(member.role.value),
            t("Version"): f"{member.product or ''} {member.version or formats.UNKNOWN}".strip(),
            t("Version of the protocol"): member.protocol_version or formats.UNKNOWN,
            t("Up since"): formats.moment(view, member.up_since_ms),
            t("Takes messages"): self._takes(member),
            t("Messages in today"): formats.count(member.in_today),
            t("Messages out today"): formats.count(member.out_today),
            t("Oldest message"): formats.moment(view, member.oldest_message_ms),
            t("Log"): formats.UNKNOWN if member.log_end is None
            else f"{formats.count(detail.log_begin)} … {formats.count(member.log_end)}",
            t("Not on the disk yet"): detail.unflushed or formats.UNKNOWN,
            t("Not in the queues yet"): formats.size(detail.undispatched),
            t("In, 10 s / 1 min / 10 min"): _rates(detail.in_rates),
            t("Out, 10 s / 1 min / 10 min"): _rates(detail.out_rates),
        }  # fmt: skip
        siblings = [
            (f"{each.name} ({each.id}) {t(each.role.value)}", broker_path(each.name, each.id))
            for each in detail.siblings
        ]
        return member, texts, siblings

    def _set_figures(self, detail: BrokerDetail) -> None:
        t, member = self._t, detail.member
        self._in.set(formats.rate(member.in_rate))
        self._out.set(formats.rate(member.out_rate))
        free = t("{size} free", size=formats.size(member.disk_free))
        self._disk.set(
            formats.percent(member.disk_used),
            hint=free if member.disk_free is not None else "",
            tone=disk_tone(member.disk_used),
        )
        if member.id == 0 and member.replicas is not None:
            self._lag.set(formats.count(member.replicas), hint=t("replicas are connected"))
        else:
            behind = t("behind its master") if member.lag is not None else ""
            self._lag.set(formats.size(member.lag), hint=behind)
        if member.state is not MemberState.UP:
            self._waiting.set(formats.UNKNOWN)
            return
        oldest = max((each.oldest for each in detail.waiting), default=0)
        self._waiting.set(
            formats.count(sum(each.count for each in detail.waiting)),
            hint=t("the oldest for {time}", time=formats.duration(self._view, oldest)),
            tone="warning" if oldest >= 1 else "",
        )

    def _takes(self, member: BrokerMember) -> str:
        t = self._t
        if member.id != 0:
            return t("no, as a slave")
        if member.takes_messages is None:
            return formats.UNKNOWN
        return t("yes") if member.takes_messages else t("no: it is drained")

    def _render(self, data: tuple[BrokerMember, dict[str, str], list[tuple[str, str]]]) -> None:
        member, texts, siblings = data
        self._address = member.address
        state = state_text(self._view, member)
        tone = STATE_TONES[member.state]
        badge = ui.label(state).classes(f"badge badge-{tone}")
        set_props(badge, data_state=member.state.value)
        if member.reason:
            note(member.reason, kind="danger", icon="error_outline")
        facts(texts)
        if member.state is MemberState.STOPPED and self._view.may(Role.OPERATOR):
            with ui.element("div").classes("button-row"):
                ui.button(
                    self._t("Forget this broker"), icon="visibility_off", on_click=self._forget
                ).props("outline no-caps")
        if siblings:
            with ui.element("div").classes("button-row"):
                ui.label(self._t("Of the same group:"))
                for text, path in siblings:
                    ui.link(text, path)

    async def _forget(self) -> None:
        await confirm_and_run(
            self._view,
            cluster_members.forget_stopped,
            {"address": self._address},
            title=self._t("Take {name} off the list?", name=f"{self._name} ({self._id})"),
            button=self._t("Forget"),
            on_done=lambda _: self._view.open("/cluster"),
        )

    async def _figures(self, request: ListRequest) -> Page[tuple[str, str]]:
        detail = await self._view.run(
            cluster_members.show_broker, broker_name=self._name, broker_id=self._id
        )
        word = request.search.lower()
        found = [pair for pair in detail.figures.items() if word in pair[0].lower()]
        return page_of(found, page=request.page, size=request.size)

    def _figure_row(self, pair: tuple[str, str]) -> Row:
        return {"key": pair[0], "name": pair[0], "value": pair[1]}


class _RateChart:
    """Messages in and out over the last hour, as far as they were sampled."""

    def __init__(self, view: View, name: str, broker_id: int) -> None:
        self._view, t = view, view.t
        self._series = f"{name}#{broker_id}" if broker_id else name
        title = t("Messages per second over the last hour")
        with ui.element("section").classes("panel chart-panel") as self._element:
            ui.label(title).classes("chart-title").props("role=heading aria-level=2")
            self._chart = TimeChart(title, height=150)
            self._note = ui.label("").classes("chart-note").props("role=status")
        Poll(view, self._load, self._show, on_error=self._hide, every=10)

    async def _load(self) -> list[Line]:
        t = self._view.t
        lines = []
        for name, measure in (
            (t("messages in"), Measure.RATE_IN),
            (t("messages out"), Measure.RATE_OUT),
        ):
            found = await self._view.run(dashboard.series, measure=measure, names=[self._series])
            lines += [
                Line(name=name, points=[(point.time_ms, point.value) for point in each.points])
                for each in found
            ]
        return lines

    def _show(self, lines: list[Line]) -> None:
        drawn = [each for each in lines if any(v is not None for _, v in each.points)]
        self._chart.show(drawn)
        self._note.text = "" if drawn else self._view.t("Nothing was sampled in this time.")

    def _hide(self, _: BolideError) -> None:
        self._element.set_visibility(False)


def _rates(rates: list[float] | None) -> str:
    return " / ".join(map(formats.rate, rates)) if rates else formats.UNKNOWN


def _settings(view: View, name: str, broker_id: int) -> None:
    """The settings, once the address of the broker is known."""
    place = ui.element("div").classes("tab-panel")

    async def load() -> BrokerDetail:
        return await view.run(cluster_members.show_broker, broker_name=name, broker_id=broker_id)

    def show(detail: BrokerDetail) -> None:
        with place:
            if detail.member.state is MemberState.UP:
                SettingsTable(view, ServerKind.BROKER, detail.member.address)
            else:
                note(view.t("It does not answer, so that its settings are unknown."), kind="danger")

    def fail(error: BolideError) -> None:
        with place:
            error_state(view, error)

    Poll(view, load, show, on_error=fail)


class _Replication:
    """How far the members of the group are, as its master and the controllers see it."""

    def __init__(self, view: View, name: str) -> None:
        self._view, self._name = view, name
        self._panel = Panel(
            view,
            lambda: view.run(replication.show_replication, broker_name=name),
            self._render,
            every=_EVERY,
        )

    def _render(self, found: GroupReplication) -> None:
        view, t = self._view, self._view.t
        failures_note(view, found.failures)
        texts = {
            t("Master"): found.master or t("none: nothing is taken"),
            t("Log end"): formats.count(found.log_end),
            t("Elected by controllers"): t("yes") if found.has_controllers else t("no"),
        }
        if found.has_controllers:
            texts[t("Epoch of the master")] = str(found.master_epoch)
            texts[t("Epoch of the sync-state set")] = str(found.sync_state_set_epoch)
        facts(texts)
        section_title(t("Members of the group"))
        members_table(view, found.members, self._name)
        section_title(t("Connections of replicas to the master"))
        self._render_links(found)
        if found.has_controllers and view.may(Role.ADMIN) and len(found.members) > 1:
            with ui.element("div").classes("button-row"):
                ui.button(
                    t("Elect another master"), icon="how_to_vote", on_click=self._elect
                ).props("outline no-caps")

    def _render_links(self, found: GroupReplication) -> None:
        t = self._view.t
        if found.links is None:
            note(t("The master does not tell which replicas are connected."))
            return
        if not found.links:
            note(t("No replica is connected."))
            return
        simple_table(
            [
                Column(name="address", label=t("Connected from"), kind="code"),
                Column(name="behind", label=t("Replica lag"), kind="number"),
                Column(name="acknowledged", label=t("Acknowledged up to"), kind="number"),
                Column(name="speed", label=t("Copied per second"), kind="number"),
                Column(name="in_sync", label=t("In sync"), kind="badge"),
            ],
            [
                {
                    "key": each.address,
                    "address": each.address,
                    "behind": formats.size(each.behind),
                    "acknowledged": formats.count(each.acknowledged),
                    "speed": formats.size(each.bytes_per_second),
                    "in_sync": t("yes") if each.in_sync else t("no"),
                    "in_sync_tone": "good" if each.in_sync else "warning",
                }
                for each in found.links
            ],
            label=t("Connections of replicas to the master"),
        )

    async def _elect(self) -> None:
        try:
            controllers = await self._view.run(replication.list_controllers)
        except BolideError as error:
            self._view.tell_error(error)
            return
        for group in controllers.groups:
            if group.broker_name == self._name:
                choose_master(self._view, group, self._panel.reload)
                return
        self._view.tell_error(self._view.t("The controllers do not answer."))
