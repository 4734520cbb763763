"""The fast path of a connection: received bytes in, replies out, ahead of the dispatcher."""

from collections.abc import Collection
from time import monotonic

from bolide.broker.fast_path.fall_through import FallThrough, FallThroughs
from bolide.broker.fast_path.plans import HEADER_AT, SENDS, Plans
from bolide.broker.fast_path.pulls import PullPath
from bolide.broker.fast_path.sends import SendPath
from bolide.remoting.connection import Connection

_NOT_MINE = (FallThrough.OTHER_REQUEST, FallThrough.UNUSUAL_HEADER)


class FastPath:
    """Serves requests by prepared plans; the broker's `remoting.connection.FastPath`."""

    def __init__(
        self, plans: Plans, sends: SendPath, pulls: PullPath, fall_throughs: FallThroughs
    ) -> None:
        self.plans = plans
        self.sends = sends
        self.pulls = pulls
        self.fall_throughs = fall_throughs

    def topics_changed(self, topics: Collection[str]) -> None:
        """Drop what rests on topics that were created, changed or deleted."""
        self.pulls.forget_units()
        for topic in topics:
            self.plans.drop_topic(topic)

    def settings_changed(self) -> None:
        """Take over the settings; any plan may rest on one of them."""
        self.sends.configure()
        self.plans.drop_all()

    def serve(self, data: bytes, position: int, connection: Connection, until: float) -> int:
        end, sender = len(data), self.plans.of(connection)
        while True:
            # First what the request looks like; clients may write their headers in any order.
            if data.startswith(SENDS, position + HEADER_AT):
                first, second = self.sends.serve, self.pulls.serve
            else:
                first, second = self.pulls.serve, self.sends.serve
            stop, reply, reason = first(data, position, connection, sender)
            if reason and stop == position and reason in _NOT_MINE:
                other = second(data, position, connection, sender)
                if other[0] > position or other[2] not in _NOT_MINE:
                    stop, reply, reason = other
            if reply:
                connection.put(reply)
            if reason and (stop == position or reason not in _NOT_MINE):
                self.fall_throughs.count(reason)
                return stop
            if stop == position:  # the frame is incomplete
                return position
            position = stop
            if position == end or connection.is_blocked or monotonic() > until:
                return position
            sender = self.plans.of(connection)  # a change may have dropped it
