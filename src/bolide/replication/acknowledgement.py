"""How many replicas must have a message before its send is acknowledged. Plain functions of values.

| Rule | A position is replicated when |
| --- | --- |
| NONE | the master has it (ASYNC_MASTER) |
| ONE_SLAVE | one slave has it (SYNC_MASTER, as RocketMQ 4.9) |
| COUNT | `copies` members have it, the master included (an explicit `inSyncReplicas`) |
| SYNC_STATE_SET | every member of the sync-state set has it (controller mode) |
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum


class Rule(Enum):
    NONE = "none"
    ONE_SLAVE = "one slave"
    COUNT = "count"
    SYNC_STATE_SET = "sync-state set"


@dataclass(frozen=True, slots=True)
class AckPolicy:
    """When a send is acknowledged; `copies` counts the master and is used by COUNT only."""

    rule: Rule
    copies: int = 2

    @property
    def waits(self) -> bool:
        """Whether sends wait for any replica."""
        return self.rule is not Rule.NONE and not (self.rule is Rule.COUNT and self.copies <= 1)


def replicated_position(acks: Collection[int], policy: AckPolicy) -> int:
    """The position up to which enough slaves have the log; -1 if there are too few slaves.

    Args:
        acks: the end of the log that each connected slave reported.
    """
    needed = 1 if policy.rule is Rule.ONE_SLAVE else policy.copies - 1
    ordered = sorted(acks, reverse=True)
    return ordered[needed - 1] if 0 < needed <= len(ordered) else -1


def confirmed_position(
    own_end: int, acks: Mapping[int, int], members: Collection[int], own_id: int
) -> int:
    """The position that every member of a sync-state set has; -1 if one is not connected.

    Args:
        acks: by broker id, what connected slaves reported.
        members: the sync-state set, with additions that the controller may have applied.
    """
    others = [acks.get(member, -1) for member in members if member != own_id]
    return min(own_end, *others) if others else own_end
