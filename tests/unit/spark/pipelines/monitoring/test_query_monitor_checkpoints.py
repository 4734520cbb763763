"""Checkpoints as Spark 4.3 writes them to local disks."""

from pathlib import Path
from typing import Any

import pytest

from bolide.model.message_queue import MessageQueue
from bolide.spark.pipelines.monitoring.query_monitor import (
    CheckpointPosition,
    find_checkpoint_position,
)

NO_SPARK: Any = None
QUEUE = MessageQueue("orders", "broker-a", 0)


def write(checkpoint: Path, part: str, number: int, source: str) -> None:
    (checkpoint / part).mkdir(parents=True, exist_ok=True)
    (checkpoint / part / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{source}\n')
    (checkpoint / part / f".{number}.crc").write_bytes(b"crc")


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_checkpoint_has_reached_its_last_batch_that_is_done(tmp_path: Path, scheme: str) -> None:
    for number in range(12):
        write(tmp_path, "offsets", number, f'{{"orders":{{"broker-a":{{"0":{number * 10}}}}}}}')
        if number < 11:
            write(tmp_path, "commits", number, "")

    assert find_checkpoint_position(NO_SPARK, f"{scheme}{tmp_path}") == CheckpointPosition(
        10, {QUEUE: 100}
    )


def test_a_checkpoint_that_is_not_there_has_reached_nothing(tmp_path: Path) -> None:
    assert find_checkpoint_position(NO_SPARK, str(tmp_path / "new")) is None


def test_a_first_batch_that_was_cut_off_counts_for_nothing(tmp_path: Path) -> None:
    write(tmp_path, "offsets", 0, '{"orders":{"broker-a":{"0":10}}}')

    assert find_checkpoint_position(NO_SPARK, str(tmp_path)) is None


def test_offsets_of_other_sources_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, "offsets", 0, '12\n-\n{"orders":{"broker-a":{"0":10}}}')
    write(tmp_path, "commits", 0, "")

    assert find_checkpoint_position(NO_SPARK, str(tmp_path)) == CheckpointPosition(0, {QUEUE: 10})
