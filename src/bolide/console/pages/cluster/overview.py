"""The cluster: its brokers, its controllers, and where the settings of brokers differ."""

from collections.abc import Callable, Iterable
from functools import partial
from urllib.parse import quote

from nicegui import ui

from bolide.console.pages.declaration import Section, page
from bolide.console.ui import fields, formats
from bolide.console.ui.dialogs import FormDialog, confirm_and_run
from bolide.console.ui.layout import Figure, facts, page_header, section_title, tabs
from bolide.console.ui.panels import Panel, failures_note, note
from bolide.console.ui.tables import Column, DataTable, ListRequest, Row, simple_table
from bolide.console.ui.view import View
from bolide.operations.declaration import Role
from bolide.operations.servers import members as cluster_members
from bolide.operations.servers import replication
from bolide.operations.servers import settings as server_settings
from bolide.operations.servers.members import BrokerMember, MemberRole, Members, MemberState
from bolide.operations.servers.replication import (
    Controllers,
    ElectedGroup,
    ElectionEffect,
    GroupMember,
)
from bolide.operations.servers.settings import SettingDifference
from bolide.operations.views import Page, page_of, unknown_last

_EVERY = 3.0
STATE_TONES = {
    MemberState.UP: "good",
    MemberState.SILENT: "danger",
    MemberState.STOPPED: "warning",
}
_FULL, _VERY_FULL = 0.75, 0.9
"""Shares of a disk at which brokers delete early, and refuse messages."""


@page("/cluster", title="Cluster", section=Section.OVERVIEW, icon="dns", order=3)
def cluster_page(view: View) -> None:
    """All brokers with state, load and disk; controllers; differing settings."""
    t = view.t
    page_header(view, t("Cluster"))
    names = {
        "brokers": t("Brokers"),
        "controllers": t("Controllers"),
        "differences": t("Differing settings"),
    }

    def build(name: str) -> None:
        match name:
            case "brokers":
                _Brokers(view)
            case "controllers":
                _Elections(view)
            case _:
                _differences(view)

    tabs(view, names, build)


def broker_path(name: str, broker_id: int) -> str:
    return f"/cluster/brokers/{quote(name, safe='')}/{broker_id}"


def state_name(view: View, state: MemberState) -> str:
    t = view.t
    return {
        MemberState.UP: t("up"),
        MemberState.SILENT: t("does not answer"),
        MemberState.STOPPED: t("stopped"),
    }[state]


def state_text(view: View, member: BrokerMember) -> str:
    """Up, or since when it is not."""
    t = view.t
    if member.state is MemberState.UP:
        return t("up")
    if member.state is MemberState.STOPPED:
        return t("stopped, last seen {time}", time=formats.ago(view, member.last_seen_ms))
    if member.last_seen_ms is None:
        return t("does not answer")
    return t("does not answer since {time}", time=formats.moment(view, member.last_seen_ms))


def disk_tone(used: float | None) -> str:
    if used is None or used < _FULL:
        return ""
    return "danger" if used >= _VERY_FULL else "warning"


