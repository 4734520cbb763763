"""Headers to list and recall pending timers; Bolide's own, RocketMQ has none."""

from bolide.protocol.header import Header, Int


class ListTimersHeader(Header, frozen=True, kw_only=True):
    """BOLIDE_LIST_TIMERS; `begin` is the `next` of the previous page."""

    topic: str = ""
    begin: str = ""
    max_num: Int = 100


class RecallTimersHeader(Header, frozen=True, kw_only=True):
    """BOLIDE_RECALL_TIMERS: by one of their keys, or by unique id."""

    topic: str
    key: str
