"""The checker finds each fault in a made-up history, and none in a good one."""

import pytest

from bolide.chaos.checker import Verdict, check, gaps, served
from bolide.chaos.history import Delivered, Fault, History, Kept, Kind, Outcome, Sent, Unread


class Story:
    """A history that is told event by event, a second each."""

    def __init__(self, kind: Kind = Kind.PLAIN) -> None:
        self.history = History()
        self.kind = kind
        self.now = 0.0

    def send(
        self,
        message_id: str,
        outcome: Outcome = Outcome.ACKNOWLEDGED,
        *,
        key: str = "key",
        delay: float = 0.0,
        offset: int = -1,
    ) -> "Story":
        began, self.now = self.now, self.now + 1
        self.history.record(
            Sent(
                id=message_id, kind=self.kind, key=key, number=1, began=began, ended=self.now,
                outcome=outcome, delay=delay, queue="broker-a/0", offset=offset,
            )
        )  # fmt: skip
        return self

    def keep(self, message_id: str, offset: int = 0) -> "Story":
        self.history.record(Kept(id=message_id, kind=self.kind, queue="broker-a/0", offset=offset))
        return self

    def deliver(
        self, message_id: str, offset: int = 0, *, queue: str = "broker-a/0", times: int = 0
    ) -> "Story":
        self.now += 1
        self.history.record(
            Delivered(
                id=message_id, kind=self.kind, at=self.now, queue=queue, offset=offset, times=times
            )
        )
        return self

    def strike(self, nemesis: str, held: float, back_after: float) -> "Story":
        began, self.now = self.now, self.now + held
        self.history.record(
            Fault(
                nemesis=nemesis, targets=("broker-a-0",), round=1, began=began, ended=self.now,
                back_after=back_after,
            )
        )  # fmt: skip
        self.now += back_after
        return self

    def judge(self, **how: bool) -> Verdict:
        return check(self.history, **how)


def broken(verdict: Verdict) -> list[str]:
    return [line.split(": ")[1].split(" ", 1)[1] for line in verdict.violations]


def test_what_is_sent_and_delivered_is_good() -> None:
    story = Story().send("a").send("b").deliver("a", 0).deliver("b", 1)

    verdict = story.judge()

    assert verdict.is_good
    assert verdict.kinds[Kind.PLAIN].acknowledged == verdict.kinds[Kind.PLAIN].delivered == 2


def test_an_acknowledged_message_that_never_comes_is_lost() -> None:
    verdict = Story().send("a").send("b").deliver("b").judge()

    assert verdict.kinds[Kind.PLAIN].lost == ["a"]
    assert verdict.violations == ["plain: 1 acknowledged and lost: a"]


def test_what_was_delivered_and_is_gone_in_the_end_is_lost() -> None:
    story = Story().send("a", offset=0).send("b", offset=1).deliver("a", 0).deliver("b", 1)

    assert story.judge().is_good  # nobody looked
    assert story.judge(is_read_back=True).kinds[Kind.PLAIN].lost == ["a", "b"]
    assert story.keep("b", 1).judge(is_read_back=True).kinds[Kind.PLAIN].lost == ["a"]
    assert story.keep("a", 0).judge(is_read_back=True).is_good


def test_two_messages_that_were_acknowledged_at_one_place_are_found() -> None:
    story = Story().send("a", offset=0).send("b", offset=0).deliver("a", 0).deliver("b", 0)
    story.keep("b", 0).keep("a", 1)  # sent again by its producer: the acknowledged one is gone

    assert story.judge(is_read_back=True).kinds[Kind.PLAIN].lost == ["a"]


@pytest.mark.parametrize("kind", [Kind.TIMER, Kind.TRANSACTION])
def test_what_is_acknowledged_before_it_is_in_its_queue_may_be_anywhere_there(kind: Kind) -> None:
    story = Story(kind).send("a", offset=0).deliver("a", 7)
    story.send("b", Outcome.UNKNOWN).keep("b", 0)
    assert story.judge(is_read_back=True).kinds[kind].lost == ["a"]

    assert story.keep("a", 7).judge(is_read_back=True).is_good


def test_copies_that_nobody_received_are_counted() -> None:
    story = Story().send("a", offset=0).deliver("a", 0).keep("a", 0).keep("a", 1)

    assert story.judge(is_read_back=True).kinds[Kind.PLAIN].copies == 1


def test_loss_is_counted_but_no_violation_in_a_mode_that_allows_it() -> None:
    verdict = Story().send("a").judge(is_loss_allowed=True)

    assert verdict.lost == 1
    assert verdict.is_good


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.WEAK])
def test_a_message_that_was_not_fully_acknowledged_may_come_or_not(outcome: Outcome) -> None:
    verdict = Story().send("a", outcome).send("b", outcome).deliver("b").judge()

    assert verdict.is_good


