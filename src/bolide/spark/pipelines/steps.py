"""The steps of a declared pipeline: SQL over the rows so far, or a function of yours."""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from bolide.errors import BolideError, ConfigError
from bolide.spark.pipelines.work import Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INPUT = "input"
"""The name of the rows so far, in SQL."""


class StepFailed(ConfigError):
    """A step could not be applied; the text names the step and where it stands."""


def sql_step(text: str, place: str) -> Step:
    def apply(frame: "DataFrame") -> "DataFrame":
        frame.createOrReplaceTempView(INPUT)
        return frame.sparkSession.sql(text)

    return Step(f"sql: {' '.join(text.split())}", _naming(place, apply))


def python_step(target: str, place: str, directory: Path) -> Step:
    """`package.module:function`, or `./file.py:function` beside the pipeline's file."""
    module, _, name = target.rpartition(":")

    def apply(frame: "DataFrame") -> "DataFrame":
        from pyspark.sql import DataFrame  # noqa: PLC0415

        made = require_function(module, name, directory)(frame)
        if not isinstance(made, DataFrame):
            raise StepFailed(f"{target} gave {type(made).__name__}, not a DataFrame")
        return made

    return Step(f"python: {target}", _naming(place, apply))


def check_target(target: str, directory: Path) -> None:
    """Raises ConfigError where a function cannot be meant, without loading anything."""
    module, _, name = target.rpartition(":")
    if not module or not name.isidentifier():
        raise ConfigError(f"{target!r}: say module:function or ./file.py:function")
    if is_file(module) and not (directory / module).is_file():
        raise ConfigError(f"{target!r}: there is no file {directory / module}")


def is_file(module: str) -> bool:
    return module.endswith(".py")


def require_function(
    module: str, name: str, directory: Path
) -> Callable[["DataFrame"], "DataFrame"]:
    """Raises ConfigError where it is not there; what the module itself raises comes through."""
    found = _load_file(directory / module) if is_file(module) else importlib.import_module(module)
    function = getattr(found, name, None)
    if not callable(function):
        raise ConfigError(f"{module} has no function {name!r}")
    known: Callable[[DataFrame], DataFrame] = function
    return known


def _load_file(path: Path) -> ModuleType:
    """Load a file under a name of its own; its functions travel to workers by value."""
    from pyspark import cloudpickle  # noqa: PLC0415

    name = f"bolide_step_{path.stem}_{abs(hash(path.resolve())):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be loaded as a Python module")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # as pyspark has it
    return module


def _naming(
    place: str, apply: Callable[["DataFrame"], "DataFrame"]
) -> Callable[["DataFrame"], "DataFrame"]:
    def applied(frame: "DataFrame") -> "DataFrame":
        try:
            return apply(frame)
        except Exception as exc:
            raise StepFailed(f"{place}: {_why(exc)}") from exc

    return applied


def _why(exc: Exception) -> str:
    """Of what a function of the user's raised, also its kind and where: its text may be a word."""
    if isinstance(exc, BolideError) or hasattr(exc, "getCondition"):  # Spark's own say enough
        return first_line(exc)
    frames = traceback.extract_tb(exc.__traceback__)
    at = next((frame for frame in reversed(frames) if "pyspark" not in frame.filename), None)
    where = f" ({Path(at.filename).name}, line {at.lineno})" if at else ""
    return f"{type(exc).__name__}: {first_line(exc)}{where}"


def first_line(exc: BaseException) -> str:
    """What went wrong, without the plans and traces that Spark puts below."""
    lines = str(exc).strip().splitlines()
    return lines[0] if lines else type(exc).__name__
