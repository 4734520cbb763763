from bolide.bench.counters import SendCounters
from bolide.bench.report import send_summary
from bolide.bench.runner import RunTime
from bolide.protocol.refusals import SystemBusy


def test_the_same_figures_are_there_for_people_and_for_programs() -> None:
    counters = SendCounters()
    for _ in range(1500):
        counters.succeeded(1, 0.002)

    summary = send_summary("producer", counters, RunTime(3.0, 0.75))

    assert summary.as_json() == {
        "command": "producer",
        "sent": 1500,
        "failed": 0,
        "seconds": 3.0,
        "client_cpu_seconds": 0.75,
        "sent_per_second": 500.0,
        "send_ms": {"mean": 2.0, "p50": 2.0, "p90": 2.0, "p99": 2.0, "p99.9": 2.0, "max": 2.0},
        "last_failure": None,
    }
    assert summary.as_text().splitlines() == [
        "sent                1,500",
        "failed              0",
        "seconds             3.0",
        "client cpu seconds  0.75",
        "sent per second     500.0",
        "send ms             mean 2.000  p50 2.000  p90 2.000  p99 2.000  p99.9 2.000  max 2.000",
    ]


def test_it_is_known_whether_anything_succeeded() -> None:
    counters = SendCounters()
    counters.failed(1, SystemBusy("later"))
    assert send_summary("producer", counters, RunTime(1.0, 0.1)).all_failed
    counters.succeeded(1, 0.1)

    summary = send_summary("producer", counters, RunTime(1.0, 0.1))
    assert not summary.all_failed
    assert "last failure" in summary.as_text()
