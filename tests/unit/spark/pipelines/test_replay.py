from datetime import UTC, datetime, timedelta

import pytest

from bolide.errors import ConfigError
from bolide.spark.pipelines.builtin import RunSettings
from bolide.spark.pipelines.replay import (
    ReplayOptions,
    TimeSlice,
    iter_time_slices,
    plan,
    tasks_for,
)

RUN = RunSettings(name_server="127.0.0.1:9876")


def test_a_replay_needs_something_to_replay() -> None:
    with pytest.raises(ConfigError, match="--archive"):
        plan(ReplayOptions(), RUN)


def test_a_wrong_time_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="until='noon'"):
        plan(ReplayOptions(archive="/lake", until="noon"), RUN)


def test_an_option_of_the_sink_that_is_none_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="--to-option 'dedup' is not"):
        plan(ReplayOptions(archive="/lake", to_option=("dedup",)), RUN)
    with pytest.raises(ConfigError, match="did you mean producerGroup"):
        plan(ReplayOptions(archive="/lake", to_option=("producerGrop=x",)), RUN)


def test_minutes_are_put_together_until_a_chunk_is_large_enough() -> None:
    start = datetime(2026, 1, 31, 12, tzinfo=UTC)
    minutes = [(int(start.timestamp()) + 60 * n, count) for n, count in ((0, 4), (1, 6), (7, 3))]
    assert [*iter_time_slices(minutes, 10)] == [
        TimeSlice(start, start + timedelta(minutes=2), 10),
        TimeSlice(start + timedelta(minutes=7), start + timedelta(minutes=8), 3),
    ]


@pytest.mark.parametrize(("rate", "tasks"), [(None, 8), (5.0, 1), (350.0, 3), (1e6, 8)])
def test_a_rate_is_shared_among_tasks_that_can_all_run_at_once(
    rate: float | None, tasks: int
) -> None:
    assert tasks_for(rate, 8) == tasks
