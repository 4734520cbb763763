import pytest

from bolide.errors import ConfigError
from bolide.spark.pipelines.builtin import RunSettings
from bolide.spark.pipelines.lag import LagOptions, plan
from bolide.spark.pipelines.lag_forecast import trend_text

RUN = RunSettings(name_server="127.0.0.1:9876")


@pytest.mark.parametrize(
    ("lag", "rates", "trend", "text"),
    [
        (0, (5.0, 5.0), "none", "no lag"),
        (500, (10.0, 12.0), "drains", "drains in 4 m 10 s"),
        (500, (130.0, 10.0), "grows", "grows by 120/s"),
        (500, (10.0, 10.0), "steady", "stays as it is"),
        (500, (0.0, 0.0), "idle", "nothing is consumed"),
        (500, (None, None), None, "not known yet"),
    ],
)
def test_a_forecast_says_what_becomes_of_the_lag(
    lag: int, rates: tuple[float | None, float | None], trend: str | None, text: str
) -> None:
    assert trend_text(lag, *rates, trend) == text


def test_a_job_says_what_it_looks_at() -> None:
    job = plan(LagOptions(group=("a", "b")), RUN)
    assert (job.name, job.text) == ("lag", "lag of a, b every 10 s")


def test_a_wrong_window_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="window="):
        plan(LagOptions(window="long"), RUN)
