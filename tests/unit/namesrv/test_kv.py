"""The KV configuration and its file."""

import asyncio
import json
import threading
from pathlib import Path

import pytest

from bolide import snapshot
from bolide.errors import ConfigError
from bolide.namesrv.kv import KvConfig
from tests.support.aio import on_loop


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "namesrv" / "kvConfig.json"


def backup_of(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


@on_loop
async def test_a_value_that_was_put_is_found_and_on_disk(path: Path) -> None:
    kv = KvConfig(path)
    await kv.put("space", "key", "value")
    assert kv.find("space", "key") == "value"
    assert kv.find_namespace("space") == {"key": "value"}
    assert json.loads(path.read_text()) == {"configTable": {"space": {"key": "value"}}}


def test_a_missing_key_is_not_found(path: Path) -> None:
    kv = KvConfig(path)
    assert kv.find("space", "key") is None
    assert kv.find_namespace("space") is None
    assert not path.exists()


@on_loop
async def test_values_survive_a_restart(path: Path) -> None:
    await KvConfig(path).put("ORDER_TOPIC_CONFIG", "orders", "broker-a:4;broker-b:4")
    assert KvConfig(path).find("ORDER_TOPIC_CONFIG", "orders") == "broker-a:4;broker-b:4"


@on_loop
async def test_a_value_is_replaced(path: Path) -> None:
    kv = KvConfig(path)
    await kv.put("space", "key", "old")
    await kv.put("space", "key", "new")
    assert kv.find("space", "key") == KvConfig(path).find("space", "key") == "new"


@on_loop
async def test_a_deleted_key_is_gone_after_a_restart_too(path: Path) -> None:
    kv = KvConfig(path)
    await kv.put("space", "key", "value")
    await kv.put("space", "other", "stays")
    await kv.delete("space", "key")
    await kv.delete("space", "key")  # no error
    await kv.delete("nowhere", "key")
    assert (
        kv.find_namespace("space") == KvConfig(path).find_namespace("space") == {"other": "stays"}
    )


@on_loop
async def test_a_file_as_fastjson_writes_it_is_read(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{\n\t"configTable":{"space":{"key":"v\\u00e4lue"}\n\t}\n}')
    assert KvConfig(path).find("space", "key") == "välue"


@pytest.mark.parametrize("damage", [b"", b"{", b'{"configTable":{"space":{"key":"new', b"\xff\xfe"])
@on_loop
async def test_a_damaged_file_falls_back_to_its_backup(path: Path, damage: bytes) -> None:
    kv = KvConfig(path)
    await kv.put("space", "key", "old")
    await kv.put("space", "key", "new")
    path.write_bytes(damage)
    again = KvConfig(path)
    assert again.find("space", "key") == "old"
    await again.put("space", "more", "x")
    assert KvConfig(path).find_namespace("space") == {"key": "old", "more": "x"}


@on_loop
async def test_two_damaged_files_do_not_load_as_an_empty_table(path: Path) -> None:
    await KvConfig(path).put("space", "key", "old")
    path.write_bytes(b"{")
    backup_of(path).write_bytes(b"[]")
    with pytest.raises(ConfigError, match="the file and its backup are damaged"):
        KvConfig(path)


@on_loop
async def test_a_removed_file_is_not_restored_from_its_backup(path: Path) -> None:
    kv = KvConfig(path)
    await kv.put("space", "key", "old")
    await kv.put("space", "key", "new")
    path.unlink()
    assert KvConfig(path).find_namespace("space") is None


def test_a_path_that_is_a_directory_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"kvConfigPath={tmp_path}"):
        KvConfig(tmp_path)


@on_loop
async def test_a_value_that_cannot_be_written_is_not_readable(path: Path) -> None:
    kv = KvConfig(path)
    await kv.put("space", "key", "old")
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match="kvConfig"):
        await kv.put("space", "key", "new")
    assert kv.find("space", "key") == "old"


@on_loop
async def test_many_writers_at_once_lose_nothing(path: Path) -> None:
    kv = KvConfig(path)
    await asyncio.gather(*(kv.put("space", str(number), "x") for number in range(30)))
    assert len(KvConfig(path).find_namespace("space") or {}) == 30


@on_loop
async def test_a_write_of_a_cancelled_client_finishes_before_the_next_begins(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowDisk()
    monkeypatch.setattr(snapshot, "replace", slow.replace)
    kv = KvConfig(path)
    abandoned = asyncio.create_task(kv.put("space", "first", "x"))
    await asyncio.to_thread(slow.began.wait)
    abandoned.cancel()
    second = asyncio.create_task(kv.put("space", "second", "x"))
    await asyncio.sleep(0.05)  # long enough for a second writer to begin, if one could
    slow.go_on.set()
    await second
    with pytest.raises(asyncio.CancelledError):
        await abandoned
    assert not slow.overlapped
    assert kv.find_namespace("space") == KvConfig(path).find_namespace("space")
    assert kv.find_namespace("space") == {"first": "x", "second": "x"}


@on_loop
async def test_a_failed_write_of_a_cancelled_client_is_ignored(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowDisk()
    monkeypatch.setattr(snapshot, "replace", slow.replace)
    path.mkdir(parents=True)
    kv = KvConfig(path.with_name("other.json"))
    kv.path = path
    abandoned = asyncio.create_task(kv.put("space", "first", "x"))
    await asyncio.to_thread(slow.began.wait)
    abandoned.cancel()
    slow.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await abandoned
    assert kv.find_namespace("space") is None


class SlowDisk:
    """A file whose writes block until released; records whether two writers overlap."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.go_on = threading.Event()
        self.overlapped = False
        self._writers = 0
        self._replace = snapshot.replace

    def replace(self, path: Path, data: bytes) -> None:
        self._writers += 1
        self.overlapped |= self._writers > 1
        self.began.set()
        self.go_on.wait(10)
        self._replace(path, data)
        self._writers -= 1


@on_loop
async def test_the_whole_table_can_be_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kv = KvConfig(path)
    await kv.put("space", "key", "value")
    caplog.clear()
    with caplog.at_level("INFO"):
        kv.log_all()
    assert "namespace space key key value value" in caplog.text


@on_loop
async def test_the_log_has_no_value_that_is_a_secret(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    kv = KvConfig(path)
    await kv.put("N", "dbPassword", "hush")
    await kv.put("N", "size", "5")
    kv.log_all()
    assert "hush" not in caplog.text
    assert "key dbPassword value (secret)" in caplog.text
    assert "key size value 5" in caplog.text
