"""A clear line where the packages that Spark needs are not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from bolide.cli.exits import fail

_PACKAGES = {"pyspark", "pyarrow", "pandas", "yaml", "rich"}


@contextmanager
def spark_needed() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in _PACKAGES:
            raise
        fail(f'this needs the package {exc.name}: pip install "bolide[spark]"')
