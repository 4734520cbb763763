"""Settings of a controller inside a NameServer: from all sources of the NameServer, and its own."""

import logging

import pytest

from bolide.cli import name_server
from bolide.controller.config import ControllerConfig
from bolide.logs import LogLevel

ENABLED = {"enableControllerInNamesrv": "true"}


def loaded(file: dict[str, str], chosen: dict[str, str] | None = None) -> ControllerConfig:
    texts = name_server.all_texts(ENABLED | file, LogLevel.INFO, chosen or {})
    config = name_server.load_settings(texts, strict=True)
    controller = name_server.load_controller(config, texts)
    assert controller is not None
    return controller


@pytest.mark.parametrize("prefix", ["BOLIDE_CONTROLLER", "BOLIDE_NAMESRV"])
def test_a_controller_in_a_name_server_has_settings_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    monkeypatch.setenv(f"{prefix}_CONTROLLER_RAFT_PASSWORD", "correct-horse")
    monkeypatch.setenv(f"{prefix}_CONTROLLER_D_LEGER_PEERS", "n0-127.0.0.1:5555")
    monkeypatch.setenv(f"{prefix}_ENABLE_ELECT_UNCLEAN_MASTER", "true")

    config = loaded({"controllerDLegerPeers": "n0-127.0.0.1:6666"})

    assert config.controller_raft_password == "correct-horse"
    assert config.own.address == "127.0.0.1:5555"
    assert config.enable_elect_unclean_master


def test_the_command_line_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOLIDE_CONTROLLER_CONTROLLER_D_LEGER_SELF_ID", "n8")
    monkeypatch.setenv("BOLIDE_NAMESRV_CONTROLLER_D_LEGER_SELF_ID", "n7")
    assert loaded({"controllerDLegerSelfId": "n6"}).own.id == "n8"
    assert loaded({}, {"controllerDLegerSelfId": "n9"}).own.id == "n9"


def test_a_variable_for_what_both_have_in_common_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BOLIDE_CONTROLLER_TLS_KEY_PASSWORD", "secret-word")
    monkeypatch.setenv("BOLIDE_CONTROLLER_CONTROLLER_RAFT_PASSWORD", "correct-horse")
    caplog.set_level(logging.WARNING)

    assert loaded({}).tls_key_password is None

    (message,) = caplog.messages
    assert message.startswith("BOLIDE_CONTROLLER_TLS_KEY_PASSWORD has no effect")
    assert "BOLIDE_NAMESRV_TLS_KEY_PASSWORD" in message
    assert "secret-word" not in message
