"""Pieces that pages are laid out with: header, facts, figures, tabs."""

import json
from collections.abc import Callable, Mapping, Sequence

from nicegui import ui

from bolide.console.ui.props import link_to, name_element, set_props
from bolide.console.ui.view import View


def page_header(
    view: View,
    title: str,
    *,
    subtitle: str = "",
    crumbs: Sequence[tuple[str, str]] = (),
    actions: Callable[[], None] | None = None,
) -> None:
    """The title of a page, the way back, and its buttons.

    Args:
        view: the page.
        title: its heading; the name of the object for a page about one.
        subtitle: one line below.
        crumbs: text and path of the pages above.
        actions: builds the buttons.
    """
    view.client.run_javascript(f"document.title = {json.dumps(title)} + ' · Bolide'")
    with ui.element("header").classes("page-header"):
        with ui.element("div").classes("page-heading"):
            if crumbs:
                with name_element(ui.element("nav").classes("crumbs"), view.t("Above")):
                    for text, path in crumbs:
                        ui.link(text, path)
                        ui.label("/").props("aria-hidden=true")
            ui.label(title).classes("page-title").props("role=heading aria-level=1")
            if subtitle:
                ui.label(subtitle).classes("page-subtitle")
        if actions is not None:
            with ui.element("div").classes("page-actions"):
                actions()


def facts(values: Mapping[str, str]) -> None:
    """Names and values below each other."""
    with ui.element("dl").classes("facts"):
        for name, value in values.items():
            with ui.element("div"):
                with ui.element("dt"):
                    ui.label(name)
                with ui.element("dd"):
                    ui.label(value)


def section_title(text: str) -> None:
    ui.label(text).classes("section-title").props("role=heading aria-level=2")


class Figure:
    """A large figure with its name; `set` changes it in place."""

    def __init__(self, name: str, *, link: str = "") -> None:
        self._tone = ""
        with ui.element("a" if link else "div").classes("figure-card") as self.element:
            if link:
                link_to(self.element, link)
            ui.label(name).classes("figure-name")
            self._value = ui.label("—").classes("figure-value").props("data-state=unknown")
            self._hint = ui.label("").classes("figure-hint")

    def set(self, value: str, *, hint: str = "", tone: str = "") -> None:
        """`tone` is good, warning, danger or nothing; a value of — is unknown."""
        self._value.text = value
        state = "unknown" if value == "—" else "known"
        set_props(self._value, data_state=state)
        self._hint.text = hint
        if tone != self._tone:
            self._value.classes(remove=f"tone-{self._tone}", add=f"tone-{tone}")
            self._tone = tone


def tabs(view: View, names: Mapping[str, str], build: Callable[[str], None]) -> None:
    """Tabs of a page, kept in the URL as `tab`; `build` makes the contents of the chosen one."""
    chosen = view.query.get("tab", "")
    if chosen not in names:
        chosen = next(iter(names))

    def show(name: str) -> None:
        others = dict.fromkeys(view.query)
        view.set_query(push=True, **{**others, "tab": name if name != next(iter(names)) else None})
        place.clear()
        with place:
            build(name)

    with ui.tabs().props("no-caps inline-label align=left outside-arrows mobile-arrows") as bar:
        for name, label in names.items():
            ui.tab(name, label)
    bar.classes("tabs")
    bar.value = chosen
    bar.on_value_change(lambda event: show(event.value))
    place = ui.element("div").classes("tab-panel")
    with place:
        build(chosen)
