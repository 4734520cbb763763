"""Cookies: the session, and what a browser likes to see."""

from http.cookies import CookieError, SimpleCookie
from typing import Final

from starlette.responses import Response

SESSION: Final = "bolide_console"
LANGUAGE: Final = "bolide_language"
THEME: Final = "bolide_theme"
TIME_ZONE: Final = "bolide_time_zone"


def set_session_cookie(response: Response, token: str, *, secure: bool) -> None:
    """Not readable by scripts, nor sent with what other sites post; `guard` does the rest."""
    response.set_cookie(SESSION, token, httponly=True, samesite="lax", secure=secure, path="/")


def clear_session_cookie(response: Response) -> None:
    response.delete_cookie(SESSION, path="/")


def read_cookies(header: str) -> dict[str, str]:
    """The cookies of a request; what is malformed is left out."""
    cookies: dict[str, str] = {}
    for part in header.split(";"):
        try:
            cookies.update({key: morsel.value for key, morsel in SimpleCookie(part).items()})
        except CookieError:
            continue
    return cookies
