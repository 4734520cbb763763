"""State of replication, timers and epochs, as brokers report it."""

from msgspec import field

from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Int, Long


class HaConnection(Struct, kw_only=True):
    """The master's view of a slave."""

    addr: str | None = None
    slave_ack_offset: Long = 0
    diff: Long = 0
    in_sync: bool = False
    transferred_byte_in_second: Long = 0
    transfer_from_where: Long = 0


class HaClient(Struct, kw_only=True):
    """A slave's own view."""

    master_addr: str | None = None
    transferred_byte_in_second: Long = 0
    max_offset: Long = 0
    last_read_timestamp: Long = 0
    last_write_timestamp: Long = 0
    master_flush_offset: Long = 0


class HaStatus(Struct, kw_only=True):
    """Answer to GET_BROKER_HA_STATUS."""

    master: bool = False
    master_commit_log_max_offset: Long = 0
    in_sync_slave_nums: Int = 0
    ha_connection_info: list[HaConnection] = field(default_factory=list)
    ha_client_runtime_info: HaClient = field(default_factory=HaClient)


class TimerMetric(Struct, kw_only=True):
    """Number of pending timer messages of a topic."""

    count: Long = 0
    time_stamp: Long = 0


class TimerMetrics(Struct, kw_only=True):
    """Answer to GET_TIMER_METRICS, by topic."""

    timing_count: dict[str, TimerMetric] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


class CopiedTable(Struct, kw_only=True):
    """A table in a copy: the name of its file below `config`, the number of its lines, and the CRC
    of all lines without their ends."""

    name: str
    lines: Int
    crc: Long


class ReplicaState(Struct, kw_only=True):
    """First line of the answer to BOLIDE_GET_REPLICA_STATE, which is a copy of the tables of a
    master that its slave does not have yet, or the first part of it."""

    log_end: Long = 0
    """End of the master's log when the tables were read. They may speak of messages before it, so a
    slave must not use them before it has the log up to here."""
    tables: list[CopiedTable] = field(default_factory=list)
    """The tables that have changed, in the order of their lines."""
    timer_checkpoint: str = ""
    """The file `timercheck` in base64; empty if the master has no timers."""


class Epoch(Struct, kw_only=True):
    """The range of the log that one master wrote."""

    epoch: Int
    start_offset: Long
    end_offset: Long = 2**63 - 1


class EpochCache(Struct, kw_only=True):
    """Answer to GET_BROKER_EPOCH_CACHE."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Long = 0
    epoch_list: list[Epoch] = field(default_factory=list)
    max_offset: Long = 0
