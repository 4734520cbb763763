"""Contents of messages: bodies and properties, shown as text and never run."""

import json
from collections.abc import Mapping

from nicegui import ui

from bolide.console.ui.tables import Column, simple_table
from bolide.console.ui.view import View
from bolide.operations.messages.sending import BodyFormat

_MOST = 200_000
"""Characters of a body that a page shows."""


def body_block(view: View, body: str, body_format: BodyFormat) -> None:
    """A body with a button to copy it; JSON is indented."""
    t = view.t
    text, kind = body, t("Text")
    if body_format is BodyFormat.HEX:
        kind = t("Hexadecimal: it is no UTF-8 text")
        text = " ".join(body[at : at + 2] for at in range(0, min(len(body), _MOST), 2))
    elif (indented := _indented(body)) is not None:
        text, kind = indented, "JSON"
    with ui.element("div").classes("toolbar"):
        ui.label(kind).classes("badge")
        ui.button(t("Copy"), icon="content_copy", on_click=lambda: view.copy(body)).props(
            "flat dense no-caps"
        )
    with ui.element("pre").classes("body-text").props("tabindex=0"):
        ui.label(text[:_MOST])
    if len(text) > _MOST:
        ui.label(t("Only the beginning is shown."))


def properties_table(view: View, properties: Mapping[str, str], *, label: str) -> None:
    """The properties of a message by name."""
    t = view.t
    columns = [
        Column(name="name", label=t("Name"), kind="code"),
        Column(name="value", label=t("Value"), kind="code"),
    ]
    rows = [
        {"key": name, "name": name, "value": value} for name, value in sorted(properties.items())
    ]
    simple_table(columns, rows, label=label)


def _indented(body: str) -> str | None:
    if body[:1] not in {"{", "["} or len(body) > _MOST:
        return None
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
