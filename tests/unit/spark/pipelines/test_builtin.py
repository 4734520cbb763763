"""Built-in pipelines: each is found, has unique options, and becomes a command."""

import dataclasses

import pytest
from typer.testing import CliRunner

from bolide.cli import app
from bolide.cli.pipeline_run import RunArguments, load
from bolide.errors import ConfigError
from bolide.spark.pipelines.builtin import BUILT_INS, RunSettings, make_options

EACH = sorted(BUILT_INS)


@pytest.mark.parametrize("name", EACH)
def test_each_says_what_it_does_and_takes_no_option_of_all_runs(name: str) -> None:
    built_in = BUILT_INS[name]
    own = {item.name for item in dataclasses.fields(built_in.options)}
    common = {item.name for item in dataclasses.fields(RunArguments)}

    assert built_in.name == name
    assert built_in.text
    assert all(item.metadata["doc"] for item in dataclasses.fields(built_in.options))
    assert not own & common


@pytest.mark.parametrize("verb", ["run", "explain"])
def test_each_is_a_command(verb: str) -> None:
    assert set(load(verb)) == {*EACH, "FILE"}


def test_a_missing_option_and_an_unknown_one_are_named() -> None:
    with pytest.raises(ConfigError, match="mirror needs the option 'topic'"):
        make_options(BUILT_INS["mirror"], {"to": "b"})
    with pytest.raises(ConfigError, match="mirror has no option 'topics'"):
        make_options(BUILT_INS["mirror"], {"topics": "a"})


def test_options_of_the_source_reach_the_sink_only_if_they_are_of_the_connection() -> None:
    run = RunSettings(name_server="ns:9876", source_options={"TLSENABLE": "true", "tags": "a"})

    assert run.connection == {"nameServer": "ns:9876", "TLSENABLE": "true"}
    assert run.source(topic="t").options["tags"] == "a"
    assert run.connect().tls is not None


def test_a_start_that_the_user_names_is_not_overruled() -> None:
    run = RunSettings(name_server="ns:9876", source_options={"startingTimestamp": "5"})

    assert "startingOffsets" not in run.source(topic="t").options
    assert run.source(topic="t", startingOffsets="latest").options["startingOffsets"] == "latest"


@pytest.mark.parametrize(
    ("words", "code", "wanted"),
    [
        (["run", "archiv"], 3, "neither a file nor a built-in pipeline; did you mean 'archive'?"),
        (["run", "mirror", "--to", "b"], 2, "Missing option '--topic'"),
        (["run", "mirror", "--topic", "a", "-n", "x:1"], 3, "use --to TOPIC"),
        (["run", "mirror", "--topic", "a", "-n", "x:1", "--every", "now"], 3, "trigger 'now'"),
        (["run", "mirror", "--topic", "a", "-n", "x:1", "-o", "tags"], 3, "form key=value"),
        (["explain", "mirror", "--topic", "a", "--force"], 2, "No such option"),
    ],
)
def test_a_mistake_ends_with_one_line_before_spark_starts(
    words: list[str], code: int, wanted: str
) -> None:
    done = CliRunner().invoke(app, ["pipeline", *words])

    assert done.exit_code == code
    assert wanted in done.output
