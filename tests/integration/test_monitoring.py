"""The dashboard and the alert rules name what brokers have, in a form that can be loaded."""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner, Result

from bolide.broker.server import Broker
from bolide.cli import app
from bolide.cli.monitoring.boards import alert_rules, dashboard
from bolide.metrics.exporter import Exporter
from bolide.model.properties import PropertyName
from bolide.protocol import fastjson
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat, ProducerGroup, Subscription
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.transactions import EndTransactionHeader
from bolide.protocol.message_id import OffsetId
from tests.integration.test_replicas import group
from tests.support.aio import until
from tests.support.controllers import controller, free_peers
from tests.support.metrics import Scraped, fetch
from tests.support.popping import PopClient
from tests.support.promql import BadQuery, Query, read_query

OF_PROMETHEUS = {"job", "instance"}
"""Labels that Prometheus adds."""
DROPPED = "bolide_metrics_series_dropped"
"""Shown as soon as series are left out."""
T, G, PREPARED, COMMIT, ROLLBACK = "Orders", "shop", 4, 8, 12
OF_MASTERS = (
    "rocketmq_consumer_lag_messages", "rocketmq_consumer_ready_messages", "rocketmq_group_diff",
    "bolide_queue_lag_messages", "rocketmq_message_accumulation", "rocketmq_producer_offset",
    "rocketmq_consumer_offset", "rocketmq_group_count",
)  # fmt: skip
"""What a slave has too, as its master has it."""
_DURATION = re.compile(r"\d+[smhd]")

Scrape = dict[str, set[str]]
"""The labels of each series, by the name of the sample."""


class Expression(NamedTuple):
    """A query, and the labels that the text around it names."""

    where: str
    query: Query
    shown: set[str]


def panels() -> list[dict[str, Any]]:
    return [each for each in dashboard()["panels"] if each["type"] != "row"]


def rules() -> list[dict[str, Any]]:
    return [rule for each in yaml.safe_load(alert_rules())["groups"] for rule in each["rules"]]


def expressions() -> Iterator[Expression]:
    for panel in panels():
        for target in panel["targets"]:
            shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            yield Expression(panel["title"], read_query(target["expr"]), shown)
    for rule in rules():
        text = " ".join(rule["annotations"].values())
        shown = set(re.findall(r"\$labels\.(\w+)", text))
        yield Expression(rule["alert"], read_query(rule["expr"]), shown)
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
            assert found
            yield Expression(variable["name"], read_query(found[1]), {found[2]})


EXPRESSIONS = list(expressions())


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Scrape:
    """The metrics of a master that has done everything that metrics tell of."""
    return asyncio.run(scrape_group(tmp_path_factory.mktemp("monitored")))


async def scrape_group(directory: Path) -> Scrape:
    wanted = {metric for each in EXPRESSIONS for metric in each.query.metrics} - {"up", DROPPED}
    missing = wanted
    async with (
        group(directory, slaves=2) as (names, master, slaves),
        controller(directory / "controller", free_peers(1)) as controls,
        PopClient(master.address, G) as client,
    ):
        await work(client)
        for _ in range(60):
            found = await scrape(master.metrics, names.metrics, controls.metrics)
            missing = wanted - found.keys()
            if not missing:
                break
            await asyncio.sleep(0.25)
        assert not missing
        for slave in slaves:
            await until(partial(follows, master, slave))
        await check_slaves(master, slaves)
        limited = replace(master.metrics._config, metrics_cardinality_limit=1)
        master.metrics._config = limited
        return found | {DROPPED: (await scrape(master.metrics))[DROPPED]}


def follows(master: Broker, slave: Broker) -> bool:
    """Whether a slave has the log and the tables of its master."""
    return (
        slave.store.log.written == master.store.log.written
        and slave.parts.offsets.find(G, T, 0) == master.parts.offsets.find(G, T, 0)
        and T in slave.parts.topics
    )


async def check_slaves(master: Broker, slaves: list[Broker]) -> None:
    """What a slave has of its master is not counted twice, unless it acts for it."""
    whole = Scraped((await fetch(master.metrics)).text)
    assert len(whole.all("rocketmq_broker_commitlog_diff")) == len(slaves)
    addresses = [each.address for each in (master, *slaves)]
    assert await master.parts.peers.members() == dict(enumerate(addresses))
    assert all(whole.all(name) for name in OF_MASTERS)
    slave = slaves[0]
    found = Scraped((await fetch(slave.metrics)).text)
    assert not [name for name in OF_MASTERS if found.all(name)]
    assert found.all("rocketmq_brokeruntime_commitlog_maxoffset")
    assert found.all("rocketmq_storage_size_bytes")
    assert slave.parts.acting is not None
    slave.parts.acting.is_acting = True
    acting = Scraped((await fetch(slave.metrics)).text)
    slave.parts.acting.is_acting = False
    assert acting.one("rocketmq_producer_offset", topic=T) >= 3
    assert acting.all("rocketmq_consumer_lag_messages", topic=T)


async def scrape(*servers: Exporter) -> Scrape:
    found: Scrape = {}
    for server in servers:
        for family in text_string_to_metric_families((await fetch(server)).text):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


async def work(client: PopClient) -> None:
    """Send, pull, pop, fail and transact."""
    body = fastjson.encode(GroupConfig(group_name=G))
    await client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    beat = Heartbeat(
        client_id="127.0.0.1@monitored",
        producer_data_set=[ProducerGroup("producers")],
        consumer_data_set=[
            ConsumerGroup(
                group_name=G, subscription_data_set=[Subscription(topic=T, sub_version=1)]
            )
        ],
    )
    await client.call(RequestCode.HEART_BEAT, body=fastjson.encode(beat))
    for _ in range(3):
        await client.send(T)
    found = await client.pull(T, consumer_group=G)
    await client.send_back(found.records[0], G, delay_level=-1, origin_topic=T)
    committed = {"consumerGroup": G, "topic": T, "queueId": "0", "commitOffset": "1"}
    await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, committed)
    for delay in ("200", "3600000"):
        await client.send(T, properties={PropertyName.TIMER_DELAY_MS: delay})
    for state in (COMMIT, ROLLBACK, None):
        await transact(client, state)
    await client.pop(T, max_msg_nums=1, invisible_time=500)


