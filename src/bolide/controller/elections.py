"""What the acting leader decides: elections, and answers to heartbeats with or without a lease."""

import logging
from collections.abc import Callable

import msgspec

from bolide.controller.commands import NO_BROKER, Clean, Command, Elect, Group, Result
from bolide.controller.liveness import Leases, LiveTable
from bolide.controller.proposals import NOT_LEADER, Done, Proposals, Timers, View
from bolide.controller.state import preview
from bolide.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

Answered = Callable[[bool, bool], None]
"""Called with whether this controller leads, and whether the broker has a lease."""


class Elections:
    """Elections of one controller; it decides only while it is the acting leader.

    Args:
        unclean: whether a broker outside of the sync-state set may become master.
    """

    def __init__(
        self,
        view: View,
        proposals: Proposals,
        live: LiveTable,
        leases: Leases,
        timers: Timers,
        unclean: Callable[[], bool],
    ) -> None:
        self._view = view
        self._proposals = proposals
        self._live = live
        self._leases = leases
        self._timers = timers
        self._unclean = unclean
        self._electing: set[str] = set()
        self._led_since = float("-inf")

    def heartbeat(self, group: str, broker: int, done: Answered) -> None:
        """Confirm by the log that this controller leads, and grant a lease to a master.

        The lease counts from the moment at which the broker sent its heartbeat, which was before
        this call.
        """
        self._note_leadership()
        self.elect_if_vacant(group)

        def confirmed(result: Result) -> None:
            if result.code != ResponseCode.SUCCESS or not self._proposals.is_acting:
                done(False, False)
                return
            found = self._view.groups.get(group)
            has_lease = found is not None and self._leases.try_grant(found, broker)
            done(True, has_lease)

        self._proposals.confirm(confirmed, may_wait=True)

    def scan(self) -> None:
        """Elect masters where the present one is dead; called periodically."""
        self._note_leadership()
        if not self._proposals.is_acting:
            return
        for name in self._live.groups:  # without living brokers nobody can be elected
            group = self._view.groups.get(name)
            if group is not None:
                self._elect_if_needed(group)

    def elect(self, group: str, broker: int, *, designate: bool, done: Done) -> None:
        """An election that a broker or an administrator asks for."""
        self._note_leadership()
        found = self._view.groups.get(group)
        if not self._proposals.is_acting:
            done(NOT_LEADER)
            return
        if found is None or found.master is None:
            self._propose(self._command(group, found, broker, designate=designate), done)
        elif self._live.find(group, found.master) is None:
            self._replace_silent(found, broker, designate, done)
        else:
            command = self._command(group, found, broker, designate=designate)
            if designate and preview(self._view.groups, command) is None:
                self._without_lease(found, lambda: self._designate(found, broker), done)
            else:  # it changes nothing: the master keeps its lease
                self._propose(command, done)

    def clean(self, command: Clean, done: Done) -> None:
        """Remove brokers; a master that lives loses its lease first."""
        self._note_leadership()
        found = self._view.groups.get(command.group)
        touches_master = found is not None and (not command.ids or found.master in command.ids)
        if found is not None and not command.forced and not self._leases.is_settled:
            code = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
            done(Result(code, "this leader has just begun and does not know yet who is alive"))
        elif found is None:
            self._propose(command, done)
        else:
            fenced = msgspec.structs.replace(command, epoch=found.epoch)
            if command.forced and touches_master:
                self._without_lease(found, lambda: fenced, done)
            else:
                self._propose(fenced, done)

    # Single steps

    def _note_leadership(self) -> None:
        if self._proposals.is_acting and self._proposals.lead_since != self._led_since:
            self._led_since = self._proposals.lead_since
            self._leases.begin()
            self._electing.clear()

    def elect_if_vacant(self, name: str) -> None:
        """Elect a master where there is none, from those who are alive."""
        group = self._view.groups.get(name)
        if group is not None and group.master is None and self._proposals.is_acting:
            self._elect_if_needed(group)

    def _elect_if_needed(self, group: Group) -> None:
        alive = self._live.alive(group.name)
        if (
            group.name in self._electing
            # The first master is the broker that asks; later, a set may have been emptied.
            or not (group.electable or (group.had_master and self._may_be_unclean(group)))
            or not alive
            or self._live.find(group.name, group.master) is not None
            or self._leases.wait(group) > 0
        ):
            return
        command = self._command(group.name, group, NO_BROKER)
        candidates = {each.id for each in command.alive}
        if group.master is None and not (
            candidates.intersection(group.electable) or command.unclean
        ):
            return  # nobody can be elected, and that is known already
        self._electing.add(group.name)

        def elected(result: Result) -> None:
            self._electing.discard(group.name)
            if result.code == ResponseCode.SUCCESS and result.group is not None:
                why = "there was none" if group.master is None else f"{group.master} was silent"
                log.warning(
                    "master of %s is %s in epoch %s: %s", group.name,
                    result.group.master, result.group.epoch, why,
                )  # fmt: skip
            elif result.code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE:
                log.error("%s has no master: no broker of its sync-state set %s is alive",
                          group.name, list(group.electable))  # fmt: skip

        self._propose(command, elected)

    def _replace_silent(self, group: Group, broker: int, designate: bool, done: Done) -> None:
        wait = self._leases.wait(group)
        if wait > 0:
            done(
                Result(
                    ResponseCode.CONTROLLER_ELECT_MASTER_FAILED,
                    f"master {group.master} is silent, but may hold a lease for {wait:.1f} s",
                )
            )
            return
        self._propose(self._command(group.name, group, broker, designate=designate), done)

    def _designate(self, group: Group, broker: int) -> Elect:
        return self._command(group.name, group, broker, designate=True)

    def _without_lease(self, group: Group, command: Callable[[], Command], done: Done) -> None:
        """Propose a command when the lease of the living master has ended."""
        self._leases.revoke(group.name)

        def finish(result: Result) -> None:
            self._leases.restore(group.name)
            done(result)

        def go() -> None:
            # Checked again after the wait: another leader may have granted a lease meanwhile.
            self._note_leadership()
            master = self._live.find(group.name, group.master)
            wait = self._leases.wait(group, is_leased=master is None or master.is_leased)
            if wait > 0 and self._proposals.is_acting:
                self._timers(wait, go)
            else:
                self._propose(command(), finish)

        go()

    def _command(
        self, name: str, group: Group | None, broker: int, *, designate: bool = False
    ) -> Elect:
        return Elect(
            group=name,
            epoch=group.epoch if group is not None else 0,
            broker=broker,
            designate=designate,
            alive=tuple(each.candidate for each in self._live.alive(name)),
            unclean=self._unclean() if designate else self._may_be_unclean(group),
        )

    def _may_be_unclean(self, group: Group | None) -> bool:
        """Whether a broker outside of the sync-state set may become master by itself.

        Not before those of the set have had time for a heartbeat, since this leader began and
        since one of them has registered: a member that restarts is back in a moment.
        """
        return (
            self._unclean()
            and self._leases.is_settled
            and group is not None
            and not any(self._live.is_starting(group.name, each) for each in group.electable)
        )

    def _propose(self, command: Command, done: Done) -> None:
        self._proposals.submit(command, done)
