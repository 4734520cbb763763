"""Headers about a broker as a whole: configuration, statistics, storage."""

from msgspec import field

from bolide.protocol.header import Header, Int, Long


class BrokerConfigReply(Header, frozen=True):
    """Answer to GET_BROKER_CONFIG; the version is JSON of a DataVersion."""

    version: str


class StatsHeader(Header, frozen=True):
    """VIEW_BROKER_STATS_DATA."""

    stats_name: str
    stats_key: str


class BrokerConsumeStatsHeader(Header, frozen=True):
    """GET_BROKER_CONSUME_STATS."""

    is_order: bool = False


class ReadAheadHeader(Header, frozen=True):
    """SET_COMMITLOG_READ_MODE: 0 reads ahead, 1 does not (madvise's normal and random)."""

    mode: Int = field(name="READ_AHEAD_MODE")


class TimerEngineHeader(Header, frozen=True):
    """SWITCH_TIMER_ENGINE: R for RocksDB, F for the files of the timer wheel (5.5)."""

    engine: str = field(name="E_T")


class QueueWriteCheckHeader(Header, frozen=True, kw_only=True):
    """CHECK_ROCKSDB_CQ_WRITE_PROGRESS."""

    topic: str
    check_store_time: Long = 0


class ExportConfigHeader(Header, frozen=True):
    """EXPORT_ROCKSDB_CONFIG_TO_JSON; kinds of configuration, separated by semicolons."""

    config_type: str


class AddBrokerHeader(Header, frozen=True):
    """ADD_BROKER, to a broker container."""

    config_path: str


class RemoveBrokerHeader(Header, frozen=True):
    """REMOVE_BROKER, to a broker container."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Long
