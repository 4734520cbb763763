"""The ledger of the soak tests finds what they look for."""

from pathlib import Path

import pytest

from tests.soak.ledger import REACH, GroupLedger, Sent
from tests.soak.letters import Damaged, body_of, number_of
from tests.soak.notes import Checkpointer, Kind, NoteReader

COUNT = 10


def sent(count: int = COUNT) -> Sent:
    """Messages in queue 0, each with the number 100 + its offset."""
    found = Sent()
    for offset in range(count):
        found.acknowledged(0, offset, 100 + offset)
    return found


def deliver(ledger: GroupLedger, owner: str, offsets: range | list[int], at: float) -> None:
    """One every tenth of a second."""
    for place, offset in enumerate(offsets):
        ledger.delivered(owner, 0, offset, 100 + offset, at + place / 10)


def one_owner(*, ordered: bool = False) -> GroupLedger:
    ledger = GroupLedger(ordered=ordered)
    ledger.gained("a", 0, 0.0)
    return ledger


def handed_over(*, ordered: bool = False) -> GroupLedger:
    """From `a` to `b`, between the seconds 50 and 51."""
    ledger = one_owner(ordered=ordered)
    ledger.lost("a", 0, 50.0)
    ledger.gained("b", 0, 51.0)
    return ledger


@pytest.mark.parametrize("ordered", [False, True])
def test_all_messages_once_are_fine(ordered: bool) -> None:
    ledger = one_owner(ordered=ordered)
    deliver(ledger, "a", range(COUNT), 1.0)
    assert ledger.complaints(sent()) == []
    assert ledger.count == COUNT


def test_a_lost_message_is_found() -> None:
    ledger = one_owner()
    deliver(ledger, "a", [0, 1, 2, 4, 5, 6, 7, 8, 9], 1.0)
    assert ledger.complaints(sent()) == ["lost: message 103 at offset 3 of queue 0"]


def test_a_lost_end_and_a_lost_queue_are_found() -> None:
    ledger, all_sent = one_owner(), sent()
    all_sent.acknowledged(1, 0, 500)
    deliver(ledger, "a", range(COUNT - 1), 1.0)
    assert ledger.complaints(all_sent) == [
        "lost: message 109 at offset 9 of queue 0",
        "lost: message 500 at offset 0 of queue 1",
    ]


def test_another_message_in_its_place_is_found() -> None:
    ledger = one_owner()
    deliver(ledger, "a", range(COUNT - 1), 1.0)
    ledger.delivered("a", 0, 9, 777, 3.0)
    assert ledger.complaints(sent()) == ["lost: message 109 at offset 9 of queue 0"]


def test_what_nobody_sent_is_found() -> None:
    ledger = one_owner()
    deliver(ledger, "a", range(COUNT + 1), 1.0)
    assert ledger.complaints(sent()) == ["never sent: message 110 at offset 10 of queue 0"]


def test_two_messages_in_one_place_are_found() -> None:
    ledger = handed_over()
    deliver(ledger, "a", range(COUNT), 49.0)
    ledger.delivered("b", 0, 4, 555, 51.0)
    assert ledger.complaints(sent()) == ["damaged: offset 4 of queue 0 is 104 and 555"]


def test_a_duplicate_without_a_change_of_owner_is_found() -> None:
    ledger = one_owner()
    deliver(ledger, "a", range(COUNT), 20.0)
    ledger.delivered("a", 0, 4, 104, 25.0)
    assert ledger.complaints(sent()) == [
        "twice without a reason: offset 4 of queue 0 at 20.400 and 25.000"
    ]


def test_a_duplicate_around_a_change_of_owner_is_explained() -> None:
    ledger = handed_over()
    deliver(ledger, "a", range(COUNT), 49.0)
    deliver(ledger, "b", [6, 7, 8, 9], 51.0)
    assert ledger.complaints(sent()) == []
    assert len(ledger.again) == 4


@pytest.mark.parametrize("change", [50.0 - REACH - 5, 51.0 + REACH + 5])
def test_a_duplicate_far_from_the_change_of_owner_is_found(change: float) -> None:
    ledger = handed_over()
    deliver(ledger, "a", range(COUNT), min(change, 49.0))
    ledger.delivered("b", 0, 0, 100, max(change, 52.0))
    assert len(ledger.complaints(sent())) == 1


def test_a_duplicate_after_the_owner_was_killed_is_explained() -> None:
    ledger = one_owner()
    deliver(ledger, "a", range(COUNT), 49.0)
    ledger.ended("a", 50.0)
    ledger.gained("b", 0, 51.0)
    deliver(ledger, "b", [8, 9], 51.0)
    assert ledger.complaints(sent()) == []


