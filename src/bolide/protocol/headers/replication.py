"""Headers between a master and its slaves."""

from bolide.protocol.header import Header, Int, Long


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
    copy_id: Long = 0
    """The copy of whose parts one is requested; 0 for the first part of a new copy."""
    part: Int = 0


class ReplicaStateReply(Header, frozen=True):
    """Answer to BOLIDE_GET_REPLICA_STATE. A copy of one part has no id."""

    copy_id: Long = 0
    parts: Int = 1


class ResetFlushOffsetHeader(Header, frozen=True):
    """RESET_MASTER_FLUSH_OFFSET, to a slave."""

    master_flush_offset: Long
