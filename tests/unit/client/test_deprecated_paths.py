"""Import paths that older documentation named still work, and warn."""

import importlib
import sys

import pytest

from bolide.client.consumer.group.offsets import OffsetStore
from bolide.client.tracing.opentelemetry import OpenTelemetry


@pytest.mark.parametrize(
    ("path", "name", "target"),
    [
        ("bolide.client.telemetry", "OpenTelemetry", OpenTelemetry),
        ("bolide.client.consuming.offsets", "OffsetStore", OffsetStore),
    ],
)
def test_a_documented_path_that_moved_still_imports_with_a_warning(
    path: str, name: str, target: type
) -> None:
    sys.modules.pop(path, None)
    with pytest.warns(DeprecationWarning, match="has moved to"):
        module = importlib.import_module(path)

    assert getattr(module, name) is target