def test_a_message_that_nobody_sent_is_found() -> None:
    verdict = Story().send("a").deliver("a").deliver("z", 1).judge()

    assert verdict.kinds[Kind.PLAIN].phantom == ["z"]
    assert broken(verdict) == ["delivered and never sent"]


def test_a_body_that_is_not_ours_is_found_by_its_place() -> None:
    verdict = Story().send("a").deliver("a").deliver("", 7).judge()

    assert verdict.kinds[Kind.PLAIN].phantom == ["broker-a/0@7"]


def test_a_transaction_that_was_rolled_back_must_not_come() -> None:
    story = Story(Kind.TRANSACTION).send("a", Outcome.ROLLED_BACK)
    assert story.judge().is_good

    verdict = story.deliver("a").judge()

    assert broken(verdict) == ["delivered and never sent"]


def test_an_ordered_queue_must_not_be_delivered_backwards() -> None:
    story = Story(Kind.ORDERED).send("a", key="1").send("b", key="2")

    verdict = story.deliver("b", 1).deliver("a", 0).judge()

    assert verdict.kinds[Kind.ORDERED].reordered == ["a"]
    assert broken(verdict) == ["out of order"]


def test_the_order_of_two_queues_does_not_matter() -> None:
    story = Story(Kind.ORDERED).send("a", key="1").send("b", key="2")

    assert story.deliver("b", 1).deliver("a", 0, queue="broker-a/1").judge().is_good


def test_a_redelivery_may_go_back_to_the_last_commit() -> None:
    story = Story(Kind.ORDERED).send("a").send("b").send("c")
    story.deliver("a", 0).deliver("b", 1).deliver("a", 0).deliver("b", 1).deliver("c", 2)

    verdict = story.judge()

    assert verdict.is_good
    assert verdict.kinds[Kind.ORDERED].redelivered == 2


def test_messages_of_a_key_that_were_stored_in_the_wrong_order_are_found() -> None:
    verdict = Story(Kind.ORDERED).send("a").send("b").deliver("b", 0).deliver("a", 1).judge()

    assert verdict.kinds[Kind.ORDERED].reordered == ["b"]


def test_a_send_that_timed_out_may_be_stored_late() -> None:
    story = Story(Kind.ORDERED).send("a", Outcome.UNKNOWN).send("b")

    assert story.deliver("b", 0).deliver("a", 1).judge().is_good


def test_copies_and_redeliveries_are_counted() -> None:
    story = Story().send("a").send("b")
    story.deliver("a", 0).deliver("a", 5).deliver("b", 1).deliver("b", 1).deliver("b", 9, times=1)

    verdict = story.judge()

    assert verdict.is_good
    result = verdict.kinds[Kind.PLAIN]
    assert (result.copies, result.redelivered) == (1, 2)


def test_a_dedup_key_must_not_be_stored_twice() -> None:
    story = Story(Kind.DEDUP).send("a").deliver("a", 0).deliver("a", 0)
    assert story.judge().is_good

    verdict = story.deliver("a", 3).judge()

    assert verdict.kinds[Kind.DEDUP].stored_twice == ["a"]
    assert broken(verdict) == ["stored twice in spite of a dedup key"]


def test_a_timer_must_not_be_early() -> None:
    story = Story(Kind.TIMER).send("a", delay=2.0).send("b", delay=4.0)  # due at 2 and at 5
    story.deliver("a", 0).deliver("b", 1)  # at 3 and at 4

    assert story.judge().kinds[Kind.TIMER].early == ["b"]
    assert broken(story.judge()) == ["delivered early"]


@pytest.mark.parametrize(("began", "is_good"), [(3.5, True), (10.0, False)])
def test_a_timer_may_be_early_only_while_a_clock_is_wrong(began: float, is_good: bool) -> None:
    story = Story(Kind.TIMER).send("a", delay=4.0).deliver("a", 0)  # at 2
    story.history.record(
        Fault(nemesis="kill+clock-shift", targets=("broker-a-0",), round=1, began=began,
              ended=began + 1, back_after=0.1)
    )  # fmt: skip

    assert story.judge().is_good is is_good


def test_a_round_after_which_nothing_was_served_is_a_violation() -> None:
    story = Story()
    story.history.record(
        Fault(nemesis="kill", targets=("broker-a-0",), round=3, began=1.0, ended=2.0)
    )

    assert story.judge().violations == ["service was not back: round 3, kill of broker-a-0"]


def test_every_further_place_of_a_message_is_a_copy() -> None:
    story = Story(Kind.TRANSACTION).send("a")
    for offset in range(50):
        story.deliver("a", offset).keep("a", offset)

    assert story.judge(is_read_back=True).kinds[Kind.TRANSACTION].copies == 49


