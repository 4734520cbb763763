import pytest

from benchmarks.compare.programs import read_line

PRODUCER = (
    "Current Time: 2026-11-16 02:20:01,123 | Send TPS: 35599 | Max RT(ms): 120 |"
    " Average RT(ms):   1.796 | Send Failed: 2 | Response Failed: 3"
)
BATCHES = (
    "Current Time: 2026-11-16 02:20:01,123 | Send TPS: 1000 | Send MPS: 16000 | Max RT(ms): 12 |"
    " Average RT(ms):   1.796 | Average Message RT(ms):   0.112 | Send Failed: 0 |"
    " Send Message Failed: 0"
)
TRANSACTIONS = (
    "Current Time: 2026-11-16 02:20:01,123 | Send TPS:  7733 | Max RT(ms):    55 |"
    " AVG RT(ms): 4.1 | Send Failed: 0 | Check: 0 | UnexpectedCheck: 0 | DuplicatedCheck: 0"
)
CONSUMER = (
    "Current Time: 2026-11-16 02:20:01,123 | Consume TPS: 91762 | AVG(B2C) RT(ms): 20000.123 |"
    " AVG(S2C) RT(ms): 20000.100 | MAX(B2C) RT(ms): 21000 | MAX(S2C) RT(ms): 21000 |"
    " Consume Fail: 4"
)


@pytest.mark.parametrize(
    ("line", "rate", "failures"),
    [(PRODUCER, 35_599, 5), (BATCHES, 16_000, 0), (TRANSACTIONS, 7_733, 0), (CONSUMER, 91_762, 4)],
)
def test_each_programs_line_gives_messages_per_second_and_failures(
    line: str, rate: int, failures: int
) -> None:
    assert read_line(line) == (rate, failures)


def test_a_line_without_a_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="no rate"):
        read_line("Consumer Started.")
