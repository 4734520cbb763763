from pathlib import Path

import pytest

from tests.support.broker_tables import BrokerTables


@pytest.fixture
def tables(tmp_path: Path) -> BrokerTables:
    return BrokerTables(tmp_path)
