"""A console on a cluster of ours, all of them real processes, and pages of a real browser.

Playwright's synchronous interface keeps an event loop running in the thread of the tests, so what
needs one, such as `AdminClient`, runs in a thread of its own: `Site.ask`.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    Request,
)

from bolide.admin import AdminClient
from tests.support.admin_cluster import PORTS, SMALL
from tests.support.commands import Running

T = TypeVar("T")

PASSWORD = "correct-horse-7"
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 414, "height": 860}
PATIENCE_MS = 15_000
BROKER = "broker-a"


@dataclass
class Site:
    """A console, the cluster behind it, and programs that look at the same cluster."""

    url: str
    name_server: str
    broker: str
    running: Running

    def ask(self, question: Callable[[AdminClient], Awaitable[T]]) -> T:
        """What an admin client of our own says of the cluster."""

        async def run() -> T:
            async with AdminClient(self.name_server) as admin:
                return await question(admin)

        return in_thread(run)

    def api(self, user: str = "admin", password: str = PASSWORD) -> httpx.Client:
        """A client of the HTTP API that sends name and password."""
        return httpx.Client(
            base_url=f"{self.url}/api/v1", auth=(user, password), timeout=20.0, trust_env=False
        )


def in_thread(act: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine on an event loop of its own."""

    async def run() -> T:
        return await act()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(run())).result()


@contextmanager
def serve_site(
    home: Path, *words: str, environment: Mapping[str, str] | None = None
) -> Iterator[Site]:
    """`bolide standalone` with its console, in a directory."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("BOLIDE_", "NAMESRV_"))]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("TMPDIR", str(home))
        patch.setenv("BOLIDE_CONSOLE", "true")
        patch.setenv("BOLIDE_CONSOLE_PASSWORD", PASSWORD)
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
        place = ("--host", "127.0.0.1", "--data", str(home / "data"))
        ports = (*PORTS, "--console-port", "0")
        running = Running("bolide", "standalone", *place, *ports, *SMALL, *words)
    try:
        broker = running.wait_for(r"The broker\[\S+, (\S+)\] boot success")[1]
        name_server = running.wait_for(r"Name Server boot success.* address (\S+)")[1]
        url = running.wait_for(r"The console is at (\S+)")[1]
        yield Site(url, name_server, broker, running)
    finally:
        running.stop()
        running.process.communicate()


def log_in(page: Page, url: str, user: str = "admin", password: str = PASSWORD) -> None:
    page.goto(f"{url}/login")
    page.fill("#user", user)
    page.fill("#password", password)
    page.click("button[type=submit]")
    page.wait_for_url(re.compile(rf"^{re.escape(url)}/(?!login)"))


class Watched:
    """Whatever a page should not do: foreign requests, errors of scripts, messages of errors."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.problems: list[str] = []
        self._url = url
        page.on("request", self._on_request)
        page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        page.on("console", self._on_message)

    def _on_request(self, request: Request) -> None:
        own = (self._url, self._url.replace("http", "ws", 1), "data:", "blob:")
        if not request.url.startswith(own):
            self.problems.append(f"foreign request: {request.url}")

    def _on_message(self, message: ConsoleMessage) -> None:
        is_refused_login = "401" in message.text and "/login" in message.location["url"]
        is_left = "net::ERR_ABORTED" in message.text
        if message.type == "error" and not is_refused_login and not is_left:
            self.problems.append(f"console: {message.text}")


@contextmanager
def serve_console(name_server: str, broker: str, home: Path, *words: str) -> Iterator[Site]:
    """`bolide console` alone, for the cluster behind a NameServer."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("BOLIDE_", "NAMESRV_"))]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("BOLIDE_CONSOLE_PASSWORD", PASSWORD)
        place = ("--port", "0", "--data", str(home / "console"))
        running = Running("bolide", "console", "-n", name_server, *place, *words)
    try:
        yield Site(running.wait_for(r"The console is at (\S+)")[1], name_server, broker, running)
    finally:
        running.stop()
        running.process.communicate()


@contextmanager
def watched_page(
    browser: Browser,
    site: Site,
    state: Any,
    *,
    size: Any = WIDE,
    theme: str = "light",
    language: str = "en-US",
) -> Iterator[Page]:
    """A page in a context of its own, for other widths, themes and languages."""
    context = browser.new_context(base_url=site.url, viewport=size, storage_state=state)
    chosen = {"bolide_theme": theme, "bolide_language": language}
    context.add_cookies([{"name": n, "value": v, "url": site.url} for n, v in chosen.items()])
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE_MS)
    watched = Watched(opened, site.url)
    try:
        yield opened
    finally:
        context.close()
    assert not watched.problems, watched.problems
