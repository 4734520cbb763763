"""Which member of a broker group a consumer should read from, and how a slave answers pulls.

The rules are those of `PullMessageProcessor` and, for offsets, `nextOffsetCorrection` of
`DefaultMessageStore`. A slave serves pulls only with slaveReadEnable, and ignores the offsets that
pulls carry, unless it acts for the master of its group. A pull outside the bounds of a slave's
queue moves nobody, because the slave may lack the newest messages of its master.
"""

from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.codes import ResponseCode
from bolide.protocol.refusals import SystemBusy
from bolide.store.reading import ReadResult, ReadStatus

MASTER_ID = 0

_OUT_OF_BOUNDS = (
    ReadStatus.OFFSET_OVERFLOW_BADLY,
    ReadStatus.OFFSET_TOO_SMALL,
    ReadStatus.NO_MATCHED_LOGIC_QUEUE,
    ReadStatus.NO_MESSAGE_IN_QUEUE,
)


def refuse_slave_reads(*, is_slave: bool, slave_read_enable: bool) -> None:
    """Raises SystemBusy if this broker is a slave that serves no pulls."""
    if is_slave and not slave_read_enable:
        # RocketMQ's words, by which users search.
        raise SystemBusy(
            "[REJECTREQUEST]system busy, start flow control for a while: this broker is a slave,"
            " and slaveReadEnable is false"
        )


def suggestions(group: GroupConfig, *, slave_read_enable: bool) -> tuple[int, int]:
    """The broker ids to suggest to a group: usually, and while it is far behind."""
    if not slave_read_enable:
        return MASTER_ID, MASTER_ID
    return group.broker_id, group.which_broker_when_consume_slowly


def sends_back(*, is_slave: bool, master_is_up: bool, is_far_behind: bool) -> bool:
    """Whether a slave sends a reader back to the master: the reader has caught up."""
    return is_slave and master_is_up and not is_far_behind


def slave_code(code: ResponseCode, *, is_slave: bool, master_is_up: bool) -> ResponseCode:
    """The response code of a pull: a slave does not hold pulls that its master can serve."""
    if code != ResponseCode.SUCCESS and sends_back(
        is_slave=is_slave, master_is_up=master_is_up, is_far_behind=False
    ):
        return ResponseCode.PULL_RETRY_IMMEDIATELY
    return code


def next_offset(result: ReadResult, requested: int, *, is_slave: bool) -> int:
    """The offset at which a reader continues: a slave does not correct it."""
    return requested if is_slave and result.status in _OUT_OF_BOUNDS else result.next_offset


def commits(*, is_slave: bool, has_flag: bool, commit_offset: int, is_frozen: bool) -> bool:
    """Whether the offset that a pull carries is committed; `is_frozen`: see `OffsetTable`."""
    return has_flag and commit_offset >= 0 and not is_slave and not is_frozen
