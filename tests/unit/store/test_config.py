"""The settings of a store under RocketMQ's keys."""

import logging
from pathlib import Path

import pytest

from bolide.config import load, options_of, to_texts
from bolide.errors import ConfigError
from bolide.store.config import IGNORED, FlushMode, StoreConfig, check, delay_levels

# `MessageStoreConfig` of 5.x with its defaults, of those keys that are honoured.
ROCKETMQ_DEFAULTS = {
    "storeType": "default",
    "mappedFileSizeCommitLog": "1073741824",
    "mappedFileSizeConsumeQueue": "6000000",
    "mapperFileSizeBatchConsumeQueue": "13800000",
    "mappedFileSizeConsumeQueueExt": "50331648",
    "maxMessageSize": "4194304",
    "enabledAppendPropCRC": "false",
    "forceVerifyPropCRC": "false",
    "checkCRCOnRecover": "true",
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "flushDiskType": "ASYNC_FLUSH",
    "syncFlushTimeout": "5000",
    "flushIntervalCommitLog": "500",
    "flushCommitLogTimed": "true",
    "flushCommitLogLeastPages": "4",
    "flushCommitLogThoroughInterval": "10000",
    "flushIntervalConsumeQueue": "1000",
    "flushConsumeQueueLeastPages": "2",
    "flushConsumeQueueThoroughInterval": "60000",
    "flushDelayOffsetInterval": "10000",
    "dataReadAheadEnable": "true",
    "enableCompaction": "true",
    "compactionMappedFileSize": "104857600",
    "compactionCqMappedFileSize": "10485760",
    "compactionScheduleInternal": "900000",
    "maxOffsetMapSize": "104857600",
    "deleteWhen": "04",
    "fileReservedTime": "72",
    "diskMaxUsedSpaceRatio": "75",
    "diskSpaceCleanForciblyRatio": "85",
    "diskSpaceWarningLevelRatio": "90",
    "cleanFileForciblyEnable": "true",
    "deleteFileBatchMax": "10",
    "deleteCommitLogFilesInterval": "100",
    "deleteConsumeQueueFilesInterval": "100",
    "destroyMapedFileIntervalForcibly": "120000",
    "cleanResourceInterval": "10000",
    "messageIndexEnable": "true",
    "messageIndexSafe": "false",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "maxMsgsNumBatch": "64",
    "defaultQueryMaxNum": "32",
    "accessMessageInMemoryMaxRatio": "40",
    "maxTransferBytesOnMessageInMemory": "262144",
    "maxTransferCountOnMessageInMemory": "32",
    "maxTransferBytesOnMessageInDisk": "65536",
    "maxTransferCountOnMessageInDisk": "8",
    "maxFilterMessageSize": "16000",
}


def test_rocketmqs_keys_have_rocketmqs_defaults() -> None:
    texts = to_texts(StoreConfig())
    for path in ("storePathRootDir", "readOnlyCommitLogStorePaths"):
        del texts[path]
    assert texts == ROCKETMQ_DEFAULTS


def test_the_defaults_go_together() -> None:
    check(StoreConfig())


def test_no_key_is_both_honoured_and_ignored() -> None:
    assert not options_of(StoreConfig).keys() & IGNORED.keys()


def test_every_setting_is_explained_in_one_sentence() -> None:
    for key, found in options_of(StoreConfig).items():
        assert found.doc.endswith("."), key


@pytest.mark.parametrize(
    "key", ["transientStorePoolEnable", "warmMapedFileEnable", "commitIntervalCommitLog"]
)
def test_what_the_store_needs_not_is_passed_over_with_a_reason(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        load(StoreConfig, {key: "1"}, ignored=IGNORED, strict=True)
    assert caplog.messages == [f"{key} has no effect: {IGNORED[key].reason}"]


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("mapedFileSizeCommitLog", "commit_log_file_size"),
        ("mapedFileSizeConsumeQueue", "consume_queue_file_size"),
    ],
)
def test_spellings_of_4_0_to_4_5_are_taken(key: str, field: str) -> None:
    assert getattr(load(StoreConfig, {key: "8000"}, strict=True), field) == 8000


