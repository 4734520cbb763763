"""Headers between a master and its slaves."""

from bolide.protocol.header import Header, Long


class HaAddresses(Header, frozen=True):
    """EXCHANGE_BROKER_HA_INFO, both ways; an empty one requests the master's addresses."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ResetFlushOffsetHeader(Header, frozen=True):
    """RESET_MASTER_FLUSH_OFFSET, to a slave."""

    master_flush_offset: Long
