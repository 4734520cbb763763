"""The settings of a controller under RocketMQ's keys."""

import pytest

from bolide.config import load, options_of
from bolide.controller.config import ALL_IGNORED, ControllerConfig
from bolide.errors import ConfigError

THREE = "n0-127.0.0.1:9878;n1-127.0.0.1:9888;n2-localhost:9898"


def config(**texts: str) -> ControllerConfig:
    return load(ControllerConfig, texts, ignored=ALL_IGNORED, strict=True)


def test_peers_serve_on_their_port_and_run_raft_on_another() -> None:
    found = config(controllerDLegerPeers=THREE, controllerDLegerSelfId="n1")
    assert [each.id for each in found.peers] == ["n0", "n1", "n2"]
    assert found.own.address == "127.0.0.1:9888"
    assert found.own.raft_address == found.raft_bind == "127.0.0.1:9988"
    assert found.server_config().port == 9888
    found.check()


@pytest.mark.parametrize(
    ("peers", "reason"),
    [
        ("", "names no controller"),
        ("127.0.0.1:9878", "id-host:port"),
        ("n0-127.0.0.1", "host:port"),
        ("n0-a:1;n0-b:2", "n0 is there twice"),
        ("n0-a:1;n1-a:1", "a:1 is there twice"),
        ("n0-127.0.0.1:65500", "out of range"),
        ("n1-127.0.0.1:9878", "no such id"),
    ],
)
def test_bad_peers_are_refused_by_name(peers: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        config(controllerDLegerPeers=peers)


def test_an_open_raft_port_on_the_network_is_refused() -> None:
    peers = "n0-10.0.0.1:9878;n1-10.0.0.2:9878"
    with pytest.raises(ConfigError, match="Set controllerRaftPassword"):
        config(controllerDLegerPeers=peers).check()
    protected = config(controllerDLegerPeers=peers, controllerRaftPassword="hush")
    protected.check()
    assert protected.server_config().host == "10.0.0.1"
    assert "hush" not in repr(protected)


def test_one_address_listens_elsewhere_if_told_so() -> None:
    found = config(
        controllerDLegerPeers="n0-c0.example:9878",
        controllerRaftPassword="x",
        bindAddress="0.0.0.0",
    )
    assert found.server_config().host == "0.0.0.0"
    assert found.raft_bind == "0.0.0.0:9978"


def test_lease_and_heartbeat_follow_from_the_expiry() -> None:
    times = config(controllerBrokerExpiredTime="10000").times
    assert (times.expiry, times.lease, times.heartbeat) == (10.0, 9.0, 1.5)
    assert times.lease_over < times.expiry


def test_no_key_is_both_honoured_and_ignored() -> None:
    assert not options_of(ControllerConfig).keys() & ALL_IGNORED.keys()


def test_every_setting_is_explained_in_a_sentence() -> None:
    for key, found in options_of(ControllerConfig).items():
        assert found.doc.endswith("."), key
