"""Published attacks on Apache RocketMQ and those found here, repeated over real sockets.

`docs/security.md` lists them; the names of the tests stand there.
"""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from bolide.model.names import AUDIT_TOPIC
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import (
    GroupNotFound,
    InvalidParameter,
    NoPermission,
    Refusal,
)
from bolide.remoting.client import RemotingClient
from tests.support.access import EverybodyIsAdmin
from tests.support.aio import on_loop
from tests.support.attackers import attacked_broker, attacked_name_server
from tests.support.broker import BrokerClient, broker_in
from tests.support.name_servers import name_server

UPDATE_BROKER = RequestCode.UPDATE_BROKER_CONFIG
UPDATE_NAMESRV = RequestCode.UPDATE_NAMESRV_CONFIG


def below(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def topics_below(directory: Path) -> set[str]:
    """The queues of a broker but those of the audit log."""
    found = below(directory / "store" / "consumequeue")
    return {path for path in found if not path.startswith(AUDIT_TOPIC)}


# ---- the attacks of the issue tracker of this project


@on_loop
async def test_nobody_turns_filter_processes_on_and_has_the_broker_run_python(
    tmp_path: Path,
) -> None:
    proof = tmp_path / "proof"
    source = f"open({str(proof)!r}, 'w')\ndef accept(message): return True".encode()
    for _ in range(2):  # the second time after a restart
        async with attacked_broker(tmp_path) as a:
            for caller in (a.remote, a.local):
                with pytest.raises(NoPermission):
                    await caller.call(UPDATE_BROKER, body=b"filterServerNums=2")
                with pytest.raises(NoPermission, match="access control"):
                    await caller.call(
                        RequestCode.BOLIDE_UPDATE_FILTER_FUNCTION, {"name": "f"}, source
                    )
            assert a.broker.config.value.filter_server_nums == 0
    async with attacked_broker(tmp_path, filter_server_nums=1) as a:  # turned on in the file
        for caller in (a.remote, a.local):
            with pytest.raises(NoPermission, match="access control"):
                await caller.call(RequestCode.BOLIDE_UPDATE_FILTER_FUNCTION, {"name": "f"}, source)
    assert not proof.exists()


@on_loop
async def test_a_remote_peer_deletes_no_messages_by_retention(tmp_path: Path) -> None:
    small = {"commit_log_file_size": 16384, "clean_interval": 0.01}
    async with attacked_broker(tmp_path, **small) as a:
        for _ in range(300):
            await a.remote.send("T", b"x" * 500)
        first = a.broker.store.log.min_offset
        for _ in range(5):
            with pytest.raises(NoPermission, match="UPDATE_BROKER_CONFIG"):
                await a.remote.call(UPDATE_BROKER, body=b"fileReservedTime=0")
            with pytest.raises(NoPermission, match="DELETE_EXPIRED_COMMITLOG"):
                await a.remote.call(RequestCode.DELETE_EXPIRED_COMMITLOG)
        a.broker.store.retention.run()
        assert a.broker.store.log.min_offset == first
        assert (await a.remote.pull("T")).header.min_offset == 0
        assert (await a.remote.pull("T")).header.max_offset == 300


@on_loop
async def test_the_commit_log_cannot_be_moved(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    async with attacked_broker(tmp_path) as a:
        for caller in (a.remote, a.local):
            for key in ("storePathCommitLog", "storePathRootDir", "readOnlyCommitLogStorePaths"):
                with pytest.raises(NoPermission):
                    await caller.call(UPDATE_BROKER, body=f"{key}={elsewhere}".encode())
    async with attacked_broker(tmp_path) as a:
        await a.local.send("T")
    assert not elsewhere.exists()


@on_loop
async def test_a_password_can_neither_be_set_nor_read_over_the_wire(tmp_path: Path) -> None:
    hush = {"tls_key_password": "hush-server", "tls_client_key_password": "hush-client"}
    async with attacked_broker(tmp_path, **hush) as a:
        with pytest.raises(NoPermission):
            await a.local.call(UPDATE_BROKER, body=b"tls.server.keyPassword=hush-wire")
        with pytest.raises(NoPermission):
            await a.local.call(UPDATE_BROKER, body=b"tls.client.keyPassword=hush-wire")
        for code in RequestCode:
            for caller in (a.remote, a.local):
                try:
                    answer = await caller.call(code)
                except Refusal as refusal:
                    assert "hush" not in str(refusal)
                else:
                    assert b"hush" not in answer.body
                    assert "hush" not in f"{answer.remark}{answer.fields}"


# ---- CVE-2023-33246: settings that become a command line


EXPLOITS = [
    "filterServerNums=1\nrocketmqHome=-c $@|sh . echo touch {proof};",
    "rocketmqHome=-c $@|sh . echo touch {proof};\nfilterServerNums=1\nnamesrvAddr=127.0.0.1:9",
    "rocketmqHome\\=x=1\nrocketmqHome:-c $@|sh . echo touch {proof};",
    "ROCKETMQ_HOME=x\nrocketmqHome -c $@|sh . echo touch {proof};",
    "rocket\\\nmqHome=-c $@|sh . echo touch {proof};",
    "\\u0072ocketmqHome=-c $@|sh . echo touch {proof};",
]


@pytest.mark.parametrize("exploit", EXPLOITS)
@on_loop
async def test_cve_2023_33246_no_setting_becomes_a_command(tmp_path: Path, exploit: str) -> None:
    proof = tmp_path / "proof"
    body = exploit.format(proof=proof).encode()
    async with attacked_broker(tmp_path, broker_config_path=tmp_path / "broker.conf") as a:
        for caller in (a.remote, a.local):
            with pytest.raises(NoPermission):
                await caller.call(UPDATE_BROKER, body=body)
        assert "touch" not in str(await a.settings())
    assert not proof.exists()
    assert not (tmp_path / "broker.conf").exists()


@pytest.mark.parametrize("exploit", EXPLOITS)
@on_loop
async def test_cve_2023_33246_no_setting_of_a_name_server_becomes_a_command(
    tmp_path: Path, exploit: str
) -> None:
    body = exploit.format(proof=tmp_path / "proof").encode()
    async with attacked_name_server(tmp_path) as a:
        for caller in (a.remote, a.local):
            with pytest.raises(NoPermission):
                await caller.call(UPDATE_NAMESRV, body=body)
    assert below(tmp_path) == set()


@on_loop
async def test_cve_2023_33246_settings_of_a_controller_are_not_taken(tmp_path: Path) -> None:
    body = b"controllerStorePath=/tmp/x\nconfigStorePath=/tmp/x"
    async with attacked_broker(tmp_path) as a:
        with pytest.raises(NoPermission):
            await a.remote.call(RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)
        with pytest.raises(Refusal, match="not supported"):
            await a.local.call(RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)
    (tmp_path / "namesrv").mkdir()
    async with attacked_name_server(tmp_path / "namesrv") as a:
        with pytest.raises(NoPermission):
            await a.remote.call(RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)
        with pytest.raises(Refusal, match="not supported"):
            await a.local.call(RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)


# ---- CVE-2023-37582: the NameServer writes a file of the sender's choice


@on_loop
async def test_cve_2023_37582_a_name_server_writes_no_file_of_the_senders_choice(
    tmp_path: Path,
) -> None:
    (tmp_path / "namesrv").mkdir()
    target = tmp_path / "target"
    content = f"productEnvName=a\\n*/1 * * * * touch {tmp_path}/proof\\n"
    async with attacked_name_server(tmp_path / "namesrv") as a:
        for key in ("configStorePath", "kvConfigPath", "configStorePath\\u0000"):
            for caller in (a.remote, a.local):
                body = f"{key}={target}\n{content}".encode()
                if "u0000" in key and caller is a.local:
                    await caller.call(UPDATE_NAMESRV, body=body)  # an unknown key, ignored
                    continue
                with pytest.raises(NoPermission):
                    await caller.call(UPDATE_NAMESRV, body=body)
        put = {"namespace": "../../target", "key": "../../target", "value": content}
        with pytest.raises(NoPermission):
            await a.remote.call(RequestCode.PUT_KV_CONFIG, put)
        await a.local.call(RequestCode.PUT_KV_CONFIG, put)  # names in one JSON file
    assert not target.exists()
    assert below(tmp_path / "namesrv") == {"namesrv.properties", "kvConfig.json"}
    written = (tmp_path / "namesrv" / "namesrv.properties").read_text()
    assert len(written.splitlines()) == 1  # a value stays in its line


# ---- CVE-2024-23321: accounts and passwords are shown to those who should not see them


@on_loop
async def test_cve_2024_23321_accounts_are_not_shown(tmp_path: Path) -> None:
    codes = [code for code in RequestCode if code in range(50, 55) or code in range(3001, 3011)]
    assert len(codes) == 15
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "plain_acl.yml").write_text("accounts:\n- accessKey: boss\n  secretKey: hush-hush\n")
    async with attacked_broker(tmp_path, rocketmq_home=str(tmp_path)) as a:
        for code in codes:
            with pytest.raises(NoPermission):
                await a.remote.call(code)
            with pytest.raises(Refusal) as refused:
                await a.local.call(code)
            assert "hush" not in str(refused.value)


# ---- CVE-2019-17572: names that lead to other directories


PATHS = ["../../x", "..", ".", "a/b", "/tmp/x", "%RETRY%../../x", "a\x00b", "..\\x", "x\n"]


@pytest.mark.parametrize("name", PATHS)
@on_loop
async def test_cve_2019_17572_no_name_of_a_topic_leads_to_another_directory(
    tmp_path: Path, name: str
) -> None:
    directory = tmp_path / "deep" / "broker"
    directory.mkdir(parents=True)
    create = {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    async with attacked_broker(directory) as a:
        for caller in (a.remote, a.local):
            with pytest.raises(InvalidParameter):
                await caller.send(name)  # created by a send
        with pytest.raises(InvalidParameter):
            await a.local.call(RequestCode.UPDATE_AND_CREATE_TOPIC, create)
        with pytest.raises(InvalidParameter):
            await a.local.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name})
    assert below(tmp_path) - {"deep", "deep/broker"} == {
        f"deep/broker/{path}" for path in below(directory)
    }
    assert topics_below(directory) == set()


