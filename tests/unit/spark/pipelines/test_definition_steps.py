import inspect
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import DataFrame

from bolide.errors import ConfigError
from bolide.spark.pipelines.definition import (
    StepFailed,
    check_target,
    python_step,
    require_function,
)


def test_a_function_is_found_in_a_file_beside_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def clean(frame): return frame")

    check_target("./steps.py:clean", tmp_path)

    assert require_function("./steps.py", "clean", tmp_path).__name__ == "clean"


def test_two_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "steps.py").write_text(f"def clean(frame, n={number}): ...")

    found = [require_function("steps.py", "clean", tmp_path / str(n)) for n in range(2)]

    assert [inspect.signature(each).parameters["n"].default for each in found] == [0, 1]


def test_a_function_is_found_in_a_module(tmp_path: Path) -> None:
    assert require_function("os.path", "join", tmp_path).__name__ == "join"


@pytest.mark.parametrize(
    ("module", "name"), [("os.path", "nothing"), ("os", "sep"), ("./steps.py", "missing")]
)
def test_what_is_no_function_is_named(tmp_path: Path, module: str, name: str) -> None:
    (tmp_path / "steps.py").write_text("")

    with pytest.raises(ConfigError, match=f"{module} has no function '{name}'"):
        require_function(module, name, tmp_path)


@pytest.mark.parametrize("target", ["clean", ":clean", "steps:", "steps:a b", "./nothing.py:clean"])
def test_a_target_that_cannot_be_meant_is_refused_before_anything_is_loaded(
    tmp_path: Path, target: str
) -> None:
    with pytest.raises(ConfigError):
        check_target(target, tmp_path)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ('{}["customer"]', r"KeyError: 'customer' \(steps\.py, line 2\)$"),
        ('int("x")', r"ValueError: invalid literal .* \(steps\.py, line 2\)$"),
        ("None", r"\./steps\.py:clean gave NoneType, not a DataFrame$"),
    ],
)
def test_what_a_function_does_wrong_is_told_with_its_kind_and_line(
    tmp_path: Path, body: str, wanted: str
) -> None:
    (tmp_path / "steps.py").write_text(f"def clean(frame):\n    return {body}\n")
    step = python_step("./steps.py:clean", "flow.yaml:3:4: step 1", tmp_path)

    with pytest.raises(StepFailed, match=rf"^flow\.yaml:3:4: step 1: {wanted}"):
        step.apply(cast(DataFrame, None))
