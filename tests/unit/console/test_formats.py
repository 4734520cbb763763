import pytest

from bolide.console.ui import formats


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ([], ""),
        ([None, None], ""),
        ([0.0, 2.0, 1.0], "M0.0 23.0h.6L50.0 1.0L100.0 12.0"),
        ([1.0, None, 1.0], "M0.0 1.0h.6M100.0 1.0h.6"),
        ([0.0], "M0.0 23.0h.6"),
    ],
)
def test_a_trend_is_a_line_with_gaps(values: list[float | None], path: str) -> None:
    assert formats.trend(values) == path
