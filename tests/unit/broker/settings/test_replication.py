"""Settings of roles, replication and controller mode, and files for DLedger."""

import logging
from pathlib import Path

import pytest

from bolide.broker.settings.config import BrokerConfig, BrokerRole, check, load_settings
from bolide.broker.settings.replication import understand_dledger
from bolide.config import fixed_keys
from bolide.errors import ConfigError
from bolide.replication.acknowledgement import AckPolicy, Rule
from tests.support.certificates import Authority


@pytest.fixture(autouse=True)
def _no_name_servers_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


def loaded(**texts: str) -> BrokerConfig:
    return load_settings(texts, strict=True)[0]


# ---- roles


@pytest.mark.parametrize(
    ("role", "number"),
    [("ASYNC_MASTER", "0"), ("SYNC_MASTER", "0"), ("SLAVE", "1"), ("SLAVE", "7")],
)
def test_a_role_needs_the_id_that_belongs_to_it(role: str, number: str) -> None:
    config = loaded(brokerRole=role, brokerId=number)
    assert (config.broker_role, config.broker_id) == (BrokerRole[role], int(number))


@pytest.mark.parametrize(
    ("role", "number"), [("ASYNC_MASTER", "1"), ("SYNC_MASTER", "2"), ("SLAVE", "0")]
)
def test_a_role_with_the_id_of_another_is_refused(role: str, number: str) -> None:
    with pytest.raises(ConfigError, match=f"brokerRole={role}, brokerId={number}: a master has"):
        loaded(brokerRole=role, brokerId=number)


