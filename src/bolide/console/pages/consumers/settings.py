"""The settings of a consumer group, broker by broker."""

from collections.abc import Callable
from dataclasses import fields as dataclass_fields
from typing import Any

from nicegui import ui

from bolide.console.pages.consumers.forms import open_change_form, setting_name
from bolide.console.ui.formats import UNKNOWN
from bolide.console.ui.panels import Panel
from bolide.console.ui.tables import Column, Row, simple_table
from bolide.console.ui.view import View
from bolide.operations.consumers.options import GroupSettings, RetryDelays, RetryKind
from bolide.operations.consumers.settings import show_settings
from bolide.operations.declaration import Role


def build_settings(view: View, group: str, on_change: Callable[[], None]) -> None:
    """A column for each broker, and the form."""
    t = view.t
    names = [each.name for each in dataclass_fields(GroupSettings) if each.name != "broker"]

    async def load() -> list[GroupSettings]:
        return await view.run(show_settings, group=group)

    def changed() -> None:
        panel.reload()
        on_change()

    def render(settings: list[GroupSettings]) -> None:
        if view.may(Role.OPERATOR):
            with ui.element("div").classes("toolbar"):
                ui.button(
                    t("Change settings"),
                    icon="edit",
                    on_click=lambda: open_change_form(view, group, settings, changed),
                ).props("outline no-caps")
        columns = [Column(name="name", label=t("Setting"))]
        columns += [
            Column(name=f"at{number}", label=each.broker, kind="code")
            for number, each in enumerate(settings)
        ]
        rows: list[Row] = []
        for name in names:
            row: Row = {"key": name, "name": setting_name(view, name)}
            for number, each in enumerate(settings):
                row[f"at{number}"] = _text(view, getattr(each, name))
            rows.append(row)
        simple_table(columns, rows, label=t("Settings"))

    panel = Panel(
        view,
        load,
        render,
        is_empty=lambda settings: not settings,
        empty=t("No broker has settings for this group."),
    )


def _text(view: View, value: Any) -> str:
    t = view.t
    if isinstance(value, bool):
        return t("yes") if value else t("no")
    if isinstance(value, RetryDelays):
        if value.kind is RetryKind.EXPONENTIAL:
            return f"{value.initial_ms} ms * {value.multiplier} … {value.max_ms} ms"
        if value.kind is RetryKind.DELAYS:
            return ", ".join(f"{each} ms" for each in value.delays_ms or ())
        return t("Delays of the broker")
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items()) or UNKNOWN
    return str(value)
