"""Settings that no request changes, whoever sends it: every one is tried on real servers."""

import re
from pathlib import Path

import pytest

from bolide import properties
from bolide.broker.settings.config import ALL_IGNORED, BrokerConfig
from bolide.cli.broker_settings import file_texts
from bolide.config import Ignored, Option, fixed_keys, options_of
from bolide.namesrv.config import ALL_IGNORED as IGNORED_BY_NAME_SERVERS
from bolide.namesrv.config import NameServerConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import InvalidParameter, NoPermission
from bolide.remoting.client import RemotingClient
from bolide.store.config import StoreConfig
from tests.support.aio import on_loop
from tests.support.broker import BrokerClient, broker_in
from tests.support.name_servers import name_server

SERVER = {
    "bindAddress", "listenPort", "rocketmqHome", "configBlackList",
    "tls.server.mode", "tls.server.certPath", "tls.server.keyPath", "tls.server.keyPassword",
    "tls.server.trustCertPath", "tls.server.need.client.auth",
    "authenticationEnabled", "authorizationEnabled", "authenticationWhitelist",
    "authorizationWhitelist", "initAuthenticationUser", "innerClientAuthenticationCredentials",
    "authConfigPath", "migrateAuthFromV1Enabled", "allowRemoteAdmin",
}  # fmt: skip
FIXED = {
    BrokerConfig: SERVER | {
        "aclEnable", "rocketmq.acl.plain.file", "auditEnable",
        "brokerIP1", "brokerIP2", "haListenPort", "workers", "brokerHooks", "brokerConfigPath",
        "filterServerNums", "filterFunctionTimeout", "filterFunctionMemory",
        "useTLS", "tls.client.certPath", "tls.client.keyPath", "tls.client.keyPassword",
        "tls.client.trustCertPath",
    },
    StoreConfig: {"storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths"},
    NameServerConfig: SERVER | {"kvConfigPath", "configStorePath"},
}  # fmt: skip
SUSPECT = re.compile(
    r"path|port$|address|ip\d|host|tls|acl|auth|secret|password|credential|home|hook|class|plug"
    r"|worker|filter(server|function)|remote|blacklist|dir$|audit",
    re.IGNORECASE,
)
CHANGEABLE_ALL_THE_SAME = {"filterDataCleanTimeSpan"}
"""Names that only look like a path, an address or a switch of protection."""


@pytest.mark.parametrize("kind", FIXED)
def test_what_leads_to_files_sockets_code_or_less_protection_is_fixed(kind: type) -> None:
    options = options_of(kind)
    fixed = {key for key, found in options.items() if found.fixed}
    assert fixed >= FIXED[kind]
    suspects = {key for key in options if SUSPECT.search(key)} - CHANGEABLE_ALL_THE_SAME
    assert suspects <= fixed
    assert {key for key, found in options.items() if is_path(found) or found.secret} <= fixed


NAMES_A_PLACE = re.compile(
    r"path|port$|address|addr$|host$|domain|target|peers|conf$|serverid|provider|ationstrategy|class|plug",
    re.IGNORECASE,
)


@pytest.mark.parametrize("ignored", [ALL_IGNORED, IGNORED_BY_NAME_SERVERS])
def test_keys_without_effect_that_name_places_or_classes_are_fixed(
    ignored: dict[str, Ignored],
) -> None:
    """So that no request puts them into a file that RocketMQ's servers read one day."""
    named = {key for key in ignored if NAMES_A_PLACE.search(key)}
    assert len(named) > 5
    changeable = {key for key in named if not (ignored[key].fixed or ignored[key].secret)}
    assert changeable <= {
        "controllerAddr",  # an administrator may change it, as namesrvAddr
        "fetchNamesrvAddrByAddressServer",
        "useSeparateStorePathForRocksdbCQ",
    }


def is_path(found: Option) -> bool:
    return found.kind is Path or found.item is Path


def test_the_addresses_of_other_servers_can_be_changed() -> None:
    assert not options_of(BrokerConfig)["namesrvAddr"].fixed
    assert "controllerAddr" not in fixed_keys(BrokerConfig, ALL_IGNORED)


