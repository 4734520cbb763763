"""Settings that requests change: written first, then applied; refused as a whole."""

import asyncio
import logging
from pathlib import Path

import pytest

from bolide import properties
from bolide.config import ConfigCell, fixed_keys
from bolide.controller.config import ControllerConfig
from bolide.namesrv.config import NameServerConfig
from bolide.protocol.refusals import InvalidParameter, NoPermission, Refusal, ServerError
from bolide.remoting.live_settings import LiveSettings
from tests.support.aio import on_loop

PEER = "127.0.0.1:40000"


def settings_in(directory: Path) -> LiveSettings[ControllerConfig]:
    config = ControllerConfig(config_store_path=directory / "controller.properties")
    return LiveSettings(
        ConfigCell(config),
        {"metricsLabel": ""},
        secrets={"controllerRaftPassword"},
        fixed=fixed_keys(ControllerConfig),
    )


@on_loop
async def test_a_change_is_written_and_in_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_in(tmp_path)
    caplog.set_level(logging.INFO)

    await settings.update(b"enableElectUncleanMaster=true\nmetricsLabel=a\nnobody=1\n", PEER)

    assert settings.config.enable_elect_unclean_master
    assert settings.others == {"metricsLabel": "a"}
    written = settings.config.config_store_path.read_text(encoding="utf-8")
    assert sorted(written.split()) == ["enableElectUncleanMaster=true", "metricsLabel=a"]
    assert f"{PEER} set enableElectUncleanMaster=true, in effect now" in caplog.messages
    assert f"{PEER} set nobody, which has no effect here" in caplog.messages


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"notifyBrokerRoleChanged=false\nlistenPort=1", NoPermission, "listenPort; nothing is"),
        (b"notifyBrokerRoleChanged=false\nconfigStorePath=/x", NoPermission, "configStorePath"),
        (b"notifyBrokerRoleChanged=false\nlogLevel=loud", InvalidParameter, "logLevel"),
    ],
)
@on_loop
async def test_a_refused_change_changes_nothing(
    tmp_path: Path, body: bytes, kind: type[Refusal], text: str
) -> None:
    settings = settings_in(tmp_path)

    with pytest.raises(kind, match=text):
        await settings.update(body, PEER)

    assert settings.config.notify_broker_role_changed
    assert not settings.config.config_store_path.exists()


@on_loop
async def test_two_servers_of_one_process_lose_no_change_of_their_common_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "namesrv.properties"
    names = LiveSettings(
        ConfigCell(NameServerConfig(config_store_path=path)), {}, secrets=(), fixed=()
    )
    controller = LiveSettings(
        ConfigCell(ControllerConfig(config_store_path=path)), {}, secrets=(), fixed=()
    )
    for number in range(20):
        waits = properties.render({"waitSecondsForService": str(46 + number)}).encode()
        unclean = b"enableElectUncleanMaster=" + (b"false" if number % 2 else b"true")
        await asyncio.gather(names.update(waits, PEER), controller.update(unclean, PEER))
        assert properties.parse(path.read_text(encoding="utf-8")) == {
            "waitSecondsForService": str(names.config.wait_seconds_for_service),
            "enableElectUncleanMaster": str(controller.config.enable_elect_unclean_master).lower(),
        }


@on_loop
async def test_a_change_that_cannot_be_written_is_not_in_effect(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    settings.config.config_store_path.mkdir()

    with pytest.raises(ServerError, match="nothing is changed"):
        await settings.update(b"enableElectUncleanMaster=true", PEER)

    assert not settings.config.enable_elect_unclean_master
