"""Which queues of a topic a member of a group takes: plain functions that all members agree on.

Every member computes the same answer from the same sorted lists, so nobody has to hand queues out.
Results are those of RocketMQ's strategies, so that Java and Python members share one group.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from hashlib import md5
from typing import TypeVar

from bolide.model import shares
from bolide.protocol.bodies.message_queue import MessageQueue

Strategy = Callable[[str, str, Sequence[MessageQueue], Sequence[str]], Sequence[MessageQueue]]
"""From group, own client id, all queues of the topic and all client ids, both sorted."""

VIRTUAL_NODES = 10

T = TypeVar("T")


def average(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> Sequence[MessageQueue]:
    """Give each member one run of neighbouring queues; the first members get one more."""
    if client_id not in client_ids:
        return []
    return shares.average(queues, client_ids.index(client_id), len(client_ids))


def average_by_circle(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> Sequence[MessageQueue]:
    """Deal the queues out one by one, as cards."""
    if client_id not in client_ids:
        return []
    return shares.by_circle(queues, client_ids.index(client_id), len(client_ids))


def by_config(queues: Collection[MessageQueue]) -> Strategy:
    """Always take these queues, whoever else is in the group."""
    mine = frozenset(queues)

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        return [queue for queue in queues if queue in mine]

    return allocate


def by_machine_room(rooms: Collection[str]) -> Strategy:
    """Share the queues of brokers in these rooms: those named `room@broker`."""
    wanted = frozenset(rooms)

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        if client_id not in client_ids:
            return []
        near = [queue for queue in queues if _room_of(queue.broker_name) in wanted]
        index, members = client_ids.index(client_id), len(client_ids)
        share, rest = divmod(len(near), members)
        taken = near[index * share : (index + 1) * share]
        return taken + near[members * share + index :][: index < rest]

    return allocate


def machine_room_nearby(
    within: Strategy,
    *,
    broker_room: Callable[[MessageQueue], str],
    client_room: Callable[[str], str],
) -> Strategy:
    """Share the queues of each room among the members there; a room without any among all."""

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
    """Place members on a ring so that one who comes or goes moves few queues."""
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
    # The text that Java hashes (`MessageQueue.toString`).
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


consistent_hash = consistent_hash_ring()
"""The ring with ten virtual nodes for each member, as RocketMQ's default."""

STRATEGY_NAMES: dict[Strategy, str] = {average: "AVG", average_by_circle: "AVG_BY_CIRCLE"}
"""Those that brokers know too, by what they call them."""
