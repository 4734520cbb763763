"""Settings of the store, under RocketMQ's keys (`MessageStoreConfig`)."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bolide.config import Ignored, Unit, option
from bolide.errors import ConfigError
from bolide.kernel.units import UNIT_SIZE

_INT_MAX = 2**31 - 1
_BATCH_UNIT_SIZE = 46
_DAY_MS = 86_400_000
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": _DAY_MS}
_DELAY = re.compile(r"([0-9]{1,9})([smhd])")
_HOUR = re.compile(r"[01]?[0-9]|2[0-3]")


class FlushMode(StrEnum):
    ASYNC = "ASYNC_FLUSH"
    SYNC = "SYNC_FLUSH"


class StoreType(StrEnum):
    FILES = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Settings of a store.

    Durations are seconds here and milliseconds in files, ratios 0 to 1 here and percent in files.
    """

    # Directories and file lengths
    root: Path = option(
        lambda: Path.home() / "store", "Directory of the store.", key="storePathRootDir"
    )
    commit_log_paths: tuple[Path, ...] | None = option(
        None,
        "Directories of the commit log, separated by commas; the default is commitlog in the root.",
        key="storePathCommitLog",
        separator=",",
    )
    read_only_log_paths: tuple[Path, ...] = option(
        (),
        "Directories of commit log files that are read but get no new files.",
        key="readOnlyCommitLogStorePaths",
        separator=",",
    )
    store_type: StoreType = option(
        StoreType.FILES, "Kind of the store; only the file store is supported, not RocksDB."
    )
    commit_log_file_size: int = option(
        1024**3, "Size of a commit log file in bytes.",
        key="mappedFileSizeCommitLog", aliases=("mapedFileSizeCommitLog",),
        bounds=(4096, _INT_MAX), unit=Unit.BYTES,
    )  # fmt: skip
    consume_queue_file_size: int = option(
        300_000 * UNIT_SIZE,
        "Size of a consume queue file in bytes, rounded up to whole units of 20.",
        key="mappedFileSizeConsumeQueue",
        aliases=("mapedFileSizeConsumeQueue",),
        bounds=(UNIT_SIZE, _INT_MAX - UNIT_SIZE),
        unit=Unit.BYTES,
    )
    batch_queue_file_size: int = option(
        300_000 * _BATCH_UNIT_SIZE,
        "Size of a batch consume queue file in bytes, rounded up to whole units of 46.",
        key="mapperFileSizeBatchConsumeQueue",
        bounds=(_BATCH_UNIT_SIZE, _INT_MAX - _BATCH_UNIT_SIZE),
        unit=Unit.BYTES,
    )
    queue_ext_file_size: int = option(
        48 * 1024**2, "Size of a consume queue extension file in bytes; such files are only read.",
        key="mappedFileSizeConsumeQueueExt", bounds=(1024, _INT_MAX), unit=Unit.BYTES,
    )  # fmt: skip

    # Compaction topics
    compaction_enabled: bool = option(
        True, "Whether cleanup.policy=COMPACTION has an effect; if not, such topics are plain.",
        key="enableCompaction",
    )  # fmt: skip
    compaction_file_size: int = option(
        100 * 1024**2,
        "Size of a compaction log file in bytes, rounded to a multiple of its queue file's size, at"
        " least 5 times that. Existing files keep their size.",
        key="compactionMappedFileSize", bounds=(4096, _INT_MAX // 2), unit=Unit.BYTES,
    )  # fmt: skip
    compaction_queue_file_size: int = option(
        10 * 1024**2,
        "Size of a queue file of a compaction log in bytes, rounded down to whole units of 46.",
        key="compactionCqMappedFileSize", bounds=(92, _INT_MAX // 10), unit=Unit.BYTES,
    )  # fmt: skip
    compaction_interval: float = option(
        900.0, "Milliseconds between two compactions of a queue.",
        key="compactionScheduleInternal", bounds=(1, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    offset_map_bytes: int = option(
        100 * 1024**2,
        "Memory in bytes for the keys of one pass of a compaction; more keys take more passes.",
        key="maxOffsetMapSize", bounds=(1, _INT_MAX), live=True, unit=Unit.BYTES,
    )  # fmt: skip

    # Messages
    max_message_size: int = option(
        4 * 1024**2,
        "Largest body in bytes.",
        bounds=(1, _INT_MAX - 64 * 1024),
        live=True,
        unit=Unit.BYTES,
    )
    append_record_crc: bool = option(
        False, "Append a CRC of the whole record to each record.", key="enabledAppendPropCRC"
    )
    message_delay_level: str = option(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "Delays of the levels from 1 on, in s, m, h or d, separated by spaces.",
    )

    # Flushing
    flush_mode: FlushMode = option(
        FlushMode.ASYNC, "SYNC_FLUSH acknowledges a send after its flush, ASYNC_FLUSH before.",
        key="flushDiskType",
    )  # fmt: skip
    sync_flush_timeout: float = option(
        5.0, "Most milliseconds that a send waits for its flush with SYNC_FLUSH.",
        bounds=(1, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    flush_interval: float = option(
        0.5, "Milliseconds between two flushes of the commit log with ASYNC_FLUSH.",
        key="flushIntervalCommitLog", bounds=(1, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    flush_timed: bool = option(
        True, "Flush only at the interval, not as soon as messages arrive.",
        key="flushCommitLogTimed", live=True,
    )  # fmt: skip
    flush_least_pages: int = option(
        4, "Dirty pages of the commit log below which a flush is postponed.",
        key="flushCommitLogLeastPages", bounds=(0, _INT_MAX), live=True, unit=Unit.PAGES,
    )  # fmt: skip
    flush_thorough_interval: float = option(
        10.0, "Milliseconds after which the commit log is flushed regardless of dirty pages.",
        key="flushCommitLogThoroughInterval", bounds=(0, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    queue_flush_interval: float = option(
        1.0, "Milliseconds between two flushes of the consume queues.",
        key="flushIntervalConsumeQueue", bounds=(1, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    queue_flush_least_pages: int = option(
        2, "Dirty pages of a consume queue below which its flush is postponed.",
        key="flushConsumeQueueLeastPages", bounds=(0, _INT_MAX), live=True, unit=Unit.PAGES,
    )  # fmt: skip
    queue_flush_thorough_interval: float = option(
        60.0, "Milliseconds after which consume queues are flushed regardless of dirty pages.",
        key="flushConsumeQueueThoroughInterval", bounds=(0, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    delay_offsets_interval: float = option(
        10.0, "Milliseconds between two saves of the delivery offsets of the delay levels.",
        key="flushDelayOffsetInterval", bounds=(1, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip

    data_read_ahead_enable: bool = option(
        True, "Let the system read ahead in the commit log.", live=True
    )

    # Recovery
    check_crc_on_recover: bool = option(
        True, "Verify the CRC of bodies at recovery.", key="checkCRCOnRecover"
    )
    verify_record_crc: bool = option(
        False, "Verify the CRC of whole records at recovery instead.", key="forceVerifyPropCRC"
    )

    # Retention
    delete_when: tuple[str, ...] = option(
        ("04",),
        "Hours of the day at which expired files are deleted, separated by semicolons.",
        live=True,
    )
    file_reserved_hours: int = option(
        72, "Hours that a file is retained after its last message.",
        key="fileReservedTime", bounds=(0, _INT_MAX), live=True, unit=Unit.HOURS,
    )  # fmt: skip
    disk_max_used_ratio: float = option(
        0.75, "Disk usage in percent above which expired files are deleted at any hour.",
        key="diskMaxUsedSpaceRatio", bounds=(10, 95), scale=100, live=True,
    )  # fmt: skip
    disk_clean_forcibly_ratio: float = option(
        0.85, "Disk usage in percent above which the oldest files are deleted even if not expired.",
        key="diskSpaceCleanForciblyRatio", bounds=(30, 85), scale=100, live=True,
    )  # fmt: skip
    disk_warning_ratio: float = option(
        0.90, "Disk usage in percent above which sends are refused.",
        key="diskSpaceWarningLevelRatio", bounds=(35, 90), scale=100, live=True,
    )  # fmt: skip
    clean_forcibly: bool = option(
        True, "Whether files that are not expired may be deleted.",
        key="cleanFileForciblyEnable", live=True,
    )  # fmt: skip
    delete_batch_max: int = option(
        10, "Most commit log files deleted in one round.",
        key="deleteFileBatchMax", bounds=(1, _INT_MAX), live=True,
    )  # fmt: skip
    delete_log_files_interval: float = option(
        0.1, "Milliseconds between two deletions of commit log files.",
        key="deleteCommitLogFilesInterval", bounds=(0, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    delete_queue_files_interval: float = option(
        0.1, "Milliseconds between two deletions of consume queue files.",
        key="deleteConsumeQueueFilesInterval", bounds=(0, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    destroy_forcibly_after: float = option(
        120.0, "Milliseconds that a deleted file stays open for its readers.",
        key="destroyMapedFileIntervalForcibly", bounds=(0, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    clean_interval: float = option(
        10.0, "Milliseconds between two rounds of retention.",
        key="cleanResourceInterval", bounds=(10, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip

    # The key index
    index_enabled: bool = option(
        True, "Maintain an index of message keys.", key="messageIndexEnable"
    )
    index_safe: bool = option(
        False, "Start recovery after a crash where the key index is known to be complete.",
        key="messageIndexSafe",
    )  # fmt: skip
    max_hash_slots: int = option(
        5_000_000,
        "Number of hash slots of an index file.",
        key="maxHashSlotNum",
        bounds=(1, _INT_MAX // 4),
    )
    max_index_entries: int = option(
        20_000_000,
        "Number of entries of an index file.",
        key="maxIndexNum",
        bounds=(2, _INT_MAX // 20),
    )
    max_query_batch: int = option(
        64, "Most messages that a query by key returns.",
        key="maxMsgsNumBatch", bounds=(1, _INT_MAX), live=True,
    )  # fmt: skip
    default_query_max: int = option(
        32, "Messages that a query by key returns by default.",
        key="defaultQueryMaxNum", bounds=(1, _INT_MAX), live=True,
    )  # fmt: skip

    # Read limits
    memory_ratio: float = option(
        0.40, "Percent of physical memory assumed to cache the end of the log.",
        key="accessMessageInMemoryMaxRatio", bounds=(0, 100), scale=100, live=True,
    )  # fmt: skip
    max_transfer_bytes_memory: int = option(
        256 * 1024, "Most bytes returned by a read from memory.",
        key="maxTransferBytesOnMessageInMemory", bounds=(1, _INT_MAX), live=True, unit=Unit.BYTES,
    )  # fmt: skip
    max_transfer_count_memory: int = option(
        32, "Most messages returned by a read from memory.",
        key="maxTransferCountOnMessageInMemory", bounds=(1, _INT_MAX), live=True,
    )  # fmt: skip
    max_transfer_bytes_disk: int = option(
        64 * 1024, "Most bytes returned by a read from disk.",
        key="maxTransferBytesOnMessageInDisk", bounds=(1, _INT_MAX), live=True, unit=Unit.BYTES,
    )  # fmt: skip
    max_transfer_count_disk: int = option(
        8, "Most messages returned by a read from disk.",
        key="maxTransferCountOnMessageInDisk", bounds=(1, _INT_MAX), live=True,
    )  # fmt: skip
    max_filter_bytes: int = option(
        16_000, "Most bytes of a consume queue that a filtered read examines.",
        key="maxFilterMessageSize", bounds=(UNIT_SIZE, _INT_MAX), live=True, unit=Unit.BYTES,
    )  # fmt: skip

    def __post_init__(self) -> None:
        rest = -self.consume_queue_file_size % UNIT_SIZE
        object.__setattr__(self, "consume_queue_file_size", self.consume_queue_file_size + rest)
        rest = -self.batch_queue_file_size % _BATCH_UNIT_SIZE
        object.__setattr__(self, "batch_queue_file_size", self.batch_queue_file_size + rest)

    @property
    def log_directories(self) -> tuple[Path, ...]:
        """Directories that may contain commit log files."""
        written = self.commit_log_paths or (self.root / "commitlog",)
        return tuple(dict.fromkeys((*written, *self.read_only_log_paths)))

    @property
    def new_log_directories(self) -> tuple[Path, ...]:
        """Directories of new commit log files; file n goes to number n modulo their count."""
        frozen = set(self.read_only_log_paths)
        return tuple(sorted(path for path in self.log_directories if path not in frozen))

    @property
    def delete_hours(self) -> frozenset[int]:
        return frozenset(int(word) for word in self.delete_when)


def check(config: StoreConfig) -> None:
    """Check for values that are invalid or contradict each other.

    Raises:
        ConfigError: the text names the keys.
    """
    delay_levels(config.message_delay_level)
    for word in config.delete_when:
        if not _HOUR.fullmatch(word):
            raise ConfigError(f"deleteWhen: {word!r} must be an hour from 00 to 23")
    if config.disk_clean_forcibly_ratio > config.disk_warning_ratio:
        raise ConfigError(
            "diskSpaceCleanForciblyRatio must not be above diskSpaceWarningLevelRatio:"
            " messages would be refused before files make room"
        )
    if 40 + 4 * config.max_hash_slots + 20 * config.max_index_entries > _INT_MAX:
        raise ConfigError("maxHashSlotNum and maxIndexNum make index files longer than 2 GiB")
    if not config.new_log_directories:
        raise ConfigError(
            "readOnlyCommitLogStorePaths holds every directory of storePathCommitLog:"
            " there is none for new files"
        )


def delay_levels(text: str) -> tuple[int, ...]:
    """Parse the delays in milliseconds by level; level 0 is no delay.

    Raises:
        ConfigError: a word is not a number with a unit.
    """
    delays = [0]
    for word in text.split():
        match = _DELAY.fullmatch(word)
        if not match:
            raise ConfigError(f"messageDelayLevel: {word!r} must be a number and s, m, h or d")
        delays.append(int(match[1]) * _UNITS_MS[match[2]])
    if len(delays) == 1:
        raise ConfigError("messageDelayLevel must name at least one delay")
    return tuple(delays)


_POOL = (
    "a buffer outside the page cache loses acknowledged messages when the process dies,"
    " and appends here need none"
)
_WARM = "pages ahead of the end of the log are always populated, a few at a time"
_LOCK = "one plain lock serializes appends"
_EXT = "extension files are read where they exist; none is written"
_QUEUES_AT_ONCE = "a queue entry is written with its message"
_ROCKSDB = "the store consists of files"
_DLEDGER = "a group with a controller takes the place of DLedger's log"
_SWAP = "the system reclaims the memory of old files when it needs it"
_SCAN = "the system tells for each read whether it needs the disk"
_COLD = "a read that needs the disk runs on another thread"

IGNORED = {
    "commitIntervalCommitLog": Ignored("200", _POOL),
    "commitCommitLogLeastPages": Ignored("4", _POOL),
    "commitCommitLogThoroughInterval": Ignored("200", _POOL),
    "wakeCommitWhenPutMessage": Ignored("true", _POOL),
    "transientStorePoolEnable": Ignored("false", _POOL),
    "transientStorePoolSize": Ignored("5", _POOL),
    "fastFailIfNoBufferInStorePool": Ignored("false", _POOL),
    "warmMapedFileEnable": Ignored("false", _WARM),
    "flushLeastPagesWhenWarmMapedFile": Ignored("4096", _WARM),
    "enableConsumeQueueExt": Ignored("false", _EXT),
    "bitMapLengthConsumeQueueExt": Ignored("64", _EXT),
    "osPageCacheBusyTimeOutMills": Ignored(
        "1000", "a slow append delays the next one instead of refusing it"
    ),
    "redeleteHangedFileInterval": Ignored(
        "120000", "deletion of a file in use is retried every cleanResourceInterval"
    ),
    "wakeFlushWhenPutMessage": Ignored(
        "false", "flushCommitLogTimed determines when the log is flushed"
    ),
    "useReentrantLockWhenPutMessage": Ignored("true", _LOCK),
    "debugLockEnable": Ignored("false", _LOCK),
    "topicQueueLockNum": Ignored("32", _LOCK),
    "useABSLock": Ignored("false", _LOCK),
    "spinLockCollisionRetreatOptimalDegree": Ignored("1000", _LOCK),
    "putMsgIndexHightWater": Ignored("600000", _QUEUES_AT_ONCE),
    "dispatchCqThreads": Ignored("10", _QUEUES_AT_ONCE),
    "dispatchCqCacheNum": Ignored("4096", _QUEUES_AT_ONCE),
    "enableAsyncReput": Ignored("true", _QUEUES_AT_ONCE),
    "recheckReputOffsetFromCq": Ignored("false", _QUEUES_AT_ONCE),
    "dispatchFromSenderThread": Ignored("false", _QUEUES_AT_ONCE),
    "enableBuildConsumeQueueConcurrently": Ignored("false", _QUEUES_AT_ONCE),
    "batchDispatchRequestThreadPoolNums": Ignored("16", _QUEUES_AT_ONCE),
    "putConsumeQueueDataByFileChannel": Ignored("true", "consume queues are never mapped"),
    "correctLogicMinOffsetSleepInterval": Ignored("1", "lowest offsets are corrected on deletion"),
    "correctLogicMinOffsetForceInterval": Ignored(
        "300000", "lowest offsets are corrected on deletion"
    ),
    "maxTopicLength": Ignored("127", "RocketMQ does not use it any more"),
    "autoMessageVersionOnTopicLen": Ignored(
        "true", "records of topics with names over 127 bytes always have version 2"
    ),
    "writeWithoutMmap": Ignored("false", "log files are always mapped"),
    "sharedByteBufferNum": Ignored("16", "log files are always mapped"),
    "checkCommitLogOffsetOnRecover": Ignored("false", "recovery always checks every record"),
    "enableAcceleratedRecovery": Ignored("false", "recovery starts at the last recovery point"),
    "commitLogRecoverMaxNum": Ignored("10", "recovery reads as many files as it needs"),
    "enableLogConsumeQueueRepeatedlyBuildWhenRecover": Ignored(
        "false", "recovery drops queue entries before it writes them again"
    ),
    "enableRunningFlagsInFlush": Ignored(
        "false", "the store accepts no message after a failed flush"
    ),
    "indexFileWriteEnable": Ignored("true", "messageIndexEnable decides"),
    "indexFileReadEnable": Ignored("true", "queries by key always read the index files"),
    "maxAsyncPutMessageRequests": Ignored("5000", "sends that wait for a flush are not limited"),
    "travelCqFileNumWhenGetMessage": Ignored("1", "a read continues in the next queue file"),
    "diskFallRecorded": Ignored("true", "the lag of a group is computed on request"),
    "mappedFileSwapEnable": Ignored("true", _SWAP),
    "commitLogForceSwapMapInterval": Ignored("43200000", _SWAP),
    "commitLogSwapMapInterval": Ignored("3600000", _SWAP),
    "commitLogSwapMapReserveFileNum": Ignored("100", _SWAP),
    "logicQueueForceSwapMapInterval": Ignored("43200000", _SWAP),
    "logicQueueSwapMapInterval": Ignored("3600000", _SWAP),
    "logicQueueSwapMapReserveFileNum": Ignored("20", _SWAP),
    "cleanSwapedMapInterval": Ignored("300000", _SWAP),
    "compactionThreadNum": Ignored("6", "one thread compacts all queues in turn"),
    "coldDataScanEnable": Ignored("false", _SCAN),
    "timerColdDataCheckIntervalMs": Ignored("60000", _SCAN),
    "sampleSteps": Ignored("32", _SCAN),
    "accessMessageInMemoryHotRatio": Ignored("26", _COLD),
    "maxRecoveryCommitlogFiles": Ignored("30", "RocketMQ does not use it any more"),
    "maxBatchDeleteFilesNum": Ignored("50", "RocketMQ does not use it any more"),
    "pullBatchMaxMessageCount": Ignored("160", "RocketMQ does not use it any more"),
    "replicasPerDiskPartition": Ignored("1", "the whole disk counts, not a share of it"),
    "logicalDiskSpaceCleanForciblyThreshold": Ignored(
        "0.8", "the whole disk counts, not a share of it"
    ),
    "cleanRocksDBDirtyCQIntervalMin": Ignored("60", _ROCKSDB),
    "statRocksDBCQIntervalSec": Ignored("10", _ROCKSDB),
    "memTableFlushIntervalMs": Ignored("3600000", _ROCKSDB),
    "realTimePersistRocksDBConfig": Ignored("true", _ROCKSDB),
    "enableRocksDBLog": Ignored("false", _ROCKSDB),
    "rocksdbCQDoubleWriteEnable": Ignored("false", _ROCKSDB),
    "bottomMostCompressionTypeForConsumeQueueStore": Ignored("zstd", _ROCKSDB),
    "rocksdbCompressionType": Ignored("lz4", _ROCKSDB),
    "rocksdbFlushWalFrequency": Ignored("1024", _ROCKSDB),
    "rocksdbWalFileRollingThreshold": Ignored("1073741824", _ROCKSDB),
    "iteratorWhenUseRocksdbConsumeQueue": Ignored("true", _ROCKSDB),
    "useSeparateStorePathForRocksdbCQ": Ignored("false", _ROCKSDB),
    "indexRocksDBEnable": Ignored("false", _ROCKSDB),
    "maxRocksDBIndexQueryDays": Ignored("7", _ROCKSDB),
    "combineCQPreferCQType": Ignored("default", _ROCKSDB),
    "combineCQLoadingCQTypes": Ignored("default;defaultRocksDB", _ROCKSDB),
    "combineAssignOffsetCQType": Ignored("default", _ROCKSDB),
    "combineCQEnableCheckSelf": Ignored("false", _ROCKSDB),
    "combineCQMaxExtraSearchCommitLogFiles": Ignored("3", _ROCKSDB),
    "combineCQUseRocksdbForLmq": Ignored("false", _ROCKSDB),
    "storePathDLedgerCommitLog": Ignored("", _DLEDGER, fixed=True),
    "enableDLegerCommitLog": Ignored("false", _DLEDGER, fixed=True),
    "dLegerGroup": Ignored("", _DLEDGER, fixed=True),
    "dLegerPeers": Ignored("", _DLEDGER, fixed=True),
    "dLegerSelfId": Ignored("", _DLEDGER, fixed=True),
    "preferredLeaderId": Ignored("", _DLEDGER),
    "enableBatchPush": Ignored("false", _DLEDGER),
}
"""Keys of RocketMQ's store without effect here; the console and mqadmin still show them."""
