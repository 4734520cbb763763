"""The same pages in front of a cluster of Apache RocketMQ."""

import asyncio
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from bolide import Message, Producer, PushConsumer, StoredMessage
from tests.browser.site import Site, in_thread, log_in, serve_console
from tests.interop.bench import Bench
from tests.interop.conftest import NEWEST, obtain_or_skip

pytestmark = pytest.mark.interop
TOPIC, GROUP = "JavaOrders", "java-billing"


@pytest.fixture(scope="module")
def java_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("java-site")
    with Bench(home, obtain_or_skip) as bench:
        name_server = bench.namesrv(NEWEST)
        broker = bench.broker(NEWEST, name_server.address)
        in_thread(lambda: fill(name_server.address))
        with serve_console(name_server.address, broker.address, home) as site:
            yield site


async def fill(name_server: str) -> None:
    """Ten messages, of which a group has consumed some."""
    consumed: list[StoredMessage] = []
    complete = asyncio.Event()

    async def handle(message: StoredMessage) -> None:
        consumed.append(message)
        if len(consumed) == 10:
            complete.set()

    async with Producer("java-shop", name_server=name_server) as producer:
        await producer.create_topic(TOPIC, 4)
        for number in range(10):
            body = b'{"order": %d}' % number
            await producer.send(Message(TOPIC, body, tags="paid", keys=f"order-{number}"))
        await producer.send(Message(TOPIC, b"later", delay_level=18))
        async with PushConsumer(GROUP, name_server=name_server, consume_from="first") as consumer:
            await consumer.subscribe(TOPIC, "*", handle)
            async with asyncio.timeout(20):
                await complete.wait()


@pytest.fixture
def java_page(browser: Browser, java_site: Site) -> Iterator[Page]:
    context = browser.new_context(base_url=java_site.url)
    page = context.new_page()
    log_in(page, java_site.url)
    yield page
    context.close()


def test_the_core_pages_work(java_page: Page, java_site: Site) -> None:
    page = java_page
    for path in ("/", "/cluster", "/topics", "/consumers", f"/messages?topic={TOPIC}"):
        page.goto(path)
        expect(page.locator("main [role=heading][aria-level='1']")).to_be_visible()
        expect(page.locator(".state-loading")).to_have_count(0)
        expect(page.locator("[data-state=error]")).to_have_count(0)
    page.goto("/cluster")
    expect(page.get_by_text(java_site.broker).first).to_be_visible()
    page.goto(f"/topics?search={TOPIC}")
    page.get_by_role("link", name=TOPIC, exact=True).click()
    expect(page).to_have_url(re.compile(f"/topics/{TOPIC}"))
    expect(page.get_by_role("heading", name=TOPIC)).to_be_visible()
    page.goto(f"/consumers?search={GROUP}")
    page.get_by_role("link", name=GROUP, exact=True).click()
    expect(page.get_by_role("heading", name=GROUP)).to_be_visible()
    page.goto(f"/messages?topic={TOPIC}")
    expect(page.get_by_text("order-7").first).to_be_visible()


def test_what_only_bolide_offers_says_so(java_page: Page) -> None:
    for path in ("/timers", "/transactions", "/parked", "/audit", "/access-control"):
        java_page.goto(path)
        expect(java_page.locator("main [role=heading][aria-level='1']")).to_be_visible()
        expect(java_page.locator(".state-loading")).to_have_count(0)
        expect(java_page.locator("#contents")).not_to_contain_text("Traceback")
        # What a cluster cannot do is a remark, no failure: trying again does not help.
        expect(java_page.locator("[data-state=error]")).to_have_count(0)
        expect(java_page.get_by_role("button", name="Try again")).to_have_count(0)
    java_page.goto("/transactions")
    note = java_page.locator("[data-state=unsupported]")
    expect(note).to_contain_text("only Bolide's do")
    java_page.goto("/timers")
    expect(java_page.get_by_text("its timers are switched off")).to_have_count(1)
    expect(java_page.get_by_text("1 at level 18 (2h)")).to_be_visible()
    java_page.goto("/audit")
    expect(java_page.get_by_text("These brokers keep no audit")).to_be_visible()
