import pytest

from bolide.errors import ConfigError
from bolide.spark.sink.columns import Columns
from tests.unit.spark.sink.packed import options

SOURCE = {"topic": "string", "broker": "string", "queue_id": "int", "queue_offset": "bigint"}
NAMED_SOURCE = {
    "source_topic": "string",
    "source_broker": "string",
    "source_queue_id": "int",
    "source_queue_offset": "bigint",
}


def columns(given: dict[str, str], **chosen: str) -> Columns:
    return Columns.of({"body": "binary", **given}, options(**chosen))


def refusal(given: dict[str, str], **chosen: str) -> str:
    with pytest.raises(ConfigError) as failure:
        columns(given, **chosen)
    return str(failure.value)


def test_a_body_and_a_topic_are_enough() -> None:
    assert columns({}, topic="Orders").names == {"body"}
    assert columns({"topic": "string"}).names == {"body", "topic"}


def test_no_body_and_no_topic_are_told_apart() -> None:
    with pytest.raises(ConfigError, match="column body is missing"):
        Columns.of({"topic": "string"}, options())
    assert refusal({}) == "no topic: give the option topic, or a column topic"


def test_a_wrong_type_names_the_column_and_the_right_types() -> None:
    text = refusal({"keys": "map<string,string>"}, topic="Orders")
    assert text == (
        "column keys is of type map<string,string>, and must be string or array<string>: cast it"
    )


def test_an_unknown_column_is_refused_with_the_nearest_name() -> None:
    assert "column tagss has no meaning for a message: did you mean tags?" in refusal(
        {"tagss": "string"}, topic="Orders"
    )


def test_what_the_source_gives_may_stay_in_the_rows() -> None:
    given = {"message_id": "string", "born_timestamp": "timestamp", "value": "struct<a:int>"}
    assert columns(given, topic="Orders").names == {"body"}


def test_a_queue_is_a_place_to_go_to_only_without_an_offset() -> None:
    assert columns({"queue_id": "int"}, topic="Orders").is_routed
    read = columns(SOURCE, topic="Orders")
    assert not read.is_routed
    assert read.source == ("topic", "broker", "queue_id", "queue_offset")


def test_named_columns_of_the_source_come_first() -> None:
    found = columns({"topic": "string", "queue_id": "int", **NAMED_SOURCE})
    assert found.source == tuple(NAMED_SOURCE)
    assert found.is_routed


def test_half_a_place_in_the_source_is_refused() -> None:
    assert "belong together" in refusal({"source_topic": "string"}, topic="Orders")


def test_a_broker_without_a_queue_is_refused() -> None:
    assert "column broker has no effect without queue_id" in refusal(
        {"broker": "string"}, topic="O"
    )


@pytest.mark.parametrize(
    ("given", "dedup", "keyed"),
    [
        ({}, "auto", False),
        (SOURCE, "auto", False),
        ({"dedup_key": "string"}, "auto", True),
        ({"dedup_key": "string"}, "false", False),
        ({"dedup_key": "string"}, "true", True),
        (SOURCE, "true", True),
        ({}, "row", True),
    ],
)
def test_rows_are_keyed_as_the_option_and_the_columns_say(
    given: dict[str, str], dedup: str, keyed: bool
) -> None:
    assert columns(given, topic="Orders", dedup=dedup).is_keyed is keyed


def test_dedup_without_anything_to_go_by_is_refused() -> None:
    text = refusal({}, topic="Orders", dedup="true")
    assert "dedup=true needs a column dedup_key" in text
    assert "dedup=row" in text


def test_order_is_kept_only_of_rows_that_say_where_they_came_from() -> None:
    assert "keepOrder needs to know" in refusal({}, topic="Orders", keepOrder="true")


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("topic", "a b", "topic: 'a b' holds other characters"),
        ("batchSize", "0", "batchSize=0: must be a whole number from 1 to 10000"),
        ("delayLevels", "1s soon", "delayLevels: .*'soon'"),
        ("dedup", "maybe", "dedup='maybe': must be one of auto, true, row, false"),
        ("topics", "Orders", "unknown option topics; did you mean topic?"),
        ("producerGroup", "DEFAULT_PRODUCER", "reserved"),
    ],
)
def test_a_wrong_option_is_named(name: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason.replace("?", r"\?")):
        options(**{name: text})


def test_what_spark_itself_takes_is_passed_over() -> None:
    assert options(checkpointLocation="/tmp/c", queryName="q", topic="Orders").topic == "Orders"
