"""Headers between a master and its slaves."""

from bolide.protocol.header import Header, Long


class HaAddresses(Header, frozen=True):
    """EXCHANGE_BROKER_HA_INFO, both ways; an empty one requests the master's addresses."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ReplicaStateHeader(Header, frozen=True):
    """BOLIDE_GET_REPLICA_STATE; the slave's tables as "name=crc32" separated by semicolons."""

    known: str = ""
    broker_id: Long = -1
    """Id of the slave for replication."""
    adopted: bool = False
    """Whether the slave has adopted tables of this master."""


class ResetFlushOffsetHeader(Header, frozen=True):
    """RESET_MASTER_FLUSH_OFFSET, to a slave."""

    master_flush_offset: Long
