"""What every HTTP request and every socket passes: session, origin, and the headers of answers."""

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bolide.console.access.sessions import Session
from bolide.console.api.errors import answer_of
from bolide.console.languages import Language, preferred_language
from bolide.console.service import Console
from bolide.console.web import cookies
from bolide.console.web.body_limits import BoundedBody
from bolide.errors import BolideError
from bolide.operations.declaration import Role
from bolide.remoting.address import is_loopback_host

API: Final = "/api/"
LOGIN: Final = "/login"
PASSWORD: Final = "/password"  # noqa: S105  a path
_OPEN_PATHS: Final = (LOGIN, "/language/", "/static/", "/_nicegui/", "/favicon.ico", "/healthz")
_LOGIN_API: Final = ("POST", "/api/v1/session")
_WITH_ONE_TIME_PASSWORD: Final = (PASSWORD, "/api/v1/session", "/logout")
_SAFE: Final = {"GET", "HEAD", "OPTIONS"}
_HEADERS: Final = {
    # Vue's templates and NiceGUI's start-up script need inline scripts and eval.
    "Content-Security-Policy": "default-src 'self';"
    " script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data:; font-src 'self' data:;"
    " connect-src 'self'; object-src 'none'; frame-ancestors 'none'; form-action 'self';"
    " base-uri 'self'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}

language_of_request: ContextVar[Language] = ContextVar("language", default=Language.ENGLISH)
theme_of_request: ContextVar[bool | None] = ContextVar("dark theme", default=None)
"""True dark, False light, None as the system has it."""


class Guard:
    """Outermost ASGI application: lets through who may pass, and nobody else."""

    def __init__(self, app: ASGIApp, console: Console) -> None:
        self._app = app
        self._console = console
        self._anonymous = _everybody(console) if not console.settings.login else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = {
            key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]
        }
        given = cookies.read_cookies(headers.get("cookie", ""))
        language_of_request.set(
            preferred_language(given.get(cookies.LANGUAGE), headers.get("accept-language", ""))
        )
        theme_of_request.set({"dark": True, "light": False}.get(given.get(cookies.THEME, "")))
        refusal = await self._refusal(scope, headers, given.get(cookies.session_cookie(scope)))
        if refusal is None:
            app = BoundedBody(self._app, scope, headers).serve if scope["type"] == "http" else None
            await self._serve(app or partial(self._app, scope), receive, _with_headers(send))
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 4401})
        else:
            await refusal(scope, receive, _with_headers(send))

    @staticmethod
    async def _serve(
        app: Callable[[Receive, Send], Awaitable[None]], receive: Receive, send: Send
    ) -> None:
        try:
            await app(receive, send)
        except RuntimeError as error:
            # What Starlette makes of a browser that goes away before the answer.
            if str(error) != "No response returned.":
                raise

    async def _refusal(
        self, scope: Scope, headers: Mapping[str, str], token: str | None
    ) -> Response | None:
        """The answer to who may not pass; None lets through."""
        path = scope["path"]
        is_socket = scope["type"] == "websocket" or path.startswith("/_nicegui_ws")
        is_safe = not is_socket and scope.get("method") in _SAFE
        if (foreign := self._refusal_of_foreign(headers, is_safe=is_safe)) is not None:
            return foreign
        try:
            session = self._anonymous or await self._session(scope, headers, token)
        except BolideError as error:
            return answer_of(error)
        scope.setdefault("state", {})["session"] = session
        if session is None:
            return None if _is_open(scope) else _log_in_first(scope, is_socket=is_socket)
        if not is_socket:  # those that connect again by themselves are no use
            session.touch()
        if session.must_change and not path.startswith((*_OPEN_PATHS, *_WITH_ONE_TIME_PASSWORD)):
            if path.startswith(API):
                return JSONResponse(
                    {"error": "PasswordToChange", "message": "choose a password of your own first"},
                    403,
                )
            return RedirectResponse(PASSWORD, 303)
        return None

    def _refusal_of_foreign(self, headers: Mapping[str, str], *, is_safe: bool) -> Response | None:
        """The answer to what the page of another site asks for."""
        if self._anonymous and not is_loopback_host(host_name(headers.get("host", ""))):
            # A name that was made to lead to this machine is of the same origin for a browser.
            message = "without log-in the console is reached as 127.0.0.1 or localhost only"
            return JSONResponse({"error": "ForeignHost", "message": message}, 403)
        if not is_safe and not _is_same_origin(headers):
            message = "the request comes from another site"
            return JSONResponse({"error": "ForeignOrigin", "message": message}, 403)
        return None

    async def _session(
        self, scope: Scope, headers: Mapping[str, str], token: str | None
    ) -> Session | None:
        session = self._console.sessions.find(token)
        authorization = headers.get("authorization", "")
        if session is None and authorization and scope["path"].startswith(API):
            name, password = _basic(authorization)
            address = scope["client"][0] if scope.get("client") else ""
            return await self._console.session_of_password(name, password, address)
        return session


def host_name(host: str) -> str:
    """The host of a `Host` header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def _everybody(console: Console) -> Session:
    """The session of everybody, for a console without log-in."""
    return console.sessions.endless("everybody", Role.ADMIN)


def _is_open(scope: Scope) -> bool:
    path = scope["path"]
    return path.startswith(_OPEN_PATHS) or (scope.get("method"), path) == _LOGIN_API


def _log_in_first(scope: Scope, *, is_socket: bool) -> Response:
    if is_socket or scope["path"].startswith(API):
        message = "log in first: POST /api/v1/session, or send a name and a password by HTTP Basic"
        return JSONResponse(
            {"error": "SessionEnded", "message": message},
            401,
            {"WWW-Authenticate": 'Basic realm="Bolide console", charset="UTF-8"'},
        )
    query = scope.get("query_string", b"").decode("latin-1")
    raw = scope.get("raw_path") or quote(scope["path"]).encode()
    wanted = raw.decode("latin-1").partition("?")[0] + (f"?{query}" if query else "")
    target = LOGIN if wanted == "/" else f"{LOGIN}?next={quote(wanted, safe='')}"
    return RedirectResponse(target, 303)


def _is_same_origin(headers: Mapping[str, str]) -> bool:
    """Browsers tell where a request comes from; programs that do not carry no cookies by chance."""
    if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
    except ValueError:  # half an address of IPv6, for example
        return False


def _basic(authorization: str) -> tuple[str, str]:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        name, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return name, password


def _with_headers(send: Send) -> Send:
    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with
