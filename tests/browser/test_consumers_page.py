"""Consumer groups in the pages: what they show, and what they change for real consumers."""

import asyncio
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from playwright.sync_api import Browser, Page, expect

from bolide.admin import AdminClient
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.producer.producer import Producer
from bolide.model.message import Message, StoredMessage
from bolide.protocol.bodies.topics import TopicConfig
from tests.browser.conftest import NARROW, WIDE, Site, in_thread, watched_page
from tests.browser.test_all_pages import inaccessible, visit
from tests.support.aio import until

TOPIC, GROUP = "Invoices", "invoice-readers"
TABS = ("overview", "queues", "clients", "offsets", "settings")


def test_a_group_is_created_watched_reset_and_deleted(page: Page, site: Site) -> None:
    _make_topic(site)
    _create_a_group(page, site)
    _watch_its_backlog(page, site)
    _reset_it(page, site)
    _change_it(page, site)
    _pause_it(page, site)
    _delete_it(page, site)


def _create_a_group(page: Page, site: Site) -> None:
    page.goto("/consumers")
    page.get_by_role("button", name="Create group").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("not a name")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("letters")
    dialog.get_by_label("Name").fill(GROUP)
    dialog.get_by_label("Retries before it is a dead letter").fill("3")
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name=GROUP)).to_be_visible()
    configs = site.ask(lambda admin: admin.groups.configs(site.broker))
    assert configs.subscription_group_table[GROUP].retry_max_times == 3


def _watch_its_backlog(page: Page, site: Site) -> None:
    # What nobody consumed yet is unknown, not 0.
    expect(_figure(page, "Backlog")).to_have_text("—")

    _send(site, 5)
    assert len(_consume(site, 5)) == 5
    expect(_figure(page, "Backlog")).to_have_text("0")
    _send(site, 2)
    expect(_figure(page, "Backlog")).to_have_text("2")
    expect(page.get_by_text("Offline with a backlog: 2")).to_be_visible()


def _reset_it(page: Page, site: Site) -> None:
    page.get_by_role("tab", name="Reset offsets").click()
    expect(page).to_have_url(re.compile(r"\?tab=offsets$"))
    _choose(page, "Go on from", "Earliest: the oldest message")
    page.get_by_role("button", name="Preview", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".plan-sums")).to_contain_text("Delivered again5")
    dialog.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("Moved in 2 queues.")).to_be_visible()
    expect(_figure(page, "Backlog")).to_have_text("7")
    assert len(_consume(site, 7)) == 7


def _change_it(page: Page, site: Site) -> None:
    page.get_by_role("tab", name="Settings").click()
    page.get_by_role("button", name="Change settings").click()
    page.get_by_label("Retries before it is a dead letter").fill("9")
    page.get_by_role("button", name="Review changes").click()
    review = page.get_by_role("dialog").filter(has_text="Before")
    expect(review.get_by_role("row", name=re.compile("Retries before.*3.*9"))).to_be_visible()
    review.get_by_role("button", name="Change", exact=True).click()
    expect(page.get_by_text("The group was changed.")).to_be_visible()
    configs = site.ask(lambda admin: admin.groups.configs(site.broker))
    assert configs.subscription_group_table[GROUP].retry_max_times == 9


def _pause_it(page: Page, site: Site) -> None:
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    with site.api() as api:
        told = api.get(f"/groups/{GROUP}").json()
        assert told["row"]["is_paused"] is True
        assert api.post(f"/groups/{GROUP}/resume", json={}).status_code == 200
    expect(page.get_by_role("button", name="Pause")).to_be_visible()


def _delete_it(page: Page, site: Site) -> None:
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    delete = dialog.get_by_role("button", name="Delete")
    expect(dialog.get_by_text(f"%RETRY%{GROUP}")).to_be_visible()
    expect(delete).to_be_disabled()
    dialog.get_by_label(f"Type {GROUP} to confirm").fill(GROUP)
    delete.click()
    expect(page).to_have_url(re.compile(r"/consumers$"))
    configs = site.ask(lambda admin: admin.groups.configs(site.broker))
    assert GROUP not in configs.subscription_group_table