@pytest.mark.parametrize(("given", "size"), [(20, 20), (21, 40), (6_000_001, 6_000_020)])
def test_a_consume_queue_file_holds_whole_units(given: int, size: int) -> None:
    assert StoreConfig(consume_queue_file_size=given).consume_queue_file_size == size


def test_durations_are_seconds_and_ratios_parts_of_one() -> None:
    texts = {"flushIntervalCommitLog": "20", "diskMaxUsedSpaceRatio": "60"}
    config = load(StoreConfig, texts)
    assert (config.flush_interval, config.disk_max_used_ratio) == (0.02, 0.6)
    assert to_texts(config).items() >= texts.items()


def test_sync_flush_is_asked_for_by_its_name() -> None:
    assert load(StoreConfig, {"flushDiskType": "SYNC_FLUSH"}).flush_mode is FlushMode.SYNC


def test_the_commit_log_is_below_the_root_unless_said_otherwise(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path)
    assert config.log_directories == config.new_log_directories == (tmp_path / "commitlog",)
    config = load(StoreConfig, {"storePathCommitLog": "/log"})
    assert config.log_directories == config.new_log_directories == (Path("/log"),)


def test_new_files_go_into_all_directories_but_the_read_only_ones() -> None:
    texts = {"storePathCommitLog": "/c,/a,/b", "readOnlyCommitLogStorePaths": "/b,/old"}
    config = load(StoreConfig, texts)
    assert set(config.log_directories) == {Path("/a"), Path("/b"), Path("/c"), Path("/old")}
    assert config.new_log_directories == (Path("/a"), Path("/c"))


def test_files_go_at_the_hours_named() -> None:
    config = load(StoreConfig, {"deleteWhen": "04; 16;5"})
    check(config)
    assert config.delete_hours == {4, 5, 16}


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        ({"deleteWhen": "04;24"}, "deleteWhen: '24'"),
        ({"deleteWhen": "night"}, "deleteWhen: 'night'"),
        (
            {"diskSpaceCleanForciblyRatio": "85", "diskSpaceWarningLevelRatio": "84"},
            "diskSpaceCleanForciblyRatio",
        ),
        ({"maxIndexNum": "107374182"}, "maxIndexNum"),
        (
            {"storePathCommitLog": "/a", "readOnlyCommitLogStorePaths": "/a,/b"},
            "readOnlyCommitLogStorePaths",
        ),
        ({"messageDelayLevel": "1s 5x"}, "messageDelayLevel: '5x'"),
    ],
)
def test_values_that_do_not_go_together_are_refused(texts: dict[str, str], named: str) -> None:
    config = load(StoreConfig, texts)
    with pytest.raises(ConfigError) as caught:
        check(config)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("diskMaxUsedSpaceRatio", "96"),
        ("diskSpaceCleanForciblyRatio", "86"),
        ("diskSpaceWarningLevelRatio", "34"),
        ("mappedFileSizeCommitLog", "2147483648"),
        ("flushDiskType", "NO_FLUSH"),
        ("storeType", "defaultRocksDB"),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_its_key(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=key):
        load(StoreConfig, {key: text})


def test_delay_levels_are_milliseconds_from_level_one() -> None:
    assert delay_levels("1s  5m 2h 1d") == (0, 1000, 300_000, 7_200_000, 86_400_000)
    assert len(delay_levels(StoreConfig().message_delay_level)) == 19


@pytest.mark.parametrize("text", ["", " ", "s", "1", "-1s", "1.5s", "1 s", "1S", "1ms"])
def test_what_is_no_delay_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="messageDelayLevel"):
        delay_levels(text)
