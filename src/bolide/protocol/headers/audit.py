"""The header to read the audit log; Bolide's own, RocketMQ has none."""

from bolide.protocol.header import Header, Int, Long


class ReadAuditHeader(Header, frozen=True, kw_only=True):
    """BOLIDE_READ_AUDIT: records from a queue offset on, or from a time on."""

    begin: Long = -1
    """Queue offset, the `nextBegin` of the previous page; -1: by `since`."""
    since: Long = 0
    """Milliseconds since 1970."""
    max_num: Int = 100
