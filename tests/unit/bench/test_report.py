"""Progress lines have the format of RocketMQ's benchmark programs."""

import re

from bolide.bench.counters import ConsumeCounters, SendCounters
from bolide.bench.report import ConsumeProgress, SendProgress
from bolide.client.errors import SendFailed
from tests.support.clock import FakeClock

TIME = r"Current Time: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \| "


def test_a_line_tells_of_the_sends_since_the_last_one() -> None:
    lines: list[str] = []
    counters, clock = SendCounters(), FakeClock()
    progress = SendProgress(counters, lines.append, now=clock)
    for _ in range(300):
        counters.succeeded(1, 0.002)
    clock.advance(2.0)
    progress()
    counters.succeeded(1, 0.006)
    counters.failed(1, SendFailed("T", (), 3.0, None))
    clock.advance(1.0)
    progress()

    assert re.fullmatch(
        TIME + r"Send TPS: 150 \| Max RT\(ms\): 2 \| Average RT\(ms\):   2\.000"
        r" \| Send Failed: 0 \| Response Failed: 0",
        lines[0],
    )
    assert lines[1].endswith(
        "| Send TPS: 1 | Max RT(ms): 6 | Average RT(ms):   6.000"
        " | Send Failed: 1 | Response Failed: 0"
    )


def test_the_last_line_tells_of_all_sends() -> None:
    lines: list[str] = []
    counters = SendCounters()
    progress = SendProgress(counters, lines.append)
    for _ in range(10):
        counters.succeeded(1, 0.1)

    progress.complete(2.0)

    assert lines == [
        (
            "[Complete] Send Total: 10 | Send TPS: 5 | Max RT(ms): 100 | Average RT(ms): 100.000"
            " | Send Failed: 0 | Response Failed: 0"
        )
    ]


def test_a_line_of_batches_tells_of_messages_too() -> None:
    lines: list[str] = []
    counters, clock = SendCounters(), FakeClock()
    progress = SendProgress(counters, lines.append, batched=True, now=clock)
    counters.succeeded(16, 0.032)
    clock.advance(0.5)

    progress()

    assert re.fullmatch(
        TIME + r"Send TPS: 2 \| Send MPS: 32 \| Max RT\(ms\): 32 \| Average RT\(ms\):  32\.000"
        r" \| Average Message RT\(ms\):   2\.000 \| Send Failed: 0 \| Send Message Failed: 0",
        lines[0],
    )


def test_a_line_of_a_consumer_tells_ages_and_failures_since_the_last_one() -> None:
    lines: list[str] = []
    counters, clock = ConsumeCounters(), FakeClock()
    progress = ConsumeProgress(counters, lines.append, now=clock)
    counters.record(0.004, 0.002)
    counters.record(0.002, 0.001)
    counters.failed += 1
    clock.advance(1.0)
    progress()
    clock.advance(1.0)
    progress()

    assert re.fullmatch(
        TIME + r"Consume TPS: 2 \| AVG\(B2C\) RT\(ms\):   3\.000 \| AVG\(S2C\) RT\(ms\):   1\.500"
        r" \| MAX\(B2C\) RT\(ms\): 4 \| MAX\(S2C\) RT\(ms\): 2 \| Consume Fail: 1",
        lines[0],
    )
    assert lines[1].endswith("MAX(B2C) RT(ms): 0 | MAX(S2C) RT(ms): 0 | Consume Fail: 0")
