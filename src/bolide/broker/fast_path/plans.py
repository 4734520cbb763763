"""Prepared plans: what gate and handlers have decided about requests of one sender.

A plan belongs to one identity, one kind of request and one target, as a prepared statement belongs
to one session. The identity is a connection and the access key that its request presented, if any;
if `Access` knows a secret of it, each further request must be signed with that. A plan is made when
a handler reports that it admitted a request, and dropped when its connection closes or when
something changes that the decision rests on: its topic, its group, a filter, a setting, the gate.
"""

from collections.abc import Collection

from bolide.broker.consume.admission import Admitted
from bolide.broker.consume.long_polling import QueueKey
from bolide.broker.fast_path._pulls import PullReplies
from bolide.broker.fast_path._sends import SendPlans, SendTarget
from bolide.broker.gate import Presented
from bolide.broker.produce.addressing import packed_peer
from bolide.kernel import SigningKey
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import HeaderEncoding
from bolide.protocol.headers.pull import PullHeader
from bolide.remoting.connection import Connection
from bolide.store.reading import ReadableQueue

SENDS = (b'{"code":310,', b'{"code":320,', b'{"code":37,', b"\x01\x36", b"\x01\x40", b"\x00\x25")
"""How the headers of requests 310, 320 and 37 usually begin, JSON and binary."""
HEADER_AT = 8
"""Where the header begins in a frame."""


MAX_PLANS = 32_768
"""Plans of all connections; when there are more, all are dropped and prepared again."""


class PullPlan:
    """What the pulls of one key have in common: one sender, group and queue, one subscription."""

    __slots__ = (
        "admitted", "code", "commits", "encoding", "group", "header", "is_open", "max_wait",
        "queue", "queue_id", "queue_key", "replies", "signing_key", "suspends", "tally", "topic",
        "units",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913  made once for many pulls
        self,
        header: PullHeader,
        admitted: Admitted,
        replies: PullReplies,
        *,
        code: RequestCode,
        encoding: HeaderEncoding,
        units: int,
        max_wait: float,
        flags: tuple[bool, bool],
        signing_key: SigningKey | None,
    ) -> None:
        self.header = header
        self.admitted = admitted
        self.replies = replies
        self.code = code
        self.encoding = encoding
        """How headers of requests and replies are written."""
        self.units = units
        """Queue units that one pull looks at."""
        self.max_wait = max_wait
        """Seconds that a pull may wait for messages."""
        self.commits, self.suspends = flags
        self.signing_key = signing_key
        """With which its pulls must be signed; None if they need no signature."""
        self.group = header.consumer_group
        self.topic = header.topic
        self.queue_id = header.queue_id
        self.queue_key: QueueKey = (header.topic, header.queue_id)
        self.queue: ReadableQueue | None = None
        """The queue, once it exists."""
        self.is_open = True
        """Nothing that the plan rests on has changed."""
        self.tally: PullTally | None = None
        """What its pulls delivered that the statistics have not been told of."""


class PullTally:
    """What some pulls delivered, and how far the last one was behind."""

    __slots__ = ("behind", "calls", "count", "late", "seconds", "size")

    def __init__(self) -> None:
        self.calls = 0
        self.count = 0
        self.size = 0
        self.seconds = 0.0
        self.behind = 0
        self.late = 0.0


class SenderPlans:
    """The plans of one sender."""

    __slots__ = ("born_host", "candidate", "pulls", "sends")

    def __init__(self, peer: str) -> None:
        self.born_host = packed_peer(peer)
        """The sender's address as records hold it."""
        self.sends = SendPlans()
        """Those of the peer itself, and in them those of each access key that it presented."""
        self.pulls: dict[bytes, PullPlan] = {}
        self.candidate: tuple[bytes, int] | None = None
        """Key and opaque of the last pull without a plan: the handlers decide about it next."""