@pytest.mark.parametrize(
    "texts",
    [
        {"enableControllerMode": "true", "controllerAddr": "127.0.0.1:9878;nonsense"},
        {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": "nonsense"},
    ],
)
def test_an_address_that_is_none_is_named(texts: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="'nonsense' is not an address of the form host:port"):
        loaded(**texts)


def test_a_role_that_controllers_decide_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    loaded(
        enableControllerMode="true", controllerAddr="127.0.0.1:9878", brokerRole="SLAVE",
        brokerId="3",
    )  # fmt: skip
    assert "brokerId, brokerRole: without effect" in caplog.text


def test_controller_mode_needs_controllers() -> None:
    with pytest.raises(ConfigError, match="set controllerAddr"):
        loaded(enableControllerMode="true")
    config = loaded(enableControllerMode="true", controllerAddr="a:9878;b:9878")
    assert config.controller_addr == ("a:9878", "b:9878")


# ---- acknowledgement


@pytest.mark.parametrize(
    ("texts", "policy"),
    [
        ({}, AckPolicy(Rule.ONE_SLAVE)),
        ({"inSyncReplicas": "3"}, AckPolicy(Rule.COUNT, 3)),
        ({"inSyncReplicas": "1"}, AckPolicy(Rule.COUNT, 1)),
    ],
)
def test_a_sync_master_waits_for_one_slave_unless_a_number_is_given(
    texts: dict[str, str], policy: AckPolicy
) -> None:
    assert loaded(brokerRole="SYNC_MASTER", **texts).ack_policy == policy


@pytest.mark.parametrize(
    ("texts", "policy"),
    [
        ({}, AckPolicy(Rule.SYNC_STATE_SET)),
        ({"inSyncReplicas": "2"}, AckPolicy(Rule.SYNC_STATE_SET)),
        ({"allAckInSyncStateSet": "false"}, AckPolicy(Rule.COUNT, 1)),
        ({"allAckInSyncStateSet": "false", "inSyncReplicas": "2"}, AckPolicy(Rule.COUNT, 2)),
    ],
)
def test_in_controller_mode_the_whole_sync_state_set_has_a_message_unless_less_is_asked_for(
    texts: dict[str, str], policy: AckPolicy
) -> None:
    config = loaded(enableControllerMode="true", controllerAddr="a:9878", **texts)
    assert config.ack_policy == policy


# ---- the HA port


def test_allowed_replicas_are_addresses_or_networks() -> None:
    config = loaded(haAllowedReplicas="10.0.0.5; 10.1.0.0/16 ;fd00::/8")
    assert config.ha_allowed_replicas == ("10.0.0.5", "10.1.0.0/16", "fd00::/8")
    with pytest.raises(ConfigError, match="haAllowedReplicas=slave-1: not an IP address"):
        loaded(haAllowedReplicas="slave-1")


def test_replication_over_tls_needs_certificates_on_both_sides(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.sign("broker")
    server = {
        "tls.server.certPath": str(pair.certificate),
        "tls.server.keyPath": str(pair.key),
        "tls.server.trustCertPath": str(authority.certificate),
    }
    client = {
        "tls.enable": "true",
        "tls.client.certPath": str(pair.certificate),
        "tls.client.keyPath": str(pair.key),
        "tls.client.trustCertPath": str(authority.certificate),
    }
    assert loaded(haTlsEnable="true", **server, **client).ha_tls_enable
    for lacking in ({}, server, client):
        with pytest.raises(ConfigError, match="haTlsEnable=true: replicas verify each other"):
            loaded(haTlsEnable="true", **lacking)
    for key in ("tls.server.trustCertPath", "tls.client.trustCertPath", "tls.client.certPath"):
        given = {**server, **client}
        del given[key]
        with pytest.raises(ConfigError):
            loaded(haTlsEnable="true", **given)


@pytest.mark.parametrize("key", ["haAllowedReplicas", "haTlsEnable", "haMasterAddress"])
def test_what_opens_the_log_to_others_is_set_in_the_file_only(key: str) -> None:
    assert key in fixed_keys(BrokerConfig, {})


# ---- DLedger


DLEDGER = {
    "enableDLegerCommitLog": "true",
    "dLegerGroup": "RaftNode00",
    "dLegerPeers": "n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913",
    "dLegerSelfId": "n0",
    "namesrvAddr": "127.0.0.1:9876",
}


def test_a_file_for_dledger_asks_for_a_group_in_controller_mode(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "bolide.broker.settings.replication")
    config = load_settings({**DLEDGER, "sendMessageThreadPoolNums": "16"}, strict=True)[0]

    assert config.enable_controller_mode
    assert config.broker_name == "RaftNode00"
    assert config.controller_addr == ("127.0.0.1:9878",)
    assert config.min_in_sync_replicas == 2
    assert config.ack_policy == AckPolicy(Rule.SYNC_STATE_SET)
    told, other = caplog.messages
    assert "joins group RaftNode00 in controller mode" in told
    assert "minInSyncReplicas=2" in told
    assert "sendMessageThreadPoolNums" in other


def test_each_name_server_is_expected_to_have_a_controller_of_one_quorum(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = {"namesrvAddr": "10.0.0.1:9876; [fd00::1]:9870;"}
    assert understand_dledger(DLEDGER | names)["controllerAddr"] == "10.0.0.1:9878;[fd00::1]:9872"
    assert "They must be one quorum" in caplog.text and "controllerDLegerPeers" in caplog.text
    caplog.clear()
    understand_dledger(DLEDGER)
    understand_dledger(DLEDGER | names | {"controllerAddr": "a:1;b:1"})
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


def test_what_is_set_explicitly_is_kept() -> None:
    own = {"brokerName": "a", "minInSyncReplicas": "1", "controllerAddr": "c:1"}
    found = understand_dledger(DLEDGER | own)
    assert {key: found[key] for key in own} == own


def test_a_group_of_two_goes_on_with_one() -> None:
    peers = {"dLegerPeers": "n0-127.0.0.1:40911;n1-127.0.0.1:40912"}
    assert understand_dledger(DLEDGER | peers)["minInSyncReplicas"] == "1"


@pytest.mark.parametrize(
    "change",
    [{"dLegerGroup": ""}, {"dLegerPeers": " "}, {"dLegerSelfId": "n7"}, {"dLegerSelfId": ""}],
)
def test_an_incomplete_group_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="set dLegerGroup, dLegerPeers"):
        load_settings(DLEDGER | change)


def test_a_group_without_name_servers_needs_controllers() -> None:
    with pytest.raises(ConfigError, match=r"enableDLegerCommitLog=true: .*namesrvAddr .*-n"):
        load_settings({key: text for key, text in DLEDGER.items() if key != "namesrvAddr"})


def test_a_group_with_an_id_for_two_is_refused() -> None:
    twice = {"dLegerPeers": "n0-127.0.0.1:40911;n0-127.0.0.1:40912"}
    with pytest.raises(ConfigError, match=r"dLegerPeers=n0-.* twice"):
        load_settings(DLEDGER | twice)


def test_name_servers_of_the_environment_count_too() -> None:
    texts = {key: text for key, text in DLEDGER.items() if key != "namesrvAddr"}
    config, _ = load_settings(texts, environment={"NAMESRV_ADDR": "ns:9876"})
    assert config.controller_addr == ("ns:9878",)


def test_settings_of_dledger_that_is_switched_off_change_nothing() -> None:
    config, _ = load_settings(DLEDGER | {"enableDLegerCommitLog": "false"})
    assert not config.enable_controller_mode
    check(config)
