"""Java's mqadmin sets thresholds of cold reads, and the read mode, on either broker."""

import json
import re
from pathlib import Path

import pytest

from tests.interop.bench import Bench
from tests.interop.conftest import NEWEST
from tests.interop.ours import bolide_broker


def outcome(bench: Bench, namesrv: str, broker: str) -> list[str]:
    def run(*words: str) -> str:
        return bench.mqadmin(NEWEST, *words, namesrv=namesrv)

    def shown() -> str:
        printed = run("getColdDataFlowCtrInfo", "-b", broker)
        found = re.search(r"\{.*\}", printed, re.DOTALL)
        assert found, printed
        return json.dumps(json.loads(found[0]), sort_keys=True)

    outcomes = [
        run("updateColdDataFlowCtrGroupConfig", "-b", broker, "-g", "readers", "-v", "4096"),
        shown(),
        run("removeColdDataFlowCtrGroupConfig", "-b", broker, "-g", "readers"),
        shown(),
        run("setCommitLogReadAheadMode", "-b", broker, "-m", "1"),
    ]
    return [each.replace(broker, "broker") for each in outcomes]


@pytest.mark.long
def test_javas_mqadmin_sets_thresholds_of_cold_reads_alike(
    java_bench: Bench, tmp_path: Path
) -> None:
    namesrv = java_bench.namesrv(NEWEST).address
    java = java_bench.broker(NEWEST, namesrv)
    expected = outcome(java_bench, namesrv, java.address)
    java.kill()
    with bolide_broker(tmp_path, namesrv) as ours:
        assert outcome(java_bench, namesrv, ours.address) == expected
    assert '"configTable": {"readers": 4096}' in expected[1]
    assert '"configTable": {}' in expected[3]
