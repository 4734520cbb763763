"""What the acting leader writes to the log, and what it answers without."""

from collections.abc import Callable

import pytest

from bolide.controller.commands import ApplyId, Elect, Register, Result
from bolide.controller.proposals import NOT_LEADER, Proposals, View
from bolide.controller.state import Machine, Outcome
from bolide.protocol.codes import ResponseCode as Code


class FakeLog:
    """Entries that wait to be committed."""

    leads = True

    def __init__(self) -> None:
        self.machine, self.view = Machine(), View()
        self.waiting: list[tuple[bytes, Callable[[Outcome | None], None]]] = []
        self.entries: list[bytes] = []

    def propose(self, entry: bytes, done: Callable[[Outcome | None], None]) -> None:
        self.waiting.append((entry, done))

    def commit(self) -> None:
        while self.waiting:
            entry, done = self.waiting.pop(0)
            self.entries.append(entry)
            outcome = self.machine.apply(entry)
            self.view.applied(outcome)
            done(outcome)


def leading() -> tuple[Proposals, FakeLog]:
    log = FakeLog()
    proposals = Proposals("n0", log, log.view, lambda: 0.0, lambda *_: None)
    proposals.library_leads(True)
    log.commit()
    assert proposals.is_acting
    return proposals, log


def test_what_changes_nothing_is_answered_after_a_proof_of_leadership() -> None:
    proposals, log = leading()
    found: list[Result] = []
    proposals.submit(Register("g", 1, "x" * 100), found.append)
    proposals.submit(Elect(group="g", epoch=0, broker=1), found.append)
    assert not found
    log.commit()
    unknown = Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    assert [each.code for each in found] == [unknown, unknown]
    assert all(b'"commands":[]' in each for each in log.entries[1:])


def test_a_leader_that_was_replaced_refuses_nothing_by_its_old_state() -> None:
    proposals, log = leading()
    found: list[Result] = []
    proposals.submit(Register("g", 1, "x"), found.append)
    other = Proposals("n1", log, log.view, lambda: 0.0, lambda *_: None)
    log.waiting, late = [], log.waiting
    other.library_leads(True)
    log.commit()
    log.waiting = late
    log.commit()
    assert found == [NOT_LEADER]


def test_what_becomes_possible_meanwhile_is_done() -> None:
    proposals, log = leading()
    found: list[Result] = []
    proposals.submit(ApplyId("c", "g", 1, "x;1"), lambda _: None)
    proposals.submit(ApplyId("c", "g", 2, "y;1"), found.append)
    log.commit()
    assert [each.code for each in found] == [Code.SUCCESS]
    assert sorted(log.view.groups["g"].members) == [1, 2]


def test_an_entry_stays_below_the_size_that_the_library_can_send() -> None:
    proposals, log = leading()
    found: list[Result] = []
    for number in range(300):
        proposals.submit(ApplyId("c", f"g{number}", 1, "x" * 1000), found.append)
    log.commit()
    assert [each.code for each in found] == [Code.SUCCESS] * 300
    assert max(map(len, log.entries)) < 60 * 1024
    assert 6 <= len(log.entries) <= 9


def test_a_command_that_fits_into_no_entry_is_refused() -> None:
    proposals, log = leading()
    found: list[Result] = []
    proposals.submit(ApplyId("c", "g", 1, "x" * 70_000), found.append)
    assert [each.code for each in found] == [Code.CONTROLLER_INVALID_REQUEST]
    proposals.submit(ApplyId("c", "g", 1, "x"), found.append)
    log.commit()
    assert found[-1].code == Code.SUCCESS


def test_a_command_that_cannot_be_encoded_holds_up_no_other() -> None:
    proposals, log = leading()
    with pytest.raises(UnicodeError):
        proposals.submit(ApplyId("c", "g\ud800", 1, "x"), lambda _: None)
    found: list[Result] = []
    proposals.submit(Register("h\ud800", 1, "x"), found.append)
    proposals.submit(ApplyId("c", "g", 1, "x"), found.append)
    log.commit()
    assert sorted(each.code for each in found) == [
        Code.SUCCESS, Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
    ]  # fmt: skip
