"""The list of consumer groups."""

from urllib.parse import quote

from nicegui import ui

from bolide.console.pages.consumers.forms import open_create_form
from bolide.console.pages.consumers.texts import kind_text, state_cell
from bolide.console.pages.declaration import Section, page
from bolide.console.ui import fields, formats
from bolide.console.ui.layout import page_header
from bolide.console.ui.tables import Action, Column, DataTable, ListRequest, Row
from bolide.console.ui.view import View
from bolide.operations.consumers.listing import GroupFilter, GroupRow, list_groups
from bolide.operations.declaration import Role
from bolide.operations.views import Page

EVERY = 5.0


@page("/consumers", title="Consumers", section=Section.MESSAGING, icon="groups", order=2)
def consumers_page(view: View) -> None:
    """All consumer groups, with lag and members."""
    _Consumers(view)


def group_path(group: str, tab: str = "") -> str:
    """The page about a group."""
    return f"/consumers/{quote(group, safe='')}" + (f"?tab={tab}" if tab else "")


class _Consumers:
    def __init__(self, view: View) -> None:
        self._view = view
        self._t = t = view.t
        shown = view.query.get("show", "")
        self._show = GroupFilter(shown) if shown in {*GroupFilter} else GroupFilter.ALL
        self._system = view.query.get("system") == "1"
        page_header(view, t("Consumers"), actions=self._buttons)
        self._table = DataTable(
            view,
            [
                Column(name="name", label=t("Group"), kind="link", sortable=True),
                Column(name="state", label=t("State"), kind="badge"),
                Column(name="type", label=t("Type")),
                Column(name="clients", label=t("Clients"), kind="number", sortable=True),
                Column(name="lag", label=t("Backlog"), kind="number", sortable=True),
                Column(name="delay", label=t("Time lag"), kind="number", sortable=True),
                Column(name="tps", label=t("Messages/s"), kind="number", sortable=True),
                Column(name="retrying", label=t("To retry"), kind="number"),
                Column(name="dead_letters", label=t("Dead letters"), kind="number", sortable=True),
            ],
            self._load,
            self._row,
            label=t("Consumer groups"),
            sort="name",
            search=t("Search by name"),
            actions=self._actions() if view.may(Role.OPERATOR) else (),
            every=EVERY,
            empty=t("No consumer groups here."),
            empty_hint=t("A group appears with its first consumer, or when it is created."),
            toolbar=self._filters,
        )

    def _buttons(self) -> None:
        if self._view.may(Role.OPERATOR):
            ui.button(self._t("Create group"), icon="add", on_click=self._create).props(
                "unelevated no-caps"
            )

    def _filters(self) -> None:
        t = self._t
        names = {
            GroupFilter.ALL.value: t("All groups"),
            GroupFilter.LAGGING.value: t("With lag"),
            GroupFilter.ONLINE.value: t("With clients"),
            GroupFilter.OFFLINE.value: t("Without clients"),
            GroupFilter.PAUSED.value: t("Paused"),
            GroupFilter.DEAD_LETTERS.value: t("With dead letters"),
        }
        choice = fields.choice(t("Show"), names, self._show.value)
        choice.classes("group-filter").on_value_change(lambda event: self._choose(event.value))
        system = fields.switch(t("Groups of the brokers"), self._system)
        system.on_value_change(lambda event: self._set_system(bool(event.value)))

    def _actions(self) -> list[Action]:
        t = self._t
        return [
            Action(
                name="reset",
                label=t("Reset offsets"),
                icon="restore",
                handler=lambda row: self._view.open(group_path(row["key"], "offsets")),
            )
        ]

    def _choose(self, shown: str) -> None:
        self._show = GroupFilter(shown)
        self._view.set_query(show=None if self._show is GroupFilter.ALL else shown)
        self._table.first_page()

    def _set_system(self, system: bool) -> None:
        self._system = system
        self._view.set_query(system="1" if system else None)
        self._table.first_page()

    async def _load(self, request: ListRequest) -> Page[GroupRow]:
        return await self._view.run(
            list_groups,
            search=request.search,
            show=self._show,
            with_system=self._system,
            sort=request.sort,
            descending=request.descending,
            page=request.page,
            size=request.size,
        )

    def _row(self, group: GroupRow) -> Row:
        state, tone, hint = state_cell(self._view, group)
        return {
            "key": group.name,
            "name": group.name,
            "name_href": group_path(group.name),
            "state": state,
            "state_tone": tone,
            "state_hint": hint,
            "type": kind_text(self._view, group),
            "clients": formats.count(group.clients),
            "lag": formats.count(group.lag),
            "delay": formats.duration(self._view, group.delay_seconds),
            "tps": formats.rate(group.tps),
            "retrying": formats.count(group.retrying),
            "dead_letters": formats.count(group.dead_letters),
        }

    def _create(self) -> None:
        open_create_form(self._view, lambda name: self._view.open(group_path(name)))
