"""Messages and traces in the browser: search, live tail, resending, hostile contents."""

import asyncio
import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from bolide import Message, Producer, PushConsumer, Trace
from bolide.admin import AdminClient
from tests.browser.conftest import NARROW, Site, in_thread, watched_page
from tests.support.aio import PATIENCE

TOPIC, HOSTILE, GROUP, TRACES = (
    "BrowserOrders",
    "BrowserHostile",
    "browser-readers",
    "BrowserTraces",
)
COUNT = 130
ATTACK = "<img src=x onerror='window.hacked=1'>"
BODIES = (
    b"<script>window.hacked=1</script>",
    ATTACK.encode(),
    b"{{ window.hacked = 1 }}",
    b"\x1b]0;owned\x07\x1b[2J",
    b"\xff\xfe\xfd\x80\x00",
    b"[" * 3000 + b"]" * 3000,
    b'{"a": "' + b"x" * 4_000_000 + b'"}',
)
SUSPICIOUS = "window.hacked || document.querySelector('#contents script, #contents img') !== null"


@pytest.fixture(scope="module")
def sent(site: Site) -> list[str]:
    """Topics with messages, a traced one consumed by a group; the ids of the orders."""
    return in_thread(lambda: fill(site.name_server))


async def fill(name_server: str) -> list[str]:
    trace = Trace(topic=TRACES, interval=0.02)
    async with AdminClient(name_server) as admin:
        for topic in (TOPIC, HOSTILE, TRACES):
            await admin.topics.create(topic, "DefaultCluster", queues=2)
    async with Producer("browser-shop", name_server=name_server, trace=trace) as producer:
        ids = [(await producer.send(order(number))).message_id for number in range(COUNT)]
        for body in BODIES:
            message = Message(HOSTILE, body, tags="{{7*7}}", properties={"name": ATTACK})
            await producer.send(message)
    got = asyncio.Semaphore(0)
    settings: Any = {"name_server": name_server, "consume_from": "first", "trace": trace}
    async with PushConsumer(GROUP, **settings) as consumer:
        await consumer.subscribe(TOPIC, lambda _: got.release())
        async with asyncio.timeout(3 * PATIENCE):
            for _ in range(COUNT):
                await got.acquire()
        await consumer.commit()
    return ids


def order(number: int) -> Message:
    body = json.dumps({"id": number, "total": number * 10, "buyer": {"name": "Ann"}}).encode()
    return Message(TOPIC, body, tags=f"t{number % 2}", keys=f"order-{number}")


def rows(page: Page) -> Any:
    return page.get_by_role("region", name="Found messages").locator("tbody tr")


