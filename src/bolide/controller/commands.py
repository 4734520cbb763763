"""What controllers know about brokers, and the commands that change it, as the log holds them.

The machine that runs the commands has no clock and sees no network. What the leader observed, such
as the brokers that are alive, travels inside the command.
"""

from collections.abc import Iterable

import msgspec

from bolide.protocol.codes import ResponseCode as Code

VERSION = 1
"""Of commands and snapshots.

It grows with whatever an older release would understand differently, such as a new command: a
controller that meets a newer version stops. Its operator brings all controllers to the new release.
"""
NO_BROKER = -1
"""As broker id of an election: the controller itself asks for it."""


class Member(msgspec.Struct, frozen=True):
    """One broker of a group."""

    address: str
    check_code: str
    host: str = ""
    """The IP address from which it registered last, or got its id; empty if that was loopback."""
    confirms: bool = False
    """Whether it sends `Begin` before it takes messages as master, as our brokers do."""
    process: str = ""
    """Id of the process that registered last; empty if it told none."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One broker group. Values are replaced, never changed, so threads may share them.

    A removed group is kept without members, if it had a master: one that did not hear of it may
    still act, so a new group of its name goes on behind its epochs and ids.
    """

    cluster: str
    name: str
    members: dict[int, Member] = {}
    next_id: int = 1
    master: int | None = None
    epoch: int = 0
    sync_state_set: tuple[int, ...] = ()
    sync_state_set_epoch: int = 0
    earlier_set: tuple[int, ...] = ()
    """The set from which the master was elected, until it confirms that its term has begun: until
    then nothing was acknowledged in it, so each of these members still has everything."""
    first_epoch: int = 0
    """The epoch before that of its first master."""

    @property
    def is_removed(self) -> bool:
        return not self.members

    @property
    def had_master(self) -> bool:
        return self.epoch > self.first_epoch

    @property
    def electable(self) -> tuple[int, ...]:
        """Members that have everything that was acknowledged."""
        return self.earlier_set or self.sync_state_set

    @property
    def master_address(self) -> str | None:
        return self.address_of(self.master)

    def address_of(self, broker: int | None) -> str | None:
        member = None if broker is None else self.members.get(broker)
        return None if member is None else member.address


class Candidate(msgspec.Struct, frozen=True):
    """A broker that the leader saw alive, as its last heartbeat described it."""

    id: int
    epoch: int = -1
    max_offset: int = -1
    priority: int = 2**31 - 1


class Lead(msgspec.Struct, frozen=True, tag="lead"):
    """The proposing controller becomes the acting leader, unless another one has meanwhile.

    The id of the quorum is made by its first leader. Later ones repeat it.
    """

    quorum: str = ""


class ApplyId(msgspec.Struct, frozen=True, tag="apply_id"):
    """Reserve a broker id; repeating it with the same check code succeeds."""

    cluster: str
    group: str
    id: int
    check_code: str
    host: str = ""


class Register(msgspec.Struct, frozen=True, tag="register"):
    """Store the address of a broker whose id was reserved.

    A broker whose process is new is no master any more, even if it was silent for a short time
    only: the members' logs decide who is the next one. If it may have lost the end of its log, by a
    power cut, it also leaves the sync-state set, unless nobody else is in it. Both happen once for
    a process: a repeat says nothing new.
    """

    group: str
    id: int
    address: str
    restarted: bool = False
    lost_tail: bool = False
    host: str = ""
    confirms: bool = False
    process: str = ""


class Elect(msgspec.Struct, frozen=True, kw_only=True, tag="elect"):
    """Elect a master.

    `broker` is who asks, or whom an administrator designates; `epoch` is the master epoch in which
    the leader took its observations.
    """

    group: str
    epoch: int
    broker: int = NO_BROKER
    designate: bool = False
    alive: tuple[Candidate, ...] = ()
    unclean: bool = False


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """The master confirms that its term begins: from now on only its own set has everything.

    It takes no message before this is answered. Repeating it succeeds.
    """

    group: str
    master: int
    epoch: int


class Alter(msgspec.Struct, frozen=True, kw_only=True, tag="alter"):
    """Replace the sync-state set, if master, epoch and epoch of the set are the current ones."""

    group: str
    master: int
    epoch: int
    set_epoch: int
    new: tuple[int, ...]
    alive: tuple[int, ...]
    renew: bool = False
    """Whether a set of the same members gets a new epoch, too."""


class Clean(msgspec.Struct, frozen=True, kw_only=True, tag="clean"):
    """Remove brokers from a group, or the whole group if no ids are given."""

    group: str
    ids: tuple[int, ...] = ()
    alive: tuple[int, ...] = ()
    forced: bool = False
    epoch: int = -1
    """The master epoch in which the leader made sure that the master has no lease; -1: any."""


Command = Lead | ApplyId | Register | Elect | Begin | Alter | Clean


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the log. Commands are decoded one by one: a bad one spoils no other."""

    version: int = VERSION
    node: str
    generation: int
    commands: list[msgspec.Raw] = []


class Result(msgspec.Struct, frozen=True):
    """The outcome of one command: a response code of RocketMQ and the group afterwards."""

    code: int = Code.SUCCESS
    remark: str = ""
    group: Group | None = None


def encode_entry(node: str, generation: int, commands: Iterable[Command | bytes]) -> bytes:
    """Encode one entry of the log; commands as bytes are encoded already."""
    raw = [msgspec.Raw(each if isinstance(each, bytes) else encode(each)) for each in commands]
    return msgspec.json.encode(Entry(node=node, generation=generation, commands=raw))


def encode(command: Command) -> bytes:
    return msgspec.json.encode(command)