@on_loop
async def test_every_fixed_setting_of_a_broker_is_refused_and_all_that_came_with_it(
    tmp_path: Path,
) -> None:
    options = options_of(BrokerConfig) | options_of(StoreConfig)
    update = RequestCode.UPDATE_BROKER_CONFIG
    async with broker_in(tmp_path) as broker, BrokerClient(broker.address) as client:
        before = (await client.call(RequestCode.GET_BROKER_CONFIG)).body
        for found in options.values():
            for key in (found.key, *found.aliases) if found.fixed else ():
                with pytest.raises(NoPermission, match=re.escape(key)):
                    await client.call(update, body=f"fileReservedTime=1\n{key}=1".encode())
        assert (await client.call(RequestCode.GET_BROKER_CONFIG)).body == before
        assert broker.store_config.value.file_reserved_hours == 72
        assert not (tmp_path / "store" / "config" / "broker.properties").exists()
        same = {
            key: text
            for key, text in properties.parse(before.decode()).items()
            if key in options and not options[key].fixed and "disk" not in key
        }  # the ratios of the disk are out of bounds in tests
        assert len(same) > 100
        await client.call(update, body=properties.render(same).encode())


@on_loop
async def test_every_fixed_setting_of_a_name_server_is_refused_and_all_that_came_with_it(
    tmp_path: Path,
) -> None:
    update = RequestCode.UPDATE_NAMESRV_CONFIG
    async with name_server(tmp_path) as server, RemotingClient() as client:

        async def call(code: RequestCode, body: bytes = b"") -> bytes:
            return (await client.call(server.address, code, body=body)).body

        before = await call(RequestCode.GET_NAMESRV_CONFIG)
        for found in options_of(NameServerConfig).values():
            if found.fixed:
                with pytest.raises(NoPermission, match=re.escape(found.key)):
                    await call(update, f"orderMessageEnable=true\n{found.key}=1".encode())
        assert await call(RequestCode.GET_NAMESRV_CONFIG) == before
        assert not server.config.value.order_message_enable
        assert not server.config.value.config_store_path.exists()


FORGED = "x\nlistenPort=1\rfilterServerNums=9\x85brokerHooks=evil:Hook\u2028workers=2\\"
"""A value that tries to be several lines, and to continue in the next one."""


def escaped(value: str) -> bytes:
    return properties.render({"regionId": value}).encode()


@on_loop
async def test_a_value_forges_no_line_of_a_brokers_answer_or_file(tmp_path: Path) -> None:
    async with broker_in(tmp_path) as broker, BrokerClient(broker.address) as client:
        port = broker.config.value.listen_port
        await client.call(RequestCode.UPDATE_BROKER_CONFIG, body=escaped(FORGED))
        shown = (await client.call(RequestCode.GET_BROKER_CONFIG)).body.decode()
    lines = dict(line.split("=", 1) for line in shown.splitlines())
    assert lines["listenPort"] == str(port)
    assert "brokerHooks" not in lines
    assert lines["filterServerNums"] == "0"
    assert properties.parse(shown)["regionId"] == FORGED

    root = {"storePathRootDir": str(tmp_path / "store")}
    saved = file_texts(None, root, quiet=True)  # what the next start reads
    assert saved["regionId"] == FORGED
    assert saved.keys() == {"regionId", "brokerConfigPath"}


@on_loop
async def test_a_value_forges_no_line_of_a_name_servers_answer_or_file(tmp_path: Path) -> None:
    update, show = RequestCode.UPDATE_NAMESRV_CONFIG, RequestCode.GET_NAMESRV_CONFIG
    body = properties.render({"productEnvName": "x\nkvConfigPath=/tmp/x\\"}).encode()
    async with name_server(tmp_path) as server, RemotingClient() as client:
        await client.call(server.address, update, body=body)
        shown = (await client.call(server.address, show)).body.decode()
    lines = dict(line.split("=", 1) for line in shown.splitlines())
    assert lines["kvConfigPath"] == str(tmp_path / "kvConfig.json")
    saved = properties.parse((tmp_path / "namesrv.properties").read_text())
    assert saved == {"productEnvName": "x\nkvConfigPath=/tmp/x\\"}


@pytest.mark.parametrize("key", ["broker_name", "broker_cluster_name", "msg_trace_topic_name"])
@on_loop
async def test_a_name_that_is_a_topic_too_cannot_be_a_path(tmp_path: Path, key: str) -> None:
    wire = {"broker_name": "brokerName", "broker_cluster_name": "brokerClusterName"}
    text = f"{wire.get(key, 'msgTraceTopicName')}=../../elsewhere".encode()
    async with broker_in(tmp_path) as broker, BrokerClient(broker.address) as client:
        with pytest.raises(InvalidParameter, match="directory of that name"):
            await client.call(RequestCode.UPDATE_BROKER_CONFIG, body=text)
