from bolide.operations.history.rates import Counters


def test_a_rate_is_the_growth_per_second_and_a_restart_is_no_negative_rate() -> None:
    counters: Counters[str] = Counters(longest=60)
    assert counters.rate("in", 100, 10.0, "first") is None, "nothing to compare with"
    assert counters.rate("in", 150, 20.0, "first") == 5.0
    assert counters.rate("in", 150, 22.0, "first") == 0.0
    assert counters.rate("in", 20, 24.0, "first") is None, "the counter went back"
    assert counters.rate("in", 30, 26.0, "first") == 5.0
    assert counters.rate("in", 9000, 28.0, "second") is None, "another life, above the last value"
    assert counters.rate("in", 9001, 29.0, "second") == 1.0
    assert counters.rate("in", 9100, 100.0, "second") is None, "what was long ago is not now"
    assert counters.rate("in", 9100, 100.0, "second") is None, "no time went by"
    counters.keep_only({"out"})
    assert counters.rate("in", 9200, 101.0, "second") is None
