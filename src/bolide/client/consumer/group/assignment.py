"""Assignment strategies: which queues of a topic a member of a group consumes.

Strategies are pure functions. Every member computes the same assignment from the same sorted lists,
so no coordinator is needed. Results equal those of RocketMQ's strategies, so that Java and Python
members can share one group.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from hashlib import md5
from typing import TypeVar

from bolide.model import allocation
from bolide.protocol.bodies.message_queue import MessageQueue

Strategy = Callable[[str, str, Sequence[MessageQueue], Sequence[str]], Sequence[MessageQueue]]
"""Takes the group, own client id, all queues of the topic and all client ids, both sorted."""

VIRTUAL_NODES = 10

T = TypeVar("T")


def average(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> Sequence[MessageQueue]:
    """Give each member a contiguous range of queues; the first members get one more."""
    if client_id not in client_ids:
        return []
    return allocation.average(queues, client_ids.index(client_id), len(client_ids))


def average_by_circle(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> Sequence[MessageQueue]:
    """Assign the queues round-robin."""
    if client_id not in client_ids:
        return []
    return allocation.by_circle(queues, client_ids.index(client_id), len(client_ids))


def by_config(queues: Collection[MessageQueue]) -> Strategy:
    """Always assign these queues, regardless of the other members."""
    mine = frozenset(queues)

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        return [queue for queue in queues if queue in mine]

    return allocate


def by_machine_room(rooms: Collection[str]) -> Strategy:
    """Assign only queues of brokers in these machine rooms, which are named `room@broker`."""
    wanted = frozenset(rooms)

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        if client_id not in client_ids:
            return []
        near = [queue for queue in queues if _room_of(queue.broker_name) in wanted]
        index, members = client_ids.index(client_id), len(client_ids)
        share, rest = divmod(len(near), members)
        assigned = near[index * share : (index + 1) * share]
        return assigned + near[members * share + index :][: index < rest]

    return allocate


def machine_room_nearby(
    within: Strategy,
    *,
    broker_room: Callable[[MessageQueue], str],
    client_room: Callable[[str], str],
) -> Strategy:
    """Assign the queues of a room to its members; those of a room without members to all."""

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        if client_id not in client_ids:
            return []
        queues_by_room = _grouped(queues, broker_room, "queue")
        clients_by_room = _grouped(client_ids, client_room, "client")
        home = client_room(client_id)
        mine: list[MessageQueue] = []
        if near := queues_by_room.pop(home, []):
            mine += within(group, client_id, near, clients_by_room[home])
        for room in sorted(queues_by_room.keys() - clients_by_room.keys()):
            mine += within(group, client_id, queues_by_room[room], client_ids)
        return mine

    return allocate


def consistent_hash_ring(
    virtual_nodes: int = VIRTUAL_NODES, hash_of: Callable[[str], int] | None = None
) -> Strategy:
    """Consistent hashing: a member that joins or leaves moves few queues."""
    position = hash_of or _md5_position

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        if client_id not in client_ids:
            return []
        nodes = {position(f"{c}-{n}"): c for c in client_ids for n in range(virtual_nodes)}
        ring = sorted(nodes)
        if not ring:
            return []

        def owner(queue: MessageQueue) -> str:
            at = bisect_left(ring, position(_java_text(queue)))
            return nodes[ring[at % len(ring)]]

        return [queue for queue in queues if owner(queue) == client_id]

    return allocate


def _room_of(broker_name: str) -> str | None:
    room, *rest = broker_name.split("@")
    return room if len(rest) == 1 and rest[0] else None


def _grouped(items: Sequence[T], room_of: Callable[[T], str], what: str) -> dict[str, list[T]]:
    rooms: dict[str, list[T]] = {}
    for item in items:
        room = room_of(item)
        if not room:
            raise ValueError(f"no machine room is known for {what} {item}")
        rooms.setdefault(room, []).append(item)
    return rooms


def _md5_position(key: str) -> int:
    return int.from_bytes(md5(key.encode(), usedforsecurity=False).digest()[:4])


def _java_text(queue: MessageQueue) -> str:
    # Java hashes the text of `MessageQueue.toString`.
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


consistent_hash = consistent_hash_ring()
"""A ring with ten virtual nodes for each member, RocketMQ's default."""

STRATEGY_NAMES: dict[Strategy, str] = {average: "AVG", average_by_circle: "AVG_BY_CIRCLE"}
"""Names that brokers use for the strategies they know."""