@on_loop
async def test_the_deletion_of_a_topic_deletes_no_other_directory(tmp_path: Path) -> None:
    victim = tmp_path / "other" / "victim"
    victim.mkdir(parents=True)
    (victim / "file").touch()
    for name in ("compactionLog", "compactionCq"):
        (tmp_path / "store" / "compaction" / name).mkdir(parents=True)
    async with broker_in(tmp_path) as broker, BrokerClient(broker.address) as client:
        for topic in ("../../../other", "../../../other/victim", "../../config"):
            with pytest.raises(InvalidParameter):
                await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
            broker.store.remove_topic(topic)  # nor if a caller does not check
    assert (victim / "file").exists()
    assert (tmp_path / "store" / "config" / "topics.json").exists()


@pytest.mark.parametrize("group", ["../../x", "a/b", "..", "x\x00"])
@on_loop
async def test_no_name_of_a_group_leads_to_another_directory(tmp_path: Path, group: str) -> None:
    directory = tmp_path / "deep" / "broker"
    directory.mkdir(parents=True)
    beat = {
        "clientID": "c",
        "producerDataSet": [],
        "consumerDataSet": [{"groupName": group, "subscriptionDataSet": [{"topic": "T"}]}],
    }
    async with attacked_broker(directory) as a:
        await a.remote.send("T")
        [record] = (await a.remote.pull("T")).records
        await a.remote.call(RequestCode.HEART_BEAT, body=json.dumps(beat).encode())
        with pytest.raises(GroupNotFound):
            await a.remote.send_back(record, group)  # to the topic %RETRY%group
        with pytest.raises(GroupNotFound):
            commit = {"consumerGroup": group, "topic": "T", "queueId": "0", "commitOffset": "1"}
            await a.remote.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    assert topics_below(directory) == {"T", "T/0", f"T/0/{0:020d}"}