@pytest.mark.parametrize("message_id", ["a", ""])
def test_what_has_no_right_to_be_in_a_queue_is_found_though_nobody_received_it(
    message_id: str,
) -> None:
    story = Story(Kind.TRANSACTION).send("a", Outcome.ROLLED_BACK).keep(message_id, 3)

    assert story.judge().is_good  # nobody looked
    assert broken(story.judge(is_read_back=True)) == ["in a queue and never sent"]


@pytest.mark.parametrize("kind", [Kind.PLAIN, Kind.ORDERED])
def test_a_consumer_that_begins_anew_at_each_failover_is_found(kind: Kind) -> None:
    story = Story(kind)
    names = [str(number) for number in range(40)]
    for offset, name in enumerate(names):
        story.send(name, offset=offset).deliver(name, offset)
    assert story.judge().is_good

    for _ in range(19):
        story.strike("kill", 1.0, back_after=0.1)
        for offset, name in enumerate(names):
            story.deliver(name, offset)

    assert broken(story.judge()) == ["delivered again long after"]
    assert "39" not in story.judge().kinds[kind].replayed


def test_a_queue_that_stood_still_may_be_delivered_again_however_late() -> None:
    story = Story(Kind.ORDERED).send("a").send("b").deliver("a", 0).deliver("b", 1)
    story.now += 300  # for want of a lock

    assert story.deliver("a", 0).deliver("b", 1).judge().is_good


@pytest.mark.parametrize(("after", "is_good"), [(90.0, True), (300.0, False)])
def test_a_popped_message_must_not_come_again_long_after(after: float, is_good: bool) -> None:
    story = Story(Kind.POP).send("a").deliver("a", 0)
    story.now += after

    assert story.deliver("a", 0, times=1).judge().is_good is is_good


def test_a_timer_must_not_be_much_too_late() -> None:
    story = Story(Kind.TIMER).send("a", delay=2.0).send("b", delay=2.0).deliver("a", 0)
    story.now += 600

    verdict = story.deliver("b", 1).judge()

    assert verdict.kinds[Kind.TIMER].late == ["b"]
    assert broken(verdict) == ["delivered late"]


@pytest.mark.parametrize(
    ("nemesis", "held", "back_after", "is_good"),
    [
        ("kill", 1.0, 90.0, True),
        ("kill", 90.0, 1.0, True),
        ("kill", 1.0, 1.0, False),
        ("clock-shift", 1.0, 1.0, True),
    ],
)
def test_time_without_service_and_a_wrong_clock_excuse_a_timer(
    nemesis: str, held: float, back_after: float, is_good: bool
) -> None:
    story = Story(Kind.TIMER).send("a", delay=1.0).strike(nemesis, held, back_after)
    story.now = 80.0 if held + back_after < 10 else 130.0

    assert story.deliver("a", 0).judge().is_good is is_good


def test_overlapping_faults_excuse_a_time_once() -> None:
    def fault(began: float, ended: float) -> Fault:
        return Fault(nemesis="kill", targets=(), round=1, began=began, ended=ended, back_after=1.0)

    assert served(0.0, 20.0, [fault(5.0, 9.0), fault(1.0, 6.0), fault(30.0, 31.0)]) == 11.0
    assert served(8.0, 9.0, [fault(5.0, 9.0)]) == 0.0
    assert served(0.0, 4.0, []) == 4.0


def test_a_member_that_does_not_start_again_is_a_violation() -> None:
    story = Story()
    story.history.record(
        Fault(nemesis="kill", targets=("broker-a-0",), round=3, began=1.0, ended=2.0,
              error="broker-a-0 did not start")
    )  # fmt: skip

    assert story.judge().violations == [
        "ended by an error: round 3, kill of broker-a-0: broker-a-0 did not start"
    ]


@pytest.mark.parametrize(("queue", "lost"), [("broker-a/0", []), ("", []), ("broker-b/0", ["a"])])
def test_of_a_queue_that_cannot_be_read_only_that_is_said(queue: str, lost: list[str]) -> None:
    story = Story().send("a", offset=0).deliver("a", 0)
    story.history.record(Unread(kind=Kind.PLAIN, queue=queue, error="no route"))

    verdict = story.judge(is_read_back=True)

    assert verdict.kinds[Kind.PLAIN].lost == lost
    unread = f"not to be read in the end: plain {queue or 'all queues'}: no route"
    assert unread in verdict.violations


def test_gaps_are_measured_between_acknowledgements() -> None:
    times = (1.0, 1.5, 4.0, 4.5, 6.0)
    sent = [
        Sent(
            id=str(at), kind=Kind.PLAIN, key="", number=1, began=at, ended=at,
            outcome=Outcome.ACKNOWLEDGED,
        )
        for at in times
    ]  # fmt: skip

    assert gaps(sent) == (2.5, 4.0)
    assert gaps([]) == (0.0, 0.0)