def test_the_name_of_a_client_is_shown_and_not_obeyed(page: Page, site: Site) -> None:
    """A backslash at its end would let the words in it become properties of the dialog."""
    _make_topic(site)
    name = "innerHTML='<b/class=obeyed>' title=obeyed \\"

    async def ignore(_: StoredMessage) -> None:
        pass

    async def look() -> None:
        consumer = PushConsumer("invoice-hackers", name_server=site.name_server, instance_name=name)
        await consumer.subscribe(TOPIC, "*", ignore)
        async with consumer:
            await asyncio.to_thread(joined.set)
            await asyncio.to_thread(seen.wait, 60)

    joined, seen = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: asyncio.run(look()))
        try:
            assert joined.wait(20)
            page.goto("/consumers/invoice-hackers?tab=clients")
            for button in ("Details", "Stack"):
                page.get_by_role("button", name=f"{button} ").click()
                dialog = page.get_by_role("dialog")
                expect(dialog.locator(".dialog-title")).to_contain_text(name)
                expect(dialog).to_have_attribute("aria-label", re.compile(re.escape(name)))
                expect(page.locator(".obeyed, [title=obeyed]")).to_have_count(0)
                dialog.get_by_role("button", name=re.compile("Close|Cancel")).first.click()
                expect(dialog).to_have_count(0)
        finally:
            seen.set()
        running.result(20)


def test_groups_are_found_and_their_pages_are_accessible(
    browser: Browser, site: Site, logged_in: Any
) -> None:
    _make_topic(site)
    with site.api() as api:
        made = api.post("/groups", json={"group": "found_by_name"})
        assert made.status_code in {200, 409}
    problems: list[str] = []
    looks = ((WIDE, "light", "en-US", TABS), (NARROW, "dark", "zh-CN", ("overview", "offsets")))
    for size, theme, language, tabs in looks:
        with watched_page(
            browser, site, logged_in, size=size, theme=theme, language=language
        ) as page:
            page.goto("/consumers?search=BY_NAME")
            link = page.get_by_role("link", name="found_by_name")
            expect(link).to_be_visible()
            expect(page.locator("tbody tr")).to_have_count(1)
            link.click()
            expect(page.get_by_role("heading", name="found_by_name")).to_be_visible()
            for tab in tabs:
                path = f"/consumers/found_by_name?tab={tab}"
                visit(page, path)
                wider = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                problems += [f"{path}: {wider} px too wide"] if wider > 0 else []
                problems += [f"{path}: {each}" for each in inaccessible(page)]
            visit(page, "/consumers/nobody")
            expect(page.locator('[data-state="error"]').first).to_contain_text("nobody")
    assert problems == []


def _make_topic(site: Site) -> None:
    config = TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2)
    site.ask(lambda admin: admin.topics.update(site.broker, config))

    async def registered(admin: AdminClient) -> None:
        async with asyncio.timeout(10):
            while TOPIC not in await admin.topics.names():  # noqa: ASYNC110  no event tells
                await asyncio.sleep(0.05)

    site.ask(registered)


def _send(site: Site, count: int) -> None:
    async def send() -> None:
        async with Producer("invoicing", name_server=site.name_server) as producer:
            for number in range(count):
                await producer.send(Message(TOPIC, b"%d" % number))

    in_thread(send)


def _consume(site: Site, count: int) -> Sequence[bytes]:
    """What a real consumer of the group gets, until it has so many."""
    got: list[bytes] = []

    async def take(message: StoredMessage) -> None:
        got.append(message.body)

    async def consume() -> None:
        consumer = PushConsumer(GROUP, name_server=site.name_server, consume_from="first")
        await consumer.subscribe(TOPIC, "*", take)
        async with consumer:
            await until(lambda: len(got) >= count)

    in_thread(consume)
    return got


def _figure(page: Page, name: str) -> Any:
    card = page.locator(".figure-card").filter(has=page.get_by_text(name, exact=True))
    return card.locator(".figure-value")


def _choose(page: Page, label: str, option: str) -> None:
    page.get_by_label(label).click()
    page.get_by_role("option", name=option).click()
