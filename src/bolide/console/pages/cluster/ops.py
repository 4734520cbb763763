"""The health checklist, NameServers, versions, settings, and the connection of the console."""

from dataclasses import replace
from functools import partial
from math import ceil

from nicegui import ui

from bolide.console.pages.cluster.settings_table import SettingsTable
from bolide.console.pages.declaration import Section, page
from bolide.console.ui import fields, formats
from bolide.console.ui.dialogs import FormDialog, confirm_and_run
from bolide.console.ui.layout import Figure, facts, page_header, section_title, tabs
from bolide.console.ui.panels import Panel, Poll, empty_state, error_state, failures_note, note
from bolide.console.ui.props import set_props
from bolide.console.ui.tables import Column, simple_table
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.operations.declaration import Role
from bolide.operations.servers import connection, health
from bolide.operations.servers import settings as server_settings
from bolide.operations.servers.connection import Connection, ConnectionEffect
from bolide.operations.servers.health import Check, CheckFinding, CheckState, Health, NameServerList
from bolide.operations.servers.settings import SettingServer

_TONES = {
    CheckState.ERROR: "danger",
    CheckState.WARNING: "warning",
    CheckState.UNKNOWN: "warning",
    CheckState.NOTE: "info",
    CheckState.OK: "good",
    CheckState.NOT_CHECKED: "quiet",
}
_ICONS = {
    CheckState.ERROR: "error",
    CheckState.WARNING: "warning",
    CheckState.UNKNOWN: "help",
    CheckState.NOTE: "info",
    CheckState.OK: "check_circle",
    CheckState.NOT_CHECKED: "remove_circle_outline",
}
_NAMES_OF_STATES = {
    CheckState.ERROR: "Errors",
    CheckState.WARNING: "Warnings",
    CheckState.UNKNOWN: "Could not be checked",
    CheckState.NOTE: "Notes",
    CheckState.OK: "In order",
}


@page("/ops", title="Ops", section=Section.OVERVIEW, icon="health_and_safety", order=2)
def ops_page(view: View) -> None:
    """What is wrong with the cluster, and what mends it."""
    t = view.t
    page_header(view, t("Ops"))
    names = {
        "health": t("Health"),
        "name-servers": t("NameServers"),
        "versions": t("Versions"),
        "settings": t("Settings"),
        "connection": t("Connection of the console"),
    }

    def build(name: str) -> None:
        match name:
            case "health":
                _Checklist(view)
            case "name-servers":
                Panel(view, partial(_load_name_servers, view),
                      partial(_show_name_servers, view), every=5)  # fmt: skip
            case "versions":
                Panel(view, lambda: view.run(health.list_versions), partial(_show_versions, view))
            case "settings":
                _Settings(view)
            case _:
                _Connection(view)

    tabs(view, names, build)


class _Checklist:
    """The checklist; an examination takes seconds, so that it is repeated when somebody asks."""

    def __init__(self, view: View) -> None:
        self._view, self._t = view, view.t
        t, self._again = view.t, False
        with ui.element("div").classes("figures"):
            self._figures = {state: Figure(t(name)) for state, name in _NAMES_OF_STATES.items()}
        with ui.element("div").classes("page-actions"):
            ui.button(t("Check again"), icon="refresh", on_click=self._check_again).props(
                "outline no-caps"
            )
            self._when = ui.label("").classes("page-subtitle").props("role=status")
        self._panel = Panel(view, self._load, self._render)

    async def _load(self) -> Health:
        again, self._again = self._again, False
        found = await self._view.run(health.show_health, again=again)
        t, view = self._t, self._view
        self._when.text = t(
            "Examined at {time}, in {seconds}",
            time=formats.moment(view, found.examined_ms),
            seconds=formats.duration(view, found.seconds),
        )
        for state, figure in self._figures.items():
            count = found.counts.get(state.value, 0)
            tone = _TONES[state] if count and state is not CheckState.NOTE else ""
            figure.set(formats.count(count), tone=tone if tone != "quiet" else "")
        return found

    def _check_again(self) -> None:
        self._again = True
        self._when.text = self._t("Examining…")
        self._panel.reload()

    def _render(self, found: Health) -> None:
        t = self._t
        if not found.is_reachable:
            note(t("No NameServer answers."), kind="danger", icon="error")
        wrong = [c for c in found.checks if c.state in set(list(CheckState)[:4])]
        fine = [c for c in found.checks if c.state is CheckState.OK]
        rest = [c for c in found.checks if c.state is CheckState.NOT_CHECKED]
        if not wrong:
            note(t("Everything that was checked is in order."), kind="good", icon="check_circle")
        for check in wrong:
            self._show_check(check)
        section_title(t("Checked and in order"))
        for check in fine:
            self._show_line(check)
        if rest:
            section_title(t("Nothing to check"))
            for check in rest:
                self._show_line(check)

    def _show_line(self, check: Check) -> None:
        with ui.element("div").classes("check-line"):
            _icon(check.state)
            ui.label(self._t(check.title))
            where = ", ".join(each.where for each in check.findings[:3])
            ui.label(where).classes("page-subtitle")

    def _show_check(self, check: Check) -> None:
        t = self._t
        with set_props(ui.element("article").classes("check"), data_check=check.id):
            with ui.element("div").classes("check-line"):
                _icon(check.state)
                ui.label(t(check.title)).classes("check-title")
                ui.label(t(check.state.value)).classes(f"badge badge-{_TONES[check.state]}")
            for finding in check.findings:
                if finding.state is not CheckState.OK:
                    self._show_finding(finding)

    def _show_finding(self, finding: CheckFinding) -> None:
        t = self._t
        with ui.element("div").classes("finding"):
            with ui.element("div"):
                ui.label(finding.where).classes("mono small")
                ui.label(finding.what)
                if finding.why:
                    ui.label(finding.why).classes("page-subtitle")
            if finding.advice:
                with ui.element("div").classes("advice"):
                    ui.label(finding.advice).classes("mono")
                    copy = ui.button(
                        icon="content_copy", on_click=partial(self._view.copy, finding.advice)
                    )
                    copy.props("flat round dense size=sm").props["aria-label"] = t(
                        "Copy the command"
                    )


