"""Broker settings loaded from RocketMQ's broker.conf, and the part of the store."""

import logging
import socket
from pathlib import Path

import pytest

from bolide.broker.settings.config import (
    ALL_IGNORED,
    BrokerConfig,
    check,
    keys_of,
    load_settings,
)
from bolide.config import options_of, to_texts
from bolide.errors import ConfigError
from bolide.store.config import FlushMode, StoreConfig

SAMPLE = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerId": "0",
    "deleteWhen": "04",
    "fileReservedTime": "48",
    "brokerRole": "ASYNC_MASTER",
    "flushDiskType": "SYNC_FLUSH",
    "namesrvAddr": "10.0.0.1:9876; 10.0.0.2:9876",
}

# Keys of 5.3 that have an effect here; those whose default depends on the machine have none.
ROCKETMQ_DEFAULTS = {
    "brokerClusterName": "DefaultCluster",
    "brokerId": "0",
    "brokerRole": "ASYNC_MASTER",
    "listenPort": "10911",
    "haListenPort": "10912",
    "brokerPermission": "6",
    "autoCreateTopicEnable": "true",
    "defaultTopicQueueNums": "8",
    "autoCreateSubscriptionGroup": "true",
    "clusterTopicEnable": "true",
    "brokerTopicEnable": "true",
    "traceTopicEnable": "false",
    "msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC",
    "traceOn": "true",
    "regionId": "DefaultRegion",
    "slaveReadEnable": "false",
    "longPollingEnable": "true",
    "shortPollingTimeMills": "1000",
    "notifyConsumerIdsChangedEnable": "true",
    "flushConsumerOffsetInterval": "5000",
    "registerNameServerPeriod": "30000",
    "registerBrokerTimeoutMills": "24000",
    "forceRegister": "true",
    "compressedRegister": "false",
    "litePullMessageEnable": "true",
    "rejectPullConsumerEnable": "false",
    "useServerSideResetOffset": "true",
    "startAcceptSendRequestTimeStamp": "0",
    "channelExpiredTimeout": "120000",
    "defaultMessageRequestMode": "PULL",
    "defaultPopShareQueueNum": "-1",
    "serverLoadBalancerEnable": "true",
    "loadBalancePollNameServerInterval": "30000",
    "maxStatsIdleTimeInMinutes": "-1",
    "configBlackList": "configBlackList;brokerConfigPath",
    "serverChannelMaxIdleTimeSeconds": "120",
    "connectTimeoutMillis": "3000",
    "useTLS": "false",
    "haSendHeartbeatInterval": "5000",
    "haHousekeepingInterval": "20000",
    "haTransferBatchSize": "32768",
    "haMaxGapNotInSync": "268435456",
    "slaveTimeout": "3000",
    "minInSyncReplicas": "1",
    "syncFromLastFile": "false",
    "asyncLearner": "false",
    "enableSlaveActingMaster": "false",
    "enableControllerMode": "false",
    "brokerElectionPriority": "2147483647",
}

