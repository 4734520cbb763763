"""The pages of pipelines, fed with reports as runs write them."""

import re
import time
from typing import Any

from playwright.sync_api import Page, expect

from bolide.admin import AdminClient
from bolide.client.producer.producer import Producer
from bolide.model.message import Message
from bolide.model.names import PIPELINE_TOPIC
from bolide.protocol.bodies.pipelines import (
    VERSION,
    Progress,
    Report,
    State,
    StopRequest,
    encode,
    find_message,
)
from tests.browser.site import Site, in_thread


def report(pipeline: str, state: State = State.RUNNING, **facts: Any) -> Report:
    known: dict[str, Any] = {"run": pipeline, "started": int(time.time() * 1000), "interval": 60.0}
    return Report(version=VERSION, state=state, pipeline=pipeline, **known | facts)


def write(site: Site, *reports: Report) -> None:
    async def send() -> None:
        async with Producer("reports", name_server=site.name_server) as producer:
            for each in reports:
                await producer.send(Message(PIPELINE_TOPIC, encode(each)))

    in_thread(send)


def test_pipelines_are_shown_as_they_report_and_stopped(page: Page, site: Site) -> None:
    progress = Progress(
        rows=120_000,
        rows_per_second=4321.0,
        batch=7,
        behind={"orders": 350},
        behind_seconds={"orders": 2.0},
    )
    text = "rocketmq <script>alert(1)</script>{{ 1 + 1 }} to parquet"
    write(
        site,
        report("big-orders", progress=progress, text=text, kind="archive"),
        report("broken", State.FAILED, reason="too bad"),
        report("gone", interval=1e-6),
    )

    page.goto("/pipelines")
    row = page.get_by_role("row", name=re.compile("big-orders"))
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("4,321")
    expect(page.get_by_role("row", name=re.compile("gone"))).to_contain_text("silent for")
    with site.api() as api:
        listed = api.get("/pipelines", params={"search": "big-orders"}).json()
    assert [(each["name"], each["behind"]) for each in listed["items"]] == [("big-orders", 350)]

    page.get_by_label("Name, host or what it does").fill("broken")
    expect(row).to_have_count(0)
    expect(page.get_by_role("row", name=re.compile("broken"))).to_contain_text("failed")
    expect(page).to_have_url(re.compile("search=broken"))

    page.goto("/pipelines/big-orders")
    behind = page.locator(".figure-card", has_text="Behind").first
    expect(behind).to_contain_text("350")
    expect(page.get_by_text(text)).to_be_visible()
    expect(page.get_by_label("Source topics")).to_contain_text("orders")
    later = Progress(rows=130_000, rows_per_second=4000.0, batch=8, behind={"orders": 12})
    write(site, report("big-orders", progress=later, text=text, kind="archive"))
    expect(behind).to_contain_text("12")

    page.get_by_role("button", name="Stop").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The next run goes on where this one ends.")
    dialog.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("The pipeline was asked to stop.")).to_be_visible()
    request = StopRequest(version=VERSION, pipeline="big-orders", run="big-orders")
    assert request in site.ask(written)

    page.goto("/pipelines/broken")
    expect(page.get_by_text("too bad").first).to_be_visible()
    page.goto("/pipelines/nothing-like-it")
    expect(page.locator("[data-state=error]").first).to_contain_text("has reported recently")


async def written(admin: AdminClient) -> list[object]:
    """All messages on the topic of reports."""
    (queue,) = await admin.topics.queues(PIPELINE_TOPIC)
    found = await admin.messages.pull(queue, 0, 32)
    return [find_message(message.body) for message in found.messages]
