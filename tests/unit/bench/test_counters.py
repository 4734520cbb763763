from bolide.bench.counters import ConsumeCounters, SendCounters
from bolide.client.errors import SendFailed
from bolide.protocol.refusals import SystemBusy


def test_refusals_and_lost_requests_are_counted_apart() -> None:
    counters = SendCounters()
    refused = SendFailed("T", ["broker-a"], 1.0, None)
    refused.__cause__ = SystemBusy("later")

    counters.failed(1, SystemBusy("come back"))
    counters.failed(1, refused)
    counters.failed(16, SendFailed("T", ["broker-a"], 3.0, None))

    totals = counters.totals()
    assert (totals.response_failed, totals.send_failed, totals.messages_failed) == (2, 1, 18)
    assert counters.last_failure is not None
    assert "broker-a" in counters.last_failure


def test_a_batch_is_one_request_and_many_messages() -> None:
    counters = SendCounters()
    before = counters.totals()
    counters.succeeded(16, 0.5)
    counters.succeeded(16, 1.0)

    change = counters.totals().since(before)
    assert (change.requests, change.messages, change.seconds) == (2, 32, 1.5)


def test_the_longest_times_are_those_since_the_last_question() -> None:
    counters = ConsumeCounters()
    counters.record(3.0, 1.0)
    counters.record(2.0, 1.5)

    assert counters.reset_longest() == (3.0, 1.5)
    assert counters.reset_longest() == (0.0, 0.0)
    assert counters.born.longest == 3.0
