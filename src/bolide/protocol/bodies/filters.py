"""Filter functions of a broker; Bolide's own, RocketMQ has none."""

from msgspec import field

from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Long


class FilterFunction(Struct, kw_only=True):
    """A function and its source; the version increases with each change."""

    name: str
    source: str
    version: Long = 0


class FilterFunctionState(Struct, kw_only=True):
    """A function and its statistics since the broker started."""

    name: str
    version: Long = 0
    judged: Long = 0
    accepted: Long = 0
    failed: Long = 0
    error: str = ""


class FilterFunctionStates(Struct, kw_only=True):
    """Answer to BOLIDE_LIST_FILTER_FUNCTIONS."""

    functions: list[FilterFunctionState] = field(default_factory=list)
