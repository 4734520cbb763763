"""ACL 1.0 at brokers of ours: the paths of a request, changed files, and the admin commands."""

import asyncio
import json
import os
import re
import stat
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bolide.admin import AdminClient
from bolide.broker.server import Broker
from bolide.cli import app
from bolide.client.consumer.pop.pop_consumer import PopConsumer
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.errors import SendFailed
from bolide.client.producer.producer import Producer
from bolide.kernel import COMPILED
from bolide.model.message import Message
from bolide.protocol import fastjson
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import NoPermission, Refusal
from bolide.remoting.client import RemotingClient
from bolide.remoting.signing import Signer
from tests.support.aio import on_loop, until
from tests.support.broker import BrokerClient, configs_in
from tests.support.commands import Running, run
from tests.support.name_servers import name_server

ACL = """
globalWhiteRemoteAddresses:
accounts:
- accessKey: administrator
  secretKey: secret-of-admin
  admin: true
- accessKey: orders-app
  secretKey: secret-of-orders
  topicPerms: [Orders=PUB|SUB]
  groupPerms: [readers=SUB]
"""
ADMIN = Signer("administrator", "secret-of-admin")
APP = Signer("orders-app", "secret-of-orders")
FORGED = Signer("administrator", "secret-of-nobody")
PATIENCE = 20.0
"""Seconds for a changed file to be in force: ten, and as many for a busy machine."""


def write_acl(home: Path, text: str = ACL) -> Path:
    file = home / "conf" / "plain_acl.yml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    file.chmod(0o600)
    return file


@asynccontextmanager
async def broker_with_acl(home: Path) -> AsyncIterator[Broker]:
    config, store = configs_in(home, acl_enable=True, rocketmq_home=str(home))
    async with Broker(config, store) as broker:
        yield broker


@asynccontextmanager
async def client_of(broker: Broker, *signers: Signer) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(broker.address)
    client.remoting = RemotingClient(hooks=signers)
    async with client:
        yield client


# ---- a broker in this process


@on_loop
async def test_each_account_does_what_it_may(tmp_path: Path) -> None:
    write_acl(tmp_path)
    async with broker_with_acl(tmp_path) as broker:
        async with client_of(broker, ADMIN) as admin:
            await admin.send("Orders")
            await admin.send("Other")
        async with client_of(broker, APP) as app_client:
            for number in range(1, 4):
                assert (await app_client.send("Orders")).queue_offset == number
            assert len((await app_client.pull("Orders")).records) == 4
            with pytest.raises(NoPermission, match="topic:Other: accessKey=orders-app needs PUB"):
                await app_client.send("Other")
            with pytest.raises(NoPermission, match="group:strangers"):
                await app_client.pull("Orders", consumer_group="strangers")
            with pytest.raises(NoPermission, match="Need admin permission for request code=25"):
                await app_client.call(RequestCode.UPDATE_BROKER_CONFIG)
        for signers in ((), (FORGED,)):
            async with client_of(broker, *signers) as stranger:
                with pytest.raises(NoPermission, match=r"No accessKey|Check signature failed"):
                    await stranger.send("Orders")
                with pytest.raises(NoPermission):
                    await stranger.pull("Orders")
        async with client_of(broker, ADMIN) as admin:
            assert len((await admin.pull("Orders")).records) == 4


