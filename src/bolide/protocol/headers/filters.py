"""Headers about filter functions; Bolide's own, RocketMQ has none."""

from bolide.protocol.header import Header


class FilterFunctionHeader(Header, frozen=True):
    """BOLIDE_UPDATE_FILTER_FUNCTION, _DELETE_ and _GET_."""

    name: str
