"""The pages of the cluster and its health, compared with what the API and the broker say."""

import os
import re
import signal
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from bolide.admin import AdminClient
from bolide.protocol.bodies.groups import GroupConfig
from tests.browser.site import BROKER, Site, log_in, serve_console, watched_page
from tests.support.cluster_process import ClusterProcess, cluster_process

BROKER_PAGE = f"/cluster/brokers/{BROKER}/0"


def test_the_brokers_of_the_cluster_are_shown(page: Page, site: Site) -> None:
    page.goto("/cluster")
    row = page.get_by_role("row").filter(has_text=site.broker)
    expect(row).to_contain_text("master")
    expect(row.locator(".badge", has_text=re.compile("^up$"))).to_be_visible()
    with site.api() as api:
        (member,) = api.get("/cluster/brokers").json()["brokers"]
    assert (member["address"], member["state"]) == (site.broker, "up")
    expect(row).to_contain_text(f"Bolide {member['version']}")
    expect(page.get_by_text("1 / 1", exact=True)).to_be_visible()
    page.get_by_label("Search brokers").fill("no-such-broker")
    expect(page.get_by_text("Nothing matches “no-such-broker”.")).to_be_visible()
    expect(page).to_have_url(re.compile("search=no-such-broker"))
    page.get_by_label("Search brokers").fill("")

    page.get_by_role("tab", name="Controllers").click()
    expect(page.get_by_text("The brokers of this cluster have no controllers.")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/cluster\?tab=controllers$"))
    page.get_by_role("tab", name="Brokers").click()
    page.get_by_role("link", name=f"{BROKER} (0)").click()
    expect(page).to_have_url(re.compile(re.escape(BROKER_PAGE)))
    expect(page.get_by_text("DefaultCluster")).to_be_visible()
    page.get_by_label("Search figures").fill("bolideVersion")
    table = page.get_by_label("All runtime figures").get_by_role("table")
    expect(table).to_contain_text(member["version"])


def test_a_setting_is_changed_in_the_page_and_elsewhere(page: Page, site: Site) -> None:
    page.goto(f"{BROKER_PAGE}?tab=settings&search=fileReservedTime")
    row = page.get_by_role("row").filter(has_text="fileReservedTime")
    expect(row).to_contain_text("72")
    expect(row).to_contain_text("at once")
    row.get_by_role("button", name=re.compile("^Change ")).click()
    page.get_by_label("New value").fill("soon")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("alert")).to_contain_text("must be a whole number")
    page.get_by_label("New value").fill("48")
    page.get_by_role("button", name="Continue").click()
    dialog = page.get_by_role("dialog").filter(
        has_text=f"Change fileReservedTime at {site.broker}?"
    )
    expect(dialog.locator("dl")).to_contain_text(re.compile(r"Before\s*72.*After\s*48", re.S))
    assert site.ask(lambda admin: admin.brokers.config(site.broker))["fileReservedTime"] == "72"
    dialog.get_by_role("button", name="Change").click()
    expect(row).to_contain_text("48")
    expect(row).to_contain_text("changed")
    assert site.ask(lambda admin: admin.brokers.config(site.broker))["fileReservedTime"] == "48"

    with site.api() as api:
        path = f"/settings/broker/{site.broker}/fileReservedTime"
        refused = api.put(path, json={"value": "72"})
        assert (refused.status_code, refused.json()["effect"]["before"]) == (428, "48")
        agreed = {"confirmation": refused.json()["confirmation"]}
        assert api.put(path, json={"value": "72"}, params=agreed).json()["value"] == "72"
    page.reload()
    expect(row).to_contain_text("72")
    row.get_by_role("button", name=re.compile("^Explain ")).click()
    expect(page.get_by_role("dialog")).to_contain_text("Possible values")


def test_a_drain_is_planned_watched_and_undone(page: Page, site: Site) -> None:
    page.goto(f"{BROKER_PAGE}?tab=drain")
    page.get_by_role("button", name="Look at what is open").click()
    expect(page.get_by_text("What a drain would wait for now")).to_be_visible()
    page.get_by_role("button", name="Drain this broker").click()
    page.get_by_label("Seconds without a write").fill("0")
    page.get_by_role("button", name="Continue").click()
    dialog = page.get_by_role("dialog").filter(has_text=f"Have producers leave {BROKER}?")
    expect(dialog).to_contain_text(site.broker)
    with site.api() as api:
        try:
            dialog.get_by_role("button", name="Drain").click()
            expect(page.get_by_text("It is safe to stop the broker now.")).to_be_visible()
            (member,) = api.get("/cluster/brokers").json()["brokers"]
            assert member["takes_messages"] is False
            page.get_by_role("button", name="Have producers return").click()
            page.get_by_role("button", name="Undo the drain").click()
            expect(page.get_by_role("button", name="Look at what is open")).to_be_visible()
            expect(page.get_by_role("button", name="Have producers return")).to_have_count(0)
        finally:
            api.delete(f"/cluster/groups/{BROKER}/drain")
        (member,) = api.get("/cluster/brokers").json()["brokers"]
        assert member["takes_messages"] is True