def query_of(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def test_a_search_is_made_paged_shared_and_equal_to_the_api(
    page: Page, site: Site, sent: list[str]
) -> None:
    page.goto("/messages")
    page.get_by_label("Topic", exact=True).fill(TOPIC)
    page.get_by_role("button", name="Search", exact=True).click()
    expect(rows(page)).to_have_count(50)
    first = rows(page).first.inner_text()
    with site.api() as api:
        listed = api.get(f"/messages/{TOPIC}").json()
    assert listed["items"][0]["keys"][0] in first
    assert len(listed["items"]) == 50

    page.get_by_role("button", name="Older", exact=True).click()
    expect(page.get_by_role("button", name="Newer", exact=True)).to_be_visible()
    assert "cursor" in query_of(page)
    second = rows(page).first.inner_text()
    assert second != first
    page.reload()
    expect(rows(page).first).to_have_text(re.compile(re.escape(second.split("\t")[1])))
    page.get_by_role("button", name="Newer", exact=True).click()
    expect(rows(page).first).to_have_text(re.compile(re.escape(first.split("\t")[1])))

    page.get_by_text("Filters", exact=True).click()
    labelled = page.locator(".q-field:has(input[placeholder]):has(.q-field__label)")
    assert labelled.count() >= 4
    expect(labelled.and_(page.locator(":not(.q-field--float)"))).to_have_count(0)
    page.get_by_label("JSON path", exact=True).fill("$.total >= 1270")
    page.get_by_label("JSON path", exact=True).press("Enter")
    expect(rows(page)).to_have_count(3)
    expect(page.get_by_text(f"3 found · {COUNT} looked at")).to_be_visible()
    assert query_of(page) == {"topic": [TOPIC], "path": ["$.total >= 1270"]}
    page.get_by_label("JSON path", exact=True).fill("total > 1")
    page.get_by_label("JSON path", exact=True).press("Enter")
    expect(page.locator("[data-state=error]")).to_contain_text("does not begin with $")


def test_messages_are_found_by_key_id_and_place(page: Page, site: Site, sent: list[str]) -> None:
    page.goto(f"/messages?topic={TOPIC}&by=key&key=order-77")
    expect(rows(page)).to_have_count(1)
    page.goto(f"/messages?topic={TOPIC}&by=id&id={sent[5]}")
    expect(rows(page)).to_contain_text("order-5")
    page.goto(f"/messages?topic={TOPIC}&by=queue&queue=broker-a/1&offset=10&order=oldest")
    expect(rows(page).first).to_contain_text("broker-a/1 @ 10")
    page.goto(f"/messages?topic={TOPIC}&by=queue&queue=broker-a/1&offset=9000")
    expect(page.get_by_text(f"The queue ends at offset {COUNT // 2 - 1}.")).to_be_visible()
    expect(rows(page).first).to_contain_text(f"broker-a/1 @ {COUNT // 2 - 1}")
    page.goto("/messages?topic=Nowhere")
    expect(page.locator("[data-state=error]")).to_contain_text("Nowhere")


def test_an_id_that_no_message_has_is_no_error(page: Page, site: Site, sent: list[str]) -> None:
    unknown = sent[5][:-4] + "FFFF"
    for path in (f"/messages?topic={TOPIC}&by=id&id={unknown}", f"/messages/{TOPIC}/{unknown}"):
        page.goto(path)
        expect(page.get_by_text("No message of the topic has this id.")).to_be_visible()
        expect(page.locator("[data-state=error]:visible")).to_have_count(0)
    expect(page.get_by_role("region", name="In the consumer groups")).to_be_hidden()
    page.goto(f"/messages?id={unknown}")
    expect(page.get_by_text("The id alone does not tell the topic.")).to_be_visible()


def test_new_messages_appear_in_the_live_tail(page: Page, site: Site, sent: list[str]) -> None:
    page.goto(f"/messages?topic={TOPIC}&by=tail&tags=live")
    expect(page.get_by_text("Waiting for messages…")).to_be_visible()

    async def send() -> None:
        async with Producer("browser-late", name_server=site.name_server) as producer:
            await producer.send(Message(TOPIC, b"not this", tags="dead"))
            await producer.send(Message(TOPIC, b"fresh", tags="live"))

    in_thread(send)
    expect(rows(page)).to_have_count(1, timeout=4000)
    expect(rows(page)).to_contain_text("fresh")
    page.get_by_role("button", name="Pause", exact=True).click()
    status = page.locator(".message-progress")
    expect(status).to_have_text("Paused · 1 shown")
    in_thread(send)
    page.wait_for_timeout(1500)
    expect(status).to_have_text("Paused · 1 shown")
    page.get_by_role("button", name="Go on", exact=True).click()
    expect(status).to_have_text("Live · 2 shown")


def test_one_message_its_groups_its_trace_and_a_copy_of_it(
    page: Page, site: Site, sent: list[str]
) -> None:
    page.goto(f"/messages/{TOPIC}/{sent[9]}")
    expect(page.get_by_text("total: 90")).to_be_visible()
    page.get_by_role("button", name="Hex", exact=True).click()
    expect(page.get_by_text(re.compile("^00000000  7b 22"))).to_be_visible()
    groups = page.get_by_role("region", name="In the consumer groups")
    expect(groups).to_contain_text(GROUP)
    expect(groups).to_contain_text("consumed")

    page.get_by_role("button", name="Hand to a consumer").click()
    expect(page.get_by_text("No group of this topic has a connected consumer.")).to_be_visible()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Send as a new message").click()
    dialog = page.get_by_role("dialog", name="Send as a new message")
    dialog.get_by_label("Tags", exact=True).fill("copied")
    dialog.get_by_role("button", name="Continue", exact=True).click()
    asked = page.get_by_role("dialog", name="Send this message?")
    expect(asked).to_contain_text("copied")
    asked.get_by_role("button", name="Send", exact=True).click()
    expect(page).to_have_url(re.compile(rf"/messages/{TOPIC}/(?!{sent[9]})"))
    expect(page.get_by_text("copied", exact=True).first).to_be_visible()
    with site.api() as api:
        found = api.get(f"/messages/{TOPIC}", params={"tags": "copied"}).json()["items"]
    assert [each["keys"] for each in found] == [["order-9"]]

    page.goto(f"/traces?key=order-9&trace_topic={TRACES}")
    page.get_by_role("link", name=sent[9]).click()
    expect(page.get_by_role("heading", name="Time line")).to_be_visible()
    steps = page.get_by_role("list").get_by_role("listitem")
    expect(steps).to_have_count(3)
    for step, text in enumerate(("browser-shop", "Store", GROUP)):
        expect(steps.nth(step)).to_contain_text(text)


def test_why_a_group_has_consumed_a_message_is_said_in_chinese(
    browser: Browser, site: Site, logged_in: Any, sent: list[str]
) -> None:
    with watched_page(browser, site, logged_in, language="zh-CN") as page:
        page.goto(f"/messages/{TOPIC}/{sent[9]}")
        row = page.get_by_role("row").filter(has_text=GROUP)
        expect(row).to_contain_text("已越过该消息")
        assert not re.search("[a-z]{3}", row.inner_text().replace(GROUP, ""))


def test_hostile_messages_are_shown_and_not_obeyed(
    browser: Browser, site: Site, logged_in: Any, sent: list[str]
) -> None:
    with site.api() as api:
        found = api.get(f"/messages/{HOSTILE}", params={"order": "oldest"}).json()["items"]
    assert len(found) == len(BODIES)
    with watched_page(browser, site, logged_in, size=NARROW) as page:
        page.goto(f"/messages?topic={HOSTILE}")
        expect(rows(page)).to_have_count(len(BODIES))
        assert not page.evaluate(SUSPICIOUS)
        for each in found:
            page.goto(f"/messages/{HOSTILE}/{each['offset_message_id']}")
            expect(page.locator(".property-table")).to_contain_text(ATTACK)
            assert not page.evaluate(SUSPICIOUS), each["preview"]
            wider = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert wider <= 0, each["preview"]
        expect(page.get_by_text("Only the first 64.0 KiB are shown")).to_be_visible()
        with page.expect_download() as download:
            page.get_by_role("button", name="Download the body").click()
        assert download.value.path().read_bytes() == BODIES[-1]


def test_back_and_forward_go_through_searches_pages_and_tabs(
    page: Page, site: Site, sent: list[str]
) -> None:
    page.goto("/messages")
    page.get_by_label("Topic", exact=True).fill(TOPIC)
    page.get_by_role("button", name="Search", exact=True).click()
    expect(rows(page)).to_have_count(50)
    newest = rows(page).first.inner_text()
    page.get_by_role("button", name="Older", exact=True).click()
    expect(rows(page).first).not_to_have_text(newest, use_inner_text=True)
    older = rows(page).first.inner_text()
    page.go_back()
    expect(rows(page).first).to_have_text(newest, use_inner_text=True)
    assert query_of(page) == {"topic": [TOPIC]}
    page.go_back()
    expect(page.get_by_text("Choose a topic.")).to_be_visible()
    assert query_of(page) == {}
    page.go_forward()
    expect(rows(page).first).to_have_text(newest, use_inner_text=True)
    page.go_forward()
    expect(rows(page).first).to_have_text(older, use_inner_text=True)
    page.reload()
    expect(rows(page).first).to_have_text(older, use_inner_text=True)
    page.go_back()
    expect(rows(page).first).to_have_text(newest, use_inner_text=True)

    page.goto(f"/topics/{TOPIC}")
    page.get_by_role("tab", name="Queues", exact=True).click()
    expect(page).to_have_url(re.compile("tab=queues"))
    page.get_by_role("tab", name="Groups", exact=True).click()
    expect(page).to_have_url(re.compile("tab=groups"))
    page.go_back()
    chosen = page.get_by_role("tab", selected=True)
    expect(chosen).to_have_text("Queues")
    page.go_back()
    expect(chosen).to_have_text("Overview")
    page.go_forward()
    expect(chosen).to_have_text("Queues")

    page.goto("/topics")
    search = page.get_by_label("Search by name", exact=True)
    search.press_sequentially("Browser", delay=400)
    expect(page).to_have_url(re.compile("search=Browser(&|$)"))
    page.go_back()
    expect(chosen).to_have_text("Queues")
