"""The drain of a broker as a guided action: plan, confirm, watch, stop it, or have it undone."""

from dataclasses import replace

from nicegui import ui

from bolide.console.ui import fields, formats
from bolide.console.ui.dialogs import FormDialog, confirm_and_run
from bolide.console.ui.layout import facts, section_title
from bolide.console.ui.panels import Panel, note
from bolide.console.ui.tables import Column, simple_table
from bolide.console.ui.view import View
from bolide.operations.declaration import Role
from bolide.operations.errors import NotFound
from bolide.operations.servers import drains
from bolide.operations.servers import members as cluster_members
from bolide.operations.servers.drains import DrainPlan, DrainProgress, DrainState, DrainUndone

_EVERY = 2.0
_SHOWN_NAMES = 30
_OVER = {DrainState.NONE, DrainState.STOPPED, DrainState.ENDED}
_TONES = {
    DrainState.DRAINING: ("info", "hourglass_top"),
    DrainState.UNKNOWN: ("warning", "help_outline"),
    DrainState.SAFE: ("good", "check_circle"),
    DrainState.STOPPED: ("info", "power_settings_new"),
    DrainState.ENDED: ("danger", "error_outline"),
}


class DrainTab:
    """The tab of a broker's page."""

    def __init__(self, view: View, name: str, broker_id: int) -> None:
        self._view, self._t = view, view.t
        self._name, self._id = name, broker_id
        self._panel = Panel(view, self._load, self._render, every=_EVERY)
        self._looked = ui.element("div").classes("tab-panel")

    async def _load(self) -> tuple[DrainProgress, bool | None, bool]:
        """The drain, whether the broker takes messages, and whether it is a slave."""
        found = await self._view.run(drains.show_drain, broker_name=self._name)
        # Buttons are built anew when something changes: the time of the last look is not shown.
        progress = replace(found, looked_ms=None)
        members = await self._view.run(cluster_members.list_brokers)
        here = [m for m in members.brokers if (m.name, m.id) == (self._name, self._id)]
        if not here:
            name = f"{self._name} ({self._id})"
            raise NotFound(self._t("There is no broker {name}.", name=name))
        return progress, here[0].takes_messages, self._id != 0

    def _render(self, data: tuple[DrainProgress, bool | None, bool]) -> None:
        progress, takes, is_slave = data
        t = self._t
        if is_slave:
            note(
                t(
                    "A slave takes no messages from producers, and can be stopped as it is, if its"
                    " master has enough others."
                )
            )
            return
        if progress.state is DrainState.NONE:
            self._render_none(takes)
        else:
            show_progress(self._view, progress)
        if not self._view.may(Role.ADMIN):
            return
        with ui.element("div").classes("button-row"):
            if progress.state in _OVER:
                ui.button(t("Drain this broker"), icon="logout", on_click=self._ask).props(
                    "unelevated no-caps color=primary"
                )
                ui.button(t("Look at what is open"), icon="search", on_click=self._look).props(
                    "outline no-caps"
                )
            if progress.state is not DrainState.NONE or takes is False:
                ui.button(t("Have producers return"), icon="undo", on_click=self._undo).props(
                    "outline no-caps"
                )

    def _render_none(self, takes: bool | None) -> None:
        t = self._t
        ui.label(
            t(
                "A drain takes this broker out of service without losing or delaying messages:"
                " producers leave, consumers read the rest, and you are told when it can be"
                " stopped."
            )
        )
        with ui.element("ol").classes("steps"):
            for text in (
                t("See which topics and producers are affected, and confirm."),
                t("Producers leave within 30 s; consumers go on reading."),
                t("Watch until nothing is open: writes, lag, timers, transactions, replicas."),
                t("Stop the broker; after its start it takes messages again. Or undo the drain."),
            ):
                with ui.element("li"):
                    ui.label(text)
        if takes is False:
            note(
                t(
                    "Producers are kept away from it now, and this console did not begin that or"
                    " has been restarted: nobody watches it here."
                ),
                kind="warning",
                icon="warning_amber",
            )

    def _ask(self) -> None:
        t = self._t
        title = t("Drain {name}", name=self._name)
        with FormDialog(self._view, title, t("Continue")) as form:
            settle = fields.number(
                t("Seconds without a write"), drains.SETTLE, minimum=0, maximum=3600,
                hint=t("Clients ask for routes every 30 s."),
            )  # fmt: skip
            groups = fields.text(
                t("Groups that need not consume the rest"), hint=t("Names with commas between")
            )

        async def submit() -> None:
            names = [name.strip() for name in groups.value.split(",") if name.strip()]
            await self._confirm(float(settle.value or 0), names)

        form.on_submit(submit)
        form.open()

    async def _confirm(self, settle: float, groups: list[str]) -> None:
        t = self._t
        await self._view.preview(drains.start_drain, broker_name=self._name)
        await confirm_and_run(
            self._view,
            drains.start_drain,
            {"broker_name": self._name, "settle": settle, "ignored_groups": groups},
            title=t("Have producers leave {name}?", name=self._name),
            button=t("Drain"),
            show_effect=self._show_plan,
            done=t("Producers leave {name}.", name=self._name),
            on_done=lambda _: self._began(),
        )

    def _began(self) -> None:
        self._looked.clear()
        self._panel.reload()

    def _show_plan(self, plan: DrainPlan) -> None:
        t = self._t
        facts(
            {
                t("Broker"): f"{plan.broker_name} {plan.address}",
                t("Topics that producers leave"): formats.count(plan.topics),
                t("Connected producer groups"): _names(plan.producers) or t("none"),
                t("Slaves"): _names(plan.slaves) or t("none"),
            }
        )
        if plan.sole_topics:
            note(
                t(
                    "No other broker takes messages of {count} topics: their producers fail."
                    " {names}",
                    count=len(plan.sole_topics), names=_names(plan.sole_topics),
                ),
                kind="danger", icon="warning",
            )  # fmt: skip

    async def _undo(self) -> None:
        t = self._t
        await confirm_and_run(
            self._view,
            drains.undo_drain,
            {"broker_name": self._name},
            title=t("Have producers return to {name}?", name=self._name),
            button=t("Undo the drain"),
            danger=False,
            on_done=self._undone,
        )

    def _undone(self, undone: DrainUndone) -> None:
        t = self._t
        self._view.tell(t("Producers return to {name}.", name=self._name))
        for failure in undone.failures:
            self._view.tell_error(failure.reason)
        self._panel.reload()

    def _look(self) -> None:
        self._looked.clear()
        with self._looked:
            section_title(self._t("What a drain would wait for now"))
            Panel(
                self._view,
                lambda: self._view.run(drains.look_at_open_work, broker_name=self._name),
                lambda found: show_progress(self._view, found),
            )


