"""Queue extension files that the Java class wrote; see the README beside this file."""

import json
from pathlib import Path

import pytest

from bolide.store.queue_ext import QueueExtensions

LINES = [
    json.loads(line)
    for line in (Path(__file__).parent / "queue-ext.jsonl").read_text().splitlines()
]
UNITS = [line for line in LINES if "address" in line]
FILES = [line for line in LINES if "file" in line]


@pytest.mark.parametrize("golden", UNITS, ids=lambda golden: str(golden["tags"]))
def test_a_unit_of_java_is_found_at_its_address(golden: dict[str, int], tmp_path: Path) -> None:
    directory = tmp_path / "consumequeue_ext" / "T" / "0"
    directory.mkdir(parents=True)
    for file in FILES:
        (directory / file["file"]).write_bytes(bytes.fromhex(file["hex"]))
    unit = QueueExtensions(tmp_path, 64).find("T", 0, golden["address"])
    assert unit == (golden["tags"], golden["time"], bytes.fromhex(str(golden["bits"])))
