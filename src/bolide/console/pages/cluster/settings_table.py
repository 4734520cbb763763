"""The settings of one server: search, what differs, what they mean, and changes."""

from typing import Any

from nicegui import ui

from bolide.console.ui import fields, formats
from bolide.console.ui.dialogs import FormDialog, confirm_and_run
from bolide.console.ui.layout import facts
from bolide.console.ui.panels import note
from bolide.console.ui.tables import Action, Column, DataTable, ListRequest, Row, simple_table
from bolide.console.ui.view import View
from bolide.operations.declaration import Role
from bolide.operations.servers import settings as server_settings
from bolide.operations.servers.members import Product
from bolide.operations.servers.settings import (
    ServerKind,
    ServerSetting,
    SettingEffect,
    Shown,
    TakesEffect,
)
from bolide.operations.views import Page

_CHANGEABLE = {TakesEffect.AT_ONCE, TakesEffect.AFTER_RESTART, TakesEffect.UNKNOWN}


class SettingsTable:
    """The table of one server's settings."""

    def __init__(self, view: View, kind: ServerKind, address: str) -> None:
        self._view, self._kind, self._address = view, kind, address
        self._t = t = view.t
        self._shown_in_url = view.query.get("shown", Shown.ALL.value)
        self._notes = ui.element("div").classes("settings-notes")
        self._product: Product | None = None
        self._told = False
        self._items: dict[str, ServerSetting] = {}
        actions = [Action(name="show", label=t("Explain"), icon="info", handler=self._explain)]
        if view.may(Role.ADMIN):
            actions.append(
                Action(name="change", label=t("Change"), icon="edit", handler=self._change)
            )
        with ui.element("div").classes("settings"):
            self._table = self._make_table(actions)

    def _make_table(self, actions: list[Action]) -> DataTable[ServerSetting]:
        t = self._t
        return DataTable(
            self._view,
            [
                Column(name="name", label=t("Setting"), kind="code"),
                Column(name="value", label=t("Value"), kind="code"),
                Column(name="state", label=t("State"), kind="badge"),
                Column(name="default", label=t("Default"), kind="code"),
                Column(name="unit", label=t("Unit")),
                Column(name="effect", label=t("Takes effect")),
            ],
            self._load,
            self._row,
            label=t("Settings of {address}", address=self._address),
            search=t("Search settings"),
            actions=actions,
            toolbar=self._toolbar,
            empty=t("No setting is like that."),
        )

    def _toolbar(self) -> None:
        t = self._t
        names = {
            Shown.ALL.value: t("All settings"),
            Shown.CHANGED.value: t("Other than the default"),
            Shown.WAITING.value: t("Waiting for a restart"),
        }
        value = self._shown_in_url if self._shown_in_url in names else Shown.ALL.value
        self._shown = ui.select(names, value=value, on_change=self._filter)
        self._shown.props("outlined dense options-dense").props["aria-label"] = t("Which settings")
        self._counts = ui.label("").classes("small")

    def _filter(self) -> None:
        value = self._shown.value
        self._view.set_query(shown=None if value == Shown.ALL.value else value)
        self._table.first_page()

    async def _load(self, request: ListRequest) -> Page[ServerSetting]:
        found = await self._view.run(
            server_settings.list_settings,
            kind=self._kind,
            address=self._address,
            search=request.search,
            shown=Shown(self._shown.value),
            page=request.page,
            size=request.size,
        )
        self._product = found.product
        self._items = {each.key: each for each in found.settings.items}
        t = self._t
        self._counts.text = t(
            "{changed} other than the default, {waiting} waiting for a restart",
            changed=found.changed, waiting=found.waiting,
        )  # fmt: skip
        if found.product is Product.ROCKETMQ and not self._told:
            self._told = True
            with self._notes:
                note(
                    t(
                        "This is a server of RocketMQ: defaults and meanings are those of Bolide,"
                        " and it does not tell which changes wait for a restart."
                    )
                )
        return found.settings

    def _row(self, each: ServerSetting) -> Row:
        t = self._t
        state, tone = "", "quiet"
        if each.in_force is not None:
            state, tone = t("waits for a restart"), "warning"
        elif each.no_effect:
            state = t("no effect")
        elif each.differs:
            state, tone = t("changed"), "info"
        return {
            "key": each.key,
            "name": each.key,
            "name_hint": each.meaning,
            "value": each.value,
            "value_hint": t("in force: {value}", value=each.in_force) if each.in_force else "",
            "state": state,
            "state_tone": tone,
            "default": formats.UNKNOWN if each.default is None else each.default,
            "unit": t(each.unit) if each.unit else "",
            "effect": effect_text(self._view, each.takes_effect),
        }

    def _explain(self, row: Row) -> None:
        t, each = self._t, self._items.get(str(row["key"]))
        if each is None:
            return
        with FormDialog(self._view, each.key, t("Copy")) as form:
            ui.label(each.meaning or t("Its meaning is not known."))
            facts(_facts(self._view, each))
            if each.no_effect:
                note(t("It has no effect: {reason}", reason=each.no_effect))

        async def copy() -> None:
            self._view.copy(f"{each.key}={each.value}")

        form.on_submit(copy)
        form.open()

    def _change(self, row: Row) -> None:
        t, each = self._t, self._items.get(str(row["key"]))
        if each is None:
            return
        if each.takes_effect not in _CHANGEABLE:
            self._view.tell_error(
                t("{key} changes only in the file of the server, at a restart.", key=each.key)
            )
            return
        with FormDialog(self._view, t("Change {key}", key=each.key), t("Continue")) as form:
            ui.label(each.meaning)
            facts(_facts(self._view, each))
            value = self._field(each)

        async def submit() -> None:
            await self._confirm(each.key, str(value.value if value.value is not None else ""))

        form.on_submit(submit)
        form.open()

    def _field(self, each: ServerSetting) -> Any:
        t = self._t
        if each.choices and self._product is Product.BOLIDE:
            options = list(dict.fromkeys([each.value, *each.choices]))
            return fields.choice(t("New value"), options, each.value)
        hint = ", ".join(part for part in (each.allowed, each.unit and t(each.unit)) if part)
        return fields.text(t("New value"), each.value, hint=hint)

    async def _confirm(self, key: str, value: str) -> None:
        t, change = self._t, server_settings.change_setting
        arguments = {"kind": self._kind, "address": self._address, "key": key, "value": value}
        await self._view.preview(change, **arguments)  # what is wrong is shown in the form
        await confirm_and_run(
            self._view,
            change,
            arguments,
            title=t("Change {key} at {address}?", key=key, address=self._address),
            button=t("Change"),
            show_effect=self._show_effect,
            danger=False,
            done=t("{key} is changed.", key=key),
            on_done=lambda _: self._table.reload(),
        )

    def _show_effect(self, effect: SettingEffect) -> None:
        t = self._t
        facts(
            {
                t("Before"): effect.before or t("(empty)"),
                t("After"): effect.after or t("(empty)"),
                t("Default"): formats.UNKNOWN if effect.default is None else effect.default,
                t("Takes effect"): effect_text(self._view, effect.takes_effect),
            }
        )
        for text in effect.warnings:
            note(t(text), kind="warning")
        others = [each for each in effect.elsewhere if each.value != effect.after]
        if others:
            ui.label(t("Not changed: other servers have"))
            simple_table(
                [
                    Column(name="place", label=t("Server")),
                    Column(name="value", label=t("Value"), kind="code"),
                ],
                [
                    {"key": each.address, "place": f"{each.place} {each.address}",
                     "value": each.value}
                    for each in others[:20]
                ],
                label=t("Other servers"),
            )  # fmt: skip


def _facts(view: View, each: ServerSetting) -> dict[str, str]:
    t = view.t
    found = {
        t("Value"): each.value or t("(empty)"),
        t("Default"): formats.UNKNOWN if each.default is None else each.default or t("(empty)"),
        t("Takes effect"): effect_text(view, each.takes_effect),
    }
    if each.in_force is not None:
        found[t("In force until a restart")] = each.in_force
    if each.unit:
        found[t("Unit")] = t(each.unit)
    if each.allowed:
        found[t("Possible values")] = each.allowed
    if each.is_ours:
        found[t("Origin")] = t("a setting of Bolide; RocketMQ has none like it")
    return found


def effect_text(view: View, effect: TakesEffect) -> str:
    """When a change takes effect."""
    t = view.t
    return {
        TakesEffect.AT_ONCE: t("at once"),
        TakesEffect.AFTER_RESTART: t("after a restart"),
        TakesEffect.FIXED: t("only in its file, at a restart"),
        TakesEffect.NEVER: t("no effect"),
        TakesEffect.UNKNOWN: t("it does not tell"),
    }[effect]
