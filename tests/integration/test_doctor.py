"""`bolide doctor` and the library behind it, on clusters with real faults."""

import asyncio
import csv
import json
import shlex
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bolide.admin import AdminClient, ClusterNotFound
from bolide.broker.server import Broker
from bolide.cli import app
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.doctor import Limits, Report, Severity, examine
from bolide.doctor.survey import Survey
from bolide.namesrv.server import NameServer
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.remoting.address import format_address, split_address
from bolide.remoting.client import RemotingClient
from bolide.store.config import FlushMode
from tests.support.access import FIRST_USER, INNER, ROOT, ROOT_PASSWORD
from tests.support.aio import on_loop
from tests.support.broker import BrokerClient, broker_in
from tests.support.brokers import broker_header, plain, topics_body
from tests.support.commands import Running, home, run, started
from tests.support.mute import mute_server
from tests.support.name_servers import name_server
from tests.support.ports import free_port

__all__ = ["home", "started"]

QUICK = Limits(answer=1.5, total=10.0)
CLUSTER = "DefaultCluster"


class Hospital:
    """A cluster that tests break."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._count = 0

    async def name_server(self, **settings: Any) -> NameServer:
        return await self._stack.enter_async_context(name_server(self._new(), **settings))

    async def broker(self, *servers: NameServer, **settings: Any) -> Broker:
        names = tuple(each.address for each in servers)
        broker = broker_in(self._new(), name_servers=names, **settings)
        return await self._stack.enter_async_context(broker)

    async def ghost(self, server: NameServer, address: str, **given: Any) -> str:
        """Register a broker that does not exist, over a connection that stays open."""
        client = await self._stack.enter_async_context(RemotingClient())
        header = broker_header(address, cluster=CLUSTER, **given)
        body = plain(topics_body("Ghosts"))
        await client.call(server.address, RequestCode.REGISTER_BROKER, header, body=body)
        return address

    def _new(self) -> Path:
        self._count += 1
        path = self._directory / str(self._count)
        path.mkdir()
        return path


@asynccontextmanager
async def hospital(directory: Path) -> AsyncIterator[Hospital]:
    async with AsyncExitStack() as stack:
        yield Hospital(directory, stack)


async def report_of(*addresses: str, cluster: str | None = None) -> Report:
    async with AdminClient(addresses, timeout=QUICK.answer) as admin:
        return await examine(admin, cluster=cluster, limits=QUICK)


def found(report: Report, name: str, *severities: Severity) -> dict[str, str]:
    """What was measured of each subject, of the findings of a kind."""
    return {
        each.subject: each.measured
        for each in report.findings
        if each.id == name and (not severities or each.severity in severities)
    }


def of_cluster(report: Report, *severities: Severity) -> set[str]:
    """The kinds of findings that are not about this machine."""
    return {
        each.id
        for each in report.findings
        if each.severity in severities and each.subject != "this machine"
    }


@on_loop
async def test_a_sound_cluster_has_no_errors_and_nothing_unknown(tmp_path: Path) -> None:
    async with hospital(tmp_path) as ward:
        first, second = await ward.name_server(), await ward.name_server()
        await ward.broker(first, second)
        await ward.broker(first, second, broker_name="broker-b", flush_mode=FlushMode.SYNC)

        begun = time.monotonic()
        report = await report_of(first.address, second.address)
        took = time.monotonic() - begun

        assert report.is_reachable
        wrong = of_cluster(report, Severity.ERROR, Severity.WARNING, Severity.UNKNOWN)
        assert wrong <= {"broker-limits"}  # those of the machine that runs the tests
        assert of_cluster(report, Severity.OK) - {"broker-limits"} == {
            "name-server-reachable", "name-servers-agree", "broker-reachable", "vip-port",
            "clock-difference", "disk-usage", "broker-load", "version-mix", "master",
            "topic-queues", "topic-brokers", "topic-permission", "subscriptions", "dead-letters",
            "consumer-lag", "access-control", "durability",
        }  # fmt: skip
        assert took < 4
        assert list(report.findings) == sorted(
            report.findings, key=lambda each: list(Severity).index(each.severity)
        )
        with pytest.raises(ClusterNotFound):
            await report_of(first.address, cluster="nowhere")


@on_loop
async def test_name_servers_that_are_closed_silent_or_disagree(tmp_path: Path) -> None:
    async with hospital(tmp_path) as ward, mute_server() as silent:
        first, second = await ward.name_server(), await ward.name_server()
        both = await ward.broker(first, second)
        only = await ward.broker(first, broker_name="broker-b")
        closed = f"127.0.0.1:{free_port()}"

        report = await report_of(first.address, closed, silent, second.address)

        errors = found(report, "name-server-reachable", Severity.ERROR)
        assert errors.keys() == {closed, silent}
        assert errors[closed] == "It does not answer: connection refused."
        assert errors[silent] == (
            "It takes connections, and does not answer: no answer within 1.5 s."
        )
        commands = {(each.id, each.subject): each.command for each in report.findings}
        assert commands["name-server-reachable", silent].endswith("--tls")
        assert (
            commands["name-server-reachable", closed]
            == f"bolide namesrv --listen-port {split_address(closed)[1]}"
        )
        (subject,) = found(report, "name-servers-agree", Severity.ERROR)
        assert only.address in subject
        assert both.address not in subject
        # What it says mends it does.
        words = shlex.split(
            commands["name-servers-agree", subject].replace(closed, "").replace(silent, "")
        )
        assert words[:4] == ["mqadmin", "updateBrokerConfig", "-b", only.address]
        assert second.address in words[-1]
        async with AdminClient(first.address) as admin:
            value = f"{first.address};{second.address}"
            await admin.brokers.update_config(only.address, {words[-3]: value})
        async with asyncio.timeout(20):
            while found(
                report := await report_of(first.address, second.address), "name-servers-agree",
                Severity.ERROR, Severity.WARNING,
            ):  # fmt: skip
                pass
        assert of_cluster(report, Severity.ERROR) == set()


@on_loop
async def test_brokers_that_are_dead_misaddressed_late_or_without_master(tmp_path: Path) -> None:
    async with hospital(tmp_path) as ward, mute_server() as silent:
        server = await ward.name_server()
        sound = await ward.broker(server)
        hidden = await ward.broker(server, broker_name="hidden", broker_ip1="192.0.2.1")
        port = hidden.config.value.listen_port
        early = await ward.broker(server, broker_name="early", now=lambda: time.time() + 300)
        alone = await ward.broker(server, broker_name="alone", broker_role="SYNC_MASTER")
        dead = await ward.ghost(server, f"127.0.0.1:{free_port()}", name="dead")
        await ward.ghost(server, silent, name="silent")
        await ward.ghost(server, sound.address, name="impostor")
        nobody = f"127.0.0.1:{free_port()}"
        orphan = await ward.ghost(server, nobody, name="orphan", broker_id=1)
        nobody = f"127.0.0.1:{free_port()}"
        gone = await ward.ghost(server, nobody, name="broker-a", broker_id=1)

        report = await report_of(server.address)
        commands = {(each.id, each.subject): each.command for each in report.findings}

        unreachable = found(report, "broker-reachable", Severity.ERROR)
        assert unreachable.keys() == {
            f"dead (id 0) at {dead}", f"hidden (id 0) at 192.0.2.1:{port}",
            f"silent (id 0) at {silent}", f"orphan (id 1) at {orphan}",
            f"broker-a (id 1) at {gone}",
        }  # fmt: skip
        assert "connection refused" in unreachable[f"dead (id 0) at {dead}"]
        assert "takes connections, and does not answer" in unreachable[f"silent (id 0) at {silent}"]
        hidden_label = f"hidden (id 0) at 192.0.2.1:{port}"
        assert f"The broker answers at 127.0.0.1:{port}." in unreachable[hidden_label]
        mends = commands["broker-reachable", hidden_label]
        assert mends == "bolide broker -c broker.conf brokerIP1=127.0.0.1"

        (clock,) = found(report, "clock-difference", Severity.ERROR)
        assert early.address in clock
        assert found(report, "broker-identity", Severity.ERROR).keys() == {
            f"impostor (id 0) at {sound.address}"
        }
        assert found(report, "master", Severity.ERROR).keys() == {"orphan"}
        replicas = found(report, "replicas", Severity.ERROR)
        assert replicas == {
            f"alone (id 0) at {alone.address}": "1 of 1 slaves are not connected to it.",
            f"broker-a (id 0) at {sound.address}": "1 of 1 slaves are not connected to it.",
        }
        # The dead ones are unknown, never in order, and the others were examined.
        assert found(report, "clock-difference", Severity.OK).keys() >= {
            f"broker-a (id 0) at {sound.address}", f"alone (id 0) at {alone.address}",
        }  # fmt: skip
        assert report.seconds < 8


@on_loop
async def test_without_credentials_nothing_behind_access_control_is_in_order(
    tmp_path: Path,
) -> None:
    secured: dict[str, Any] = {
        "authentication_enabled": True, "authorization_enabled": True,
        "init_authentication_user": FIRST_USER, "auth_config_path": tmp_path / "auth",
    }  # fmt: skip
    async with hospital(tmp_path) as ward:
        server = await ward.name_server()
        guarded = await ward.broker(
            server, **secured, inner_client_authentication_credentials=INNER
        )
        label = f"broker-a (id 0) at {guarded.address}"

        report = await report_of(server.address)
        unknown = found(report, "settings", Severity.UNKNOWN)
        assert unknown.keys() == {label}
        assert {"disk-usage", "clock-difference", "topic-queues", "version-mix"} <= of_cluster(
            report, Severity.UNKNOWN
        )
        assert label not in found(report, "clock-difference", Severity.OK)
        commands = {each.command for each in report.findings if each.severity is Severity.UNKNOWN}
        assert "export BOLIDE_ACCESS_KEY=… BOLIDE_SECRET_KEY=…" in commands

        async with AdminClient(server.address, access_key=ROOT, secret_key=ROOT_PASSWORD) as admin:
            report = await examine(admin, limits=QUICK)
        assert of_cluster(report, Severity.UNKNOWN, Severity.ERROR) == set()
        assert found(report, "access-control", Severity.OK).keys() == {label}

        locked = await ward.name_server(**secured)
        report = await report_of(locked.address)
        assert report.is_reachable
        (measured,) = found(report, "name-server-reachable", Severity.ERROR).values()
        assert measured.startswith("It answers, and refuses to name its brokers: ")


@on_loop
async def test_topics_and_groups_that_lose_messages(tmp_path: Path) -> None:
    async with hospital(tmp_path) as ward, AsyncExitStack() as stack:
        server = await ward.name_server()
        first = await ward.broker(server, default_topic_queue_nums=4)
        second = await ward.broker(server, broker_name="broker-b")
        admin = await stack.enter_async_context(AdminClient(server.address))

        async def topic(
            name: str, reads: int, writes: int, *brokers: Broker, perm: int = 6
        ) -> None:
            config = TopicConfig(
                topic_name=name, read_queue_nums=reads, write_queue_nums=writes, perm=perm
            )
            for each in brokers:
                await admin.topics.update(each.address, config)

        await topic("Even", 4, 4, first, second)
        await topic("Lossy", 2, 4, first, second)
        await topic("Idle", 4, 2, first)
        await topic("Mute", 4, 4, first, second, perm=4)
        await topic("%DLQ%billing", 1, 1, first)
        client = await stack.enter_async_context(BrokerClient(first.address))
        await client.send("%DLQ%billing", b"failed")

        for group, expressions in (("billing", ("a", "b || a")), ("same", ("a || b", "b||a"))):
            for expression in expressions:
                consumer = PushConsumer(group, name_server=server.address)
                await consumer.subscribe("Even", expression, print)
                await stack.enter_async_context(consumer)

        report = await report_of(server.address)
        commands = {(each.id, each.subject): each.command for each in report.findings}

        assert found(report, "topic-queues", Severity.ERROR).keys() == {
            "Lossy on broker-a", "Lossy on broker-b",
        }  # fmt: skip
        assert found(report, "topic-queues", Severity.WARNING).keys() == {"Idle on broker-a"}
        assert found(report, "topic-brokers", Severity.NOTE).keys() == {"Idle on broker-b"}
        assert found(report, "topic-permission", Severity.NOTE).keys() == {
            "Mute on broker-a", "Mute on broker-b",
        }  # fmt: skip
        assert found(report, "dead-letters", Severity.NOTE) == {"billing": "It has 1 dead letters."}
        (measured,) = found(report, "subscriptions", Severity.ERROR).values()
        assert found(report, "subscriptions", Severity.ERROR).keys() == {"billing"}
        assert "subscribes to Even (a)" in measured
        assert "subscribes to Even (a || b)" in measured

        command = commands["topic-queues", "Lossy on broker-a"]
        done = await asyncio.to_thread(
            CliRunner().invoke, app, ["admin", *shlex.split(command)[1:]]
        )
        assert done.exit_code == 0, done.output
        report = await report_of(server.address)
        assert found(report, "topic-queues", Severity.ERROR).keys() == {"Lossy on broker-b"}


def test_the_command_prints_and_ends_as_documented(home: Path, started: list[Running]) -> None:
    port, broker_port = free_port(), free_port((-2, 1))
    server = Running(
        "bolide", "standalone", "--namesrv-port", str(port), "--broker-port", str(broker_port),
        "mappedFileSizeCommitLog=1048576",
    )  # fmt: skip
    started.append(server)
    server.wait_for("The broker.* boot success")
    at, closed = f"127.0.0.1:{port}", f"127.0.0.1:{free_port()}"

    sound = run("bolide", "doctor", "-n", at)
    assert (sound.returncode, sound.stderr) == (0, "")
    assert "NOTE (" in sound.stdout
    assert "OK (" not in sound.stdout
    assert f"    $ mqadmin updateBrokerConfig -n {at} -b 127.0.0.1:{broker_port}" in sound.stdout
    assert "\x1b" not in sound.stdout

    faulty = run("bolide", "doctor", "-n", f"{at};{closed}", "--all")
    assert faulty.returncode == 1
    assert faulty.stdout.startswith(f"ERROR (1)\n  name-server-reachable  {closed}: It does not")
    assert "OK (" in faulty.stdout

    def invoke(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, ["doctor", *words])
        assert done.exit_code == code, done.output
        return done.output

    document = json.loads(invoke("-n", at, "--json"))
    assert document["reachable"] is True
    assert document["counts"]["error"] == 0
    kinds = [each["id"] for each in document["findings"]]
    assert {"name-server-reachable", "clock-difference", "java"} & {*kinds}
    rows = list(csv.DictReader(invoke("-n", at, "--output", "csv").splitlines()))
    assert [row["id"] for row in rows] == kinds

    assert "No server answers" in invoke("-n", closed, code=3)
    invoke("-n", "nonsense", code=2)
    invoke(code=2)
    unknown = invoke("-n", at, "--cluster", "nowhere", code=1)
    assert "knows no cluster 'nowhere'" in unknown


def test_a_slave_that_hangs_or_was_killed_is_missed(home: Path) -> None:
    port = free_port((10, 1033, 1035, 1036, 1133, 1135, 1136))
    words = ("--replicas", "2", "--base-port", str(port), "--detach", "--network", "plain")
    up = run("bolide", "cluster", "up", *words, "mappedFileSizeCommitLog=1048576")
    assert up.returncode == 0, up.stderr
    slave = f"broker-a (id 1) at 127.0.0.1:{port + 1135}"
    master = f"broker-a (id 0) at 127.0.0.1:{port + 1035}"

    def errors() -> dict[tuple[str, str], str]:
        found = asyncio.run(report_of(f"127.0.0.1:{port}")).of(Severity.ERROR)
        return {(each.id, each.subject): each.measured for each in found}

    try:
        # `up` waits until the slave is registered; it connects to its master a moment later.
        deadline = time.monotonic() + 10
        while connecting := errors():
            assert connecting.keys() == {("replicas", master)}
            assert time.monotonic() < deadline
        assert run("bolide", "cluster", "pause", "broker-a-1").returncode == 0
        hanging = errors()
        assert hanging.keys() == {("broker-reachable", slave)}
        assert "does not answer" in hanging["broker-reachable", slave]
        assert run("bolide", "cluster", "kill", "broker-a-1").returncode == 0
        assert errors() == {
            ("replicas", master): "1 of 1 slaves are not connected to it.",
        }
    finally:
        run("bolide", "cluster", "down")


@on_loop
async def test_settings_that_wait_for_a_restart_do_not_count_as_in_effect(tmp_path: Path) -> None:
    async with hospital(tmp_path) as ward:
        server = await ward.name_server()
        broker = await ward.broker(server)
        async with AdminClient(server.address) as admin:
            change = {"flushDiskType": "SYNC_FLUSH", "brokerRole": "SYNC_MASTER"}
            await admin.brokers.update_config(broker.address, change)
            report = await report_of(server.address)
            (measured,) = found(report, "durability", Severity.NOTE).values()
            assert "flushDiskType is ASYNC_FLUSH, brokerRole is ASYNC_MASTER" in measured
            (measured,) = found(report, "pending-settings", Severity.NOTE).values()
            assert "flushDiskType is ASYNC_FLUSH, and SYNC_FLUSH after it" in measured

            back = {"flushDiskType": "async_flush", "brokerRole": "ASYNC_MASTER"}
            await admin.brokers.update_config(broker.address, back)
        assert found(await report_of(server.address), "pending-settings") == {}


@on_loop
async def test_only_the_brokers_of_the_chosen_cluster_are_examined(tmp_path: Path) -> None:
    async with hospital(tmp_path) as ward:
        server = await ward.name_server()
        first = await ward.broker(server)
        second = await ward.broker(server, broker_name="broker-b", broker_cluster_name="other")
        dead = f"127.0.0.1:{free_port()}"
        await ward.ghost(server, dead, name="dead")
        async with AdminClient(server.address) as admin:
            for broker, group in ((first, "mine"), (second, "theirs")):
                retry = TopicConfig(topic_name=f"%RETRY%{group}")
                await admin.topics.update(broker.address, retry)
            facts = await Survey(admin, cluster="other", limits=QUICK).collect()
            assert [each.name for each in facts.brokers] == ["broker-b"]
        report = await report_of(server.address, cluster="other")
        assert of_cluster(report, Severity.ERROR, Severity.UNKNOWN) == set()
        assert found(report, "broker-reachable").keys() == {f"broker-b (id 0) at {second.address}"}
        assert found(await report_of(server.address), "broker-reachable", Severity.ERROR)


@on_loop
async def test_a_name_server_whose_host_is_silent_is_not_taken_for_one_with_tls() -> None:
    # A socket whose queue is full drops further connections, as a firewall does.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = format_address(full.getsockname())
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        await asyncio.sleep(0.05)
        report = await report_of(address)
        (finding,) = (each for each in report.findings if each.id == "name-server-reachable")
        for each in waiting:
            each.close()
    assert finding.measured == "It does not answer: no connection within 1.5 s."
    assert "firewall" in finding.why
    assert "tls" not in finding.command
