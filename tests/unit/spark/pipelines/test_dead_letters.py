import pytest

from bolide.errors import ConfigError
from bolide.spark.pipelines.builtin import RunSettings
from bolide.spark.pipelines.dead_letters import DlqOptions, NotReadable, plan

RUN = RunSettings(name_server="127.0.0.1:9876")


def test_a_job_says_whose_dead_letters_it_looks_at() -> None:
    assert plan(DlqOptions(group=("a", "b")), RUN).text == "dead letters of a, b"
    assert plan(DlqOptions(), RUN).text == "dead letters of all groups"


def test_a_wrong_window_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="window="):
        plan(DlqOptions(window="1 week"), RUN)


def test_dead_letters_that_may_not_be_read_come_with_the_way_to_allow_it() -> None:
    assert "updateTopicPerm -c CLUSTER -t %DLQ%g -p 6" in str(NotReadable("%DLQ%g"))
