"""Fixtures of the browser tests."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser import chromium
from tests.browser.site import (
    BROKER,
    NARROW,
    PASSWORD,
    PATIENCE_MS,
    WIDE,
    Site,
    in_thread,
    log_in,
    serve_site,
    watched_page,
)

__all__ = [
    "BROKER",
    "NARROW",
    "PASSWORD",
    "WIDE",
    "Site",
    "in_thread",
    "log_in",
    "serve_site",
    "watched_page",
]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Only as long as its tests run: its event loop would be in the way of other tests."""
    path = chromium.find()
    if path is None:
        pytest.skip(chromium.ADVICE)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=list(chromium.FLAGS))
        expect.set_options(timeout=PATIENCE_MS)
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The cluster and console of `bolide standalone`."""
    home = tmp_path_factory.mktemp("site")
    with serve_site(home) as served:
        yield served


@pytest.fixture(scope="package")
def logged_in(browser: Browser, site: Site) -> Any:
    """The cookies of admin, logged in once."""
    context = browser.new_context()
    log_in(context.new_page(), site.url)
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def page(browser: Browser, site: Site, logged_in: Any) -> Iterator[Page]:
    """A page of admin, 1440 wide, light and English; any problem fails the test."""
    with watched_page(browser, site, logged_in) as opened:
        yield opened
