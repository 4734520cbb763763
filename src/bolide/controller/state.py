"""The replicated state machine: which broker is master of each group, in which epoch.

A log entry names the controller that proposed it and the generation of its leadership. Each `Lead`
command starts a new generation, and an entry of any other generation is refused as a whole. An
accepted entry is therefore a barrier too: when it was proposed, no later leader had begun.

`Machine.apply` never raises, because the Raft library would retry a raising entry for ever: an
entry that cannot be read has a refusal as its result.
"""

from collections.abc import Iterator, Mapping
from itertools import chain

import msgspec

from bolide.controller.commands import (
    NO_BROKER,
    VERSION,
    Alter,
    ApplyId,
    Begin,
    Clean,
    Command,
    Elect,
    Entry,
    Group,
    Lead,
    Member,
    Register,
    Result,
)
from bolide.controller.group_rules import (
    alter_refusal,
    earlier_set,
    vacated,
    winner,
    without_tail,
)
from bolide.protocol.codes import ResponseCode as Code

MAX_GROUPS = 10_000
"""Also of removed groups that are kept; more are forgotten."""
MAX_MEMBERS = 100
"""Of one group."""
MAX_ALL_MEMBERS = 20_000
"""Of all groups: strangers can add members, and all of them are in memory and in each snapshot."""
_ID_MARGIN = 10
"""A new id is at most so far above the next one; a greater one would leave none for others."""


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one entry."""

    accepted: bool
    """Whether the proposer was the acting leader at this point of the log."""
    results: list[Result]
    leader: str
    generation: int
    changed: dict[str, Group | None] = {}
    """Groups with their new value; None for one that was removed."""
    is_new_leader: bool = False
    quorum: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The whole state."""

    version: int = VERSION
    leader: str = ""
    generation: int = 0
    groups: dict[str, Group] = {}
    quorum: str = ""
    """Its id; empty in the snapshots of early releases."""


_commands: "msgspec.json.Decoder[Command]" = msgspec.json.Decoder(Command)
_entries = msgspec.json.Decoder(Entry)
_snapshots = msgspec.json.Decoder(Snapshot)


def preview(groups: Mapping[str, Group], command: Command) -> Result | None:
    """The result of a command that would change nothing; None if it would."""
    draft = Draft(groups)
    result = draft.run(command)
    return None if draft.changed else result


class Machine:
    """The state, changed by entries of the log in their order. Belongs to one thread."""

    def __init__(self) -> None:
        self.leader = ""
        self.generation = 0
        self.quorum = ""
        self.groups: dict[str, Group] = {}
        self.stopped_by = 0
        """The version of an entry of a newer release; 0 if none came. Nothing is applied any more,
        because the state would no longer be that of the other nodes."""

    def apply(self, data: bytes) -> Outcome:
        """Apply an entry. Never raises, and has the same outcome on every node."""
        try:
            entry = _entries.decode(data)
        except (msgspec.MsgspecError, UnicodeError):
            return self._outcome(accepted=False)
        if entry.version > VERSION:
            self.stopped_by = entry.version
        if self.stopped_by:
            return self._outcome(accepted=False)
        was, draft = self.generation, Draft(self.groups)
        # Only the leader of this generation, or the one that begins the next, may go on.
        is_current = entry.generation == self.generation
        results, accepted = [], is_current and entry.node == self.leader
        for raw in entry.commands if is_current else ():
            try:
                command = _commands.decode(raw)
            except (msgspec.MsgspecError, UnicodeError) as exc:
                results.append(Result(Code.CONTROLLER_INVALID_REQUEST, f"bad command: {exc}"))
                continue
            if isinstance(command, Lead):
                self._lead(entry.node, command.quorum)
                accepted = True
                results.append(Result())
            elif accepted:
                results.append(draft.run(command))
        update(self.groups, draft.changed)
        return Outcome(
            accepted, results if accepted else [], self.leader, self.generation, draft.changed,
            is_new_leader=self.generation != was, quorum=self.quorum,
        )  # fmt: skip

    def snapshot(self) -> Snapshot:
        """The present state; later entries do not change it."""
        return Snapshot(
            leader=self.leader,
            generation=self.generation,
            groups=dict(self.groups),
            quorum=self.quorum,
        )

    def encode(self) -> bytes:
        """Encode the state for a snapshot."""
        return msgspec.json.encode(self.snapshot())

    def restore(self, data: bytes) -> None:
        """Replace the state by that of a snapshot.

        Raises:
            ValueError: it cannot be read, or a newer release wrote it.
        """
        try:
            found = _snapshots.decode(data)
        except (msgspec.MsgspecError, UnicodeError) as exc:
            raise ValueError(f"not a snapshot of a controller: {exc}") from exc
        if found.version > VERSION:
            raise ValueError(f"a newer release wrote this snapshot, version {found.version}")
        self.leader, self.generation = found.leader, found.generation
        self.quorum = found.quorum
        self.groups = dict(found.groups)

    def _outcome(self, *, accepted: bool) -> Outcome:
        return Outcome(accepted, [], self.leader, self.generation, quorum=self.quorum)

    def _lead(self, node: str, quorum: str) -> None:
        self.generation += 1
        self.leader = node
        self.quorum = quorum or self.quorum