@on_loop
async def test_accounts_are_listed_on_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_acl(tmp_path)
    threads: list[threading.Thread] = []
    encode = fastjson.encode

    def recorded(value: object) -> bytes:
        threads.append(threading.current_thread())
        return encode(value)

    async with broker_with_acl(tmp_path) as broker, client_of(broker, ADMIN) as admin:
        with monkeypatch.context() as patch:
            patch.setattr("bolide.broker.admin.plain_acl.fastjson.encode", recorded)
            reply = await admin.call(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
    assert b"orders-app" in reply.body
    assert threading.main_thread() not in threads


@on_loop
async def test_a_white_listed_peer_loses_the_fast_path_when_the_file_changes(
    tmp_path: Path,
) -> None:
    write_acl(tmp_path, ACL.replace("Addresses:", "Addresses: [127.0.0.*]"))
    async with broker_with_acl(tmp_path) as broker, client_of(broker) as client:
        for _ in range(5):
            await client.send("Orders", properties={"UNIQ_KEY": "k"})
        if COMPILED:
            assert broker.parts.fast_path is not None
            assert broker.parts.fast_path.fall_throughs.served_sends >= 3
        write_acl(tmp_path)

        async def is_denied() -> bool:
            try:
                await client.send("Orders", properties={"UNIQ_KEY": "k"})
            except NoPermission:
                return True
            return False

        before = broker.gate.access.rules  # type: ignore[attr-defined]
        await until(
            lambda: broker.gate.access.rules is not before,  # type: ignore[attr-defined]
            within=PATIENCE,
        )
        assert [await is_denied() for _ in range(3)] == [True] * 3


@on_loop
async def test_a_signed_request_is_refused_as_soon_as_its_account_is_gone(tmp_path: Path) -> None:
    write_acl(tmp_path)
    async with broker_with_acl(tmp_path) as broker, client_of(broker, APP) as client:
        async with client_of(broker, ADMIN) as admin:
            await admin.send("Orders")
            for _ in range(3):
                await client.send("Orders")
            await admin.call(RequestCode.DELETE_ACL_CONFIG, {"accessKey": "orders-app"})
        with pytest.raises(NoPermission, match="No acl config for orders-app"):
            await client.send("Orders")


@on_loop
async def test_requests_about_the_rules_are_refused_by_a_broker_without_them(
    tmp_path: Path,
) -> None:
    config, store = configs_in(tmp_path)
    async with Broker(config, store) as broker, client_of(broker) as client:
        for code, fields, number in (
            (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": "a"}, 209),
            (RequestCode.DELETE_ACL_CONFIG, {"accessKey": "a"}, 210),
            (RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "*"}, 211),
            (RequestCode.GET_BROKER_CLUSTER_ACL_INFO, {}, 1),
            (RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, {}, 1),
        ):
            with pytest.raises(Refusal, match="aclEnable is false") as refused:
                await client.call(code, fields)
            assert refused.value.code == number


@on_loop
async def test_our_consumers_need_no_more_than_their_topic_and_group(tmp_path: Path) -> None:
    write_acl(tmp_path)
    keys: Any = {"access_key": "orders-app", "secret_key": "secret-of-orders"}
    async with name_server(tmp_path / "namesrv") as names:
        config, store = configs_in(
            tmp_path, acl_enable=True, rocketmq_home=str(tmp_path), name_servers=(names.address,)
        )
        shared: Any = {"name_server": names.address, **keys}
        async with Broker(config, store) as broker:
            async with client_of(broker, ADMIN) as admin:
                await admin.send("Orders", b"0")
            seen: list[bytes] = []
            async with (
                Producer("makers", **shared) as p,
                PushConsumer("readers", consume_from="first", **shared) as consumer,
            ):
                await p.send([Message("Orders", b"1"), Message("Orders", b"2")])
                await consumer.subscribe("Orders", "*", lambda m: seen.append(m.body), ordered=True)
                await until(lambda: len(seen) == 3)
            async with PopConsumer("readers", consume_from="first", **shared) as popping:
                await popping.subscribe("Orders")
                async with Producer("makers", **shared) as p:
                    await p.send(Message("Orders", b"3"))
                popped: list[bytes] = []
                async with asyncio.timeout(PATIENCE):
                    while b"3" not in popped:
                        for message in await popping.receive():
                            popped.append(message.body)
                            await popping.ack(message)
    assert sorted(seen) == [b"0", b"1", b"2"]


# ---- a broker in its own process


@dataclass(frozen=True)
class Cluster:
    name_server: str
    broker: str
    file: Path

    def run(
        self,
        *words: str,
        code: int = 0,
        text: str | None = None,
        environment: dict[str, str] | None = None,
    ) -> str:
        """What a command prints, signed as the administrator unless the environment differs."""
        keys = {"BOLIDE_ACCESS_KEY": "administrator", "BOLIDE_SECRET_KEY": "secret-of-admin"}
        done = CliRunner().invoke(
            app,
            ["admin", *words, "-n", self.name_server],
            input=text,
            env=keys | (environment or {}),
        )
        assert done.exit_code == code, (words, done.output, done.exception)
        return done.output


@pytest.fixture(scope="module")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("home")
    file = write_acl(home)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("BOLIDE_", "NAMESRV_"))]:
            patch.delenv(name)
        patch.setenv("ROCKETMQ_HOME", str(home))
        patch.setenv("HOME", str(home))
        running = Running(
            "bolide", "standalone", "--host", "127.0.0.1", "--data", str(home / "data"),
            "--namesrv-port", "0", "--broker-port", "0", "aclEnable=true",
            "mappedFileSizeCommitLog=16777216", "maxHashSlotNum=1000", "maxIndexNum=4000",
        )  # fmt: skip
        try:
            broker = running.wait_for(r"The broker\[\S+, (\S+)\] boot success")[1]
            name_server = running.wait_for(r"Name Server boot success.* address (\S+)")[1]
            yield Cluster(name_server, broker, file)
        finally:
            running.stop()
            running.process.communicate()
    assert "secret-of" not in running.output


