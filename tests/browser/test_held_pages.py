"""Dead letters, timers, transactions and parked keys in the browser."""

import asyncio
import csv
from collections.abc import Awaitable, Callable
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from bolide import AdminClient, Message, Producer, PushConsumer, TransactionProducer
from bolide.admin.dead_letters import NoDeadLetters
from bolide.client.producer.results import TransactionState
from bolide.model.message import StoredMessage
from tests.browser.conftest import Site, in_thread
from tests.support.aio import PATIENCE
from tests.support.own_cluster import create_topic

GROUP, TOPIC = "till", "Receipts"
HOSTILE = "<img src=x onerror=\"document.title='run'\">{{ 7 * 7 }}"


async def wait_until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE * 3):
        while not await condition():  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0.05)


def make_dead_letters(site: Site) -> None:
    """Three dead letters: two declined cards, and a hostile one."""

    async def fail(_: StoredMessage) -> None:
        raise ValueError("bad")

    async def run() -> None:
        async with (
            Producer("shop", name_server=site.name_server) as producer,
            PushConsumer(
                GROUP,
                name_server=site.name_server,
                consume_from="first",
                max_reconsume_times=0,
            ) as consumer,
            AdminClient(site.name_server) as admin,
        ):
            await create_topic(producer, TOPIC, 1)
            await consumer.subscribe(TOPIC, fail)
            for number, body in enumerate(['{"sum": 12}', '{"sum": 30}', HOSTILE]):
                reason = "card declined" if number < 2 else HOSTILE
                properties = {"ERROR": reason}
                message = Message(TOPIC, body.encode(), keys=f"r{number}", properties=properties)
                await producer.send(message)

            async def died() -> bool:
                try:
                    return (await admin.dead_letters.count(GROUP)).messages == 3
                except NoDeadLetters:
                    return False

            await wait_until(died)

    in_thread(run)


def stored(site: Site, topic: str) -> list[StoredMessage]:
    async def read(admin: AdminClient) -> list[StoredMessage]:
        (queue,) = await admin.topics.queues(topic)
        return (await admin.messages.pull(queue, 0)).messages

    return site.ask(read)


def test_dead_letters_are_looked_at_sent_again_and_deleted(page: Page, site: Site) -> None:
    make_dead_letters(site)
    page.goto("/dead-letters")
    page.get_by_role("link", name=GROUP, exact=True).click()
    rows = page.get_by_role("region", name="Dead letters").locator("tbody tr")
    expect(rows).to_have_count(3)

    filter_and_download(page, rows)
    send_again(page, site, rows)
    edit_and_send(page, site, rows)
    delete_all(page, site)


def filter_and_download(page: Page, rows: Locator) -> None:
    page.get_by_label("Reason").fill("DECLINED")
    expect(rows).to_have_count(2)
    page.reload()
    expect(rows).to_have_count(2)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
        page.get_by_text("CSV", exact=True).click()
    table = Path(download.value.path()).read_text("utf-8")
    # Two messages are handled at once, so either may be given up first.
    assert {row["body"] for row in csv.DictReader(table.splitlines())} == {
        '{"sum": 12}',
        '{"sum": 30}',
    }


def send_again(page: Page, site: Site, rows: Locator) -> None:
    """One letter that is ticked, then all: the first is not sent twice."""
    rows.filter(has_text="r1").get_by_role("checkbox").click()
    expect(page.get_by_role("button", name="Send 1 selected again")).to_be_visible()
    page.get_by_label("Reason").fill("declined")  # other filters, nothing ticked
    expect(page.get_by_role("button", name="Send all that match again")).to_be_visible()
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="r1").get_by_role("checkbox")).not_to_be_checked()
    rows.filter(has_text="r0").get_by_role("checkbox").click()
    page.get_by_role("button", name="Send 1 selected again").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text(f"1 go to topic {TOPIC}, read by: {GROUP}")).to_be_visible()
    assert len(stored(site, TOPIC)) == 3, "nothing is sent before it is confirmed"
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator(".job-head .badge")).to_have_text("finished")
    expect(page.get_by_text("1 sent", exact=True)).to_be_visible()

    page.goto(f"/dead-letters/{GROUP}")
    expect(rows.filter(has_text="r0").get_by_text("sent again", exact=True)).to_be_visible()
    page.get_by_role("button", name="Send all again").click()
    expect(dialog.get_by_text("1 were sent before and are left out.")).to_be_visible()
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator(".job-head .badge")).to_have_text("finished")
    results = page.get_by_role("region", name="Results").locator("tbody tr")
    expect(results.get_by_text("sent before", exact=True)).to_have_count(1)
    expect(results.get_by_text("sent", exact=True)).to_have_count(2)
    again = [each.properties.get("REPLAYED_FROM") for each in stored(site, TOPIC)[3:]]
    assert sorted(str(each) for each in again) == [f"%DLQ%{GROUP}/broker-a/0@{n}" for n in range(3)]


