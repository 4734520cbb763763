"""Which cells of the matrix belong to the quick suite."""

import pytest

for module in ("sending", "exchanging", "pushing", "timing", "consuming", "reading", "positions"):
    pytest.register_assert_rewrite(f"tests.interop.matrix.{module}")

from tests.interop import golang  # noqa: E402
from tests.interop.matrix import brokers, players  # noqa: E402

QUICK = {players.OURS, "java5", "java49"}
SMOKE = {"java42", "java47"}
# Its client shares queues every 20 s, and in these cells the first time is missed.
SLOW_IN_GO = {"broadcast", "from-first"}
SMOKE_CELLS = {"sync", "batch", "push-concurrent", "pull", "retry-success", "query"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and "cell" in item.fixturenames:
            given = item.callspec.params
            if not _is_quick(*(str(given[name]) for name in ("stage", "client", "cell"))):
                item.add_marker(pytest.mark.long)


def _is_quick(broker: str, client: str, cell: str) -> bool:
    if broker != brokers.OURS:
        return False
    if client == players.GO:
        return cell in golang.cells() - SLOW_IN_GO
    return client in QUICK or (client in SMOKE and cell in SMOKE_CELLS)
