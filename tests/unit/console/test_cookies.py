"""The cookie of a session."""

from typing import Any

import pytest
from starlette.responses import Response

from bolide.console.web.cookies import clear_session_cookie, session_cookie, set_session_cookie


def scope(scheme: str, host: str) -> dict[str, Any]:
    return {"type": "http", "scheme": scheme, "headers": [(b"host", host.encode())]}


@pytest.mark.parametrize(
    ("scheme", "host", "name"),
    [
        ("http", "127.0.0.1:9877", "bolide_console_9877"),
        ("ws", "127.0.0.1:9878", "bolide_console_9878"),
        ("http", "[::1]:9877", "bolide_console_9877"),
        ("http", "console.example", "bolide_console_80"),
        ("http", "[::1]", "bolide_console_80"),
        ("http", "x:1; Domain=y", "bolide_console_80"),
        ("https", "console.example", "__Host-bolide_console_443"),
        ("wss", "console.example:9877", "__Host-bolide_console_9877"),
    ],
)
def test_consoles_of_one_host_have_cookies_of_their_own(scheme: str, host: str, name: str) -> None:
    assert session_cookie(scope(scheme, host)) == name


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_browsers_accept_it_and_its_end(scheme: str) -> None:
    """One with the prefix must be secure, of the whole host and without a domain."""
    response = Response()
    asked = scope(scheme, "console.example")
    set_session_cookie(response, "token", asked)
    clear_session_cookie(response, asked)
    for cookie in response.headers.getlist("set-cookie"):
        assert cookie.startswith(session_cookie(asked) + "=")
        assert "Path=/;" in cookie
        assert "Domain" not in cookie
        assert ("Secure" in cookie) == (scheme == "https")
    assert "HttpOnly" in response.headers.getlist("set-cookie")[0]