@pytest.fixture
def cluster(running_cluster: Cluster) -> Cluster:
    """The cluster with the rules of `ACL` in force, whatever the test before has made of them."""
    if running_cluster.file.read_text() != ACL:
        write_acl(running_cluster.file.parent.parent)
        deadline = time.monotonic() + PATIENCE
        words = ("getAclConfig", "-b", running_cluster.broker)
        while "[Orders=PUB|SUB]" not in running_cluster.run(*words):
            assert time.monotonic() < deadline
    return running_cluster


def producer(cluster: Cluster, **keys: Any) -> Producer:
    return Producer("makers", name_server=cluster.name_server, retries=0, **keys)


@on_loop
async def test_our_client_is_denied_until_the_file_allows_it(cluster: Cluster) -> None:
    keys: Any = {"access_key": "orders-app", "secret_key": "secret-of-orders"}
    async with producer(cluster, access_key="administrator", secret_key="secret-of-admin") as admin:
        await admin.send(Message("Orders", b"1"))
        await admin.send(Message("Other", b"1"))
    async with producer(cluster, **keys) as p:
        await p.send(Message("Orders", b"1"))
        with pytest.raises(SendFailed, match="topic:Other: accessKey=orders-app needs PUB"):
            await p.send(Message("Other", b"1"))
        async with AdminClient(cluster.name_server, **keys) as admin_client:
            with pytest.raises(NoPermission, match="Need admin permission"):
                await admin_client.plain_acl.accounts(cluster.broker)
        cluster.file.write_text(ACL.replace("[Orders=PUB|SUB]", "[Other=PUB]"))

        async with asyncio.timeout(PATIENCE):
            while not await is_sent(p, "Other"):
                pass  # nothing tells when the broker has looked at its file
        with pytest.raises(SendFailed, match="topic:Orders"):
            await p.send(Message("Orders", b"1"))


async def is_sent(p: Producer, topic: str) -> bool:
    try:
        await p.send(Message(topic, b"1"))
    except SendFailed:
        return False
    return True