def test_a_change_of_another_queue_explains_nothing() -> None:
    ledger = one_owner()
    ledger.gained("a", 1, 0.0)
    ledger.lost("a", 1, 50.0)
    deliver(ledger, "a", range(COUNT), 49.0)
    ledger.delivered("a", 0, 4, 104, 51.0)
    assert len(ledger.complaints(sent())) == 1


def test_two_owners_at_once_explain_a_duplicate() -> None:
    ledger = one_owner()
    ledger.gained("b", 0, 50.0)
    ledger.lost("a", 0, 58.0)
    deliver(ledger, "a", range(COUNT), 54.0)
    deliver(ledger, "b", range(COUNT), 54.0)
    assert ledger.complaints(sent()) == []


def test_a_message_out_of_order_is_found() -> None:
    ledger = one_owner(ordered=True)
    deliver(ledger, "a", [0, 1, 2, 4, 3, 5, 6, 7, 8, 9], 20.0)
    found = ledger.complaints(sent())
    assert found[0] == ("out of order: offset 4 of queue 0 to a at 20.300, but offset 3 is next")
    assert all(each.startswith("out of order") for each in found)


def test_order_does_not_matter_for_a_concurrent_group() -> None:
    ledger = one_owner()
    deliver(ledger, "a", [0, 1, 2, 4, 3, 5, 6, 7, 9, 8], 20.0)
    assert ledger.complaints(sent()) == []


def test_a_new_owner_may_step_back_in_order() -> None:
    ledger = handed_over(ordered=True)
    deliver(ledger, "a", range(6), 49.0)
    deliver(ledger, "b", range(4, COUNT), 51.0)
    assert ledger.complaints(sent()) == []


def test_a_step_back_of_the_same_owner_is_found() -> None:
    ledger = one_owner(ordered=True)
    deliver(ledger, "a", range(7), 20.0)
    deliver(ledger, "a", range(5, COUNT), 30.0)
    assert (
        "out of order: offset 5 of queue 0 to a at 30.000, after 6 without a change of holder"
        in ledger.complaints(sent())
    )


def test_a_new_owner_that_skips_is_found() -> None:
    ledger = handed_over(ordered=True)
    deliver(ledger, "a", range(4), 49.0)
    deliver(ledger, "b", range(6, COUNT), 51.0)
    found = ledger.complaints(sent())
    assert "out of order: offset 6 of queue 0 to b at 51.000, but offset 4 is next" in found


def test_two_owners_of_an_ordered_queue_at_once_are_found() -> None:
    ledger = handed_over(ordered=True)
    deliver(ledger, "a", range(6), 50.8)
    deliver(ledger, "b", range(COUNT), 51.0)
    assert ledger.complaints(sent()) == [
        "out of order: offset 0 of queue 0 to b at 51.000, while another had the queue until 51.300"
    ]


def test_the_longest_time_without_one_holder_is_known() -> None:
    ledger = handed_over()
    ledger.lost("b", 0, 60.0)
    ledger.gained("a", 0, 64.0)
    ledger.gained("c", 0, 70.0)
    ledger.lost("a", 0, 72.0)
    assert ledger.longest_handover() == 4.0


def test_long_lists_are_cut() -> None:
    assert len(one_owner().complaints(sent())) == 6
    assert one_owner().complaints(sent())[-1] == "lost: … and 5 more"


def test_bodies_are_of_mixed_size_and_tell_when_they_are_damaged() -> None:
    sizes = sorted(len(body_of(number)) for number in range(100_000))
    assert sizes[0] == 16
    assert 60_000 < sizes[-1] <= 65_536
    assert sizes[50_000] < 256
    assert number_of(body_of(7)) == 7
    with pytest.raises(Damaged):
        number_of(body_of(7)[:-1])
    with pytest.raises(Damaged):
        number_of(body_of(7)[:-1] + b"x")


def test_notes_are_read_as_they_are_written(tmp_path: Path) -> None:
    book, reader = Checkpointer(tmp_path / "notes"), NoteReader(tmp_path / "notes")
    book.write(Kind.DELIVERED, 1, queue=2, number=3, offset=4)
    (note,) = reader.news()
    assert note[:5] == (Kind.DELIVERED, 1, 2, 3, 4)
    assert list(reader.news()) == []
    book.write(Kind.ENDED, 0)
    assert [note.kind for note in reader.news()] == [Kind.ENDED]
