import subprocess
import sys
from importlib import import_module

import pytest

import bolide.spark


def test_session_and_topics_are_functions_whatever_is_imported_first() -> None:
    import_module("bolide.spark.view")
    import_module("bolide.spark.session")

    assert bolide.spark.session.__name__ == "session"
    assert bolide.spark.topics.__name__ == "topics"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = bolide.spark.Nonsense


@pytest.mark.parametrize(
    "module",
    ["bolide.spark", "bolide.spark.options", "bolide.spark.planning"],
)
def test_what_commands_and_pipelines_need_at_once_loads_no_spark(module: str) -> None:
    program = f"import sys, {module}; sys.exit('pyspark' in sys.modules or 'pandas' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("module", "name"),
    [("pyspark_rocketmq", "rocketmq"), ("pyspark_rocketmq_commitlog", "rocketmq-commitlog")],
)
def test_spark_finds_the_sources_by_the_names_of_modules(module: str, name: str) -> None:
    assert import_module(module).DefaultSource.name() == name


@pytest.mark.parametrize(
    "path",
    [
        "bolide.spark.session",
        "bolide.spark.topics",
        "bolide.spark.archive.read_archive",
        "bolide.spark.pipelines.builtin.RunSettings",
        "bolide.spark.pipelines.declared.read_pipeline",
        "bolide.spark.pipelines.lag.samples_at",
        "bolide.spark.pipelines.lag_forecast.by_window",
        "bolide.spark.pipelines.runner.find_connection",
        "bolide.spark.pipelines.runner.run",
        "bolide.spark.progress.lag",
        "bolide.spark.view.topic_view",
    ],
)
def test_import_paths_of_the_documentation_exist(path: str) -> None:
    module, _, name = path.rpartition(".")
    assert callable(getattr(import_module(module), name))