class Plans:
    """All plans of a broker; belongs to one event loop."""

    def __init__(self) -> None:
        self._by_sender: dict[Connection, SenderPlans] = {}
        self._targets: dict[bytes, SendTarget] = {}
        self._pulls_by_topic: dict[str, set[PullPlan]] = {}
        self._pulls_by_group: dict[str, set[PullPlan]] = {}
        self._count = 0

    def __len__(self) -> int:
        """How many plans there are, closed ones that nobody has looked up since included."""
        return self._count

    def of(self, connection: Connection) -> SenderPlans:
        """The plans of a sender, none at first."""
        found = self._by_sender.get(connection)
        if found is None:
            found = self._by_sender[connection] = SenderPlans(connection.peer)
        return found

    def find_sends(self, connection: Connection, access_key: str | None) -> SendPlans | None:
        """The plans for sends of those who present an access key on a connection, if any."""
        plans = self.of(connection).sends
        if access_key is None:
            return plans
        return plans.signed.get(access_key.encode(errors="surrogatepass"))

    def sends_of(self, connection: Connection, presented: Presented) -> SendPlans:
        """The plans for sends of an identity; none at first, and none with another secret."""
        found = self.find_sends(connection, presented.access_key)
        if presented.access_key is None:
            assert found is not None
            return found
        if found is None or found.secret != presented.secret:
            self._count -= len(found or ())
            name = presented.access_key.encode()
            found = self.of(connection).sends.signed[name] = SendPlans(name, presented.secret)
        return found

    def find_target(self, topic: bytes) -> SendTarget | None:
        """The target that plans for a topic point at, if one has been made."""
        return self._targets.get(topic)

    def add_target(self, target: SendTarget) -> None:
        self._targets[target.topic] = target

    def reserve(self) -> None:
        """Count a plan that is about to be added; if there are too many, drop all others first."""
        if self._count >= MAX_PLANS:
            self.drop_all()
        self._count += 1

    def add_pull(self, connection: Connection, key: bytes, plan: PullPlan) -> None:
        self.reserve()
        self.of(connection).pulls[key] = plan
        self._pulls_by_topic.setdefault(plan.topic, set()).add(plan)
        self._pulls_by_group.setdefault(plan.group, set()).add(plan)

    # ---- dropping

    def forget(self, connection: Connection) -> None:
        """Drop the plans of a sender that is gone."""
        sender = self._by_sender.pop(connection, None)
        if sender is None:
            return
        self._count -= len(sender.sends) + len(sender.pulls)
        for plan in sender.pulls.values():
            plan.is_open = False
            _discard(self._pulls_by_topic, plan.topic, plan)
            _discard(self._pulls_by_group, plan.group, plan)

    def drop_topic(self, topic: str) -> None:
        """Void the plans that rest on a topic."""
        target = self._targets.pop(topic.encode(), None)
        if target is not None:
            target.is_open = False
        for plan in self._pulls_by_topic.pop(topic, ()):
            plan.is_open = False
            _discard(self._pulls_by_group, plan.group, plan)

    def drop_group(self, group: str) -> None:
        """Void the plans that rest on a consumer group, its members or its subscriptions."""
        for plan in self._pulls_by_group.pop(group, ()):
            plan.is_open = False
            _discard(self._pulls_by_topic, plan.topic, plan)

    def drop_groups(self, groups: Collection[str]) -> None:
        for group in groups:
            self.drop_group(group)

    def drop_all(self) -> None:
        """Void all plans; the cost is bounded by MAX_PLANS."""
        for target in self._targets.values():
            target.is_open = False
        for plans in self._pulls_by_group.values():
            for plan in plans:
                plan.is_open = False
        for table in (
            self._targets, self._pulls_by_topic, self._pulls_by_group, self._by_sender,
        ):  # fmt: skip
            table.clear()
        self._count = 0


def _discard(table: dict[str, set[PullPlan]], key: str, plan: PullPlan) -> None:
    plans = table.get(key)
    if plans is not None:
        plans.discard(plan)
        if not plans:
            del table[key]