# ---- other patterns: deserialization, references, expansion


@asynccontextmanager
async def listener() -> AsyncIterator[tuple[int, list[object]]]:
    """A port, and the connections that were made to it."""
    arrived: list[object] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.append(writer)
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], arrived


@on_loop
async def test_types_named_in_json_are_data(tmp_path: Path) -> None:
    (tmp_path / "namesrv").mkdir()
    async with (
        listener() as (port, arrived),
        attacked_broker(tmp_path) as broker,
        attacked_name_server(tmp_path / "namesrv") as names,
    ):
        gadget = {
            "@type": "com.sun.rowset.JdbcRowSetImpl",
            "dataSourceName": f"ldap://127.0.0.1:{port}/x",
            "autoCommit": True,
        }
        for body in (gadget, {"clientID": gadget}, {"consumerDataSet": [gadget]}, [gadget]):
            for code in (RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ):
                with suppress(Refusal):
                    await broker.remote.call(code, body=json.dumps(body).encode())
        header = {
            "brokerName": "b", "brokerAddr": f"127.0.0.1:{port}", "clusterName": "c",
            "brokerId": "0",
        }  # fmt: skip
        registration = {"topicConfigSerializeWrapper": gadget, "filterServerList": [gadget]}
        with suppress(Refusal):
            code = RequestCode.REGISTER_BROKER
            await names.remote.call(code, header, json.dumps(registration).encode())
        assert arrived == []


@on_loop
async def test_a_compressed_registration_that_expands_without_end_is_refused(
    tmp_path: Path,
) -> None:
    bomb = zlib.compress((0x7FFFFFFF).to_bytes(4) + bytes(200 * 1024 * 1024))
    header = {
        "brokerName": "b", "brokerAddr": "10.0.0.1:1", "clusterName": "c", "brokerId": "0",
        "compressed": "true",
    }  # fmt: skip
    async with name_server(tmp_path) as server, RemotingClient() as client:
        with pytest.raises(Refusal):
            await client.call(server.address, RequestCode.REGISTER_BROKER, header, body=bomb)
        await client.call(server.address, RequestCode.GET_BROKER_CLUSTER_INFO)


@on_loop
async def test_a_body_that_expands_without_end_is_not_expanded_for_a_filter(tmp_path: Path) -> None:
    compressed = 1
    async with (
        broker_in(
            tmp_path, filter_server_nums=1, access=EverybodyIsAdmin(), filter_function_timeout=10
        ) as broker,
        BrokerClient(broker.address) as client,
    ):
        source = b"def accept(message): return len(message.body) < 1000_000"
        await client.call(RequestCode.BOLIDE_UPDATE_FILTER_FUNCTION, {"name": "f"}, source)
        bomb = zlib.compress(bytes(300 * 1024 * 1024))
        await client.send("T", bomb, sys_flag=compressed)
        pulled = await client.pull("T", expression_type="FILTER", subscription="f")
        assert pulled.bodies == [bomb]
