"""Pipelines declared in files, and the location of errors."""

import re
from pathlib import Path

import pytest

from bolide.errors import ConfigError
from bolide.spark.pipelines.builtin import RunSettings
from bolide.spark.pipelines.declared import read_pipeline
from bolide.spark.pipelines.definition import EachBatch, FormatSink, Pipeline
from bolide.spark.pipelines.times import ONCE, Trigger
from bolide.spark.pipelines.yaml_document import BadFile

ROOT = Path(__file__).resolve().parents[4]
EXAMPLES = sorted((ROOT / "examples" / "pipelines").glob("*.yaml"))
BIG_ORDERS = ROOT / "examples" / "pipelines" / "big-orders.yaml"
WHOLE = """
name: big-orders
nameServer: ns:9876
source:
  topic: [orders, returns]
  startingOffsets: "-10m"
  valueSchema: |
    id bigint,
    amount double
  includeProperties: no
steps:
  - sql: select * from input where value.amount > 100
  - python: ./steps.py:clean
sink:
  topic: big-orders
  dedup: true
checkpoint: /data/checkpoints/big
trigger: 30 seconds
commitGroup: shown-here
"""
SHORT = """
source: orders
sink: copy
"""


HERE = RunSettings(name_server="ns:9876")


def read(tmp_path: Path, text: str, run: RunSettings = HERE) -> Pipeline:
    file = tmp_path / "flow.yaml"
    file.write_text(text, encoding="utf-8")
    return read_pipeline(file, run)


