import pytest

from bolide.errors import ConfigError
from bolide.spark.pipelines.builtin import RunSettings
from bolide.spark.pipelines.definition import FormatSink, Pipeline
from bolide.spark.pipelines.mirror import MirrorOptions, plan

HERE = RunSettings(
    name_server="here:9876",
    source_options={"accessKey": "me", "secretKey": "hush", "maxOffsetsPerTrigger": "10"},
)


def sink_options(pipeline: Pipeline) -> dict[str, str]:
    assert isinstance(pipeline.sink, FormatSink)
    return dict(pipeline.sink.options)


def test_a_copy_in_the_same_cluster_is_reached_the_same_way() -> None:
    pipeline = plan(MirrorOptions(topic="orders", to="copy"), HERE)

    assert pipeline.name == "mirror-orders"
    assert pipeline.source.options["topic"] == "orders"
    assert pipeline.source.options["startingOffsets"] == "earliest"
    assert sink_options(pipeline) == {
        "nameServer": "here:9876",
        "accessKey": "me",
        "secretKey": "hush",
        "topic": "copy",
        "dedup": "false",
        "keepOrder": "true",
    }


def test_another_cluster_has_its_own_options_and_the_same_topics() -> None:
    options = MirrorOptions(
        topic="orders, returns", to_name_server="there:9876", to_option=("batchSize=5",), dedup=True
    )

    pipeline = plan(options, HERE)

    assert pipeline.name == "mirror-orders-and-1"
    assert sink_options(pipeline) == {
        "nameServer": "there:9876",
        "batchSize": "5",
        "dedup": "true",
        "keepOrder": "true",
    }


def test_sql_is_a_step() -> None:
    (step,) = plan(MirrorOptions(topic="a", to="b", sql="select *\n from input"), HERE).steps

    assert step.text == "sql: select * from input"


@pytest.mark.parametrize(
    "options",
    [
        MirrorOptions(topic="orders"),
        MirrorOptions(topic="orders,returns", to="returns"),
        MirrorOptions(topic="orders", to_name_server="here:9876"),
    ],
)
def test_a_topic_is_not_mirrored_into_itself(options: MirrorOptions) -> None:
    with pytest.raises(ConfigError, match="mirror would send to the topic that it reads"):
        plan(options, HERE)


def test_an_option_of_the_sink_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"batchSise.*did you mean batchSize"):
        plan(MirrorOptions(topic="a", to="b", to_option=("batchSise=5",)), HERE)
    with pytest.raises(ConfigError, match="'batchSize' is not of the form key=value"):
        plan(MirrorOptions(topic="a", to="b", to_option=("batchSize",)), HERE)
