"""Headers of transactional messages."""

from msgspec import field

from bolide.protocol.header import Header, Int, Long


class EndTransactionHeader(Header, frozen=True, kw_only=True):
    """END_TRANSACTION, mostly one-way. The state is 0 unknown, 8 commit, 12 rollback."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None


class CheckTransactionHeader(Header, frozen=True, kw_only=True):
    """CHECK_TRANSACTION_STATE, broker to producer, one-way; the body is the half message."""

    topic: str | None = None
    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class ResumeCheckHeader(Header, frozen=True):
    """RESUME_CHECK_HALF_MESSAGE."""

    topic: str | None = None
    msg_id: str | None = None


class ListTransactionsHeader(Header, frozen=True, kw_only=True):
    """BOLIDE_LIST_TRANSACTIONS; lists open transactions, or with `set_aside` those set aside.

    `begin` is a queue offset: the `next_begin` of the previous page.
    """

    set_aside: bool = False
    producer_group: str | None = None
    topic: str | None = None
    begin: Long = 0
    max_num: Int = 100


class ResolveTransactionHeader(Header, frozen=True, kw_only=True):
    """BOLIDE_RESOLVE_TRANSACTION: commit or roll back in place of the producer. `by` names who."""

    msg_id: str
    commit: bool
    by: str