def update(groups: dict[str, Group], changed: Mapping[str, Group | None]) -> None:
    """Apply changes to groups; None stands for a removed one."""
    for name, group in changed.items():
        if group is None:
            groups.pop(name, None)
        else:
            groups[name] = group


class Draft:
    """What commands change. The groups themselves stay as they are: they may be many."""

    def __init__(self, groups: Mapping[str, Group]) -> None:
        self._groups = groups
        self.changed: dict[str, Group | None] = {}
        """Groups with their new value; None for one that was removed."""

    def run(self, command: Command) -> Result:
        match command:
            case ApplyId():
                return self._apply_id(command)
            case Register():
                return self._register(command)
            case Elect():
                return self._elect(command)
            case Begin():
                return self._begin(command)
            case Alter():
                return self._alter(command)
            case Clean():
                return self._clean(command)
            case Lead():
                raise ValueError("not a command about a group")

    def _find(self, name: str) -> Group | None:
        found = self._find_removed(name)
        return None if found is None or found.is_removed else found

    def _find_removed(self, name: str) -> Group | None:
        """A group, also one that was removed."""
        return self.changed[name] if name in self.changed else self._groups.get(name)

    def _put(self, group: Group) -> Result:
        self.changed[group.name] = group
        return Result(group=group)

    def _all(self) -> Iterator[Group]:
        """All groups; takes long, so only what adds or removes one asks."""
        changed = self.changed
        same = (each for name, each in self._groups.items() if name not in changed)
        return chain(same, (each for each in changed.values() if each is not None))

    def _remove(self, group: Group) -> None:
        is_kept = sum(each.is_removed for each in self._all()) < MAX_GROUPS
        if group.epoch and is_kept:
            # In a new epoch, so that all members learn that they are in no group any more.
            self._put(
                Group(
                    cluster=group.cluster,
                    name=group.name,
                    next_id=group.next_id,
                    epoch=group.epoch + 1,
                    sync_state_set_epoch=group.sync_state_set_epoch + 1,
                    first_epoch=group.epoch + 1,
                )
            )
        elif group.name in self._groups:
            self.changed[group.name] = None
        else:
            del self.changed[group.name]

    # Commands

    def _apply_id(self, command: ApplyId) -> Result:
        new_group = Group(cluster=command.cluster, name=command.group)
        group = self._find_removed(command.group) or new_group
        if group.is_removed:
            if command.id != group.next_id:
                return Result(
                    Code.CONTROLLER_BROKER_ID_INVALID,
                    f"Broker-set: {command.group} hasn't been registered in controller, but broker"
                    f" try to apply brokerId: {command.id}",
                )
            if sum(not each.is_removed for each in self._all()) >= MAX_GROUPS:
                return Result(
                    Code.CONTROLLER_BROKER_ID_INVALID,
                    f"Fail to apply brokerId: there are {MAX_GROUPS} broker-sets already",
                )
            group = msgspec.structs.replace(group, cluster=command.cluster)
        member = group.members.get(command.id)
        if (
            not 1 <= command.id <= group.next_id + _ID_MARGIN
            or (member is None and len(group.members) >= MAX_MEMBERS)
            or (member is not None and member.check_code != command.check_code)
        ):
            return Result(
                Code.CONTROLLER_BROKER_ID_INVALID,
                f"Fail to apply brokerId: {command.id} in broker-set: {command.group}",
            )
        if member is not None:  # the same broker asks again: the first answer was lost
            return Result(group=group)
        if sum(len(each.members) for each in self._all()) >= MAX_ALL_MEMBERS:
            return Result(
                Code.CONTROLLER_BROKER_ID_INVALID,
                f"Fail to apply brokerId: there are {MAX_ALL_MEMBERS} brokers already; let an"
                " administrator remove some by cleanBrokerMetadata",
            )
        address = command.check_code.partition(";")[0]
        new = Member(address, command.check_code, command.host)
        members = group.members | {command.id: new}
        next_id = max(group.next_id, command.id + 1)
        return self._put(msgspec.structs.replace(group, members=members, next_id=next_id))

    def _register(self, command: Register) -> Result:
        group = self._find(command.group)
        if group is None:
            return Result(
                Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
                f"Broker-set: {command.group} hasn't been registered in controller",
            )
        member = group.members.get(command.id)
        if member is None:
            return _unregistered(command.group, command.id)
        changed = group
        registered = Member(
            command.address,
            member.check_code,
            command.host,
            confirms=command.confirms,
            process=command.process,
        )
        if registered != member:
            members = group.members | {command.id: registered}
            changed = msgspec.structs.replace(changed, members=members)
        is_new = not command.process or command.process != member.process
        if command.restarted and is_new and command.id == group.master:
            changed = vacated(changed)
        if command.lost_tail and is_new:
            changed = without_tail(changed, command.id)
        return Result(group=group) if changed is group else self._put(changed)

    def _elect(self, command: Elect) -> Result:
        group = self._find(command.group)
        if group is None:
            return Result(
                Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "Broker hasn't been registered"
            )
        if command.broker != NO_BROKER and command.broker not in group.members:
            return _unregistered(command.group, command.broker)
        if command.epoch != group.epoch:
            return Result(
                Code.CONTROLLER_FENCED_MASTER_EPOCH,
                f"the master epoch is {group.epoch} meanwhile, not {command.epoch}",
                group,
            )
        elected = winner(group, command)
        if elected is None:
            return self._not_elected(group, command)
        if elected == group.master:
            return Result(
                Code.CONTROLLER_MASTER_STILL_EXIST,
                f"The old master {elected} is still alive, not need to elect new master for broker"
                f" {group.name}",
                group,
            )
        return self._put(
            msgspec.structs.replace(
                group,
                master=elected,
                epoch=group.epoch + 1,
                sync_state_set=(elected,),
                sync_state_set_epoch=group.sync_state_set_epoch + 1,
                earlier_set=earlier_set(group, elected),
            )
        )

    def _not_elected(self, group: Group, command: Elect) -> Result:
        if command.broker != NO_BROKER:
            why = ""
            if not group.electable:
                why = ": the sync-state set is empty, and an administrator must designate a master"
            return Result(Code.CONTROLLER_ELECT_MASTER_FAILED, f"Failed to elect a new master{why}")
        if group.master is not None:
            # A new epoch, so that the old master cannot change the sync-state set any more.
            group = vacated(group)
            self._put(group)
        return Result(
            Code.CONTROLLER_MASTER_NOT_AVAILABLE,
            "Old master has down and failed to elect a new broker master",
            group,
        )

    def _begin(self, command: Begin) -> Result:
        group = self._find(command.group)
        if group is None:
            return _unregistered(command.group, command.master)
        if command.master != group.master:
            return Result(
                Code.CONTROLLER_INVALID_MASTER,
                f"the master is {group.master}, not {command.master}",
                group,
            )
        if command.epoch != group.epoch:
            return Result(
                Code.CONTROLLER_FENCED_MASTER_EPOCH,
                f"the master epoch is {group.epoch} meanwhile, not {command.epoch}",
                group,
            )
        if not group.earlier_set:
            return Result(group=group)
        return self._put(msgspec.structs.replace(group, earlier_set=()))

    def _alter(self, command: Alter) -> Result:
        group = self._find(command.group)
        if group is None:
            return Result(
                Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "Broker metadata is not existed"
            )
        refused = alter_refusal(group, command)
        if refused is not None:
            return refused
        return self._put(
            msgspec.structs.replace(
                group,
                sync_state_set=tuple(sorted(set(command.new))),
                sync_state_set_epoch=group.sync_state_set_epoch + 1,
                earlier_set=(),
            )
        )

    def _clean(self, command: Clean) -> Result:
        code = Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        group = self._find(command.group)
        if group is None:
            return Result(code, f"Broker {command.group} is not existed,clean broker data failure.")
        if command.epoch not in {-1, group.epoch}:
            return Result(
                code, f"the master epoch is {group.epoch} meanwhile, not {command.epoch}: try again"
            )
        ids = set(command.ids or group.members)
        living = sorted(ids.intersection(command.alive))
        if living and not command.forced:
            return Result(
                code, f"Broker [{command.group}, {living[0]}] is still alive, clean up failure"
            )
        members = {each: member for each, member in group.members.items() if each not in ids}
        if not members:
            self._remove(group)
            return Result()
        if group.master in ids:
            group = vacated(group)
        left = tuple(each for each in group.sync_state_set if each not in ids)
        is_changed = left != group.sync_state_set
        return self._put(
            msgspec.structs.replace(
                group,
                members=members,
                sync_state_set=left,
                sync_state_set_epoch=group.sync_state_set_epoch + is_changed,
                earlier_set=tuple(each for each in group.earlier_set if each not in ids),
            )
        )


def _unregistered(group: str, broker: int) -> Result:
    return Result(
        Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        f"BrokerId: {broker} hasn't been registered in broker-set: {group}",
    )