def test_a_file_says_all_there_is_to_a_pipeline(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("")

    pipeline = read(tmp_path, WHOLE, RunSettings())

    assert pipeline.name == "big-orders"
    assert pipeline.source.options == {
        "nameServer": "ns:9876",
        "topic": "orders,returns",
        "startingOffsets": "-10m",
        "valueSchema": "id bigint,\namount double\n",
        "includeProperties": "false",
    }
    assert [step.text for step in pipeline.steps] == [
        "sql: select * from input where value.amount > 100",
        "python: ./steps.py:clean",
    ]
    assert pipeline.sink == FormatSink(
        format="rocketmq",
        options={"nameServer": "ns:9876", "topic": "big-orders", "dedup": "true"},
    )
    assert pipeline.checkpoint == "/data/checkpoints/big"
    assert pipeline.trigger == Trigger(30.0)
    assert pipeline.group == "shown-here"


def test_two_topics_are_a_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOLIDE_HOME", "/var/bolide")

    pipeline = read(tmp_path, SHORT)

    assert pipeline.name == "flow"
    assert pipeline.source.options["topic"] == "orders"
    assert pipeline.source.options["startingOffsets"] == "earliest"
    assert pipeline.sink.text == "rocketmq copy"
    assert pipeline.checkpoint == "/var/bolide/pipelines/flow/checkpoint"
    assert pipeline.trigger == Trigger(10.0)
    assert pipeline.group == "bolide-pipeline-flow"


def test_what_the_run_is_told_beats_the_file(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("")
    run = RunSettings(
        name_server="other:9876",
        name="again",
        once=True,
        checkpoint="/elsewhere",
        commit_group="mine",
        source_options={"topic": "returns"},
    )

    pipeline = read(tmp_path, WHOLE, run)

    assert (pipeline.name, pipeline.checkpoint, pipeline.group) == ("again", "/elsewhere", "mine")
    assert pipeline.trigger is ONCE
    assert pipeline.source.options["nameServer"] == "other:9876"
    assert pipeline.source.options["topic"] == "returns"


def test_a_sink_may_be_in_another_cluster(tmp_path: Path) -> None:
    text = "source: orders\nsink: {topic: copy, nameServer: far:9876}\n"

    sink = read(tmp_path, text).sink

    assert isinstance(sink, FormatSink)
    assert sink.options == {"nameServer": "far:9876", "topic": "copy"}


@pytest.mark.parametrize(
    ("sink", "wanted"),
    [
        ("{path: /lake, partitionBy: [tags, day]}", "parquet /lake"),
        ("{format: json, path: /lake}", "json /lake"),
        ("{table: lake.orders, format: iceberg}", "iceberg lake.orders"),
        ("{table: lake.orders}", "lake.orders"),
        ("{format: console}", "console"),
        ("{url: 'jdbc:sqlite:/x.db', table: orders}", "jdbc orders"),
    ],
)
def test_a_key_gives_the_format_of_the_sink_away(tmp_path: Path, sink: str, wanted: str) -> None:
    assert read(tmp_path, f"source: orders\nsink: {sink}\n").sink.text == wanted


def test_values_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_HOST", "db")
    monkeypatch.delenv("DB_TABLE", raising=False)
    text = "source: orders\nsink: {url: 'jdbc:x://${DB_HOST}/y', table: '${DB_TABLE:-orders}'}\n"

    sink = read(tmp_path, text).sink

    assert isinstance(sink, EachBatch)
    assert sink.text == "jdbc orders"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("source: orders\nsnik: copy\n", r":2:1: unknown key 'snik' .*; did you mean 'sink'\?"),
        ("source: orders\n", r":1:1: the pipeline needs the key 'sink'"),
        ("source: orders\nsource: orders\n", r":2:1: the key 'source' is there twice"),
        ("source: orders\nsink: copy\nname: a b\n", r":3:7: name 'a b': letters"),
        ("source: orders\nsink: copy\ntrigger: often\n", r":3:10: trigger 'often': use 'once'"),
        (
            "source:\n  topic: orders\n  startingOfsets: latest\nsink: copy\n",
            r":3:3: unknown option startingOfsets; did you mean startingOffsets\?",
        ),
        (
            "source:\n  topic: orders\n  maxOffsetsPerTrigger: many\nsink: copy\n",
            r":3:3: maxOffsetsPerTrigger='many': must be a whole number",
        ),
        (
            "source:\n  topic: orders\n  startingOffsets: soon\nsink: copy\n",
            r":3:3: startingOffsets='soon'",
        ),
        (
            "source:\n  topic: orders\n  valueSchema: id bigintt\nsink: copy\n",
            r":3:3: valueSchema: there is no type 'bigintt'",
        ),
        ("source:\n  tags: a\nsink: copy\n", r":2:3: topic or topicPattern is missing"),
        ("source: orders\nsink:\n  topic: copy\n  batchSize: 0\n", r":4:3: batchSize=0"),
        ("source: orders\nsink: {topic: 'a b'}\n", r":2:8: topic: "),
        ("source: orders\nsink: {}\n", r":2:7: sink needs the key 'format', or one of 'topic'"),
        ("source: orders\nsink: {format: json}\n", r":2:7: sink needs the key 'path'"),
        ("source: orders\nsink: {url: 'jdbc:x'}\n", r":2:7: a jdbc sink needs the key 'table'"),
        ("source: orders\nsink: {path: /x, mode: add}\n", r":2:24: mode 'add': one of append"),
        ("source: orders\nsink: copy\nsteps: [{sqll: x}]\n", r":3:10: unknown key 'sqll' .*'sql'"),
        ("source: orders\nsink: copy\nsteps: [select]\n", r":3:9: step 1: write `sql: …` or"),
        ("source: orders\nsink: copy\nsteps: select 1\n", r":3:8: step 1: write `sql: …` or"),
        ("source: orders\nsink: copy\nsteps: [{}]\n", r":3:9: step 1 must have either the key"),
        (
            "source: orders\nsink: copy\nsteps:\n  - python: clean\n",
            r":4:13: 'clean': use module:function",
        ),
        (
            "source: orders\nsink: copy\nsteps:\n  - python: ./no.py:f\n",
            r":4:13: './no.py:f': there is no file",
        ),
        (
            "source: orders\nsink: copy\nname: ${NOWHERE_SET}\n",
            r":3:7: the environment has no",
        ),
        ("source: {topic: null}\nsink: copy\n", r":1:17: topic must be a text"),
        ("source: orders\nsink: [\n", r":3:1: "),
        ("source: [orders\nsink: copy\n", r":2:5: "),
        ("- source\n", r":1:1: the pipeline must be a table of keys and values"),
        ("", r":1:1: the file is empty"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_column(
    tmp_path: Path, text: str, wanted: str
) -> None:
    with pytest.raises(BadFile, match=rf"^{tmp_path}/flow\.yaml{wanted}"):
        read(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*missing\.yaml"):
        read_pipeline(tmp_path / "missing.yaml", RunSettings())


def test_no_name_server_anywhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    with pytest.raises(BadFile, match="nameServer is missing"):
        read(tmp_path, SHORT, RunSettings())


def test_secrets_are_in_no_text_of_a_pipeline(tmp_path: Path) -> None:
    text = (
        "source: {topic: orders, accessKey: me, secretKey: hush}\n"
        "sink: {topic: copy, accessKey: me, secretKey: hush}\n"
    )

    assert "hush" not in repr(read(tmp_path, text))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_the_examples_are_pipelines(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_DB", "/data/orders.db")

    assert read_pipeline(file, HERE).name == file.stem


def test_the_how_to_shows_an_example() -> None:
    page = (ROOT / "docs" / "how-to" / "pipelines.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)

    assert shown == [BIG_ORDERS.read_text(encoding="utf-8").partition("\n")[2]]
