"""Every page, wide and narrow, light and dark, in both languages, with full and empty lists."""

import re
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from bolide.console.languages import chinese_texts
from bolide.console.pages.all_pages import PAGES
from tests.browser.conftest import NARROW, WIDE, Site, watched_page

PATHS = sorted(path for path in PAGES if "{" not in path)
LOOKS = [
    pytest.param(WIDE, "light", "en-US", id="wide-light-english"),
    pytest.param(WIDE, "dark", "zh-CN", id="wide-dark-chinese"),
    pytest.param(NARROW, "light", "zh-CN", id="narrow-light-chinese"),
    pytest.param(NARROW, "dark", "en-US", id="narrow-dark-english"),
]
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
SETTLED = ".state-loading"


@pytest.mark.parametrize(("size", "theme", "language"), LOOKS)
def test_every_page_fits_and_is_accessible(
    browser: Browser, site: Site, logged_in: Any, size: Any, theme: str, language: str
) -> None:
    problems: list[str] = []
    with watched_page(browser, site, logged_in, size=size, theme=theme, language=language) as page:
        page.goto("/account")
        for path in PATHS:
            visit(page, path)
            problems += [f"{path}: {each}" for each in looks_wrong(page, path, language)]
            if language == "en-US":
                problems += [f"{path}: {each}" for each in inaccessible(page)]
    assert problems == []


def visit(page: Page, path: str) -> None:
    """Go to a page inside the console, and wait until nothing in it is loading."""
    page.evaluate("path => emitEvent('sub_pages_navigate', path)", path)
    expect(page).to_have_url(re.compile(f"{re.escape(path)}$"))
    expect(page.locator("main h1, main [role=heading][aria-level='1']")).to_be_visible()
    expect(page.locator(SETTLED)).to_have_count(0)
    if path in PAGES and PAGES[path].section is not None:
        expect(page.locator("nav.side [aria-current=page]")).to_have_attribute("href", path)


def looks_wrong(page: Page, path: str, language: str) -> list[str]:
    """What is wrong with the page as it is shown."""
    found = []
    wider = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    if wider > 0:
        found.append(f"{wider} px wider than the window")
    heading = page.locator("main [role=heading][aria-level='1']").inner_text()
    wanted = PAGES[path].title if language == "en-US" else chinese_texts()[PAGES[path].title]
    if heading != wanted:
        found.append(f"its heading is {heading!r}")
    errors = page.locator("[data-state=error]")
    found += [f"error: {text}" for text in errors.all_inner_texts()]
    return found


def inaccessible(page: Page) -> list[str]:
    """Serious findings of axe, with the first element of each."""
    page.evaluate(AXE)
    result = page.evaluate("rules => axe.run(document, rules)", RULES)
    return [
        f"axe {each['id']}: {each['help']}: {each['nodes'][0]['html'][:200]}"
        for each in result["violations"]
        if each["impact"] in {"serious", "critical"}
    ]


def test_pages_work_by_keyboard_alone(page: Page) -> None:
    page.goto("/account")
    expect(page.get_by_role("heading", name="Account", exact=True)).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the contents")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#contents")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_label("Name or id")).to_be_focused()
    page.keyboard.type("nothing-like-it")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/topics\?search=nothing-like-it"))


def test_the_navigation_of_a_narrow_window_opens_and_closes(
    browser: Browser, site: Site, logged_in: Any
) -> None:
    with watched_page(browser, site, logged_in, size=NARROW) as page:
        page.goto("/account")
        side = page.get_by_role("navigation", name="Pages")
        expect(side).to_be_hidden()
        page.get_by_role("button", name="Open the navigation").click()
        expect(side).to_be_visible()
        page.keyboard.press("Escape")
        expect(side).to_be_hidden()


def test_language_and_theme_are_chosen_in_the_page(
    browser: Browser, site: Site, logged_in: Any
) -> None:
    with watched_page(browser, site, logged_in) as page:
        page.goto("/account")
        page.get_by_role("button", name="中文").click()
        expect(page.get_by_role("heading", name="账户", exact=True)).to_be_visible()
        assert page.locator("html").get_attribute("lang") == "zh-CN"
        page.get_by_role("button", name="主题与时区").click()
        page.get_by_text("深色", exact=True).click()
        expect(page.locator("body.body--dark")).to_be_visible()


def test_an_unknown_address_says_so(page: Page) -> None:
    page.goto("/topicz/orders")
    expect(page.get_by_text("There is no such page.")).to_be_visible()
    expect(page.get_by_role("main")).to_have_count(1)


def test_the_pages_of_the_product_are_there() -> None:
    assert {
        "/", "/ops", "/cluster", "/topics", "/topics/{topic}", "/consumers", "/consumers/{group}",
        "/producers", "/messages", "/dead-letters", "/traces", "/timers", "/transactions",
        "/parked", "/pipelines", "/access-control", "/audit", "/account",
    } <= set(PAGES)  # fmt: skip