class _Brokers:
    """Figures of all brokers, and the table of them."""

    def __init__(self, view: View) -> None:
        self._view = view
        t = self._t = view.t
        with ui.element("div").classes("figures"):
            self._up = Figure(t("Brokers that answer"))
            self._in = Figure(t("Messages in per second"))
            self._out = Figure(t("Messages out per second"))
            self._disk = Figure(t("Fullest disk"))
            self._lag = Figure(t("Largest replica lag"))
        columns = [
            Column(name="name", label=t("Broker"), kind="link", sortable=True),
            Column(name="role", label=t("Role"), kind="badge"),
            Column(name="state", label=t("State"), kind="badge", sortable=True),
            Column(name="address", label=t("Address"), kind="code"),
            Column(name="version", label=t("Version")),
            Column(name="in_rate", label=t("In/s"), kind="number", sortable=True),
            Column(name="out_rate", label=t("Out/s"), kind="number", sortable=True),
            Column(name="disk_used", label=t("Disk"), kind="badge", sortable=True),
            Column(name="lag", label=t("Replication"), kind="badge"),
            Column(name="up_since_ms", label=t("Up since"), sortable=True),
        ]
        DataTable(
            view,
            columns,
            self._load,
            self._row,
            label=t("Brokers"),
            sort="name",
            search=t("Search brokers"),
            every=_EVERY,
            empty=t("No broker is registered."),
            empty_hint=t("A broker registers with the NameServers of its namesrvAddr."),
        )

    async def _load(self, request: ListRequest) -> Page[BrokerMember]:
        members = await self._view.run(cluster_members.list_brokers)
        self._show_figures(members)
        words = request.search.lower().split()
        found = [each for each in members.brokers if all(w in _words(each) for w in words)]
        if request.sort and request.sort != "name":
            found.sort(
                key=unknown_last(
                    lambda each: getattr(each, request.sort, None), descending=request.descending
                ),
                reverse=request.descending,
            )
        elif request.descending:
            found.reverse()
        return page_of(found, page=request.page, size=request.size, failures=members.failures)

    def _show_figures(self, members: Members) -> None:
        t, brokers = self._t, members.brokers
        up = sum(each.state is MemberState.UP for each in brokers)
        self._up.set(
            f"{up} / {len(brokers)}",
            hint=", ".join(members.clusters),
            tone="good" if up == len(brokers) else "danger",
        )
        self._in.set(formats.rate(_sum(each.in_rate for each in brokers)))
        self._out.set(formats.rate(_sum(each.out_rate for each in brokers)))
        known = [each for each in brokers if each.disk_used is not None]
        fullest = max(known, key=lambda each: each.disk_used or 0, default=None)
        used = fullest.disk_used if fullest else None
        free = fullest.disk_free if fullest else None
        hint = t("{size} free", size=formats.size(free)) if free is not None else ""
        self._disk.set(formats.percent(used), hint=hint, tone=disk_tone(used))
        lags = [each.lag for each in brokers if each.lag is not None]
        slaves = sum(each.id != 0 for each in brokers)
        text = t("replicas: {count}", count=slaves)
        self._lag.set(formats.size(max(lags, default=None)), hint=text)

    def _row(self, each: BrokerMember) -> Row:
        t, view = self._t, self._view
        takes = each.takes_messages is not False
        return {
            "key": f"{each.name} {each.id} {each.address}",
            "name": f"{each.name} ({each.id})",
            "name_href": broker_path(each.name, each.id),
            "name_hint": each.cluster,
            "role": t(each.role.value) if takes else t("drained"),
            "role_tone": "info" if each.role is MemberRole.MASTER and takes else "warning"
            if not takes or each.role is MemberRole.ACTING_MASTER else "quiet",
            "state": state_text(view, each),
            "state_tone": STATE_TONES[each.state],
            "state_hint": each.reason,
            "address": each.address,
            "version": f"{each.product} {each.version}" if each.product else formats.UNKNOWN,
            "in_rate": formats.rate(each.in_rate),
            "out_rate": formats.rate(each.out_rate),
            "disk_used": formats.percent(each.disk_used),
            "disk_used_tone": disk_tone(each.disk_used) or "quiet",
            "disk_used_hint": t("{size} free", size=formats.size(each.disk_free))
            if each.disk_free is not None else "",
            **self._replication(each),
            "up_since_ms": formats.moment(view, each.up_since_ms),
            "up_since_ms_hint": formats.ago(view, each.up_since_ms),
        }  # fmt: skip

    def _replication(self, each: BrokerMember) -> Row:
        t = self._t
        if each.id != 0:
            if each.lag is None:
                return {"lag": formats.UNKNOWN}
            behind = t("{size} behind", size=formats.size(each.lag))
            return {
                "lag": behind if each.lag else t("caught up"),
                "lag_tone": "good" if each.lag < 2**20 else "warning",
            }
        if each.replicas is None:
            return {"lag": ""}
        return {
            "lag": t("replicas: {count}", count=each.replicas),
            "lag_tone": "good" if each.replicas else "danger",
        }


def _words(member: BrokerMember) -> str:
    parts = (member.cluster, member.name, member.address, member.role, member.state)
    return " ".join([*parts, str(member.version), str(member.product)]).lower()


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None if nothing is."""
    known = [each for each in values if each is not None]
    return sum(known) if known else None


# ---- controllers


class _Elections:
    """The controllers, and the groups whose masters they elect."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._panel = Panel(
            view,
            lambda: view.run(replication.list_controllers),
            self._render,
            every=_EVERY,
            is_empty=lambda found: not found.controllers and not found.failures,
            empty=view.t("The brokers of this cluster have no controllers."),
        )

    def _render(self, found: Controllers) -> None:
        view, t = self._view, self._view.t
        failures_note(view, found.failures)
        simple_table(
            [
                Column(name="address", label=t("Controller"), kind="code"),
                Column(name="state", label=t("State"), kind="badge"),
                Column(name="version", label=t("Version")),
                Column(name="reason", label=t("Reason")),
            ],
            [
                {
                    "key": each.address,
                    "address": each.address,
                    "state": t("leads") if each.leads else t("follows") if each.answers
                    else t("does not answer"),
                    "state_tone": "info" if each.leads else "good" if each.answers else "danger",
                    "version": f"{each.product or ''} {each.protocol_version or formats.UNKNOWN}",
                    "reason": each.reason,
                }
                for each in found.controllers
            ],
            label=t("Controllers"),
        )  # fmt: skip
        for group in found.groups:
            section_title(t("Broker group {name}", name=group.broker_name))
            self._render_group(group)

    def _render_group(self, group: ElectedGroup) -> None:
        t = self._view.t
        facts(
            {
                t("Master"): group.master_address or t("none: nothing is taken"),
                t("Epoch of the master"): str(group.master_epoch),
                t("Epoch of the sync-state set"): str(group.sync_state_set_epoch),
                t("In the sync-state set"): f"{sum(bool(m.in_sync) for m in group.members)}"
                f" / {len(group.members)}",
            }
        )
        members_table(self._view, group.members, group.broker_name)
        if self._view.may(Role.ADMIN) and len(group.members) > 1:
            with ui.element("div").classes("button-row"):
                ui.button(
                    t("Elect another master"), icon="how_to_vote",
                    on_click=lambda: choose_master(self._view, group, self._panel.reload),
                ).props("outline no-caps")  # fmt: skip


