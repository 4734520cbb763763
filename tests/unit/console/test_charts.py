"""Points of charts."""

from bolide.console.ui.charts import joined


def test_rare_samples_make_a_line_and_long_pauses_a_gap() -> None:
    values = [None, 1.0, None, 2.0, None, 3.0, None, None, None, None, None, 4.0, None, 5.0, None]
    points = [(float(number), value) for number, value in enumerate(values)]
    shown = joined(points)
    assert [value for _, value in shown if value is not None] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert [at for at, value in shown if value is None] == [0.0, 6.0, 7.0, 8.0, 9.0, 10.0, 14.0]


def test_points_without_samples_stay() -> None:
    points = [(0.0, None), (1.0, None)]
    assert joined(points) == points
    assert joined([(0.0, None), (1.0, 5.0)]) == [(0.0, None), (1.0, 5.0)]
