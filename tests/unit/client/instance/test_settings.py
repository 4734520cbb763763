import os
from dataclasses import fields

import pytest

from bolide.client.instance.settings import (
    ClientArguments,
    ClientSettings,
    own_address,
    parse_addresses,
)
from bolide.client.producer.settings import (
    SETTING_NAMES,
    ProducerArguments,
    ProducerSettings,
)
from bolide.errors import ConfigError


def test_every_setting_is_an_argument_and_the_other_way_round() -> None:
    settings = {field.name for field in fields(ClientSettings)} - {"name_servers"}
    short_forms = {"name_server", "trust", "certificate", "key"}
    assert settings | short_forms == ClientArguments.__annotations__.keys()
    own = {field.name for field in fields(ProducerSettings)}
    assert own == SETTING_NAMES
    assert own | ClientArguments.__annotations__.keys() == ProducerArguments.__annotations__.keys()


def test_name_servers_come_as_a_text_a_list_or_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "c:1;d:2")
    assert ClientSettings.of(name_server=" a:1; b:2 ;").name_servers == ("a:1", "b:2")
    assert ClientSettings.of(name_server=["a:1", "[::1]:2"]).name_servers == ("a:1", "[::1]:2")
    assert ClientSettings.of().name_servers == ("c:1", "d:2")
    assert ClientSettings.of(name_server=()).name_servers == ()
    assert ClientSettings.of(address_server="http://x").name_servers == ()


def test_a_bad_address_is_named() -> None:
    with pytest.raises(ConfigError, match=r"name_server: 'nowhere'"):
        parse_addresses("a:1;nowhere")


def test_a_client_id_is_made_of_address_name_and_unit() -> None:
    assert ClientSettings(client_ip="10.0.0.1").client_id == "10.0.0.1@DEFAULT"
    settings = ClientSettings(client_ip="10.0.0.1", instance_name="a", unit_name="u")
    assert settings.client_id == "10.0.0.1@a@u"
    assert ClientSettings.of(name_server=()).client_ip == own_address()


def test_the_default_name_becomes_one_that_nobody_else_has() -> None:
    first, second = ClientSettings().with_own_name(), ClientSettings().with_own_name()
    assert first.instance_name.startswith(f"{os.getpid()}#")
    assert first.instance_name != second.instance_name
    assert ClientSettings(instance_name="mine").with_own_name().instance_name == "mine"


def test_a_key_without_its_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match="given together"):
        ClientSettings(access_key="a")


@pytest.mark.parametrize(
    ("name", "value"), [("call_timeout", 0), ("heartbeat_interval", -1), ("route_interval", 0)]
)
def test_a_duration_of_nothing_is_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        ClientSettings(**{name: value})  # type: ignore[arg-type]  # the keys vary


@pytest.mark.parametrize(
    ("name", "value"), [("retries", -1), ("max_message_size", 0), ("send_timeout", 0)]
)
def test_a_bad_setting_of_a_producer_is_named(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        ProducerSettings(**{name: value})  # type: ignore[arg-type]  # the keys vary
