"""Cookies: the session, and what a browser likes to see."""

from http.cookies import CookieError, SimpleCookie
from typing import Final

from starlette.responses import Response
from starlette.types import Scope

LANGUAGE: Final = "bolide_language"
THEME: Final = "bolide_theme"
TIME_ZONE: Final = "bolide_time_zone"


def session_cookie(scope: Scope) -> str:
    """The name of the cookie of the session, for the address by which the browser came.

    Cookies are sent to all ports of a host: without the port in its name, two consoles on one
    machine would log each other out. With HTTPS, nobody but this host can set it.
    """
    prefix = "__Host-" if _is_secure(scope) else ""
    return f"{prefix}bolide_console_{_port(scope)}"


def set_session_cookie(response: Response, token: str, scope: Scope) -> None:
    """Not readable by scripts, nor sent with what other sites post; `guard` does the rest."""
    response.set_cookie(
        session_cookie(scope),
        token,
        httponly=True,
        samesite="lax",
        secure=_is_secure(scope),
        path="/",
    )


def clear_session_cookie(response: Response, scope: Scope) -> None:
    response.delete_cookie(session_cookie(scope), path="/", secure=_is_secure(scope))


def _is_secure(scope: Scope) -> bool:
    return scope.get("scheme") in {"https", "wss"}


def _port(scope: Scope) -> int:
    """Of the `Host` that was asked for, which a container or a proxy may map to another."""
    host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    _, _, port = host.rpartition(":")
    if port.isascii() and port.isdecimal() and len(port) < 6:
        return int(port)
    return 443 if _is_secure(scope) else 80


def read_cookies(header: str) -> dict[str, str]:
    """The cookies of a request; what is malformed is left out."""
    cookies: dict[str, str] = {}
    for part in header.split(";"):
        try:
            cookies.update({key: morsel.value for key, morsel in SimpleCookie(part).items()})
        except CookieError:
            continue
    return cookies
