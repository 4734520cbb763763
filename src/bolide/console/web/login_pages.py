"""The log-in page and the page for a new password: plain forms, without scripts or sockets."""

from html import escape
from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from bolide.console.access.login import LoginFailed, LoginUnchecked, TooManyAttempts, is_text
from bolide.console.account_changes import AccountChanges
from bolide.console.api.routes import client_address
from bolide.console.languages import Language, Translate, translator
from bolide.console.service import Console
from bolide.console.web import cookies
from bolide.console.web.guard import (
    LOGIN,
    PASSWORD,
    host_name,
    language_of_request,
    theme_of_request,
)
from bolide.errors import BolideError
from bolide.operations.errors import BadInput
from bolide.operations.views import reason_of
from bolide.remoting.address import is_loopback_host
from bolide.version import __version__

_PAGE = """<!doctype html>
<html lang="{lang}" class="{theme}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Bolide</title>
<link rel="icon" href="/static/bolide.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/console.css?{version}">
</head>
<body class="login-body">
<main class="login">
<img src="/static/bolide.svg" alt="" width="48" height="48">
<h1>{heading}</h1>
<p class="login-note">{note}</p>
{error}
<form method="post" action="{action}">
{fields}
<button type="submit" class="login-button">{button}</button>
</form>
<p class="login-foot"><a href="{other_url}" lang="{other_lang}">{other_name}</a></p>
</main>
</body>
</html>
"""


def login_router(console: Console) -> APIRouter:  # noqa: C901  one small function a route
    """Pages that work before anybody is logged in."""
    router = APIRouter(include_in_schema=False)
    changes = AccountChanges(console)

    def note_for(request: Request) -> str:
        return console.settings.name_servers if _is_of_this_machine(request) else ""

    @router.get(LOGIN)
    async def show_login(request: Request, next: str = "/") -> Response:  # noqa: A002  its name in the URL
        if request.state.session is not None:
            return RedirectResponse(own_path(next), 303)
        return _login_page(note_for(request), next)

    @router.post(LOGIN)
    async def log_in(
        request: Request,
        user: Annotated[str, Form()] = "",
        password: Annotated[str, Form()] = "",
        next: Annotated[str, Form()] = "/",  # noqa: A002
    ) -> Response:
        try:
            token, session = await console.log_in(user, password, client_address(request))
        except LoginFailed:
            return _login_page(
                note_for(request), next, user, error="The name or the password is wrong."
            )
        except TooManyAttempts as error:
            return _login_page(note_for(request), next, user, wait=error.seconds)
        except LoginUnchecked:
            error_text = "The cluster cannot check the password now. Try again in a moment."
            return _login_page(note_for(request), next, user, error=error_text, status=503)
        if request.state.session is not None:
            console.sessions.end(request.state.session)
        response = RedirectResponse(PASSWORD if session.must_change else own_path(next), 303)
        cookies.set_session_cookie(response, token, request.scope)
        return response

    @router.get(PASSWORD)
    async def show_password(request: Request) -> Response:
        return _password_page(is_first=request.state.session.must_change)

    @router.post(PASSWORD)
    async def change_password(
        request: Request,
        current: Annotated[str, Form()] = "",
        new: Annotated[str, Form()] = "",
        again: Annotated[str, Form()] = "",
    ) -> Response:
        session = request.state.session
        t = translator(language_of_request.get())
        is_first = session.must_change
        if new != again:
            return _password_page(t("The new passwords differ."), is_first=is_first)
        try:
            await changes.change_own_password(session, current, new, client_address(request))
        except LoginFailed:
            return _password_page(t("The current password is wrong."), is_first=is_first)
        except BadInput as error:
            reason = t("The new password: {reason}", reason=error.reason)
            return _password_page(reason, is_first=is_first)
        except BolideError as error:
            return _password_page(reason_of(error), is_first=is_first)
        return RedirectResponse("/", 303)

    @router.post("/logout")
    async def log_out(request: Request) -> Response:
        await console.log_out(request.state.session, f"console {client_address(request)}")
        response = RedirectResponse(LOGIN, 303)
        cookies.clear_session_cookie(response, request.scope)
        return response

    @router.get("/language/{language}")
    async def choose_language(language: Language, next: str = LOGIN) -> Response:  # noqa: A002
        response = RedirectResponse(own_path(next), 303)
        response.set_cookie(cookies.LANGUAGE, language, samesite="lax", max_age=31_536_000)
        return response

    return router


def own_path(target: str) -> str:
    """A path of this site; anything else, which a link could have smuggled in, is the dashboard."""
    is_own = target.startswith("/") and not target.startswith(("//", "/\\"))
    is_header = target.isprintable() and is_text(target)
    return target if is_own and is_header else "/"


def _login_page(
    note: str, target: str, user: str = "", error: str = "", wait: int = 0, status: int = 401
) -> HTMLResponse:
    t = translator(language_of_request.get())
    message = t(error) if error else ""
    if wait:
        message = t("Too many attempts. Try again in {seconds} s.", seconds=wait)
    fields = (
        _field("user", t("User name"), "text", "username", user if is_text(user) else "")
        + _field("password", t("Password"), "password", "current-password")
        + f'<input type="hidden" name="next" value="{escape(own_path(target))}">'
    )
    status = 429 if wait else status if error else 200
    return _page(t, LOGIN, t("Log in"), t("Bolide console"), note, message, fields, status)


def _is_of_this_machine(request: Request) -> bool:
    """Whether the browser is here; one behind a proxy on this machine asked for another host."""
    asked = host_name(request.headers.get("host", ""))
    return is_loopback_host(client_address(request)) and is_loopback_host(asked)


def _password_page(error: str = "", *, is_first: bool) -> HTMLResponse:
    t = translator(language_of_request.get())
    fields = (
        _field("current", t("Current password"), "password", "current-password")
        + _field("new", t("New password"), "password", "new-password")
        + _field("again", t("New password again"), "password", "new-password")
    )
    note = t("Replace the one-time password by one of your own.") if is_first else ""
    return _page(
        t, PASSWORD, t("Save"), t("Choose a password"), note, error, fields, 422 if error else 200
    )


def _page(  # noqa: PLR0913, PLR0917  the parts of a page
    t: Translate,
    action: str,
    button: str,
    heading: str,
    note: str,
    error: str,
    fields: str,
    status: int,
) -> HTMLResponse:
    language = language_of_request.get()
    other = Language.ENGLISH if language is Language.CHINESE else Language.CHINESE
    theme = {True: "dark", False: "light", None: "auto"}[theme_of_request.get()]
    shown = f'<p class="login-error" role="alert">{escape(error)}</p>' if error else ""
    return HTMLResponse(
        _PAGE.format(
            lang=language,
            theme=theme,
            title=escape(heading),
            heading=escape(heading),
            note=escape(note),
            error=shown,
            action=action,
            fields=fields,
            button=escape(button),
            version=__version__,
            other_url=f"/language/{other}?next={action}",
            other_lang=other,
            other_name=other.own_name,
        ),
        status,
        {"Cache-Control": "no-store"},
    )


def _field(name: str, label: str, kind: str, autocomplete: str, value: str = "") -> str:
    focus = " autofocus" if name in {"user", "current"} and not value else ""
    return (
        f'<label for="{name}">{escape(label)}</label>'
        f'<input id="{name}" name="{name}" type="{kind}" autocomplete="{autocomplete}"'
        f' value="{escape(value)}" maxlength="256" required{focus}>'
    )
