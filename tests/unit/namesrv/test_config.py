"""The settings of a NameServer under RocketMQ's keys."""

import logging
from pathlib import Path

import pytest

from bolide.config import load, options_of, to_texts
from bolide.errors import ConfigError
from bolide.namesrv.config import ALL_IGNORED, IGNORED, NameServerConfig
from bolide.namesrv.handlers import shown_texts
from bolide.remoting.settings import find_file
from bolide.remoting.tls import ClientAuth, TlsMode
from bolide.remoting.tls_settings import tls_texts

# `NamesrvConfig` and `NettyServerConfig` with their defaults; the port is what mqnamesrv sets,
# the scan for expired brokers runs every 10 s as in 4.9 (5.x: 5 s).
ROCKETMQ_DEFAULTS = {
    "productEnvName": "center",
    "clusterTest": "false",
    "orderMessageEnable": "false",
    "returnOrderTopicConfigToBroker": "true",
    "clientRequestThreadPoolNums": "8",
    "defaultThreadPoolNums": "16",
    "clientRequestThreadPoolQueueCapacity": "50000",
    "defaultThreadPoolQueueCapacity": "10000",
    "scanNotActiveBrokerInterval": "10000",
    "unRegisterBrokerQueueCapacity": "3000",
    "supportActingMaster": "false",
    "enableAllTopicList": "true",
    "enableTopicList": "true",
    "notifyMinBrokerIdChanged": "false",
    "enableControllerInNamesrv": "false",
    "needWaitForService": "false",
    "waitSecondsForService": "45",
    "deleteTopicWithBrokerRegistration": "false",
    "configBlackList": "configBlackList;configStorePath;kvConfigPath",
    "bindAddress": "0.0.0.0",
    "listenPort": "9876",
    "serverWorkerThreads": "8",
    "serverCallbackExecutorThreads": "0",
    "serverSelectorThreads": "3",
    "serverOnewaySemaphoreValue": "256",
    "serverAsyncSemaphoreValue": "64",
    "serverChannelMaxIdleTimeSeconds": "120",
    "serverSocketSndBufSize": "0",
    "serverSocketRcvBufSize": "0",
    "writeBufferHighWaterMark": "0",
    "writeBufferLowWaterMark": "0",
    "serverSocketBacklog": "1024",
    "serverNettyWorkerGroupEnable": "true",
    "serverPooledByteBufAllocatorEnable": "true",
    "enableShutdownGracefully": "false",
    "shutdownWaitTimeSeconds": "30",
    "useEpollNativeSelector": "false",
}
CLIENT_KEYS = [
    "clientWorkerThreads", "connectTimeoutMillis", "channelNotActiveInterval",
    "scanAvailableNameSrv", "socksProxyConfig", "clientCloseSocketIfTimeout",
]  # fmt: skip
AUTH_KEYS = [
    "configName", "clusterName", "userCacheMaxNum", "userCacheExpiredSecond",
    "userCacheRefreshSecond", "aclCacheMaxNum", "aclCacheExpiredSecond", "aclCacheRefreshSecond",
    "statefulAuthenticationCacheMaxNum", "statefulAuthenticationCacheExpiredSecond",
    "statefulAuthorizationCacheMaxNum", "statefulAuthorizationCacheExpiredSecond",
    "authenticationProvider", "authenticationMetadataProvider", "authenticationStrategy",
    "authorizationProvider", "authorizationMetadataProvider", "authorizationStrategy",
]  # fmt: skip


def others() -> dict[str, str]:
    return {key: item.default for key, item in IGNORED.items()}


def test_rocketmqs_keys_are_known_with_rocketmqs_defaults() -> None:
    shown = shown_texts(NameServerConfig(), others())
    for path in ("kvConfigPath", "configStorePath", "rocketmqHome"):
        shown.pop(path, None)
    ours = {"scanNotActiveBrokerInterval": "10000", "bindAddress": "127.0.0.1"}
    assert shown == ROCKETMQ_DEFAULTS | ours


@pytest.mark.parametrize("keys", [CLIENT_KEYS, AUTH_KEYS])
def test_keys_of_rocketmqs_client_and_caches_are_passed_over_with_a_reason(
    caplog: pytest.LogCaptureFixture, keys: list[str]
) -> None:
    with caplog.at_level(logging.WARNING):
        load(NameServerConfig, dict.fromkeys(keys, "1"), ignored=ALL_IGNORED, strict=True)
    assert len(caplog.records) == len(keys)
    assert all("has no effect" in record.message for record in caplog.records)


def test_no_key_is_both_honoured_and_ignored() -> None:
    assert not options_of(NameServerConfig).keys() & ALL_IGNORED.keys()


def test_every_setting_is_explained_in_one_sentence() -> None:
    for key, found in options_of(NameServerConfig).items():
        assert found.doc.endswith("."), key


