"""What elections and other changes make of one broker group; no clock, no network, no log.

The state machine runs these on every controller, with the same outcome.
"""

import msgspec

from bolide.controller.commands import NO_BROKER, Alter, Candidate, Elect, Group, Result
from bolide.protocol.codes import ResponseCode as Code


def vacated(group: Group) -> Group:
    """A group that has no master any more, in a new epoch.

    If the master had not confirmed its term, the set before it is the sync-state set again.
    """
    is_restored = group.electable != group.sync_state_set
    return msgspec.structs.replace(
        group,
        master=None,
        epoch=group.epoch + 1,
        sync_state_set=group.electable,
        sync_state_set_epoch=group.sync_state_set_epoch + is_restored,
        earlier_set=(),
    )


def without_tail(group: Group, broker: int) -> Group:
    """A group of which a broker may have lost the end of its log.

    It counts no longer among those that have everything, unless nobody else does.
    """
    changed = group
    others = tuple(each for each in group.sync_state_set if each != broker)
    if others and others != group.sync_state_set:
        changed = msgspec.structs.replace(
            changed,
            sync_state_set=others,
            sync_state_set_epoch=group.sync_state_set_epoch + 1,
        )
    earlier = tuple(each for each in group.earlier_set if each != broker)
    if earlier and earlier != group.earlier_set:
        changed = msgspec.structs.replace(changed, earlier_set=earlier)
    return changed


def earlier_set(group: Group, winner: int) -> tuple[int, ...]:
    """Who can still be elected until a new master confirms its term.

    Nobody if it was elected from outside of the set: what it lacks is lost by then. Nor if it takes
    messages without a word, as RocketMQ's brokers do.
    """
    member = group.members.get(winner)
    if member is None or not member.confirms or winner not in group.electable:
        return ()
    return group.electable


def winner(group: Group, command: Elect) -> int | None:
    """Who becomes master: the old master if it is alive, else the best of the sync-state set.

    Of a group that never had a master the first broker that asks becomes it. If later the
    sync-state set was emptied by `Clean`, nobody is known to have all messages.
    """
    if not group.electable and not group.had_master:
        return None if command.broker == NO_BROKER else command.broker
    alive = [each for each in command.alive if each.id in group.members]
    in_sync = [each for each in alive if each.id in group.electable]
    winner = _best(in_sync, group, command)
    if winner is None and (command.unclean or (command.designate and not group.electable)):
        winner = _best(alive, group, command)
    return winner


def _best(candidates: list[Candidate], group: Group, command: Elect) -> int | None:
    ids = {each.id for each in candidates}
    if command.designate and command.broker != NO_BROKER:
        return command.broker if command.broker in ids else None
    if group.master in ids:
        return group.master
    best = min(
        candidates,
        key=lambda each: (-each.epoch, -each.max_offset, each.priority, each.id),
        default=None,
    )
    return None if best is None else best.id


def alter_refusal(group: Group, command: Alter) -> Result | None:
    """Why a change of the sync-state set is refused, checked in RocketMQ's order."""
    new, rejecting = set(command.new), "Rejecting alter syncStateSet request because the"
    failed = Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    known = group.sync_state_set_epoch
    strangers, dead = sorted(new - group.members.keys()), sorted(new - set(command.alive))
    checks = (
        (
            new == set(group.sync_state_set) and not command.renew, failed,
            "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet",
        ),
        (
            group.master is None or command.master != group.master,
            Code.CONTROLLER_INVALID_MASTER,
            f"{rejecting} current leader is:{{{group.master}}}, not {{{command.master}}}",
        ),
        (
            command.epoch != group.epoch, Code.CONTROLLER_FENCED_MASTER_EPOCH,
            f"{rejecting} current master epoch is:{{{group.epoch}}}, not {{{command.epoch}}}",
        ),
        (
            command.set_epoch != known, Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
            f"{rejecting} current syncStateSet epoch is:{{{known}}}, not {{{command.set_epoch}}}",
        ),
        (
            bool(strangers), Code.CONTROLLER_INVALID_REPLICAS,
            f"{rejecting} replicas {strangers} don't exist",
        ),
        (
            bool(dead), Code.CONTROLLER_BROKER_NOT_ALIVE,
            f"{rejecting} replicas {dead} don't alive",
        ),
        (
            command.master not in new, failed,
            f"{rejecting} newSyncStateSet don't contains origin leader {{{group.master}}}",
        ),
    )  # fmt: skip
    return next((Result(code, remark) for holds, code, remark in checks if holds), None)
