"""Long polling: waiters are retried on arrivals and at their deadline."""

import asyncio
from collections.abc import Callable

import pytest

from bolide.broker.consume import long_polling as module
from bolide.broker.consume.long_polling import CallbackWaiter, LongPolling, QueueKey
from tests.support.aio import on_loop, until

HERE, THERE = ("T", 0), ("T", 1)
LONG = 60.0


@pytest.fixture(autouse=True)
def short_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TICK", 0.01)


@pytest.fixture(autouse=True)
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make turns long, so that a busy machine does not end one within a test."""
    monkeypatch.setattr(module, "_TURN", 60.0)


@pytest.fixture
def one_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TURN", -1.0)


class Looks:
    """A waiter that records its retries, and is done once `answer` is true."""

    def __init__(self, key: QueueKey = HERE, *, answer: bool = False) -> None:
        self.asked: list[bool] = []
        self.times: list[float] = []
        self.answer = answer
        self.then: Callable[[], None] = lambda: None
        self.waiter = CallbackWaiter(key, self._retry)

    def _retry(self, is_last: bool) -> bool:
        self.asked.append(is_last)
        self.times.append(asyncio.get_running_loop().time())
        self.then()
        return self.answer


def started() -> LongPolling:
    long_polling = LongPolling()
    long_polling.start()
    return long_polling


@on_loop
async def test_an_arrival_wakes_those_who_wait_for_its_queue_and_nobody_else() -> None:
    long_polling = started()
    here, also_here, there = Looks(answer=True), Looks(), Looks(THERE)
    for each in (here, also_here, there):
        long_polling.hold(each.waiter, LONG)
    long_polling.arrived([HERE, ("other", 0)])
    assert (here.asked, also_here.asked, there.asked) == ([False], [False], [])
    long_polling.stop()


@on_loop
async def test_who_got_nothing_goes_on_waiting_and_who_did_is_forgotten() -> None:
    long_polling = started()
    content, hungry = Looks(answer=True), Looks()
    long_polling.hold(content.waiter, LONG)
    long_polling.hold(hungry.waiter, LONG)
    for _ in range(3):
        long_polling.arrived_in("T", [0, 1])
    assert (content.asked, hungry.asked) == ([False], [False] * 3)
    assert len(long_polling) == 1
    long_polling.stop()


@pytest.mark.parametrize("seconds", [0.0, 0.03, 0.08])
@on_loop
async def test_when_the_time_is_up_a_waiter_is_asked_for_the_last_time_and_not_before(
    seconds: float,
) -> None:
    long_polling = started()
    looks = Looks()
    begun = asyncio.get_running_loop().time()
    long_polling.hold(looks.waiter, seconds)
    await until(lambda: looks.asked)
    assert looks.asked == [True]
    assert looks.times[0] - begun >= seconds
    assert len(long_polling) == 0


@on_loop
async def test_deadlines_go_on_being_looked_at_after_nobody_waited_for_a_while() -> None:
    long_polling = started()
    for _ in range(2):
        looks = Looks()
        long_polling.hold(looks.waiter, 0.0)
        await until(lambda looks=looks: looks.asked)  # type: ignore[misc]
        await asyncio.sleep(0.03)


@on_loop
async def test_one_that_is_dropped_is_asked_no_more() -> None:
    long_polling = started()
    looks = Looks()
    long_polling.hold(looks.waiter, 0.02)
    long_polling.drop(looks.waiter)
    long_polling.drop(looks.waiter)
    long_polling.arrived([HERE])
    other = Looks()
    long_polling.hold(other.waiter, 0.05)
    await until(lambda: other.asked)
    assert looks.asked == []


@on_loop
async def test_a_broken_pull_does_not_keep_the_others_asleep(
    caplog: pytest.LogCaptureFixture,
) -> None:
    long_polling = started()
    broken, sound = Looks(), Looks(answer=True)
    broken.then = lambda: 1 / 0  # type: ignore[assignment]
    for each in (broken, sound):
        long_polling.hold(each.waiter, LONG)
    long_polling.arrived([HERE])
    assert (broken.asked, sound.asked) == ([False], [False])
    assert len(long_polling) == 0
    assert "a waiting pull of ('T', 0) failed" in caplog.text


@on_loop
async def test_a_pull_whose_end_ends_another_one_does_not_stop_the_clock() -> None:
    long_polling = started()
    first, second, third = Looks(), Looks(THERE), Looks()
    first.then = lambda: long_polling.drop(second.waiter)
    second.then = lambda: long_polling.drop(first.waiter)
    long_polling.hold(first.waiter, 0.01)
    long_polling.hold(second.waiter, 0.03)
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    blocked_until = loop.time() + 0.06
    while loop.time() < blocked_until:  # both deadlines pass: one sweep finds them
        pass
    long_polling.hold(third.waiter, 0.0)
    await until(lambda: third.asked)
    assert len(first.asked) + len(second.asked) == 1


@on_loop
async def test_at_the_end_all_are_answered_and_nobody_waits_any_more() -> None:
    long_polling = started()
    looks, late = Looks(), Looks()
    long_polling.hold(looks.waiter, LONG)
    long_polling.stop()
    assert looks.asked == [True]
    long_polling.hold(late.waiter, LONG)
    assert late.asked == [True]
    assert len(long_polling) == 0


# Turns


def asked(waiters: list[Looks]) -> int:
    return sum(len(each.asked) for each in waiters)


@pytest.mark.usefixtures("one_a_turn")
@on_loop
async def test_many_are_asked_in_turns_each_of_them_once() -> None:
    long_polling = started()
    many = [Looks(answer=True) for _ in range(5)]
    for each in many:
        long_polling.hold(each.waiter, LONG)
    for _ in range(3):
        long_polling.arrived([HERE])
    for turn in range(5):
        assert asked(many) == turn + 1
        await asyncio.sleep(0)
    assert [each.asked for each in many] == [[False]] * 5
    assert len(long_polling) == 0


@pytest.mark.usefixtures("one_a_turn")
@on_loop
async def test_who_is_dropped_before_its_turn_is_passed_over_and_the_others_are_not() -> None:
    long_polling = started()
    many = [Looks(answer=True) for _ in range(4)]
    for each in many:
        long_polling.hold(each.waiter, LONG)
    long_polling.arrived([HERE])
    gone = next(each for each in many if not each.asked)
    long_polling.drop(gone.waiter)
    for _ in range(4):
        await asyncio.sleep(0)
    assert (asked(many), gone.asked) == (3, [])


@pytest.mark.usefixtures("one_a_turn")
@on_loop
async def test_those_whose_time_is_up_are_asked_in_turns_too() -> None:
    long_polling = started()
    many = [Looks() for _ in range(4)]
    for each in many:
        long_polling.hold(each.waiter, 0.0)
    while not asked(many):  # noqa: ASYNC110  every turn of the loop is looked at
        await asyncio.sleep(0)
    long_polling.arrived([HERE])  # an arrival does not extend the deadline
    for turn in range(4):
        assert asked(many) == turn + 1
        await asyncio.sleep(0)
    assert [each.asked for each in many] == [[True]] * 4
    assert len(long_polling) == 0


@pytest.mark.usefixtures("one_a_turn")
@on_loop
async def test_at_the_end_those_who_wait_for_their_turn_are_answered_too() -> None:
    long_polling = started()
    many = [Looks() for _ in range(4)]
    for each in many:
        long_polling.hold(each.waiter, LONG)
    long_polling.arrived([HERE])
    long_polling.stop()
    assert [each.asked[-1:] for each in many] == [[True]] * 4
    await asyncio.sleep(0.01)
    assert asked(many) == 5
    assert len(long_polling) == 0


@on_loop
async def test_one_can_be_woken_by_itself_while_it_waits() -> None:
    long_polling = started()
    one, other = Looks(), Looks()
    for each in (one, other):
        long_polling.hold(each.waiter, LONG)
    long_polling.wake(one.waiter)
    await asyncio.sleep(0)
    assert (one.asked, other.asked) == ([False], [])
    long_polling.drop(one.waiter)
    long_polling.wake(one.waiter)
    await asyncio.sleep(0)
    assert one.asked == [False]
    long_polling.stop()


@on_loop
async def test_who_waited_first_is_asked_first() -> None:
    long_polling, order = started(), list[int]()
    for number in range(20):
        looks = Looks(answer=True)
        looks.then = lambda number=number: order.append(number)  # type: ignore[misc]
        long_polling.hold(looks.waiter, LONG)
    long_polling.arrived([HERE])
    assert order == list(range(20))
    long_polling.stop()


@on_loop
async def test_released_waiters_answer_as_at_their_deadline() -> None:
    polling = LongPolling()
    polling.start()
    lasts: list[tuple[str, bool]] = []

    def waiter(topic: str) -> CallbackWaiter:
        def retry(is_last: bool) -> bool:
            lasts.append((topic, is_last))
            return is_last

        return CallbackWaiter((topic, 0), retry)

    for topic in "TU":
        polling.hold(waiter(topic), 60.0)
    polling.release([("T", 0), ("T", 1)])
    assert lasts == [("T", True)]
    assert len(polling) == 1
    polling.stop()


@pytest.mark.usefixtures("one_a_turn")
@on_loop
async def test_revoked_waiters_get_nothing_that_arrives_before_their_turn() -> None:
    long_polling = started()
    withheld: list[bool] = []
    waiting = [Looks(answer=True) for _ in range(3)]
    for each in waiting:
        each.then = lambda: withheld.append(long_polling.withholds)
        long_polling.hold(each.waiter, LONG)
    long_polling.revoke_all()
    assert withheld == [True]
    long_polling.arrived([HERE])
    await until(lambda: len(withheld) == 3)
    assert withheld == [True, True, True]
    assert [each.asked for each in waiting] == [[True]] * 3
    later = Looks(answer=True)
    later.then = lambda: withheld.append(long_polling.withholds)
    long_polling.hold(later.waiter, LONG)
    long_polling.arrived([HERE])
    assert withheld[-1] is False
    long_polling.stop()
