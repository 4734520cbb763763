"""Logging in and out, tabs that outlive their session, and foreign websockets."""

import asyncio
import re
from pathlib import Path

import aiohttp
import httpx
import pytest
import socketio
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import BROKER, PASSWORD, Site, in_thread, log_in, watched_page
from tests.browser.site import serve_console


def test_anonymous_users_get_the_login_page_and_401(site: Site, browser: Browser) -> None:
    with httpx.Client(base_url=site.url, trust_env=False) as client:
        assert client.get("/api/v1/session").status_code == 401
        assert client.get("/topics").headers["location"] == "/login?next=%2Ftopics"
        assert client.get("/_nicegui_ws/socket.io/?EIO=4&transport=polling").status_code == 401
    with watched_page(browser, site, None) as page:
        page.goto("/account")
        expect(page).to_have_url(re.compile(r"/login\?next=%2Faccount$"))
        page.fill("#user", "admin")
        page.fill("#password", "wrong-password")
        page.click("button[type=submit]")
        expect(page.get_by_role("alert")).to_contain_text("wrong")
        page.fill("#password", PASSWORD)
        page.click("button[type=submit]")
        expect(page.get_by_role("heading", name="Account", exact=True)).to_be_visible()
        # The log-in that failed is answered with 401, which browsers report.
        expect(page).to_have_url(re.compile(r"/account$"))


@pytest.mark.parametrize("target", ["//evil.example", "/\\evil.example", "https://evil.example"])
def test_a_login_leads_nowhere_else(site: Site, target: str) -> None:
    with httpx.Client(base_url=site.url, trust_env=False) as client:
        form = {"user": "admin", "password": PASSWORD, "next": target}
        assert client.post("/login", data=form).headers["location"] == "/"


def test_a_tab_that_outlives_its_session_can_do_nothing(browser: Browser, site: Site) -> None:
    context = browser.new_context(base_url=site.url)
    first = context.new_page()
    log_in(first, site.url)
    stale = context.new_page()
    stale.goto("/account")
    stale.get_by_role("button", name="New account").click()
    stale.get_by_label("Name", exact=True).fill("intruder")
    # Told to go to the log-in page, it stays where it is.
    stale.route(re.compile("/login"), lambda route: route.fulfill(status=204))
    first.get_by_role("button", name="Account").click()
    first.get_by_text("Log out").click()
    expect(first).to_have_url(re.compile("/login$"))
    stale.get_by_role("button", name="Create").click()
    stale.wait_for_timeout(1000)
    context.close()
    with site.api() as api:
        assert "intruder" not in {each["name"] for each in api.get("/accounts").json()}


def test_logging_out_ends_every_tab(browser: Browser, site: Site) -> None:
    context = browser.new_context(base_url=site.url)
    first, second = context.new_page(), context.new_page()
    log_in(first, site.url)
    second.goto("/account")
    expect(second.get_by_role("button", name="New account")).to_be_visible()
    first.get_by_role("button", name="Account").click()
    first.get_by_text("Log out").click()
    expect(second).to_have_url(re.compile("/login$"))
    context.close()


def test_a_page_that_is_only_open_ends_with_its_session(
    browser: Browser, site: Site, tmp_path: Path
) -> None:
    """Live figures are no use of it: acknowledgements of a socket and timers come all the time."""
    with serve_console(site.name_server, site.broker, tmp_path, "--idle-minutes", "0.1") as idle:
        context = browser.new_context(base_url=idle.url)
        page = context.new_page()
        log_in(page, idle.url)
        page.goto("/cluster")
        expect(page.get_by_role("link", name=BROKER).first).to_be_visible()
        expect(page).to_have_url(re.compile("/login"), timeout=25_000)
        context.close()


def test_without_log_in_only_this_machine_gets_in_and_nobody_out(
    browser: Browser, site: Site, tmp_path: Path
) -> None:
    with serve_console(site.name_server, site.broker, tmp_path, "--no-login") as opened:
        with httpx.Client(base_url=opened.url, trust_env=False) as client:
            rebound = {"Host": "evil.example:9877"}
            assert client.get("/api/v1/topics", headers=rebound).status_code == 403
            assert client.post("/logout").status_code == 409
            assert client.delete("/api/v1/session").status_code == 409
            assert client.get("/api/v1/topics").status_code == 200
        with watched_page(browser, opened, None) as page:
            page.goto("/cluster")
            expect(page.get_by_role("link", name=BROKER).first).to_be_visible()
            page.get_by_role("button", name="Account").click()
            expect(page.get_by_text("HTTP API")).to_be_visible()
            expect(page.get_by_text("Log out")).to_have_count(0)


def test_a_socket_without_the_session_of_its_page_is_refused(page: Page, site: Site) -> None:
    page.goto("/account")
    expect(page.get_by_role("button", name="New account")).to_be_visible()
    client_id = page.evaluate("window.clientId ?? window.socket?.io?.opts?.query?.client_id")
    cookie = "; ".join(f"{c['name']}={c['value']}" for c in page.context.cookies())
    foreign = {"Origin": "http://evil.example", "Cookie": cookie}
    assert client_id
    assert not in_thread(lambda: _connects(site.url, foreign, client_id))
    assert not in_thread(lambda: _connects(site.url, {"Origin": site.url}, client_id))


async def _connects(url: str, headers: dict[str, str], client_id: str) -> bool:
    async with aiohttp.ClientSession() as http:  # a client that is refused leaves its own open
        return await _connects_by(http, url, headers, client_id)


async def _connects_by(
    http: aiohttp.ClientSession, url: str, headers: dict[str, str], client_id: str
) -> bool:
    client = socketio.AsyncClient(reconnection=False, http_session=http)
    query = f"client_id={client_id}&implicit_handshake=false&next_message_id=0"
    try:
        async with asyncio.timeout(10):
            await client.connect(
                f"{url}?{query}",
                headers,
                transports=["websocket"],
                socketio_path="/_nicegui_ws/socket.io",
            )
    except socketio.exceptions.ConnectionError:
        return False
    finally:
        if client.eio.http is not None:
            await client.eio.http.close()
    await client.disconnect()
    return True
