"""The dashboard moves with the cluster, and the list of producers knows who sends."""

import asyncio
import re
from collections.abc import Iterator
from threading import Event, Thread

import pytest
from playwright.sync_api import Locator, Page, expect

from bolide.admin import AdminClient
from bolide.client.producer.producer import Producer
from bolide.model.message import Message
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.message_queue import MessageQueue
from tests.browser.conftest import BROKER, Site

TOPIC, GROUP, WRITERS = "Dashboard-Orders", "dashboard-shop", "dashboard-writers"


@pytest.fixture(scope="module")
def traffic(site: Site) -> Iterator[None]:
    """A producer that sends all the time, and a group that is behind."""
    stop, begun = Event(), Event()

    async def send() -> None:
        async with Producer(WRITERS, name_server=site.name_server) as producer:
            while not stop.is_set():
                await producer.send(Message(TOPIC, b"x"))
                begun.set()
                await asyncio.sleep(0.02)

    async def prepare(admin: AdminClient) -> None:
        await admin.topics.create(TOPIC, "DefaultCluster", queues=1)
        await admin.groups.update(site.broker, GroupConfig(group_name=GROUP))
        await admin.offsets.commit(site.broker, GROUP, MessageQueue(TOPIC, BROKER, 0), 1)

    site.ask(prepare)
    thread = Thread(target=lambda: asyncio.run(send()))
    thread.start()
    assert begun.wait(15)
    yield
    stop.set()
    thread.join()


def figure(page: Page, name: str) -> Locator:
    card = page.locator(".figure-card").filter(has=page.get_by_text(name, exact=True))
    return card.locator(".figure-value")


def value_of(page: Page, name: str) -> float:
    return float(figure(page, name).inner_text().replace(",", ""))


def test_the_dashboard_moves_with_the_cluster(page: Page, site: Site, traffic: None) -> None:
    page.goto("/")
    expect(figure(page, "Brokers up")).to_have_text("1 / 1")
    expect(figure(page, "In per second")).to_have_text(re.compile(r"^[1-9]"))
    expect(figure(page, "Backlog")).to_have_text(re.compile(r"^[1-9]"), timeout=40_000)
    before = value_of(page, "Backlog")
    expect(figure(page, "Backlog")).not_to_have_text(f"{before:,.0f}", timeout=40_000)
    assert value_of(page, "Backlog") > before, "the group falls behind"

    topics = page.get_by_label("Busiest topics")
    link = topics.get_by_role("link", name=TOPIC, exact=True)
    expect(link).to_have_attribute("href", f"/topics/{TOPIC}", timeout=40_000)
    groups = page.get_by_label("Groups with the largest backlog")
    found = groups.get_by_role("link", name=GROUP, exact=True)
    expect(found).to_have_attribute("href", f"/consumers/{GROUP}", timeout=40_000)

    page.get_by_role("button", name="15 min").click()
    expect(page).to_have_url(re.compile(r"/\?range=15m$"))
    drawn = page.locator(".chart-panel").filter(has_text="Messages in per second")
    expect(drawn.locator(".chart-note")).to_have_attribute("data-state", "known")
    expect(drawn.locator("canvas")).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="15 min")).to_have_attribute("aria-pressed", "true")

    with site.api() as api:
        told = api.get("/overview").raise_for_status().json()
        assert told["backlog"] >= before
        query = {"measure": "group_lag", "names": [GROUP, "nobody"], "over": "15m"}
        series = api.get("/overview/series", params=query).raise_for_status().json()
        assert [each["name"] for each in series] == [GROUP, "nobody"]
        refused = api.get("/overview/series", params={"measure": "group_lag"})
        assert (refused.status_code, "names of groups" in refused.text) == (422, True)
    broker = page.get_by_label("Brokers", exact=True).get_by_role("row").nth(1)
    expect(broker).to_contain_text("up")
    expect(broker).to_contain_text(site.broker)


def test_producers_are_listed_without_typing_names(page: Page, site: Site, traffic: None) -> None:
    page.goto("/producers")
    row = page.get_by_role("row").filter(has_text=WRITERS)
    expect(row).to_contain_text("PYTHON")
    expect(row).to_contain_text(BROKER)
    field = page.get_by_label("Group, client, address or language")
    field.fill("no such producer")
    expect(page.get_by_text("Nothing matches “no such producer”.")).to_be_visible()
    field.fill(WRITERS.upper())
    expect(page.get_by_role("row").filter(has_text=WRITERS)).to_be_visible()
    expect(page).to_have_url(re.compile(f"search={WRITERS.upper()}"))
    with site.api() as api:
        told = api.get("/producers", params={"search": WRITERS}).raise_for_status().json()
    assert [each["group"] for each in told["items"]] == [WRITERS]
    expect(row).to_contain_text(told["items"][0]["client_id"])
