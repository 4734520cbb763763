"""Inputs of forms, all of the same look."""

from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui

from bolide.console.ui.props import set_props

Check = Callable[[str], str | None]
"""Takes the text of a field; returns what is wrong with it."""


def text(
    label: str,
    value: str = "",
    *,
    check: Check | None = None,
    hint: str = "",
    password: bool = False,
    placeholder: str = "",
) -> ui.input:
    field = ui.input(label=label, value=value, validation=check, password=password)
    field.props("outlined dense autocomplete=off").classes("full")
    if hint:
        field.props["hint"] = hint
    if placeholder:  # the label of an empty field is in its place, unless it stays above
        field.props["placeholder"] = placeholder
        field.props("stack-label")
    return field


def area(label: str, value: str = "", *, hint: str = "", rows: int = 5) -> ui.textarea:
    field = ui.textarea(label=label, value=value)
    set_props(field.props("outlined dense").classes("full mono"), rows=str(rows))
    if hint:
        field.props["hint"] = hint
    return field


def number(
    label: str,
    value: float | None,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    hint: str = "",
) -> ui.number:
    field = ui.number(label=label, value=value, min=minimum, max=maximum, precision=0)
    field.props("outlined dense").classes("full")
    if hint:
        field.props["hint"] = hint
    return field


def choice(
    label: str,
    options: Mapping[Any, str] | list[Any],
    value: Any = None,
    *,
    on_change: Callable[..., Any] | None = None,
    multiple: bool = False,
    search: bool = False,
) -> ui.select:
    given = dict(options) if isinstance(options, Mapping) else options
    field = ui.select(
        given, label=label, value=value, on_change=on_change, multiple=multiple, with_input=search
    )
    return field.props("outlined dense options-dense").classes("full")


def switch(label: str, value: bool = False, **options: Any) -> ui.switch:
    return ui.switch(label, value=value, **options)
