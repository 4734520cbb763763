"""The archive pipeline as it is planned, without Spark."""

import pytest

from bolide.errors import ConfigError
from bolide.spark.pipelines.archive import BUILT_IN, ArchiveOptions, plan
from bolide.spark.pipelines.builtin import RunSettings, make_options
from bolide.spark.pipelines.times import ONCE, Trigger

RUN = RunSettings(name_server="127.0.0.1:9876")


def test_the_checkpoint_lies_in_the_table() -> None:
    planned = plan(ArchiveOptions(path="s3a://lake/orders/", topic="orders"), RUN)
    assert planned.checkpoint == "s3a://lake/orders/_bolide/checkpoint"
    assert planned.name == "archive-orders"
    assert planned.trigger == Trigger(60.0)
    assert planned.source.options["startingOffsets"] == "earliest"


def test_what_the_run_says_wins() -> None:
    run = RunSettings(
        name_server="127.0.0.1:9876",
        once=True,
        name="mine",
        checkpoint="/elsewhere",
        source_options={"maxOffsetsPerTrigger": "7"},
    )
    planned = plan(ArchiveOptions(path="/lake", topic="a,b"), run)
    assert (planned.name, planned.checkpoint, planned.trigger) == ("mine", "/elsewhere", ONCE)
    assert planned.source.options["maxOffsetsPerTrigger"] == "7"


def test_a_name_is_made_of_a_pattern() -> None:
    planned = plan(ArchiveOptions(path="/lake", topic_pattern="orders.*|%RETRY%x"), RUN)
    assert planned.name == "archive-orders-RETRY-x"


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ({"topic": "a", "topic_pattern": "b"}, {}, "topic and topicPattern"),
        ({}, {}, "topic or topicPattern is missing"),
        ({"topic": "a"}, {"tags": "x"}, "tags: an archive has every message"),
        ({"topic": "a"}, {"sql": "b > 1"}, "sql: an archive has every message"),
        ({"topic": "a", "keep": "soon"}, {}, "keep='soon'"),
        ({"topic": "a", "value_schema": "id nonsense"}, {}, "nonsense"),
        ({"topic": "a", "start": "tomorrow"}, {}, "tomorrow"),
    ],
)
def test_mistakes_are_named_before_anything_runs(
    given: dict[str, str], options: dict[str, str], message: str
) -> None:
    chosen = make_options(BUILT_IN, {"path": "/lake", **given})
    run = RunSettings(name_server="127.0.0.1:9876", source_options=options)
    with pytest.raises(ConfigError, match=message):
        plan(chosen, run)
