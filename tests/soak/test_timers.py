"""200,000 messages wait for random moments of an hour, and the broker is killed in between."""

import random
from pathlib import Path

import pytest

from bolide.broker.timers import scheduler
from bolide.model.properties import PropertyName
from tests.support.aio import on_loop
from tests.support.timer_bench import TimerBench

HOUR_MS = 3_600_000


async def an_hour(root: Path, count: int, crashes: int) -> TimerBench:
    """Send, let an hour pass on the clock of the test, and crash at times."""
    bench = TimerBench(root, log_size=64 * 1024 * 1024, queue_units=300_000)
    await bench.start()
    dice = random.Random(count)
    for at in range(count):
        bench.send(bench.now_ms + 1 + dice.randrange(HOUR_MS))
        if at % 1000 == 0:
            await bench.settle()
    for _ in range(crashes):
        await bench.pass_time(HOUR_MS / 1000 / (crashes + 1))
        await bench.crash()
        await bench.start()
    await bench.pass_time(HOUR_MS / 1000 + 10)
    return bench


def check(bench: TimerBench) -> None:
    """None is lost, none comes twice, none is early or late."""
    assert sorted(bench.bodies) == list(range(1, bench.sent + 1))
    errors = {
        record.store_timestamp - int(record.decode_properties()[PropertyName.TIMER_DELIVER_MS])
        for record in bench.delivered()
    }
    assert errors == {0}


@pytest.fixture(autouse=True)
def sound_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is the test's own: nobody sets it while the timer sleeps."""
    monkeypatch.setattr(scheduler, "_MAX_SLEEP", 3600.0)


@on_loop
async def test_thousands_of_messages_over_an_hour_with_two_crashes(tmp_path: Path) -> None:
    bench = await an_hour(tmp_path / "store", 2000, crashes=2)
    check(bench)
    await bench.stop()


@pytest.mark.long
@pytest.mark.timeout(1200)
@on_loop
async def test_200_000_messages_over_an_hour_with_three_crashes(tmp_path: Path) -> None:
    bench = await an_hour(tmp_path / "store", 200_000, crashes=3)
    check(bench)
    await bench.stop()