def show_progress(view: View, found: DrainProgress) -> None:
    """The state of a drain, and what is open."""
    t = view.t
    texts = {
        DrainState.DRAINING: t("Draining: do not stop the broker yet."),
        DrainState.UNKNOWN: t(
            "Nothing is open that the broker tells of; look at what it does not tell before you"
            " stop it."
        ),
        DrainState.SAFE: t("It is safe to stop the broker now."),
        DrainState.STOPPED: t("The broker was stopped. When it starts it takes messages again."),
        DrainState.ENDED: t("The drain is no longer watched; producers may come back."),
    }
    if found.state in texts:
        kind, icon = _TONES[found.state]
        note(texts[found.state], kind=kind, icon=icon)
    if found.reason:
        note(found.reason, kind="danger", icon="error_outline")
    if found.began_ms is not None:
        facts(
            {
                t("Drained since"): formats.moment(view, found.began_ms),
                t("Groups that are not waited for"): ", ".join(found.ignored_groups) or t("none"),
            }
        )
    if found.open:
        _show_open(view, found)
    elif found.looked_ms is not None and found.state is DrainState.NONE:
        note(t("Nothing is open now."), kind="good", icon="check_circle")
    for text in found.unknown:
        note(t("Not known: {what}", what=text), kind="warning", icon="help_outline")
    for text in found.remarks:
        note(t("Also consider: {what}", what=text))


def _show_open(view: View, found: DrainProgress) -> None:
    t = view.t
    simple_table(
        [
            Column(name="what", label=t("Still open")),
            Column(name="count", label=t("Count"), kind="number"),
            Column(name="advice", label=t("What helps")),
        ],
        [
            {
                "key": f"{each.kind} {each.what}",
                "what": each.what,
                "count": formats.size(each.count) if each.kind == "replicas"
                else formats.count(each.count) if each.count else "",
                "advice": each.advice,
            }
            for each in found.open[:200]
        ],
        label=t("What is open"),
    )  # fmt: skip
    if len(found.open) > 200:
        ui.label(t("and {count} more", count=len(found.open) - 200)).classes("small")


def _names(names: list[str]) -> str:
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" … +{more}" if more > 0 else "")
