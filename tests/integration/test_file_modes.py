"""Files and directories of servers are closed to other users, even with an umask of 0."""

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bolide.private_files import make_directory
from bolide.protocol.codes import RequestCode
from bolide.remoting.client import RemotingClient
from bolide.remoting.signing import Signer
from tests.support.access import FIRST_USER, ROOT, EverybodyIsAdmin, acl, client_of, entry
from tests.support.aio import on_loop
from tests.support.broker import BrokerClient, broker_in
from tests.support.commands import Running
from tests.support.name_servers import name_server


@pytest.fixture(autouse=True)
def everything_is_allowed() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(directory: Path) -> dict[str, str]:
    """Paths below a directory that more than the owner and its group may use."""
    found = {}
    for path in directory.rglob("*"):
        allowed = 0o750 if path.is_dir() else 0o640
        if (mode := stat.S_IMODE(path.stat().st_mode)) & ~allowed:
            found[str(path.relative_to(directory))] = oct(mode)
    return found


@on_loop
async def test_the_store_of_a_broker_is_closed_to_other_users(tmp_path: Path) -> None:
    compacted = {
        "topic": "C", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        "attributes": "+cleanup.policy=COMPACTION",
    }  # fmt: skip
    batched = compacted | {"topic": "B", "attributes": "+queue.type=BatchCQ"}
    root = tmp_path / "deep" / "store"
    settings: dict[str, Any] = {
        "root": root, "access": EverybodyIsAdmin(), "filter_server_nums": 1,
        "commit_log_file_size": 8192, "message_delay_level": "1s 5s",
    }  # fmt: skip
    async with broker_in(tmp_path, **settings) as broker, BrokerClient(broker.address) as client:
        for topic in (compacted, batched):
            await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, topic)
        for number in range(40):
            await client.send("T", b"x" * 400, properties={"KEYS": f"k{number}"})
            await client.send("C", b"x" * 400, properties={"KEYS": f"k{number % 3}"})
        await client.send("T", b"later", properties={"DELAY": "1"})
        await client.send("T", b"timed", properties={"TIMER_DELAY_SEC": "3600"})
        await client.pull("T")
        commit = {"consumerGroup": "readers", "topic": "T", "queueId": "0", "commitOffset": "1"}
        await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        source = b"def accept(message): return True"
        await client.call(RequestCode.BOLIDE_UPDATE_FILTER_FUNCTION, {"name": "f"}, source)
        for text in (b"regionId=a", b"regionId=b"):
            await client.call(RequestCode.UPDATE_BROKER_CONFIG, body=text)
        await asyncio.to_thread(broker.store.compaction.compact_all)
        assert open_to_others(tmp_path / "deep") == {}
    async with broker_in(tmp_path, **settings) as broker, BrokerClient(broker.address) as client:
        await client.send("T")
        assert open_to_others(tmp_path / "deep") == {}
    names = {path.name for path in root.rglob("*")}
    assert names >= {
        "checkpoint", "lock", "commitlog", "consumequeue", "index", "compaction", "timerwheel",
        "topics.json", "topics.json.bak", "broker.properties", "filterFunctions.json",
    }  # fmt: skip
    assert stat.S_IMODE((tmp_path / "deep").stat().st_mode) == 0o750


@on_loop
async def test_users_and_policies_are_closed_to_other_users(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "store"
    settings: dict[str, Any] = {
        "root": root, "authentication_enabled": True, "authorization_enabled": True,
        "init_authentication_user": FIRST_USER, "auth_config_path": tmp_path / "far" / "off" / "a",
    }  # fmt: skip
    async with broker_in(tmp_path, **settings) as broker, client_of(ROOT) as client:
        for password in (b"x", b"y"):
            body = b'{"username":"shop","password":"%s"}' % password
            code = (
                RequestCode.AUTH_CREATE_USER if password == b"x" else RequestCode.AUTH_UPDATE_USER
            )
            await client.call(broker.address, code, {"username": "shop"}, body=body)
            policies = msgspec.json.encode(acl("shop", entry("Topic:T", "Pub")).to_wire())
            fields = {"subject": "User:shop"}
            await client.call(broker.address, RequestCode.AUTH_UPDATE_ACL, fields, body=policies)
    names = {path.name for path in (tmp_path / "far").rglob("*")}
    assert names >= {"users.json", "users.json.bak", "acls.json"}
    assert open_to_others(tmp_path) == {}


@on_loop
async def test_accounts_that_a_request_changes_are_closed_to_other_users(tmp_path: Path) -> None:
    rules = tmp_path / "conf" / "plain_acl.yml"
    make_directory(rules.parent)
    text = "accounts:\n- {accessKey: administrator, secretKey: root-secret, admin: true}\n"
    rules.write_text(text)
    rules.chmod(0o600)
    settings: dict[str, Any] = {
        "root": tmp_path / "deep" / "store", "acl_enable": True, "plain_acl_file": rules,
    }  # fmt: skip
    hooks = [Signer("administrator", "root-secret")]
    async with broker_in(tmp_path, **settings) as broker, RemotingClient(hooks=hooks) as client:
        fields = {"accessKey": "shop-app", "secretKey": "shop-secret", "admin": "false"}
        await client.call(broker.address, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, fields)
    assert "shop-app" in rules.read_text()
    assert open_to_others(tmp_path) == {}


@on_loop
async def test_the_files_of_a_name_server_are_closed_to_other_users(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "namesrv"
    files = {"kv_config_path": place / "kv.json", "config_store_path": place / "namesrv.properties"}
    async with name_server(tmp_path, **files) as server, RemotingClient() as client:
        put = {"namespace": "n", "key": "k", "value": "v"}
        for text in (b"orderMessageEnable=true", b"orderMessageEnable=false"):
            await client.call(server.address, RequestCode.PUT_KV_CONFIG, put | {"value": "w"})
            await client.call(server.address, RequestCode.UPDATE_NAMESRV_CONFIG, body=text)
    assert {path.name for path in place.iterdir()} >= {"kv.json", "namesrv.properties"}
    assert open_to_others(tmp_path) == {}


def test_logs_are_closed_to_other_users_and_so_are_rotated_ones(
    started: list[Running], home: Path
) -> None:
    (home / "log.toml").write_text('file = "logs/deep/namesrv.log"\nmax_size = 4096\n')
    (home / "log.toml").chmod(0o600)
    words = ("--log-config", "log.toml", "listenPort=0", "kvConfigPath=files/kv.json")
    names = Running("bolide", "namesrv", *words, "configStorePath=files/namesrv.properties")
    started.append(names)
    port = int(names.wait_for(r"boot success.*address \S+:(\d+)")[1])

    async def talk() -> None:
        async with RemotingClient() as client:
            for number in range(60):
                put = {"namespace": "n", "key": f"k{number}", "value": "v" * 100}
                await client.call(f"127.0.0.1:{port}", RequestCode.PUT_KV_CONFIG, put)

    asyncio.run(talk())
    names.stop()
    assert {path.name for path in (home / "logs" / "deep").iterdir()} >= {
        "namesrv.log",
        "namesrv.log.1",
    }
    assert open_to_others(home) == {}
