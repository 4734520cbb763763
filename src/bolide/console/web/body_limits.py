"""Limits on the bodies of requests: what is larger is refused before it is in memory."""

from collections.abc import Mapping
from typing import Final

from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY: Final = 8 * 1024 * 1024
"""A message of 4 MiB in Base64, and what belongs to it."""
MAX_LOGIN_BODY: Final = 64 * 1024
"""Names and passwords, which anybody may send."""
_LOGIN_PATHS: Final = ("/login", "/logout", "/password", "/api/v1/session", "/api/v1/accounts")


class BoundedBody:
    """Runs an application for a request, unless its body is too large."""

    def __init__(self, app: ASGIApp, scope: Scope, headers: Mapping[str, str]) -> None:
        self._app = app
        self._scope = scope
        path = scope["path"]
        self._limit = MAX_LOGIN_BODY if path.startswith(_LOGIN_PATHS) else MAX_BODY
        announced = headers.get("content-length", "")
        self._is_over = announced.isdecimal() and _number(announced) > self._limit
        self._has_answered = False
        self._size = 0

    async def serve(self, receive: Receive, send: Send) -> None:
        async def receive_some() -> Message:
            message = await receive()
            self._size += len(message.get("body", b""))
            if self._size > self._limit:
                self._is_over = True
                raise _TooLarge
            return message

        async def send_own(message: Message) -> None:
            # What the application makes of a body that was cut off is not the answer.
            if not self._is_over or self._has_answered:
                self._has_answered = True
                await send(message)

        if not self._is_over:
            try:
                await self._app(self._scope, receive_some, send_own)
            except Exception:
                if not self._is_over:
                    raise
        if self._is_over and not self._has_answered:
            await self._refusal()(self._scope, receive, send)

    def _refusal(self) -> Response:
        message = f"the body of the request is larger than {self._limit // 1024} KiB"
        if self._scope["path"].startswith("/api/"):
            return JSONResponse({"error": "BodyTooLarge", "message": message}, 413)
        page = f'<!doctype html><html lang="en"><title>Bolide</title><p>{message}</p></html>'
        return HTMLResponse(page, 413)


class _TooLarge(Exception):
    """Ends the application that reads on."""


def _number(text: str) -> int:
    """Of a length; one with more digits than any is as large as it looks."""
    return int(text) if len(text) < 20 else MAX_BODY + 1