def edit_and_send(page: Page, site: Site, rows: Locator) -> None:
    """The hostile letter is shown as text, and sent as another message."""
    page.goto(f"/dead-letters/{GROUP}?key=r2")
    expect(rows.get_by_text(HOSTILE).first).to_be_visible()
    rows.get_by_role("link").click()
    expect(page.locator("pre")).to_have_text(HOSTILE)
    dialog = page.get_by_role("dialog")
    expect(page.get_by_text(f"sent to {TOPIC}")).to_be_visible()
    page.get_by_role("button", name="Edit and send").click()
    dialog.get_by_label("Body", exact=True).fill('{"sum": 31}')
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_text("Sent as message")).to_be_visible()
    assert stored(site, TOPIC)[-1].body == b'{"sum": 31}'
    assert "run" not in page.title()


def delete_all(page: Page, site: Site) -> None:
    dialog = page.get_by_role("dialog")
    page.goto(f"/dead-letters/{GROUP}?tab=reasons")
    expect(page.get_by_role("link", name="card declined")).to_be_visible()
    page.get_by_role("button", name="Delete all").click()
    delete = dialog.get_by_role("button", name="Delete", exact=True)
    expect(delete).to_be_disabled()
    dialog.get_by_label(f"Type {GROUP} to confirm").fill(GROUP)
    delete.click()
    expect(page).to_have_url(f"{site.url}/dead-letters")
    with site.api() as api:
        assert api.get(f"/dead-letters/{GROUP}").status_code == 404
        assert api.get("/dead-letters", params={"search": GROUP}).json()["total"] == 0


def hold_back(site: Site) -> None:
    """A timer, two open transactions and a parked key."""

    async def refuse(_: StoredMessage) -> None:
        raise ValueError("no such account")

    async def run() -> None:
        async with (
            Producer("shop", name_server=site.name_server) as producer,
            TransactionProducer(
                "payers", check=lambda _: TransactionState.UNKNOWN, name_server=site.name_server
            ) as payers,
            PushConsumer(
                "ledger",
                name_server=site.name_server,
                consume_from="first",
                max_reconsume_times=0,
                ordered_suspend=0.01,
            ) as consumer,
            AdminClient(site.name_server) as admin,
        ):
            for topic in ("Reminders", "Payments", "Accounts"):
                await create_topic(producer, topic, 1)
            for key in ("soon", "late"):
                await producer.send(Message("Reminders", b"x", keys=key, delay=3600))
            await producer.send(Message("Reminders", b"x", delay_level=18))
            for key in ("pay-1", "pay-2"):
                await payers.begin(Message("Payments", key.encode(), keys=key))
            await consumer.subscribe(
                "Accounts", refuse, ordered=True, order_by="keys", on_poison="park"
            )
            await producer.send(Message("Accounts", b"x", sharding_key="acct-7"))

            async def is_parked() -> object:
                return await admin.parked.keys("ledger")

            await wait_until(is_parked)

    in_thread(run)


def test_held_messages_are_recalled_decided_and_resumed(page: Page, site: Site) -> None:
    hold_back(site)
    dialog = page.get_by_role("dialog")

    page.goto("/timers?topic=Reminders")
    rows = page.get_by_role("region", name="Pending timers").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(page.get_by_text("1 at level 18 (2h)")).to_be_visible()
    rows.filter(has_text="late").get_by_role("button").click()
    expect(dialog.get_by_text("1 messages will never be delivered:")).to_be_visible()
    dialog.get_by_role("button", name="Recall", exact=True).click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("soon")

    page.goto("/transactions?group=payers")
    rows = page.get_by_role("region", name="Transactions").locator("tbody tr")
    expect(rows).to_have_count(2)
    rows.filter(has_text="pay-1").get_by_role("link").first.click()
    expect(page.locator("pre")).to_have_text("pay-1")
    page.get_by_role("button", name="Commit").click()
    dialog.get_by_role("button", name="Commit").click()
    expect(page.get_by_text("Ended", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Commit")).to_be_hidden()
    expect(page.get_by_role("button", name="Roll back")).to_be_hidden()
    assert [each.body for each in stored(site, "Payments")] == [b"pay-1"]
    page.goto("/transactions?group=payers")
    rows.get_by_role("button", name="Roll back").click()
    dialog.get_by_role("button", name="Roll back").click()
    expect(page.get_by_text("No transaction is open.")).to_be_visible()
    assert len(stored(site, "Payments")) == 1

    page.goto("/parked")
    page.get_by_role("link", name="ledger", exact=True).click()
    rows = page.get_by_role("region", name="Parked keys").locator("tbody tr")
    expect(rows).to_contain_text("ValueError: no such account")
    rows.get_by_role("button", name="Resume").click()
    dialog.get_by_role("button", name="Resume", exact=True).click()
    expect(rows).to_contain_text("resuming")
    (key,) = site.ask(lambda admin: admin.parked.keys("ledger"))
    assert key.is_resuming
