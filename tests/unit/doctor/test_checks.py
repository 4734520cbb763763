"""What the checks make of facts that no test cluster has."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bolide.cli import app
from bolide.cli.admin.commands import load
from bolide.doctor import (
    Severity,
    durability_checks,
    findings,
)
from bolide.doctor.clock import ClockDifference, difference_in
from bolide.doctor.examination import judge
from bolide.doctor.facts import (
    NOT_ASKED,
    BrokerFacts,
    Cause,
    ClusterFacts,
    GroupFacts,
    NameServerFacts,
    Unanswered,
)
from bolide.doctor.findings import LISTED, Finding, in_order
from bolide.protocol.bodies.consumers import Connection
from bolide.protocol.bodies.controller import Replica, Replicas
from bolide.protocol.bodies.heartbeat import Subscription
from bolide.protocol.bodies.replication import HaConnection, HaStatus
from bolide.protocol.bodies.routes import ClusterInfo
from bolide.protocol.bodies.topics import TopicConfig

ERROR, WARNING, UNKNOWN, NOTE, OK = Severity
REFUSED = Unanswered("the answer is no", Cause.NO_PERMISSION)
FIGURES = {
    "brokerVersionDesc": "V5_5_0", "commitLogDiskRatio": "0.3", "consumeQueueDiskRatio": "0.4",
    "bolideOpenFileLimit": "1000000", "bolideMapLimit": "1000000", "bolideVersion": "1.0",
    "bolideBeforeRestart": "{}",
}  # fmt: skip
SETTINGS = {
    "brokerName": "broker-a", "brokerRole": "ASYNC_MASTER", "flushDiskType": "SYNC_FLUSH",
    "bindAddress": "127.0.0.1", "fileReservedTime": "72",
    "autoCreateTopicEnable": "false",
}  # fmt: skip


THEIRS = {key: text for key, text in FIGURES.items() if key in {
    "brokerVersionDesc", "commitLogDiskRatio", "consumeQueueDiskRatio", "bolideOpenFileLimit",
    "bolideMapLimit"}}  # fmt: skip
"""Figures of a broker of RocketMQ, with the limits that they do not have."""


def broker(**given: Any) -> BrokerFacts:
    """A broker in the best of health, with changes."""
    sound: dict[str, Any] = {
        "cluster": "c", "name": "broker-a", "broker_id": 0, "address": "127.0.0.1:10911",
        "connected": 0.001, "vip": 0.001, "ha": 0.001, "ha_address": "127.0.0.1:10912",
        "runtime": FIGURES, "config": SETTINGS, "clock": ClockDifference(-0.1, 0.1), "topics": {},
        "ha_status": HaStatus(master=True), "lags": {}, "dead_letters": {},
    }  # fmt: skip
    return BrokerFacts(**sound | given)


def cluster(*brokers: BrokerFacts, at: str = "127.0.0.1:9876", **given: Any) -> ClusterFacts:
    server = NameServerFacts(address=at, info=ClusterInfo(), topics=frozenset(), config={})
    return ClusterFacts(name_servers=(server,), brokers=brokers, **given)


def judged(facts: ClusterFacts) -> list[Finding]:
    return list(judge(facts))


def wrong(facts: ClusterFacts) -> dict[str, Severity]:
    """The worst severity of each kind that is not in order."""
    found = {each.id: each.severity for each in reversed(in_order(judged(facts)))}
    return {name: severity for name, severity in found.items() if severity is not OK}


def only(facts: ClusterFacts, name: str) -> Finding:
    (found,) = (each for each in judged(facts) if each.id == name and each.severity is not OK)
    return found


def test_sound_facts_are_in_order() -> None:
    assert wrong(cluster(broker())) == {}


@pytest.mark.parametrize(
    ("change", "name", "severity"),
    [
        ({"runtime": FIGURES | {"commitLogDiskRatio": "0.8"}}, "disk-usage", WARNING),
        ({"runtime": FIGURES | {"consumeQueueDiskRatio": "0.91"}}, "disk-usage", ERROR),
        ({"runtime": FIGURES | {"bolideOpenFileLimit": "1024"}}, "broker-limits", WARNING),
        ({"runtime": FIGURES | {"bolideMapLimit": "1024"}}, "broker-limits", WARNING),
        ({"runtime": FIGURES | {"bolideKernel": "python"}}, "compiled-kernel", WARNING),
        ({"runtime": FIGURES | {"dispatchBehindBytes": "999999999"}}, "broker-load", WARNING),
        (
            {"runtime": FIGURES | {"sendThreadPoolQueueHeadWaitTimeMills": "5000"}},
            "broker-load", WARNING,
        ),
        ({"config": SETTINGS | {"brokerPermission": "4"}}, "broker-permission", WARNING),
        ({"config": SETTINGS | {"brokerName": "broker-b"}}, "broker-identity", ERROR),
        ({"config": SETTINGS | {"autoCreateTopicEnable": "true"}}, "automatic-topics", NOTE),
        ({"config": SETTINGS | {"flushDiskType": "ASYNC_FLUSH"}}, "durability", NOTE),
        ({"config": SETTINGS | {"bindAddress": "0.0.0.0"}}, "access-control", WARNING),
        ({"config": SETTINGS | {"authenticationEnabled": "true"}}, "access-control", WARNING),
        ({"vip": Unanswered("refused", Cause.NOT_CONNECTED)}, "vip-port", NOTE),
        ({"clock": ClockDifference(2.5, 2.7)}, "clock-difference", WARNING),
        ({"clock": ClockDifference(-70, -69)}, "clock-difference", ERROR),
        ({"clock": ClockDifference(-9, 9)}, "clock-difference", UNKNOWN),
        ({"lags": {"g": 20_000}}, "consumer-lag", NOTE),
    ],
)  # fmt: skip
def test_a_fault_of_a_broker_is_found(change: Any, name: str, severity: Severity) -> None:
    found = wrong(cluster(broker(**change)))
    assert found == {name: severity}
    assert all(each.command for each in judged(cluster(broker(**change))) if each.id in found
               and each.severity not in {OK, UNKNOWN})  # fmt: skip


@pytest.mark.parametrize(
    ("fact", "names"),
    [
        ("runtime", {"disk-usage", "broker-load", "version-mix", "broker-limits", "durability"}),
        ("config", {"settings"}),
        ("clock", {"clock-difference"}),
        ("topics", {"topic-queues"}),
        ("lags", {"consumer-lag"}),
        ("dead_letters", {"dead-letters"}),
    ],
)
def test_what_a_broker_does_not_tell_is_unknown_and_not_in_order(
    fact: str, names: set[str]
) -> None:
    facts = cluster(broker(**{fact: REFUSED}))
    assert wrong(facts) == dict.fromkeys(names, UNKNOWN)
    told = [each.measured for each in judged(facts) if each.severity is UNKNOWN]
    assert any("the answer is no" in text or "not known" in text for text in told)


def test_what_an_unreachable_master_has_is_unknown_and_not_in_order() -> None:
    gone = Unanswered("timed out", Cause.NOT_CONNECTED)
    dead: dict[str, Any] = {"connected": gone, "runtime": NOT_ASKED, "config": NOT_ASKED,
        "topics": NOT_ASKED, "lags": NOT_ASKED, "dead_letters": NOT_ASKED}  # fmt: skip
    kinds = {"dead-letters", "consumer-lag", "subscriptions", "topic-queues", "version-mix",
             "master"}  # fmt: skip
    sound = broker(name="broker-b", address="127.0.0.1:20911",
                   config=SETTINGS | {"brokerName": "broker-b"})  # fmt: skip
    for brokers in ((broker(**dead),), (broker(**dead), sound)):
        found = judged(cluster(*brokers))
        unknown = {each.id: each for each in found if each.severity is UNKNOWN}
        assert unknown.keys() == kinds
        assert all("timed out" in each.measured for each in unknown.values())
        in_order = {each.id for each in found if each.severity is OK}
        assert not in_order & (kinds - {"master"} | {"topic-brokers", "topic-permission"})
    # A group without a master was not asked for what its master has.
    assert wrong(cluster(broker(is_acting=True, broker_id=1))) == {
        "master": WARNING, "dead-letters": UNKNOWN, "consumer-lag": UNKNOWN,
        "subscriptions": UNKNOWN, "topic-queues": UNKNOWN,
    }  # fmt: skip
    nobody = judged(cluster())
    assert {each.id for each in nobody if each.severity is OK} == {"name-server-reachable"}


def test_a_name_server_behind_a_firewall_is_told_from_one_with_tls() -> None:
    def found(cause: Cause, *, silent: bool = False) -> Finding:
        info = Unanswered("x", cause, host_is_silent=silent)
        server = NameServerFacts(address="203.0.113.7:9876", info=info)
        return only(ClusterFacts(name_servers=(server,)), "name-server-reachable")

    dropped = found(Cause.NOT_CONNECTED, silent=True)
    assert "firewall" in dropped.why
    assert "tls" not in (dropped.why + dropped.command).lower()
    refused = found(Cause.NOT_CONNECTED)
    assert "firewall" not in refused.why
    assert refused.command.startswith("bolide namesrv ")
    assert found(Cause.NO_ANSWER).command.endswith("--tls")


@pytest.mark.parametrize("text", ["many", "nan", "inf", "9" * 5000, "٣;", "-"])
def test_figures_and_settings_that_are_no_numbers_do_not_end_an_examination(text: str) -> None:
    keys = ("diskMaxUsedSpaceRatio", "diskSpaceWarningLevelRatio", "fileReservedTime",
            "haListenPort", "inSyncReplicas", "brokerPermission")  # fmt: skip
    for key in keys:
        one = broker(config=SETTINGS | {key: text, "brokerRole": "SYNC_MASTER",
                                        "flushDiskType": "ASYNC_FLUSH"})  # fmt: skip
        kinds = wrong(cluster(one))
        if key.startswith("disk"):
            assert kinds["disk-usage"] is UNKNOWN
    for key in (*FIGURES, "dispatchBehindBytes", "sendThreadPoolQueueHeadWaitTimeMills"):
        judged(cluster(broker(runtime=FIGURES | {key: text})))
    odd = broker(name="s", broker_id=1, address=text, connected=REFUSED)
    judged(cluster(broker(name="s", ha_address=text), odd))
    figures = {"bootTimestamp": text, "runtime": f"[ {text} days, {text} hours ]"}
    assert difference_in(figures, 1.0, 2.0) is None


@pytest.mark.parametrize("option", ["--timeout", "--within"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_time_limits_are_finite(option: str, value: str) -> None:
    done = CliRunner().invoke(app, ["doctor", "-n", "127.0.0.1:1", option, value])
    assert done.exit_code == 2, done.output


def test_a_broker_with_a_container_or_loopback_address_is_told_what_to_announce() -> None:
    gone = Unanswered("timed out", Cause.NOT_CONNECTED)
    for address in ("172.17.0.2:10911", "127.0.0.1:10911", "broker-0:10911"):
        facts = cluster(broker(address=address, connected=gone), at="203.0.113.7:9876")
        found = only(facts, "broker-reachable")
        assert found.severity is ERROR
        assert found.command == "bolide broker -c broker.conf brokerIP1=203.0.113.7"
    reachable = only(cluster(broker(), at="203.0.113.7:9876"), "broker-address-loopback")
    assert reachable.severity is WARNING


def test_a_name_server_on_the_network_without_access_control_is_warned_of() -> None:
    far = only(cluster(broker(), at="203.0.113.7:9876"), "access-control")
    assert (far.subject, far.severity) == ("NameServer 203.0.113.7:9876", WARNING)


def test_the_open_ha_port_of_rocketmq_is_warned_of() -> None:
    assert wrong(cluster(broker(runtime=THEIRS, config_changes=0))) == {"ha-port": WARNING}
    closed = Unanswered("refused", Cause.NOT_CONNECTED)
    assert wrong(cluster(broker(runtime=THEIRS, config_changes=0, ha=closed))) == {}


@pytest.mark.parametrize(
    ("settings", "slaves", "severity", "text"),
    [
        ({"flushDiskType": "SYNC_FLUSH"}, 0, OK, "on the disk"),
        ({"brokerRole": "ASYNC_MASTER"}, 1, NOTE, "brokerRole is ASYNC_MASTER"),
        ({"brokerRole": "SYNC_MASTER"}, 0, NOTE, "in sync: 0"),
        ({"brokerRole": "SYNC_MASTER"}, 1, OK, "memory of 2 brokers"),
        ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "0"}, 1, OK, "memory of 2 brokers"),
        ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "1"}, 2, NOTE, "inSyncReplicas 1"),
        ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "3"}, 1, NOTE, "in sync: 1"),
        ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "x"}, 1, UNKNOWN, "inSyncReplicas is x"),
        ({"brokerRole": "SYNC_MASTER"}, None, NOTE, "in sync: 0"),
        ({"enableControllerMode": "true", "allAckInSyncStateSet": "false",
          "inSyncReplicas": "1"}, 1, NOTE, "allAckInSyncStateSet is false"),
        ({"enableControllerMode": "true", "allAckInSyncStateSet": "true"}, 1, OK, "have it: 2"),
    ],
)  # fmt: skip
def test_what_an_acknowledged_message_survives(
    settings: dict[str, str], slaves: int | None, severity: Severity, text: str
) -> None:
    connections = [HaConnection(in_sync=True)] * (slaves or 0) + [HaConnection(in_sync=False)]
    status = REFUSED if slaves is None else HaStatus(master=True, ha_connection_info=connections)
    config = SETTINGS | {"flushDiskType": "ASYNC_FLUSH"} | settings
    pair = Replicas(in_sync_replicas=[Replica(broker_name="broker-a", broker_id=each, alive=True)
                                      for each in range(2)])  # fmt: skip
    one = broker(config=config, ha_status=status)
    facts = cluster(one, controllers=("c:1",), replicas={"broker-a": pair})
    (told,) = durability_checks.check(facts)
    assert (told.id, told.severity) == ("durability", severity)
    assert text in told.measured


def test_rocketmqs_sync_flush_counts_if_nothing_was_changed_since_the_start() -> None:
    def found(changes: Any, **settings: str) -> Finding:
        facts = cluster(broker(
            runtime=THEIRS, config=SETTINGS | settings, config_changes=changes
        ))  # fmt: skip
        (told,) = durability_checks.check(facts)
        return told

    assert found(0).severity is OK
    assert found(2).severity is UNKNOWN
    assert found(REFUSED).severity is UNKNOWN
    lone = {"flushDiskType": "ASYNC_FLUSH", "brokerRole": "SYNC_MASTER", "inSyncReplicas": "0"}
    assert found(0, **lone).severity is NOTE


def test_a_broker_on_the_network_is_told_of_plain_text() -> None:
    signed = {"authenticationEnabled": "true", "authorizationEnabled": "true"}
    open_to_all: dict[str, Any] = {"address": "203.0.113.9:10911"}
    plain = SETTINGS | signed | {"bindAddress": "0.0.0.0"}
    assert wrong(cluster(broker(config=plain, **open_to_all))) == {"encryption": NOTE}
    encrypted = plain | {"tls.server.certPath": "server.pem"}
    assert wrong(cluster(broker(config=encrypted, **open_to_all))) == {}
    facts = cluster(broker(config=plain, runtime=THEIRS, config_changes=0, **open_to_all))
    assert wrong(facts) == {"encryption": UNKNOWN, "ha-port": WARNING}


def test_versions_that_differ_are_named() -> None:
    other = broker(name="broker-b", address="127.0.0.1:20911", config=SETTINGS | {
        "brokerName": "broker-b"}, runtime={**FIGURES, "bolideVersion": "0.9"})  # fmt: skip
    found = only(cluster(broker(), other), "version-mix")
    assert found.severity is WARNING
    assert "Bolide 0.9 (V5_5_0): broker-b" in found.measured


def test_replicas_that_are_behind_or_out_of_sync_are_found() -> None:
    slave = broker(broker_id=1, address="127.0.0.1:20911")

    def master(connection: HaConnection) -> BrokerFacts:
        return broker(ha_status=HaStatus(master=True, ha_connection_info=[connection]))

    near, far = HaConnection(diff=10, in_sync=True), HaConnection(diff=2**30, in_sync=False)
    assert wrong(cluster(master(near), slave)) == {}
    assert wrong(cluster(master(replace_in_sync(near)), slave)) == {"replicas": WARNING}
    assert "1024 MiB behind" in only(cluster(master(far), slave), "replicas").measured
    assert wrong(cluster(broker(ha_status=REFUSED), slave)) == {"replicas": UNKNOWN}

    lonely = replace(master(near), ha=Unanswered("refused", Cause.NOT_CONNECTED))
    assert wrong(cluster(lonely, slave)) == {"ha-address": NOTE}
    remote = replace(slave, address="203.0.113.9:20911", config=SETTINGS | {
        "authenticationEnabled": "true", "authorizationEnabled": "true",
        "tls.server.mode": "enforcing", "tls.server.certPath": "c"})  # fmt: skip
    assert wrong(cluster(master(near), remote)) == {"ha-address": ERROR}


def replace_in_sync(connection: HaConnection) -> HaConnection:
    return HaConnection(diff=connection.diff, in_sync=False)


def test_what_controllers_say_of_replicas_is_judged() -> None:
    group = Replicas(
        in_sync_replicas=[Replica(broker_name="broker-a", broker_id=1, alive=True)],
        not_in_sync_replicas=[
            Replica(broker_name="broker-a", broker_id=2, alive=False),
            Replica(broker_name="broker-a", broker_id=3, alive=True),
        ],
    )
    facts = cluster(broker(), controllers=("c:1",), replicas={"broker-a": group})
    texts = [each.measured for each in judged(facts) if each.id == "replicas-in-sync"]
    assert [text.rpartition(": ")[2] for text in texts] == [
        "it does not run.", "it runs, and has not caught up.",
    ]  # fmt: skip
    silent = cluster(broker(), controllers=("c:1",), replicas=Unanswered("x", Cause.NO_ANSWER))
    assert wrong(silent) == {"controller-reachable": ERROR}


def test_two_masters_of_one_name_are_an_error() -> None:
    assert wrong(cluster(broker(), broker(address="127.0.0.1:20911"))) == {"master": ERROR}


def subscribed(*terms: tuple[str, str]) -> tuple[Subscription, ...]:
    return tuple(Subscription(topic=topic, sub_string=text) for topic, text in terms)


def test_members_that_do_not_tell_are_unknown_and_those_that_differ_an_error() -> None:
    members = (Connection(client_id="1"), Connection(client_id="2"))
    same = {"1": subscribed(("T", "a||b")), "2": subscribed(("T", "b || a"), ("%RETRY%g", "*"))}

    def facts(subscriptions: Any) -> ClusterFacts:
        group = GroupFacts(name="g", members=members, subscriptions=subscriptions)
        return cluster(broker(), groups=(group,))

    assert wrong(facts(same)) == {}
    assert wrong(facts(same | {"2": subscribed(("T", "a"))})) == {"subscriptions": ERROR}
    assert wrong(facts(same | {"2": subscribed(("T", "a||b"), ("U", "*"))})) == {
        "subscriptions": ERROR
    }
    assert wrong(facts(same | {"2": REFUSED})) == {"subscriptions": UNKNOWN}
    unread = cluster(broker(), groups=(GroupFacts(name="g", members=REFUSED),))
    assert wrong(unread) == {"subscriptions": UNKNOWN}
    assert wrong(cluster(broker(), unexamined_groups=3)) == {"subscriptions": UNKNOWN}


def test_findings_of_a_kind_are_limited_and_the_rest_is_counted() -> None:
    table = {
        f"T{number}": TopicConfig(topic_name=f"T{number}", read_queue_nums=1, write_queue_nums=2)
        for number in range(LISTED + 5)
    }
    found = [each for each in judged(cluster(broker(topics=table))) if each.id == "topic-queues"]
    assert len(found) == LISTED + 1
    assert found[-1].subject == "5 more"
    gone = Unanswered("refused", Cause.NOT_CONNECTED)
    dead = [
        broker(name=f"b{number}", address=f"127.0.0.1:{number}", connected=gone)
        for number in range(1, 151)
    ]
    unreachable = [each for each in judged(cluster(*dead)) if each.id == "broker-reachable"]
    assert len(unreachable) == LISTED + 1
    assert unreachable[-1].subject == "140 more"
    sound = [broker(name=f"b{number}", config={}) for number in range(LISTED + 1)]
    fine = [each for each in judged(cluster(*sound)) if each.id == "broker-reachable"]
    assert len(fine) == len(sound)


def test_topics_of_the_system_and_of_groups_are_not_judged() -> None:
    names = ["TBW102", "%RETRY%g", "%DLQ%g", "rmq_sys_x", "RMQ_SYS_TRACE_TOPIC", "c_REPLY_TOPIC",
             "c", "broker-a"]  # fmt: skip
    table = {
        name: TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=2) for name in names
    }
    assert wrong(cluster(broker(topics=table))) == {}


def test_a_cluster_without_brokers_is_an_error() -> None:
    assert wrong(cluster()) == {"broker-registered": ERROR}


def test_names_that_servers_tell_are_quoted_in_commands() -> None:
    """Who copies a command must not run what somebody registered."""
    evil = "x;rm -rf $HOME|`id`"
    table = {evil: TopicConfig(topic_name=evil, read_queue_nums=1, write_queue_nums=2)}
    facts = cluster(
        broker(name=evil, address=f"{evil}:10911", topics=table, dead_letters={evil: 1},
               lags={evil: 10**6}, config=SETTINGS | {"autoCreateTopicEnable": "true"}),
        broker(name="orphan" + evil, broker_id=1, cluster=evil),
        groups=(GroupFacts(
            name=evil,
            members=(Connection(client_id="1"), Connection(client_id="2")),
            subscriptions={"1": subscribed(("T", "a")), "2": subscribed(("T", "b"))},
        ),),
        controllers=(evil,),
        replicas={},
    )  # fmt: skip
    commands = [each.command for each in judged(facts) if evil in each.command]
    assert len(commands) >= 5
    for command in commands:
        for word in shlex.split(command):
            assert evil not in word or word.strip("%DLQ").startswith(
                (evil, "brokerName=", "orphan")
            )
        assert "rm" not in shlex.split(command)


def test_the_commands_of_findings_are_commands_with_these_options() -> None:
    """Each `mqadmin` command of the sources is in the table, and takes the options it is given."""
    known = load()
    sources = Path(findings.__file__).parent.glob("*.py")
    text = " ".join(path.read_text(encoding="utf-8") for path in sources)
    text = re.sub(r'"\s+f?"', "", text)  # joins the parts of a string
    found = re.findall(r'"mqadmin (\w+)([^"]*)"', text)
    assert len(found) >= 12
    for name, words in found:
        options = {each for parameter in known[name].params for each in parameter.opts}
        given = re.findall(r" (--?[a-zA-Z]+)", words)
        given += ["-n"] if "{facts.option}" in words else []
        given += ["-b"] if ".option}" in words.replace("{facts.option}", "") else []
        assert set(given) <= options, name
