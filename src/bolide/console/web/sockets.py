"""What comes through a websocket: events of a page whose session is valid, and nothing else.

NiceGUI takes events of any socket for any page, from any origin. Here a page belongs to the session
it was built for: its socket must have the same one, and an event is dropped once it has ended.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import parse_qs
from weakref import WeakKeyDictionary

from nicegui import Client, core

from bolide.console.access.sessions import Session, Sessions
from bolide.console.web.cookies import read_cookies, session_cookie
from bolide.console.web.guard import LOGIN

_BY_THEMSELVES = {"update:pagination", "update:fullscreen"}
"""Events that elements emit when they are made or get new rows."""
_sessions_of_pages: WeakKeyDictionary[Client, Session] = WeakKeyDictionary()


def bind_page(client: Client, session: Session) -> None:
    """Let a page end with its session: its tab goes to the log-in page."""

    def end() -> None:
        client.open(LOGIN)
        client.run_javascript(f"location.href = '{LOGIN}'")

    _sessions_of_pages[client] = session
    session.on_end.add(end)
    client.on_delete(lambda: session.on_end.discard(end))


def guard_sockets(sessions: Sessions, *, login: bool) -> None:
    """Check every handshake and every event that reaches NiceGUI."""
    core.sio.eio.cors_allowed_origins = None  # the origin of the page, and no other
    handlers = core.sio.handlers["/"]
    handlers["connect"] = _checked_connect(handlers["connect"], sessions, login=login)
    handlers["handshake"] = _checked_handshake(handlers["handshake"], sessions, login=login)
    for name in ("event", "javascript_response", "ack", "log"):
        handlers[name] = _checked_event(handlers[name], is_event=name == "event")


def _is_own(client_id: object, environ: dict[str, Any], sessions: Sessions, *, login: bool) -> bool:
    client = Client.instances.get(str(client_id))
    session = _sessions_of_pages.get(client) if client else None
    if session is None or not session.is_valid:
        return False
    cookies = read_cookies(environ.get("HTTP_COOKIE", ""))
    if not login:
        return True
    return sessions.find(cookies.get(session_cookie(environ["asgi.scope"]))) is session


def _checked_connect(handler: Callable[..., Any], sessions: Sessions, *, login: bool) -> Any:
    @wraps(handler)
    async def connect(sid: str, environ: dict[str, Any], auth: Any = None) -> Any:
        client_id = _query(environ).get("client_id")
        if not _is_own(client_id, environ, sessions, login=login):
            return False  # refuses the connection
        return await handler(sid, environ, auth)

    return connect


def _checked_handshake(handler: Callable[..., Any], sessions: Sessions, *, login: bool) -> Any:
    @wraps(handler)
    async def handshake(sid: str, data: dict[str, Any]) -> bool:
        environ = core.sio.get_environ(sid) or {}
        if not _is_own(data.get("client_id"), environ, sessions, login=login):
            return False
        result: bool = await handler(sid, data)
        return result

    return handshake


def _checked_event(handler: Callable[..., Any], *, is_event: bool) -> Any:
    @wraps(handler)
    def on_event(sid: str, message: dict[str, Any]) -> Any:
        client_id = str(message.get("client_id"))
        client = Client.instances.get(client_id)
        session = _sessions_of_pages.get(client) if client else None
        is_of_page = client_id in core.sio.rooms(sid)  # joined at the handshake
        if session is None or not session.is_valid or not is_of_page:
            return None
        if is_event and _is_of_user(client, message):
            session.touch()
        return handler(sid, message)

    return on_event


def _is_of_user(client: Client | None, message: dict[str, Any]) -> bool:
    """Whether somebody did something; an open page that only shows live figures is idle."""
    element = client.elements.get(message.get("id", -1)) if client else None
    listener = element._event_listeners.get(str(message.get("listener_id"))) if element else None  # noqa: SLF001  nothing public tells the kind
    return listener is not None and listener.type not in _BY_THEMSELVES


def _query(environ: dict[str, Any]) -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
