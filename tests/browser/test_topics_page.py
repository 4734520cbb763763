"""Topics are created, filled, changed and deleted in the pages; API and clients see the same."""

import re

from playwright.sync_api import Locator, Page, expect

from bolide import Producer
from bolide.admin import AdminClient
from bolide.model.message import Message
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from tests.browser.site import BROKER, Site


def dialog(page: Page, name: str) -> Locator:
    return page.get_by_role("dialog").filter(has=page.get_by_role("heading", name=name))


def choose(page: Page, within: Locator, label: str, option: str) -> None:
    within.get_by_label(label, exact=True).click()
    page.get_by_role("option", name=option).click()


def row(page: Page, text: str) -> Locator:
    return page.get_by_role("row").filter(has_text=text)


def figure(page: Page, name: str) -> Locator:
    return page.locator(".figure-card", has_text=name).locator(".figure-value")


def test_a_topic_is_made_used_changed_and_deleted(page: Page, site: Site) -> None:
    topic = "Story-orders"
    create(page, topic)
    config = site.ask(lambda admin: admin.topics.config(site.broker, topic))
    assert (config.read_queue_nums, config.write_queue_nums) == (4, 4)
    assert config.attributes == {"message.type": "FIFO"}
    with site.api() as api:
        (found,) = api.get("/topics", params={"search": "story-ord"}).json()["items"]
    assert (found["topic"], found["kind"], found["messages"]) == (topic, "fifo", 0)

    message_id = send_ordered(page, topic)

    async def read(admin: AdminClient) -> set[str]:
        pulled = [await admin.messages.pull(q, 0, 8) for q in await admin.topics.queues(topic)]
        return {each.message_id for part in pulled for each in part.messages}

    assert message_id in site.ask(read)
    expect(figure(page, "Stored messages")).to_have_text("1")

    async def consume(admin: AdminClient) -> None:  # another one, by a client; a group is behind
        await admin.groups.update(site.broker, GroupConfig(group_name="story-readers"))
        queue = MessageQueue(topic, BROKER, 3)
        async with Producer("story", name_server=site.name_server) as producer:
            await producer.send(Message(topic, b"by a client"), queue=queue)
        await admin.offsets.commit(site.broker, "story-readers", queue, 0)

    site.ask(consume)
    expect(figure(page, "Stored messages")).to_have_text("2")  # without a click
    page.get_by_role("tab", name="Groups").click()
    expect(row(page, "story-readers")).to_contain_text("1")
    assert "tab=groups" in page.url
    page.get_by_role("tab", name="Queues").click()
    expect(page.get_by_role("row")).to_have_count(5)

    change(page, topic)
    config = site.ask(lambda admin: admin.topics.config(site.broker, topic))
    assert (config.read_queue_nums, config.write_queue_nums) == (4, 2)

    delete(page, topic)
    assert topic not in site.ask(lambda admin: admin.topics.names())
    with site.api() as api:
        assert api.get(f"/topics/{topic}").status_code == 404


def create(page: Page, topic: str) -> None:
    page.goto("/topics")
    page.get_by_role("button", name="Create topic").focus()
    page.keyboard.press("Enter")
    form = dialog(page, "Create topic")
    expect(form.get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.type("no blanks")
    expect(form.get_by_label("Name", exact=True)).to_have_value("no blanks")
    form.get_by_role("button", name="Create").click()
    expect(form).to_contain_text("Not allowed")
    form.get_by_label("Name", exact=True).fill(topic)
    form.get_by_label("Write queues per broker").fill("4")
    form.get_by_label("Read queues per broker").fill("4")
    choose(page, form, "Message type", "FIFO")
    form.get_by_role("button", name="Create").click()
    expect(page).to_have_url(re.compile(f"/topics/{topic}$"))
    expect(figure(page, "Kind")).to_have_text("FIFO")


def send_ordered(page: Page, topic: str) -> str:
    """Send what the message type suggests; returns the message id."""
    page.get_by_role("button", name="Send a message").click()
    form = dialog(page, f"Send a message to {topic}")
    choose(page, form, "Format of the body", "JSON")
    form.get_by_label("Body", exact=True).fill("{")
    form.get_by_role("button", name="Send", exact=True).click()
    expect(form.get_by_role("alert")).to_contain_text("Sharding key")
    form.get_by_label("Sharding key").fill("customer-7")
    form.get_by_role("button", name="Send", exact=True).click()
    expect(form.get_by_role("alert")).to_contain_text("not valid JSON")
    form.get_by_label("Body", exact=True).fill('{"total": 7}')
    form.get_by_label("Properties").fill("source=page")
    form.get_by_role("button", name="Send", exact=True).click()
    link = form.locator(".sent-message a")
    expect(link).to_be_visible()
    message_id = link.inner_text()
    assert link.get_attribute("href") == f"/messages/{topic}/{message_id}"
    form.get_by_role("button", name="Close").click()
    return message_id


def change(page: Page, topic: str) -> None:
    page.get_by_role("button", name="Change").click()
    form = dialog(page, f"Change topic {topic}")
    form.get_by_label("Write queues per broker").fill("2")
    form.get_by_role("button", name="Preview").click()
    confirm = dialog(page, f"Change topic {topic}?")
    expect(confirm).to_contain_text("Nothing is sent to queues 2 to 3")
    expect(row(page, "Write queues").filter(has_text="2")).to_be_visible()
    confirm.get_by_role("button", name="Change").click()
    expect(page.get_by_text(f"Topic {topic} was changed.")).to_be_visible()


def delete(page: Page, topic: str) -> None:
    page.get_by_role("button", name="Delete").click()
    confirm = dialog(page, f"Delete topic {topic}?")
    expect(confirm).to_contain_text("story-readers")
    button = confirm.get_by_role("button", name="Delete")
    expect(button).to_be_disabled()
    expect(confirm.get_by_label("Type")).to_be_focused()
    page.keyboard.type(topic)
    button.click()
    expect(page).to_have_url(re.compile("/topics$"))


def test_many_topics_are_found_sorted_and_paged(page: Page, site: Site) -> None:
    async def fill(admin: AdminClient) -> None:
        names = [f"Crowd-{number:04}" for number in range(300)] + ["%RETRY%crowd"]
        configs = [TopicConfig(topic_name=n, read_queue_nums=1, write_queue_nums=1) for n in names]
        await admin.topics.update_all(site.broker, configs)

    site.ask(fill)
    page.goto("/topics?search=crowd")
    expect(page.get_by_role("status").filter(has_text="1 to 50 of 300")).to_be_visible()
    page.goto("/topics?search=crowd&page=2")
    expect(page.get_by_role("status").filter(has_text="51 to 100 of 300")).to_be_visible()
    page.get_by_role("button", name="Topic", exact=True).click()  # the title of the column
    expect(page.get_by_role("link", name="Crowd-0299")).to_be_visible()
    assert "order=desc" in page.url
    page.get_by_label("Search by name").fill("crowd-0123")
    expect(page.get_by_role("status").filter(has_text="1 to 1 of 1")).to_be_visible()
    page.get_by_label("Search by name").fill("crowd")
    choose(page, page.locator(".toolbar"), "Kinds", "Retry")
    link = page.get_by_role("link", name="%RETRY%crowd")
    link.click()
    expect(page.get_by_role("heading", name="%RETRY%crowd")).to_be_visible()
    expect(figure(page, "Stored messages")).to_have_text("0")
    expect(page.get_by_text("Messages that the group crowd consumes again.")).to_be_visible()