def test_the_health_of_the_cluster_is_a_checklist(page: Page, site: Site) -> None:
    page.goto("/ops")
    expect(page.get_by_role("heading", name="Checked and in order")).to_be_visible()
    expect(page.get_by_text("Each NameServer of the list answers.")).to_be_visible()
    with site.api() as api:
        found = api.get("/health").json()
        wrong = {
            each["id"]
            for each in found["checks"]
            if each["state"] in {"error", "warning", "unknown", "note"}
        }
        shown = page.locator("[data-check]").evaluate_all(
            "all => all.map(each => each.getAttribute('data-check'))"
        )
        assert set(shown) == wrong
        examined = page.get_by_text("Examined at")
        before = examined.inner_text()
        page.wait_for_timeout(1000)
        page.get_by_role("button", name="Check again").click()
        expect(examined).not_to_have_text(before)
    page.get_by_role("tab", name="NameServers").click()
    expect(page.get_by_role("row").filter(has_text=site.name_server)).to_contain_text("answers")
    page.get_by_role("tab", name="Versions").click()
    expect(page.get_by_role("row").filter(has_text=site.broker)).to_contain_text("Bolide")
    page.get_by_role("tab", name="Settings").click()
    expect(page.get_by_role("row").filter(has_text="accessMessageInMemory").first).to_be_visible()
    page.get_by_role("tab", name="Connection of the console").click()
    page.get_by_role("button", name="Change the connection").click()
    page.get_by_role("switch", name="VIP channel (vipChannelEnabled)").click()
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_text("It was tried, and works.")).to_be_visible()
    page.get_by_role("button", name="Switch", exact=True).click()
    facts = page.locator("main dl")
    expect(facts).to_contain_text(re.compile(r"vipChannelEnabled\)\s*on", re.S))
    with site.api() as api:
        assert api.get("/connection").json()["vip_channel"] is True
        plain = {"use_tls": False, "vip_channel": False}
        api.put("/connection", json=plain, params={"confirmation": "yes"}).raise_for_status()
        assert api.get("/connection").json()["vip_channel"] is False


def test_a_broker_that_is_silent_stopped_and_started_again_shows_as_such(
    browser: Browser, tmp_path: Path
) -> None:
    with cluster_process(tmp_path) as cluster:
        address = cluster.brokers[BROKER].address
        with serve_console(cluster.address, address, tmp_path) as away:
            _watch_it_come_and_go(browser, cluster, away)


def _watch_it_come_and_go(browser: Browser, cluster: ClusterProcess, away: Site) -> None:
    context = browser.new_context()
    log_in(context.new_page(), away.url)
    state: Any = context.storage_state()
    context.close()
    with watched_page(browser, away, state) as page:
        page.goto("/cluster")
        row = page.get_by_role("row").filter(has_text=away.broker)
        badge = row.locator("td").nth(2)
        expect(badge).to_have_text("up")
        pid = cluster.brokers[BROKER].process.pid
        os.kill(pid, signal.SIGSTOP)
        expect(badge).to_contain_text("does not answer since", timeout=20_000)
        expect(page.get_by_text("0 / 1", exact=True)).to_be_visible()
        os.kill(pid, signal.SIGCONT)
        expect(badge).to_have_text("up")
        with (
            watched_page(browser, away, state) as topic,
            watched_page(browser, away, state) as group,
        ):
            _check_that_nothing_known_is_not_nothing(cluster, away, topic, group)
        expect(badge).to_contain_text("stopped, last seen")
        with away.api() as api:
            (member,) = api.get("/cluster/brokers").json()["brokers"]
        assert (member["state"], member["in_rate"]) == ("stopped", None)
        cluster.start_broker()
        expect(badge).to_have_text("up")
        expect(page.get_by_text("1 / 1", exact=True)).to_be_visible()


def _check_that_nothing_known_is_not_nothing(
    cluster: ClusterProcess, away: Site, topic: Page, group: Page
) -> None:
    """What pages of a topic, of a group, and lists say when the broker stops."""

    async def fill(admin: AdminClient) -> None:
        await admin.topics.create("Kept", "DefaultCluster", queues=1)
        await admin.groups.update(away.broker, GroupConfig(group_name="keepers"))

    away.ask(fill)
    topic.goto("/topics/Kept")
    stored = topic.locator(".figure-card", has_text="Stored messages").locator(".figure-value")
    expect(stored).to_have_text("0")
    group.goto("/consumers/keepers")
    clients = group.locator(".figure-card", has_text="Clients").locator(".figure-value")
    expect(clients).to_have_text("0")
    cluster.kill_broker()
    expect(stored).to_have_text("—", timeout=30_000)
    expect(topic.get_by_text("it is unknown whether there is a topic").first).to_be_visible()
    expect(clients).to_have_text("—", timeout=30_000)
    for path in ("/topics", "/consumers", "/dead-letters", "/producers", "/transactions"):
        topic.goto(path)
        unknown = topic.locator(".data-table [data-state=unknown]").first
        expect(unknown).to_contain_text("Unknown: the servers that answer know of nothing here.")
        told = topic.get_by_text("broker-a: not registered at the NameServers")
        expect(told).to_be_visible()
        if path == "/topics":
            expect(topic.get_by_text("Topics of applications (—)")).to_be_visible()
    topic.goto("/timers")
    expect(topic.get_by_text("not registered at the NameServers").first).to_be_visible()
