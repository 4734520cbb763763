"""The pages of access control and of the audit, at a cluster with users and policies."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from bolide.admin import AdminClient
from tests.browser.site import Site, in_thread, log_in, serve_site, watched_page

ROOT, SECRET = "root", "root-secret-1"
ENVIRONMENT = {
    "BOLIDE_BROKER_INIT_AUTHENTICATION_USER": f'{{"username":"{ROOT}","password":"{SECRET}"}}',
    "BOLIDE_ACCESS_KEY": ROOT,
    "BOLIDE_SECRET_KEY": SECRET,
}
GUARDED = ("authenticationEnabled=true", "authorizationEnabled=true")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("guarded")
    with serve_site(home, *GUARDED, environment=ENVIRONMENT) as served:
        yield served


@pytest.fixture
def guarded_page(browser: Browser, guarded: Site) -> Iterator[Page]:
    context = browser.new_context()
    log_in(context.new_page(), guarded.url)
    state: Any = context.storage_state()
    context.close()
    with watched_page(browser, guarded, state) as opened:
        yield opened


def who_am_i(site: Site, name: str, secret: str) -> str | None:
    async def ask() -> str | None:
        async with AdminClient(site.name_server, access_key=name, secret_key=secret) as admin:
            return (await admin.permissions.who_am_i(site.broker)).access_key

    return in_thread(ask)


def test_a_user_is_made_given_policies_tested_audited_and_deleted(
    guarded_page: Page, guarded: Site
) -> None:
    page = guarded_page
    password = create_user(page, "shop")
    assert who_am_i(guarded, "shop", password) == "shop"
    page.get_by_role("link", name="shop", exact=True).click()
    expect(page.get_by_text("It has no policies.")).to_be_visible()
    add_policy(page)
    expect(page.get_by_role("row", name=re.compile(r"Topic:ord\*"))).to_contain_text("Pub")

    page.get_by_role("button", name="Test permissions").click()
    expect(page.get_by_label("User or access key")).to_have_value("shop")
    page.get_by_label("Resource name").fill("orders")
    page.get_by_role("button", name="Test", exact=True).click()
    answer = page.get_by_label("Verdicts by broker")
    expect(answer).to_contain_text("Allow Pub on Topic:ord*")
    page.goto("/access-control?tab=tester&user=shop&action=Sub&resource=Topic:orders")
    expect(answer).to_contain_text("no policy matches")

    look_at_audit(page, guarded, password)
    delete_user(page, "shop")


def create_user(page: Page, name: str) -> str:
    """Create a user in the page; returns the password that is shown once."""
    page.goto("/access-control")
    expect(page.get_by_role("row", name=re.compile(ROOT))).to_contain_text("Super")
    page.get_by_role("button", name="Create user").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("User name").fill(name)
    dialog.get_by_role("button", name="Create", exact=True).click()
    secret = page.locator(".secret")
    expect(secret).to_be_visible()
    password = secret.inner_text().strip()
    page.keyboard.press("Escape")
    expect(secret).to_have_count(0)
    return password


def add_policy(page: Page) -> None:
    """Add a policy, after one that no broker would take."""
    page.get_by_role("button", name="Add policy").click()
    form = page.get_by_role("dialog", name="Add policy")
    form.get_by_label("Resource").fill("Nonsense")
    form.get_by_label("Actions allowed or denied").click()
    page.get_by_role("option", name="Pub").click()
    page.keyboard.press("Escape")
    form.get_by_role("button", name="Continue").click()
    expect(form.locator(".form-error")).to_contain_text("resource")
    form.get_by_label("Resource").fill("Topic:ord*")
    form.get_by_role("button", name="Continue").click()
    confirm = page.get_by_role("dialog", name="Save this policy of shop?")
    expect(confirm).to_contain_text("+ Allow Pub on Topic:ord*")
    confirm.get_by_role("button", name="Save").click()


def look_at_audit(page: Page, site: Site, password: str) -> None:
    """What was done is there with before and after, and nowhere the password."""
    page.goto("/audit?search=put_policy")
    row = page.get_by_role("row", name=re.compile("put_policy"))
    expect(row).to_contain_text("admin")
    row.get_by_role("button", name=re.compile("Before and after")).click()
    expect(page.get_by_role("dialog")).to_contain_text("policies")
    expect(page.get_by_role("dialog")).to_contain_text("Topic:ord*")
    with site.api() as api:
        audited = api.get("/audit", params={"origin": "broker", "search": "shop"}).json()
        everything = api.get("/audit").text
    assert {each["user"] for each in audited["items"]} == {ROOT}
    assert password not in everything


def delete_user(page: Page, name: str) -> None:
    page.goto(f"/access-control/users/{name}")
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog", name=f"Delete user {name}?")
    expect(dialog).to_contain_text("its clients are refused at once")
    button = dialog.get_by_role("button", name="Delete")
    expect(button).to_be_disabled()
    dialog.get_by_label(f"Type {name} to confirm").fill(name)
    button.click()
    expect(page).to_have_url(re.compile("/access-control$"))
    expect(page.get_by_role("row", name=re.compile(ROOT))).to_be_visible()
    expect(page.get_by_role("link", name=name, exact=True)).to_have_count(0)


def test_without_access_control_the_page_says_how_to_turn_it_on(page: Page) -> None:
    page.goto("/access-control")
    expect(page.get_by_text("Access control is off.")).to_be_visible()
    expect(page.get_by_text("authenticationEnabled=true")).to_be_visible()
