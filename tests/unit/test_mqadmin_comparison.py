"""What counts as a difference between two outputs of mqadmin, and what does not."""

import pytest

from tests.interop.mqadmin_cases import Case, Compare
from tests.interop.mqadmin_comparison import difference, mask

TEXT, FIGURES, KEYS = (Case(words="x", compare=each) for each in Compare)
REFUSED = "SubCommandException: failed\nCaused by: X: CODE: {} DESC: {}"


@pytest.mark.parametrize(
    ("case", "ours", "apache"),
    [
        (TEXT, "broker-a 0 5", "broker-a 0 5"),
        (FIGURES, "broker-a 0 5", "broker-a 1 77"),
        (KEYS, "a : 1\nb : 2\nmore : 3", "a : 9\nb : 9"),
        (TEXT, REFUSED.format(1, "no such group: it has no members"),
         REFUSED.format(1, "no such group")),
    ],
)  # fmt: skip
def test_what_is_the_same(case: Case, ours: str, apache: str) -> None:
    assert not difference(case, ours, apache)


@pytest.mark.parametrize(
    ("case", "ours", "apache"),
    [
        (TEXT, "broker-a 0 5", "broker-a 0 6"),
        (TEXT, "", "broker-a 0 6"),
        (FIGURES, "broker-a 0 5", "broker-b 0 5"),
        (FIGURES, "broker-a 0 5\nbroker-a 1 5", "broker-a 0 5"),
        (KEYS, "a : 1", "a : 1\nb : 2"),
        (Case(words="x", compare=Compare.KEYS, values=("a",)), "a : 1", "a : 2"),
        (TEXT, REFUSED.format(1, "no such group"), REFUSED.format(16, "no such group")),
        (TEXT, REFUSED.format(1, "no such topic"), REFUSED.format(1, "no such group")),
        (TEXT, "created", REFUSED.format(1, "no such group")),
    ],
)
def test_what_differs(case: Case, ours: str, apache: str) -> None:
    assert difference(case, ours, apache)


def test_what_passes_from_run_to_run_is_masked() -> None:
    shown = "TPS: 1.50 at 127.0.0.1:40000, 1795112833509, broker 127.0.0.1:10911\nsecond\n\tat A.b"
    masked = mask(shown, {"broker": "127.0.0.1:10911"})
    assert masked == "TPS: <rate> at <address>, <ms>, broker <broker>\nsecond"