def _icon(state: CheckState) -> None:
    ui.icon(_ICONS[state]).classes(f"tone-{_TONES[state]}").props("aria-hidden=true")


async def _load_name_servers(view: View) -> NameServerList:
    """With rounded times, so that the table is not built anew for a millisecond."""
    found = await view.run(health.list_name_servers)
    servers = [
        replace(each, seconds=None if each.seconds is None else ceil(each.seconds * 100) / 100)
        for each in found.name_servers
    ]
    return replace(found, name_servers=servers)


def _show_name_servers(view: View, found: NameServerList) -> None:
    t = view.t
    if found.agree is False:
        note(
            t("The NameServers do not know the same: which brokers and topics a client finds"
              " depends on the one that it asks."),
            kind="danger", icon="error",
        )  # fmt: skip
    elif found.agree:
        note(t("All NameServers that answer know the same."), kind="good", icon="check_circle")
    failures_note(view, found.failures)
    simple_table(
        [
            Column(name="address", label=t("NameServer"), kind="code"),
            Column(name="state", label=t("State"), kind="badge"),
            Column(name="seconds", label=t("Answers within"), kind="number"),
            Column(name="brokers", label=t("Brokers"), kind="number"),
            Column(name="topics", label=t("Topics"), kind="number"),
            Column(name="version", label=t("Version")),
            Column(name="lacks", label=t("Lacks")),
        ],
        [
            {
                "key": each.address,
                "address": each.address,
                "state": t("answers") if each.answers else t("does not answer"),
                "state_tone": "good" if each.answers else "danger",
                "seconds": formats.duration(view, each.seconds),
                "brokers": formats.count(each.brokers),
                "topics": formats.count(each.topics),
                "version": f"{each.product or ''} {each.protocol_version or formats.UNKNOWN}",
                "lacks": ", ".join([*each.lacks_brokers, *each.lacks_topics])
                + (f" … ({each.lacked_topics})" if each.lacked_topics > 20 else ""),
            }
            for each in found.name_servers
        ],
        label=t("NameServers"),
    )  # fmt: skip


def _show_versions(view: View, found: health.Versions) -> None:
    t = view.t
    if found.is_mixed:
        note(
            t("The brokers have different versions, as is expected during an upgrade only."),
            kind="warning", icon="warning_amber",
        )  # fmt: skip
    failures_note(view, found.failures)
    simple_table(
        [
            Column(name="kind", label=t("Server")),
            Column(name="name", label=t("Name")),
            Column(name="address", label=t("Address"), kind="code"),
            Column(name="product", label=t("Product")),
            Column(name="version", label=t("Version"), kind="code"),
            Column(name="protocol", label=t("Version of the protocol"), kind="code"),
        ],
        [
            {
                "key": f"{each.kind} {each.address}",
                "kind": t(each.kind),
                "name": each.name if each.kind == "broker" else "",
                "address": each.address,
                "product": each.product or formats.UNKNOWN,
                "version": each.version or formats.UNKNOWN,
                "protocol": each.protocol_version or formats.UNKNOWN,
            }
            for each in found.servers
        ],
        label=t("Versions"),
    )
    facts({t("Python of the console"): found.python})


