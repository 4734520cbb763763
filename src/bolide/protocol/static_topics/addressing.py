"""How queues of static topics are addressed.

A route gives logical queues the name of no real broker, and says which broker leads each. A broker
that asks another about a physical queue says so in two fields beside those of the header.
"""

from collections.abc import Mapping

from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.queues import QueueMapping
from bolide.protocol.bodies.topics import MAX_QUEUES
from bolide.protocol.header import Header

LOGICAL_PREFIX = "__syslo__"
"""How the broker name of a logical queue begins; no real broker has such a name."""
NO_LEADER = LOGICAL_PREFIX + "none__"
"""In place of the leader of a logical queue that no registered broker leads."""

_GLOBAL = "__global__"
_LOGICAL_FIELD, _BROKER_FIELD = "lo", "bname"


def logical_broker_name(scope: str) -> str:
    """The broker name of all logical queues of a scope."""
    return LOGICAL_PREFIX + (scope.removeprefix("__") if scope == _GLOBAL else scope)


def is_logical(broker_name: str) -> bool:
    return broker_name.startswith(LOGICAL_PREFIX)


def queue_leaders(
    topic: str, mappings: Mapping[str, QueueMapping] | None
) -> dict[MessageQueue, str]:
    """The logical queues of a topic in order, with the names of their leading brokers.

    Brokers may disagree while a queue is moved: the highest epoch is right.
    """
    leaders: dict[MessageQueue, QueueMapping] = {}
    totals: dict[str, tuple[int, int]] = {}
    for mapping in (mappings or {}).values():
        name = logical_broker_name(mapping.scope)
        totals[name] = max(totals.get(name, (-1, 0)), (mapping.epoch, mapping.total_queues))
        for number in mapping.curr_id_map:
            queue = MessageQueue(topic, name, number)
            known = leaders.get(queue)
            if known is None or known.epoch <= mapping.epoch:
                leaders[queue] = mapping
    return {
        queue: leaders[queue].bname if queue in leaders else NO_LEADER
        for name, (_, total) in sorted(totals.items())
        for queue in (MessageQueue(topic, name, at) for at in range(min(total, MAX_QUEUES)))
    }


def is_physical(fields: Mapping[str, str] | None) -> bool:
    """Whether a request means physical queues."""
    return fields is not None and fields.get(_LOGICAL_FIELD, "").lower() == "false"


def physical_fields(header: Header, broker_name: str) -> dict[str, str]:
    """The fields of a request about a physical queue of another broker."""
    return {_LOGICAL_FIELD: "false", _BROKER_FIELD: broker_name} | header.to_fields()