def test_the_commands_show_and_change_the_rules(cluster: Cluster) -> None:
    at = ("-b", cluster.broker)
    shown = cluster.run("getAclConfig", *at)
    assert re.search(r"accessKey +: orders-app", shown)
    assert "topicPerms        : [Orders=PUB|SUB]" in shown

    words = ("updateAclConfig", *at, "-a", "new-account")
    made = cluster.run(*words, "-s", "-", "-t", "Orders=SUB", text="secret-of-new\n")
    assert made == f"create or update plain access config to {cluster.broker} success.\n"
    newer = {"BOLIDE_NEW_SECRET_KEY": "secret-of-newer"}
    cluster.run(*words, "-i", "PUB", environment=newer)
    assert "secret-of-newer" not in cluster.file.read_text()  # a variable left over
    cluster.run(*words, "--newSecretKey", environment=newer)
    assert "secret-of-newer" in cluster.file.read_text()
    assert stat.S_IMODE(cluster.file.stat().st_mode) == 0o600

    cluster.run("updateGlobalWhiteAddr", *at, "-g", "10.0.0.*,10.1.0.1")
    delete = ("deleteAclConfig", "-c", "DefaultCluster", "-a", "orders-app")
    (lost,) = json.loads(cluster.run(*delete, "--dry-run", "--json"))
    assert lost["accessKey"] == "orders-app"
    assert lost["topicPerms"]
    assert not lost["secretKey"]
    cluster.run(*delete, "--yes")
    found = json.loads(cluster.run("getAclConfig", *at, "--json"))
    assert found["globalWhiteAddrs"] == ["10.0.0.*", "10.1.0.1"]
    accounts = {each["accessKey"]: each for each in found["plainAccessConfigs"]}
    assert accounts.keys() == {"administrator", "new-account"}
    assert accounts["new-account"]["topicPerms"] == ["Orders=SUB"]
    assert accounts["new-account"]["defaultTopicPerm"] == "PUB"
    assert {each["secretKey"] for each in accounts.values()} == {""}

    cluster.run(*words, "-t", "")
    found = json.loads(cluster.run("getAclConfig", *at, "--json"))
    assert found["plainAccessConfigs"][-1]["topicPerms"] == []

    version = json.loads(cluster.run("clusterAclConfigVersion", *at, "--json"))
    assert (version["counter"], version["aclFilePath"]) == (6, str(cluster.file))
    titles, row = cluster.run("clusterAclConfigVersion", "-c", "DefaultCluster").splitlines()
    assert titles.split("#")[-2].strip() == "AclConfigVersionNum"
    assert str(cluster.file) in row


def test_the_commands_need_credentials_of_an_admin(cluster: Cluster) -> None:
    words = ("getAclConfig", "-b", cluster.broker)
    nobody = {"BOLIDE_ACCESS_KEY": "", "BOLIDE_SECRET_KEY": ""}
    assert "No accessKey is configured" in cluster.run(*words, code=1, environment=nobody)
    half = cluster.run(*words, code=2, environment={"BOLIDE_SECRET_KEY": ""})
    assert "BOLIDE_ACCESS_KEY and BOLIDE_SECRET_KEY must be set together" in half
    tools = cluster.file.with_name("tools.yml")
    tools.write_text("accessKey: orders-app\nsecretKey: secret-of-orders\n")
    assert "Need admin permission" in cluster.run(*words, code=1, environment=nobody)
    tools.write_text("accessKey: administrator\nsecretKey: secret-of-admin\n")
    assert "orders-app" in cluster.run(*words, environment=nobody)
    sent = cluster.run("sendMessage", "-t", "Orders", "-p", "one book", environment=nobody)
    assert "SEND_OK" in sent


def test_a_broker_without_its_file_does_not_start(tmp_path: Path) -> None:
    done = run(
        "bolide", "broker", "aclEnable=true", f"storePathRootDir={tmp_path}/store",
        HOME=str(tmp_path), ROCKETMQ_HOME=str(tmp_path),
    )  # fmt: skip
    assert done.returncode != 0
    assert f"aclEnable=true: neither {tmp_path}/conf/plain_acl.yml nor a file in" in done.stderr
    assert "Traceback" not in done.stderr