@pytest.mark.parametrize(
    ("texts", "bound"),
    [
        ({}, "127.0.0.1"),
        ({"bindAddress": "0.0.0.0"}, "0.0.0.0"),
        ({"authenticationEnabled": "true"}, "0.0.0.0"),
        ({"authenticationEnabled": "true", "bindAddress": "::1"}, "::1"),
    ],
)
def test_a_name_server_listens_on_loopback_unless_told_otherwise_or_protected(
    texts: dict[str, str], bound: str
) -> None:
    assert load(NameServerConfig, texts).server_config().host == bound


def test_settings_reach_the_server() -> None:
    texts = {
        "bindAddress": "::1",
        "listenPort": "0",
        "serverSocketBacklog": "7",
        "serverSocketSndBufSize": "8",
        "serverSocketRcvBufSize": "9",
        "writeBufferHighWaterMark": "10",
        "serverChannelMaxIdleTimeSeconds": "11",
        "serverOnewaySemaphoreValue": "12",
        "serverAsyncSemaphoreValue": "13",
        "shutdownWaitTimeSeconds": "14",
        "maxConnections": "15",
        "com.rocketmq.remoting.frameMaxLength": "2048",
    }
    server = load(NameServerConfig, texts).server_config()
    assert (server.host, server.port, server.backlog) == ("::1", 0, 7)
    assert (server.send_buffer, server.receive_buffer, server.write_high_water) == (8, 9, 10)
    assert (server.idle_timeout, server.max_one_way_calls, server.max_calls) == (11, 12, 13)
    assert (server.drain_timeout, server.max_connections, server.max_frame_size) == (14, 15, 2048)


def test_tls_settings_reach_the_server() -> None:
    texts = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": "/c.pem",
        "tls.server.keyPath": "/k.pem",
        "tls.server.keyPassword": "secret",
        "tls.server.trustCertPath": "/t.pem",
        "tls.server.need.client.auth": "require",
    }
    tls = load(NameServerConfig, texts).server_config().tls
    assert (tls.mode, tls.client_auth) == (TlsMode.ENFORCING, ClientAuth.REQUIRE)
    assert tls.files == [Path("/c.pem"), Path("/k.pem"), Path("/t.pem")]
    assert tls.key_password == "secret"


def test_enforcing_tls_needs_a_certificate() -> None:
    config = load(NameServerConfig, {"tls.server.mode": "enforcing"})
    with pytest.raises(ConfigError, match=r"tls\.server\.certPath"):
        config.server_config()


def test_required_client_certificates_need_trusted_certificates() -> None:
    config = load(NameServerConfig, {"tls.server.need.client.auth": "require"})
    with pytest.raises(ConfigError, match=r"tls\.server\.trustCertPath"):
        config.server_config()


@pytest.mark.parametrize(
    ("key", "text", "bound"),
    [
        ("listenPort", "65536", "from 0 to 65535"),
        ("listenPort", "many", "whole number"),
        ("scanNotActiveBrokerInterval", "9", "from 10 to 86400000"),
        ("serverChannelMaxIdleTimeSeconds", "0", "from 1 to 86400"),
        ("orderMessageEnable", "yes", "true or false"),
        ("tls.server.mode", "loose", "disabled, permissive, enforcing"),
        ("logLevel", "LOUD", "DEBUG, INFO, WARNING, ERROR"),
    ],
)
def test_a_wrong_value_names_key_value_and_bound(key: str, text: str, bound: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(NameServerConfig, {key: text})
    assert key in str(caught.value)
    assert text in str(caught.value)
    assert bound in str(caught.value)


def test_durations_are_milliseconds_in_files_and_seconds_inside() -> None:
    config = load(NameServerConfig, {"scanNotActiveBrokerInterval": "2500"})
    assert config.scan_not_active_broker_interval == 2.5
    assert to_texts(config)["scanNotActiveBrokerInterval"] == "2500"


def test_our_own_keys_are_shown_only_where_they_were_changed() -> None:
    assert "maxConnections" not in shown_texts(NameServerConfig(), {})
    assert shown_texts(NameServerConfig(max_connections=5), {})["maxConnections"] == "5"


def test_the_password_of_the_key_is_never_shown() -> None:
    config = NameServerConfig(tls_certificate=Path("/c.pem"), tls_key_password="secret")
    assert "secret" not in shown_texts(config, {}).values()


def test_a_configuration_file_is_searched_in_the_home_directory(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "namesrv.conf").touch()
    home = str(tmp_path)
    assert find_file(Path("namesrv.conf"), home) == tmp_path / "conf" / "namesrv.conf"
    assert find_file(Path("other.conf"), home) == Path("other.conf")
    assert find_file(Path("/etc/none.conf"), home) == Path("/etc/none.conf")
    assert find_file(Path("namesrv.conf"), None) == Path("namesrv.conf")


def test_keys_of_a_tls_file_are_used_except_the_test_mode(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.server.mode=enforcing\ntls.client.keyPath=/x\ntls.test.mode.enable=true\n")
    assert tls_texts(file) == {"tls.server.mode": "enforcing", "tls.client.keyPath": "/x"}
