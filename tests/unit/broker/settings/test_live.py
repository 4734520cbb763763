"""Changes of settings at run time: applied, pending until a restart, and written."""

import logging
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from bolide import properties
from bolide.broker.settings.config import ALL_IGNORED, BrokerConfig, check, load_settings
from bolide.broker.settings.live import Settings
from bolide.broker.settings.without_effect import IGNORED_IN_FILES
from bolide.config import ConfigCell, fixed_keys, read_file
from bolide.protocol.refusals import InvalidParameter, NoPermission, ServerError
from bolide.store import config as store_settings
from bolide.store.config import StoreConfig
from tests.support.aio import on_loop
from tests.support.clock import FakeClock

PEER = "10.0.0.9:4711"


class Running:
    """The settings of a broker that was started with a file."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.file = directory / "broker.conf"
        config = BrokerConfig(
            broker_name="broker-a",
            broker_config_path=self.file,
            **settings,  # type: ignore[arg-type]  # options are typed by the class
        )
        self.cell = ConfigCell(config, check)
        self.store_cell = ConfigCell(StoreConfig(root=directory / "store"), store_settings.check)
        self.settings = Settings(
            self.cell, self.store_cell, {"sendMessageThreadPoolNums": "7"}, FakeClock()
        )

    @property
    def written(self) -> dict[str, str]:
        return read_file(self.file) if self.file.exists() else {}


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path)


@on_loop
async def test_a_live_setting_of_the_broker_changes_at_once_and_is_written(
    running: Running,
) -> None:
    seen: list[BrokerConfig] = []
    running.cell.on_change(seen.append)
    change = await running.settings.update({"brokerPermission": "4"}, PEER)
    assert running.cell.value.broker_permission == 4
    assert [config.broker_permission for config in seen] == [4]
    assert running.written == {"brokerPermission": "4"}
    assert change.remark is None


@on_loop
async def test_a_live_setting_of_the_store_changes_at_once(running: Running) -> None:
    await running.settings.update({"fileReservedTime": "24"}, PEER)
    assert running.store_cell.value.file_reserved_hours == 24
    assert running.written == {"fileReservedTime": "24"}


@on_loop
async def test_a_setting_that_needs_a_restart_is_written_and_shown_but_not_applied(
    running: Running,
) -> None:
    change = await running.settings.update(
        {"brokerName": "broker-b", "flushDiskType": "SYNC_FLUSH"}, PEER
    )
    assert running.cell.value.broker_name == "broker-a"
    assert running.store_cell.value.flush_mode == "ASYNC_FLUSH"
    assert running.written == {"brokerName": "broker-b", "flushDiskType": "SYNC_FLUSH"}
    assert running.settings.texts()["brokerName"] == "broker-b"
    assert change.remark == "in effect after a restart: brokerName, flushDiskType"


@on_loop
async def test_a_pending_setting_can_be_reverted(running: Running) -> None:
    await running.settings.update({"brokerName": "broker-b"}, PEER)
    await running.settings.update({"brokerName": "broker-a"}, PEER)
    assert running.written == {"brokerName": "broker-a"}
    assert running.settings.texts()["brokerName"] == "broker-a"


@on_loop
async def test_an_unchanged_setting_is_not_written(running: Running) -> None:
    await running.settings.update({"brokerPermission": "6", "brokerName": "broker-a"}, PEER)
    assert running.written == {}


@on_loop
async def test_the_rest_of_the_file_stays_as_it_is(running: Running) -> None:
    running.file.write_text("# mine\nbrokerPermission=6\nmyOwn = 1\n")
    await running.settings.update({"brokerPermission": "2"}, PEER)
    assert running.file.read_text() == "# mine\nbrokerPermission=2\nmyOwn = 1\n"


@on_loop
async def test_a_restart_loads_the_written_settings(running: Running) -> None:
    await running.settings.update({"brokerName": "b", "fileReservedTime": "24"}, PEER)
    broker, store = load_settings(running.written, strict=True)
    assert (broker.broker_name, store.file_reserved_hours) == ("b", 24)


@on_loop
async def test_keys_without_effect_are_written_and_unknown_ones_reported(running: Running) -> None:
    change = await running.settings.update({"popCkMaxBufferSize": "9", "noSuchKey": "1"}, PEER)
    assert running.written == {"popCkMaxBufferSize": "9"}
    assert running.settings.texts()["popCkMaxBufferSize"] == "9"
    assert change.remark == (
        "known to RocketMQ, without effect here: popCkMaxBufferSize; unknown, ignored: noSuchKey"
    )


@on_loop
async def test_a_wrong_value_changes_nothing_at_all(running: Running) -> None:
    with pytest.raises(InvalidParameter, match=r"nothing is changed: .*fileReservedTime='soon'"):
        await running.settings.update({"brokerPermission": "2", "fileReservedTime": "soon"}, PEER)
    assert running.cell.value.broker_permission == 6
    assert running.written == {}


@pytest.mark.parametrize("key", ["enableDLegerCommitLog", "enableControllerMode"])
@on_loop
async def test_a_running_broker_cannot_be_made_to_seem_protected(
    running: Running, key: str
) -> None:
    with pytest.raises(NoPermission, match=f"black list: {key}"):
        await running.settings.update({key: "true"}, PEER)


@pytest.mark.parametrize(
    "key",
    sorted(fixed_keys(BrokerConfig, ALL_IGNORED | IGNORED_IN_FILES) | fixed_keys(StoreConfig)),
)
@on_loop
async def test_a_fixed_key_cannot_be_changed(running: Running, key: str) -> None:
    with pytest.raises(NoPermission, match=f"black list: {key}"):
        await running.settings.update({key: "1", "brokerPermission": "2"}, PEER)
    assert running.cell.value.broker_permission == 6
    assert running.written == {}


@on_loop
async def test_a_value_cannot_carry_a_hook_into_the_file(running: Running) -> None:
    text = "broker-x\nbrokerHooks=evil:Hook\r\nbrokerHooks=evil:Hook"
    for key in ("brokerName", "popCkMaxBufferSize", "messageStorePlugIn"):
        with suppress(InvalidParameter, NoPermission):
            await running.settings.update({key: text, f"{key}\nbrokerHooks": "evil:Hook"}, PEER)
    assert "brokerHooks" not in running.written
    assert load_settings(running.written, strict=False)[0].broker_hooks == ()


@on_loop
async def test_a_derived_setting_cannot_be_changed_on_a_worker(tmp_path: Path) -> None:
    running = Running(tmp_path, workers=2)
    with pytest.raises(NoPermission, match="listenPort"):
        await running.settings.update({"listenPort": "1"}, PEER)


@on_loop
async def test_the_black_list_can_be_longer(tmp_path: Path) -> None:
    running = Running(tmp_path, config_black_list=("namesrvAddr",))
    with pytest.raises(NoPermission):
        await running.settings.update({"namesrvAddr": "elsewhere:1"}, PEER)


@on_loop
async def test_nothing_changes_if_the_file_cannot_be_written(running: Running) -> None:
    running.file.mkdir()  # so the file cannot be written
    with pytest.raises(ServerError, match="nothing is changed"):
        await running.settings.update({"brokerPermission": "2"}, PEER)
    assert running.cell.value.broker_permission == 6


@on_loop
async def test_without_a_file_of_its_own_a_broker_writes_beside_its_tables(tmp_path: Path) -> None:
    cell = ConfigCell(BrokerConfig(), check)
    store_cell = ConfigCell(StoreConfig(root=tmp_path), store_settings.check)
    await Settings(cell, store_cell).update({"brokerPermission": "2"}, PEER)
    assert read_file(tmp_path / "config" / "broker.properties") == {"brokerPermission": "2"}


@on_loop
async def test_setting_one_of_rocketmqs_pull_limits_puts_them_in_force(running: Running) -> None:
    await running.settings.update({"maxTransferCountOnMessageInMemory": "16"}, PEER)
    assert running.cell.value.transfer_limits_given
    assert running.store_cell.value.max_transfer_count_memory == 16


@on_loop
async def test_all_keys_of_rocketmq_are_shown_with_the_values_given(running: Running) -> None:
    texts = running.settings.texts()
    assert texts["sendMessageThreadPoolNums"] == "7"
    assert texts["haTransferBatchSize"] == "32768"
    assert texts["brokerClusterName"] == "DefaultCluster"
    assert texts["mappedFileSizeCommitLog"] == "1073741824"
    assert "maxPullCount" not in texts  # not of RocketMQ, and at its default
    assert not any("Password" in key for key in texts)


@on_loop
async def test_the_version_moves_with_each_update(running: Running) -> None:
    before = running.settings.version
    await running.settings.update({"brokerPermission": "2"}, PEER)
    assert running.settings.version.counter == before.counter + 1


@on_loop
async def test_changes_are_logged_with_their_sender(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await running.settings.update({"brokerPermission": "2"}, PEER)
    assert f"{PEER} set brokerPermission=2" in caplog.messages


@on_loop
async def test_a_refused_secret_is_neither_logged_nor_named(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(NoPermission) as refused:
        await running.settings.update({"tls.client.keyPassword": "hush"}, PEER)
    assert "hush" not in caplog.text + refused.value.remark


@on_loop
async def test_a_secret_of_the_file_survives_a_change_and_its_file_is_private(
    running: Running,
) -> None:
    running.file.write_text("tls.client.keyPassword=hush\n")
    running.file.chmod(0o644)
    await running.settings.update({"brokerPermission": "2"}, PEER)
    assert running.written == {"tls.client.keyPassword": "hush", "brokerPermission": "2"}
    files = [running.file, running.file.with_name("broker.conf.bak")]
    assert [stat.S_IMODE(each.stat().st_mode) for each in files] == [0o600, 0o600]


FORGERIES = [
    "x\nlistenPort=1", "x\r\nlistenPort=1", "x\rlistenPort=1", "x\\", "x\x85listenPort=1",
    "x\u2028listenPort=1", "x\x0blistenPort=1", "x\\\nlistenPort=1", " x = #!y", "=", "\x00\x1b[2J",
]  # fmt: skip


@pytest.mark.parametrize("text", FORGERIES)
@on_loop
async def test_no_value_can_forge_a_line_of_the_answer_or_the_file(
    running: Running, text: str
) -> None:
    await running.settings.update({"regionId": text, "preferredLeaderId": text}, PEER)
    value = text.strip()
    shown = properties.render(running.settings.texts())
    assert properties.parse(shown)["regionId"] == value
    assert properties.parse(shown)["listenPort"] == "10911"
    assert len(shown.splitlines()) == len(running.settings.texts())
    assert running.written["regionId"] == value
    assert "listenPort" not in running.written
    assert load_settings(running.written)[0].region_id == value
    assert len(running.file.read_text().splitlines()) == 2


def test_a_secret_without_effect_is_never_shown(tmp_path: Path) -> None:
    cells = ConfigCell(BrokerConfig()), ConfigCell(StoreConfig(root=tmp_path))
    settings = Settings(*cells, {"socksProxyConfig": "hush"})
    assert settings.texts()["socksProxyConfig"] == "{}"
