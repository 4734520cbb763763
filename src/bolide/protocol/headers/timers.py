"""Headers by which administrators see and take back what waits; ours, RocketMQ has none."""

from bolide.protocol.header import Header, Int


class ListTimersHeader(Header, frozen=True, kw_only=True):
    """BOLIDE_LIST_TIMERS; `begin` is what `next` of the answer before says."""

    topic: str = ""
    begin: str = ""
    max_num: Int = 100


class RecallTimersHeader(Header, frozen=True, kw_only=True):
    """BOLIDE_RECALL_TIMERS: by a word of their KEYS, or by unique id."""

    topic: str
    key: str
