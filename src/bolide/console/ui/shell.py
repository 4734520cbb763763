"""The frame around every page: navigation, search, language, theme and account."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from html import escape
from urllib.parse import quote, unquote
from zoneinfo import ZoneInfo

from fastapi import Request
from nicegui import Client, PageArguments, json, ui
from nicegui.elements.sub_pages import SubPages
from nicegui.page import page as nicegui_page
from nicegui.page_arguments import RouteMatch

from bolide.console.languages import Language, Translate, translator
from bolide.console.pages.all_pages import PAGES
from bolide.console.pages.declaration import PageSpec, Section
from bolide.console.service import Console
from bolide.console.ui.panels import empty_state
from bolide.console.ui.props import name_element, set_props
from bolide.console.ui.view import View, parse_url
from bolide.console.web import cookies
from bolide.console.web.guard import language_of_request, theme_of_request
from bolide.console.web.sockets import bind_page
from bolide.version import __version__

_CSS = f'<link rel="stylesheet" href="/static/console.css?{__version__}">'
_SCRIPT = f'<script src="/static/console.js?{__version__}"></script>'

_BRAND = (
    '<a href="/" class="brand"><img src="/static/bolide.svg" alt="" width="30" height="30">'
    '<span class="brand-name">Bolide</span></a>'
)


class _Page(nicegui_page):
    """A page in the language and theme of who asks for it."""

    def resolve_language(self) -> Language:  # type: ignore[override]
        return language_of_request.get()

    def resolve_dark(self) -> bool | None:
        return theme_of_request.get()


class _Contents(SubPages):
    """The page that the URL names.

    Pages change the URL while they are open, which `SubPages` does not know of: it compares the
    next URL with the one that it built the page for, and Back to that one would do nothing.
    """

    def __init__(self, view: View, routes: dict[str, Callable[..., None]]) -> None:
        self._view = view
        super().__init__(routes, show_404=False)

    def _required_query_params_changed(self, route_match: RouteMatch) -> bool:
        return parse_url(self._view.client.sub_pages_router.current_path)[1] != self._view.query


def add_pages(console: Console) -> None:
    """Serve all pages: one NiceGUI page that changes its contents with the path."""

    async def root(request: Request, client: Client, _rest: str = "") -> None:
        _build(console, request, client)

    _Page("/{_rest:path}", response_timeout=10.0)(root)


def _build(console: Console, request: Request, client: Client) -> None:
    # The path as the browser sent it: names of topics may have a %.
    raw = request.scope.get("raw_path", b"").decode("latin-1").partition("?")[0]
    query = request.scope.get("query_string", b"").decode("latin-1")
    client.sub_pages_router.current_path = (raw or "/") + (f"?{query}" if query else "")
    session = request.state.session
    bind_page(client, session)
    view = View(
        console=console,
        session=session,
        client=client,
        language=language_of_request.get(),
        t=translator(language_of_request.get()),
        time_zone=_time_zone(request.cookies.get(cookies.TIME_ZONE)),
        address=request.client.host if request.client else "",
        query={},
    )
    ui.add_head_html(_CSS + _SCRIPT)
    client.page_container.props("role=none")
    for page in client.page_container.default_slot.children:
        page.props("role=none")  # Quasar makes it a <main>, and the contents are one
    ui.colors(primary="#3b5bdb", negative="#c92a2a", positive="#2b8a3e", warning="#e67700")
    ui.dark_mode(theme_of_request.get())
    ui.link(view.t("Skip to the contents"), "#contents").classes("skip-link")
    with ui.element("div").classes("shell"):
        _navigation(view)
        _top_bar(view)
        with ui.element("main").classes("contents").props("id=contents tabindex=-1"):
            routes = {path: _builder(view, spec) for path, spec in PAGES.items()}
            pages = _Contents(view, routes)
            with pages:
                if not pages.default_slot.children:
                    _not_found(view)
    client.sub_pages_router.on_path_changed(partial(_mark_current, view))


def _builder(view: View, spec: PageSpec) -> Callable[[PageArguments], None]:
    def build(arguments: PageArguments) -> None:
        view.path, view.query = parse_url(view.client.sub_pages_router.current_path)
        if spec.path == "/" and view.path not in {"", "/"}:  # it is the beginning of every path
            _not_found(view)
            return
        if not view.may(spec.role):
            empty_state(view.t("Your role may not see this page."))
            return
        names = {name: unquote(value) for name, value in arguments.path_parameters.items()}
        spec.build(view, **names)

    return build


def _not_found(view: View) -> None:
    empty_state(view.t("There is no such page."), hint=view.t("Choose one from the navigation."))


def _navigation(view: View) -> None:
    """The navigation. One element: fifty of them are a third of what a page costs to build."""
    t = view.t
    parts = [_BRAND]
    path, _ = parse_url(view.client.sub_pages_router.current_path)
    for section in Section:
        pages = [spec for spec in PAGES.values() if spec.section is section]
        pages = [spec for spec in pages if view.may(spec.role)]
        if pages:
            parts.append(f'<div class="side-section">{escape(t(section.value))}</div>')
        for spec in sorted(pages, key=lambda each: each.order):
            current = ' aria-current="page"' if _is_below(path, spec.path) else ""
            parts.append(
                f'<a href="{spec.path}" class="side-link"{current}>'
                f'<i class="q-icon notranslate material-icons" aria-hidden="true">{spec.icon}</i>'
                f"<span>{escape(t(spec.title))}</span></a>"
            )
    parts.append(f'<div class="side-foot">Bolide {__version__}</div>')
    # Nothing in it comes from a cluster: paths, icons and escaped texts of our own.
    side = ui.html("".join(parts), sanitize=False, tag="nav").classes("side").props("id=side")
    name_element(side, t("Pages"))
    shade = ui.element("button").classes("side-shade")
    shade.props("type=button tabindex=-1 data-close-side")
    name_element(shade, t("Close the navigation"))


def _is_below(path: str, page: str) -> bool:
    return path == page or (page != "/" and path.startswith(page + "/"))


def _mark_current(view: View, url: str) -> None:
    path, _ = parse_url(url)
    marked = [each for each in PAGES if _is_below(path, each)]
    view.client.run_javascript(f"markCurrentPage({json.dumps(marked)})")


def _top_bar(view: View) -> None:
    t = view.t
    with ui.element("header").classes("top"):
        with ui.element("button").classes("icon-button side-toggle") as toggle:
            toggle.props("type=button aria-controls=side data-open-side")
            name_element(toggle, t("Open the navigation"))
            ui.icon("menu").props("aria-hidden=true")
        _search(view)
        with ui.element("div").classes("top-end"):
            ui.label(view.console.settings.name_servers).classes("top-cluster mono").tooltip(
                t("NameServers")
            )
            _language_button(view)
            _menu_of_themes(t)
            _account_menu(view)


def _search(view: View) -> None:
    """Go to a topic, a group or a message by its name or id."""
    t = view.t

    def go() -> None:
        text = (field.value or "").strip()
        if text:
            view.open(search_target(text, goal.value))

    with ui.element("form").classes("top-search").props('role=search onsubmit="return false"'):
        goal = ui.select(
            {"topic": t("Topic"), "group": t("Group"), "message": t("Message")}, value="topic"
        )
        name_element(goal.props("dense borderless options-dense"), t("What to find"))
        field = ui.input(placeholder=t("Go to…")).props("dense borderless")
        name_element(field, t("Name or id"))
        field.on("keydown.enter", go)


def search_target(text: str, goal: str) -> str:
    """Where the search field leads."""
    if goal == "message":
        return f"/messages?id={quote(text, safe='')}"
    return f"/{'topics' if goal == 'topic' else 'consumers'}?search={quote(text, safe='')}"


def _language_button(view: View) -> None:
    other = Language.ENGLISH if view.language is Language.CHINESE else Language.CHINESE
    button = name_element(ui.element("button"), other.own_name)
    button.classes("icon-button").props("type=button")
    set_props(button, lang=str(other), data_cookie=f"{cookies.LANGUAGE}={other}")
    with button:
        ui.label("EN" if other is Language.ENGLISH else "中")


def _menu_of_themes(t: Translate) -> None:
    opener = ui.button(icon="contrast")
    name_element(opener.props("flat round dense"), t("Theme and time"))
    with opener, ui.menu().props("auto-close"):
        for value, text in (
            ("light", t("Light")),
            ("dark", t("Dark")),
            ("auto", t("Automatic")),
        ):
            _cookie_item(text, f"{cookies.THEME}={value}")
        ui.separator()
        _cookie_item(t("Times of this computer"), f"{cookies.TIME_ZONE}=browser")
        _cookie_item(t("Times in UTC"), f"{cookies.TIME_ZONE}=UTC")


def _cookie_item(text: str, cookie: str) -> None:
    set_props(ui.menu_item(text), data_cookie=cookie)


def _account_menu(view: View) -> None:
    t = view.t
    session = view.session
    opener = ui.button(icon="account_circle")
    name_element(opener.props("flat round dense"), t("Account"))
    with opener, ui.menu():
        ui.label(session.user).classes("menu-user")
        ui.label(t(session.role.label)).classes("menu-role")
        ui.separator()
        ui.menu_item(t("Account"), on_click=lambda: view.open("/account"))
        ui.menu_item(t("HTTP API")).props('data-open="/api/docs"')
        if view.console.settings.login:
            ui.menu_item(t("Log out")).props("data-logout")


def _time_zone(given: str | None) -> ZoneInfo:
    with suppress(ValueError, OSError, KeyError):
        return ZoneInfo(unquote(given or "UTC"))
    return ZoneInfo("UTC")