async def transact(client: PopClient, state: int | None) -> None:
    """Send a half message and end its transaction, or leave it open."""
    prepared = {
        PropertyName.TRANSACTION_PREPARED: "true",
        PropertyName.PRODUCER_GROUP: "producers",
    }
    half = await client.send(T, sys_flag=PREPARED, properties=prepared)
    if state is None:
        return
    header = EndTransactionHeader(
        producer_group="producers",
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=OffsetId.decode(half.msg_id).physical_offset,
        commit_or_rollback=state,
        msg_id=half.transaction_id or "",
        transaction_id=half.transaction_id,
    )
    await client.call(RequestCode.END_TRANSACTION, header)


def test_every_metric_and_label_is_in_the_scrape_of_a_broker(scraped: Scrape) -> None:
    missing = []
    for where, query, shown in EXPRESSIONS:
        labels = set[str]()
        for selector in query.selectors:
            own = (set() if selector.metric == "up" else scraped[selector.metric]) | OF_PROMETHEUS
            labels |= own
            missing += [(where, selector.metric, each) for each in selector.labels - own]
        missing += [(where, "by", each) for each in query.grouping - labels]
        missing += [(where, "text", each) for each in shown - (query.grouping or labels)]
    assert not missing


def test_the_dashboard_has_a_place_for_each_panel() -> None:
    found = dashboard()
    taken = set[tuple[int, int]]()
    for panel in found["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not taken & cells, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in found["panels"]]
    titles = [panel["title"] for panel in panels()]
    assert len(set(ids)) == len(ids)
    assert len(set(titles)) == len(titles)
    assert "@" not in json.dumps([panel["targets"] for panel in panels()])


def test_variables_of_the_dashboard_are_used_and_known() -> None:
    found = dashboard()
    used = set(re.findall(r"\$(?!__)\{?(\w+)", json.dumps([each["targets"] for each in panels()])))
    assert used == {variable["name"] for variable in found["templating"]["list"]}


def test_alert_rules_have_the_form_that_prometheus_reads() -> None:
    document = yaml.safe_load(alert_rules())
    assert document.keys() == {"groups"}
    assert all(each.keys() == {"name", "rules"} for each in document["groups"])
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) >= 20
    for rule in rules():
        assert rule.keys() - {"for"} == {"alert", "expr", "labels", "annotations"}, rule["alert"]
        assert _DURATION.fullmatch(rule.get("for", "0s")), rule["alert"]
        assert rule["labels"].keys() == {"severity"}
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"].keys() == {"summary", "description"}


def test_the_value_of_an_alert_is_what_its_text_says() -> None:
    """Of `a and b` it is that of a."""
    late = next(rule for rule in rules() if rule["alert"] == "BolideTimersLate")
    assert "{{ $value | humanizeDuration }} late" in late["annotations"]["summary"]
    value, _, condition = late["expr"].partition(" and ")
    assert "rocketmq_timer_dequeue_latency_milliseconds" in value  # of seconds, as in RocketMQ
    assert "rocketmq_timer_dequeue_lag" in condition


@pytest.mark.parametrize(
    "text",
    [
        "sum(rate(a[5m])", "a{b}", 'a{b="c"', "a{b=1}", "nothing_known(a)", "sum by a (b)",
        "a[5 minutes]", "a offset", "a b", "a > ", "",
    ],
)  # fmt: skip
def test_what_is_no_promql_is_found(text: str) -> None:
    with pytest.raises(BadQuery):
        read_query(text)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["metrics", *words])


def test_commands_print_and_write_both(tmp_path: Path) -> None:
    assert json.loads(run("dashboard").stdout)["uid"] == "bolide-cluster"
    done = run("alerts", "--job", 'my "mq"', "--into", str(tmp_path / "alerts.yml"))
    assert (done.exit_code, done.stdout) == (0, "")
    written = yaml.safe_load((tmp_path / "alerts.yml").read_text())
    assert written["groups"][0]["rules"][0]["expr"] == 'up{job="my \\"mq\\""} == 0'


@pytest.mark.parametrize("job", ["prod: rmq", "p #1", "'quoted'", "- a", "größe", " a ", r"\d"])
def test_any_name_of_a_job_stays_within_its_expression(job: str) -> None:
    done = run("alerts", "--job", job)
    assert done.exit_code == 0
    shown = job.replace("\\", r"\\")
    expected = [
        rule | {"expr": rule["expr"].replace('job="bolide"', f'job="{shown}"')} for rule in rules()
    ]
    groups = yaml.safe_load(done.stdout)["groups"]
    assert [rule for each in groups for rule in each["rules"]] == expected


@pytest.mark.parametrize("command", ["alerts", "dashboard"])
def test_a_job_of_several_lines_is_refused(command: str) -> None:
    done = run(command, "--job", "a\nb")
    assert done.exit_code == 2
    assert "cannot be printed" in done.stderr


def test_a_file_that_cannot_be_written_is_named_in_one_line(tmp_path: Path) -> None:
    done = run("dashboard", "--into", str(tmp_path / "no" / "such.json"))
    assert done.exit_code == 3
    assert "No such file or directory" in done.stderr
    assert done.stderr.count("\n") == 1