def members_table(view: View, members: list[GroupMember], name: str) -> None:
    """The members of a broker group with their replication."""
    t = view.t
    columns = [
        Column(name="id", label=t("Id"), kind="number"),
        Column(name="address", label=t("Address"), kind="code"),
        Column(name="role", label=t("Role"), kind="badge"),
        Column(name="state", label=t("State"), kind="badge"),
        Column(name="in_sync", label=t("In sync"), kind="badge"),
        Column(name="lag", label=t("Replica lag"), kind="number"),
        Column(name="log_end", label=t("Log end"), kind="number"),
        Column(name="epochs", label=t("Epochs")),
    ]
    rows = [
        {
            "key": f"{each.id} {each.address}",
            "id": str(each.id),
            "address": each.address,
            "role": t(each.role.value),
            "role_tone": "info" if each.role is MemberRole.MASTER else "quiet",
            "state": state_name(view, each.state) if each.state else t("not registered"),
            "state_tone": STATE_TONES[each.state] if each.state else "danger",
            "in_sync": formats.UNKNOWN if each.in_sync is None
            else t("yes") if each.in_sync else t("no"),
            "in_sync_tone": "quiet" if each.in_sync is None
            else "good" if each.in_sync else "warning",
            "lag": formats.size(each.lag),
            "log_end": formats.count(each.log_end),
            "epochs": _epochs(each),
        }
        for each in members
    ]  # fmt: skip
    if all(each.epochs is None for each in members):
        columns.pop()
    simple_table(columns, rows, label=t("Members of {name}", name=name))


def _epochs(member: GroupMember) -> str:
    """The last ones, such as 3 from 1,204."""
    shown = [f"{each.epoch} ≥ {each.begin:,}" for each in (member.epochs or [])[-3:]]
    return ", ".join(shown) or formats.UNKNOWN


def choose_master(view: View, group: ElectedGroup, on_done: Callable[[], None]) -> None:
    """Ask which member becomes the master, and then whether the effect is wanted."""
    t = view.t
    others = {
        each.id: f"{each.id}  {each.address}"
        for each in group.members
        if each.id != group.master_id
    }
    with FormDialog(view, t("Elect another master"), t("Continue")) as form:
        first = next((m.id for m in group.members if m.id in others and m.in_sync), min(others))
        chosen = fields.choice(t("New master"), others, first)

    async def submit() -> None:
        await _confirm_election(view, group.broker_name, int(chosen.value), on_done)

    form.on_submit(submit)
    form.open()


async def _confirm_election(
    view: View, name: str, broker_id: int, on_done: Callable[[], None]
) -> None:
    t, arguments = view.t, {"broker_name": name, "broker_id": broker_id}
    await view.preview(replication.elect_master, **arguments)
    await confirm_and_run(
        view,
        replication.elect_master,
        arguments,
        title=t("Make member {id} the master of {name}?", id=broker_id, name=name),
        button=t("Elect"),
        show_effect=partial(_show_election, view),
        done=t("{name} has a new master.", name=name),
        on_done=lambda _: on_done(),
    )


def _show_election(view: View, effect: ElectionEffect) -> None:
    t = view.t
    old = f"{effect.master_id}  {effect.master_address}"
    facts(
        {
            t("Master now"): t("none") if effect.master_id is None else old,
            t("New master"): f"{effect.new_master_id}  {effect.new_master_address}",
            t("Alive"): t("yes") if effect.alive else t("no"),
            t("In the sync-state set"): t("yes") if effect.in_sync else t("no"),
        }
    )
    if effect.loses_messages:
        note(t("Acknowledged messages that it lacks are lost."), kind="danger", icon="warning")
    note(t("The group refuses messages for a moment."), kind="warning")


# ---- differing settings


def _differences(view: View) -> None:
    t = view.t
    expected = view.query.get("expected") == "1"

    async def load(request: ListRequest) -> Page[SettingDifference]:
        return await view.run(
            server_settings.list_differences,
            search=request.search,
            expected=bool(shown.value),
            page=request.page,
            size=request.size,
        )

    def row(each: SettingDifference) -> Row:
        return {
            "key": each.key,
            "name": each.key,
            "name_hint": each.meaning,
            "values": "   ".join(f"{v.place}: {v.value or '(empty)'}" for v in each.values),
        }

    def toggle() -> None:
        view.set_query(expected="1" if shown.value else None)
        table.first_page()

    holder: list[ui.switch] = []

    def toolbar() -> None:
        holder.append(fields.switch(t("Also names, ports and paths"), expected))

    table = DataTable(
        view,
        [
            Column(name="name", label=t("Setting"), kind="code"),
            Column(name="values", label=t("Values")),
        ],
        load,
        row,
        label=t("Differing settings"),
        search=t("Search settings"),
        toolbar=toolbar,
        empty=t("All brokers that answer have the same settings."),
    )
    shown = holder[0]
    shown.on_value_change(toggle)