# Some keys of each feature that is not implemented.
PASSED_OVER = (
    "sendMessageThreadPoolNums", "waitTimeMillsInSendQueue", "brokerFastFailureEnable",
    "haFlowControlEnable", "enableAutoInSyncReplicas", "dLegerGroup", "transactionOpMsgMaxSize",
    "popCkMaxBufferSize", "enableCalcFilterBitMap", "commercialEnable", "lockInStrictMode",
    "subscriptionExpiredTimeout", "disableConsumeIfConsumerReadSlowly", "enableLmq",
    "transientStorePoolEnable", "duplicationEnable", "offsetCheckInSlave",
    "osPageCacheBusyTimeOutMills",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _no_name_servers_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


def test_the_defaults_are_those_of_rocketmq() -> None:
    texts = to_texts(BrokerConfig())
    assert {key: texts.get(key) for key in ROCKETMQ_DEFAULTS} == ROCKETMQ_DEFAULTS


def test_a_broker_conf_is_split_between_broker_and_store(caplog: pytest.LogCaptureFixture) -> None:
    broker, store = load_settings(SAMPLE, strict=True)
    assert broker.broker_name == "broker-a"
    assert broker.name_servers == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert store.flush_mode is FlushMode.SYNC
    assert store.file_reserved_hours == 48
    assert not caplog.records


def test_no_key_means_two_things() -> None:
    broker, store = keys_of(BrokerConfig), keys_of(StoreConfig)
    assert not broker & store
    assert not (broker | store) & ALL_IGNORED.keys()


@pytest.mark.parametrize("key", PASSED_OVER)
def test_a_key_without_effect_is_logged_once_with_the_reason(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    load_settings({key: "1"}, strict=True)
    assert caplog.messages == [f"{key} has no effect: {ALL_IGNORED[key].reason}"]


@pytest.mark.parametrize(
    ("wrong", "right"), [("brokerNam", "brokerName"), ("flushDiskTyp", "flushDiskType")]
)
def test_a_misspelt_key_is_logged_with_the_nearest_known_one(
    wrong: str, right: str, caplog: pytest.LogCaptureFixture
) -> None:
    load_settings({wrong: "x"})
    assert caplog.messages == [f"unknown key {wrong} is ignored; did you mean {right}?"]
    with pytest.raises(ConfigError, match=right):
        load_settings({wrong: "x"}, strict=True)


def test_a_wrong_value_of_the_store_is_named() -> None:
    with pytest.raises(ConfigError, match="fileReservedTime='soon'"):
        load_settings({"fileReservedTime": "soon"})


def test_name_servers_come_from_the_environment_unless_they_are_set() -> None:
    around = {"NAMESRV_ADDR": "ns:9876"}
    assert load_settings({}, environment=around)[0].name_servers == ("ns:9876",)
    given = load_settings({"namesrvAddr": "other:1"}, environment=around)
    assert given[0].name_servers == ("other:1",)


@pytest.mark.parametrize(
    "key", [key for key in options_of(StoreConfig) if key.startswith("maxTransfer")]
)
def test_rocketmqs_limits_of_a_pull_count_as_soon_as_one_is_given(key: str) -> None:
    assert not load_settings({})[0].transfer_limits_given
    assert load_settings({key: "64"})[0].transfer_limits_given
    assert not load_settings({key: "64", "transferLimitsGiven": "false"})[0].transfer_limits_given


def test_a_pull_may_be_larger_than_rocketmqs_by_default() -> None:
    config = BrokerConfig()
    assert (config.max_pull_count, config.max_pull_bytes) == (1024, 1024 * 1024)


def test_a_broker_is_named_after_its_host_and_announces_where_it_listens() -> None:
    config = BrokerConfig(bind_address="127.0.0.1", listen_port=20911)
    assert config.broker_name == socket.gethostname()
    assert (config.broker_ip1, config.broker_ip2) == ("127.0.0.1", "127.0.0.1")
    assert config.ha_listen_port == 20912


def test_announced_addresses_can_be_set() -> None:
    texts = {"brokerIP1": "203.0.113.7", "brokerIP2": "10.0.0.7", "haListenPort": "7"}
    config, _ = load_settings(texts)
    assert (config.broker_ip1, config.broker_ip2) == ("203.0.113.7", "10.0.0.7")
    assert config.ha_listen_port == 7
    assert load_settings({"brokerIP1": "203.0.113.7"})[0].broker_ip2 == "203.0.113.7"


def test_a_broker_on_all_addresses_announces_one_that_others_can_connect_to() -> None:
    assert BrokerConfig(bind_address="0.0.0.0").broker_ip1 not in {"", "0.0.0.0", "::"}


@pytest.mark.parametrize(
    ("texts", "bound", "announced"),
    [
        ({}, "127.0.0.1", "127.0.0.1"),
        ({"bindAddress": ""}, "127.0.0.1", "127.0.0.1"),
        ({"bindAddress": "10.0.0.7"}, "10.0.0.7", "10.0.0.7"),
        ({"brokerIP1": "203.0.113.7"}, "0.0.0.0", "203.0.113.7"),
        ({"brokerIP1": "mq.example.com"}, "0.0.0.0", "mq.example.com"),
        ({"brokerIP1": "127.0.0.1"}, "127.0.0.1", "127.0.0.1"),
        ({"brokerIP1": "localhost"}, "127.0.0.1", "localhost"),
        ({"brokerIP1": "203.0.113.7", "bindAddress": "10.0.0.7"}, "10.0.0.7", "203.0.113.7"),
        ({"brokerIP1": "203.0.113.7", "bindAddress": "127.0.0.1"}, "127.0.0.1", "203.0.113.7"),
    ],
)
def test_a_broker_listens_on_loopback_unless_it_is_to_be_reached_from_elsewhere(
    texts: dict[str, str], bound: str, announced: str
) -> None:
    config, _ = load_settings(texts)
    assert (config.bind_address, config.broker_ip1) == (bound, announced)
    assert config.server_config().host == bound


def test_a_broker_with_access_control_listens_on_every_interface() -> None:
    config = BrokerConfig(authentication_enabled=True)
    assert config.bind_address == "0.0.0.0"
    assert config.broker_ip1 not in {"", "0.0.0.0"}
    assert BrokerConfig(authentication_enabled=True, bind_address="::1").bind_address == "::1"


@pytest.mark.parametrize("key", ["brokerName", "brokerClusterName", "msgTraceTopicName"])
@pytest.mark.parametrize("name", ["../x", "a/b", "..", ".x", "a b", "a\nb", "a\0b"])
def test_a_name_that_is_a_topic_too_is_no_path(key: str, name: str) -> None:
    with pytest.raises(ConfigError, match=key):
        load_settings({key: name})


def test_the_vip_port_lies_two_below() -> None:
    config = BrokerConfig(listen_port=10911)
    assert (config.server_config().port, config.server_config(-2).port) == (10911, 10909)
    assert BrokerConfig(listen_port=0).server_config(-2).port == 0
    with pytest.raises(ConfigError, match="listenPort=2"):
        check(BrokerConfig(listen_port=2))


def test_name_servers_are_called_over_tls_if_configured() -> None:
    plain, _ = load_settings({})
    secret, _ = load_settings({"useTLS": "true", "tls.client.trustCertPath": "/ca.pem"})
    assert plain.client_config().tls is None
    tls = secret.client_config().tls
    assert tls is not None
    assert tls.trust == Path("/ca.pem")


def test_durations_are_seconds_here_and_milliseconds_in_files() -> None:
    config, _ = load_settings({"flushConsumerOffsetInterval": "2500"})
    assert config.consumer_offsets_interval == 2.5
    assert to_texts(config)["flushConsumerOffsetInterval"] == "2500"


def test_nothing_is_said_of_a_plain_start(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        load_settings({})
    assert not caplog.records