class _Settings:
    """Choose a server, and see its settings."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._servers: list[SettingServer] = []
        with ui.element("div").classes("panel filters") as self._filters:
            pass
        self._place = ui.element("div").classes("tab-panel")
        Poll(view, self._load, self._show, on_error=self._fail)

    async def _load(self) -> list[SettingServer]:
        return await self._view.run(server_settings.list_setting_servers)

    def _fail(self, error: BolideError) -> None:
        with self._place:
            error_state(self._view, error)

    def _show(self, servers: list[SettingServer]) -> None:
        t = self._view.t
        self._servers = servers
        names = {f"{each.kind} {each.address}": f"{each.name}  {each.address}" for each in servers}
        if not names:
            with self._place:
                empty_state(t("No server answers."))
            return
        chosen = self._view.query.get("server", "")
        if chosen not in names:
            chosen = next(iter(names))
        with self._filters:
            fields.choice(t("Server"), names, chosen, on_change=lambda e: self._choose(e.value))
        self._build(chosen)

    def _choose(self, key: str) -> None:
        for name in [name for name in self._view.query if name != "tab"]:
            del self._view.query[name]
        self._view.set_query(server=key)
        self._build(key)

    def _build(self, key: str) -> None:
        found = next(each for each in self._servers if f"{each.kind} {each.address}" == key)
        self._place.clear()
        with self._place:
            SettingsTable(self._view, found.kind, found.address)


class _Connection:
    """How the console reaches the cluster, with the switches of RocketMQ's dashboard."""

    def __init__(self, view: View) -> None:
        self._view, self._t = view, view.t
        self._panel = Panel(view, lambda: view.run(connection.show_connection), self._render)

    def _render(self, found: Connection) -> None:
        t = self._t
        on, off = t("on"), t("off")
        verifies = {True: t("yes"), False: t("no: any server is accepted"), None: formats.UNKNOWN}
        facts(
            {
                t("NameServers"): "; ".join(found.name_servers),
                t("TLS (useTLS)"): on if found.use_tls else off,
                t("Certificates are checked"): verifies[found.verifies],
                t("VIP channel (vipChannelEnabled)"): on if found.vip_channel else off,
                t("Requests are signed"): t("yes") if found.is_signed else t("no"),
            }
        )
        ui.label(
            t(
                "The VIP channel is a second port of each broker, two below the first: with it,"
                " messages that are sent from the console go there."
            )
        ).classes("page-subtitle")
        if not found.can_change:
            note(t("They are chosen at the start of the console, and hold for all its users."))
        elif self._view.may(Role.ADMIN):
            with ui.element("div").classes("button-row"):
                ui.button(
                    t("Change the connection"), icon="tune",
                    on_click=partial(self._change, found),
                ).props("outline no-caps")  # fmt: skip

    def _change(self, found: Connection) -> None:
        t = self._t
        with FormDialog(self._view, t("Change the connection"), t("Try it")) as form:
            tls = fields.switch(t("TLS (useTLS)"), found.use_tls)
            vip = fields.switch(t("VIP channel (vipChannelEnabled)"), found.vip_channel)

        async def submit() -> None:
            await confirm_and_run(
                self._view,
                connection.change_connection,
                {"use_tls": bool(tls.value), "vip_channel": bool(vip.value)},
                title=t("Switch the connection for all users of the console?"),
                button=t("Switch"),
                show_effect=self._show_effect,
                danger=False,
                done=t("The connection is switched."),
                on_done=lambda _: self._panel.reload(),
            )

        form.on_submit(submit)
        form.open()

    def _show_effect(self, effect: ConnectionEffect) -> None:
        t = self._t
        if effect.works:
            note(t("It was tried, and works."), kind="good", icon="check_circle")
        else:
            note(t("It was tried, and not all servers answer."), kind="danger", icon="error")
        simple_table(
            [
                Column(name="address", label=t("Address"), kind="code"),
                Column(name="state", label=t("State"), kind="badge"),
                Column(name="reason", label=t("Reason")),
            ],
            [
                {
                    "key": each.address,
                    "address": each.address,
                    "state": t("answers") if each.answers else t("does not answer"),
                    "state_tone": "good" if each.answers else "danger",
                    "reason": each.reason,
                }
                for each in effect.trials
            ],
            label=t("What was tried"),
        )
