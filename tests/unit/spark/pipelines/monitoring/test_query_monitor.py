"""The query monitor: progress figures, and a stop between two batches."""

import json
import threading
from typing import Any

from bolide.arrow.offsets import QueueRange
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.pipelines import Progress
from bolide.spark.pipelines.monitoring.display import RunScreen, show_text
from bolide.spark.pipelines.monitoring.query_monitor import Backlog, QueryMonitor

QUEUE = MessageQueue("orders", "broker-a", 0)


def batch(number: int, end: int, latest: int) -> dict[str, Any]:
    offsets = {"orders": {"broker-a": {"0": end}}}
    latest_offsets = {"orders": {"broker-a": {"0": latest}}}
    return {
        "batchId": number,
        "timestamp": f"t{number}-{end}",
        "numInputRows": 99,
        "sources": [{"endOffset": json.dumps(offsets), "latestOffset": json.dumps(latest_offsets)}],
    }


class Query:
    """Completes one batch per observation; ends when stopped or out of batches."""

    def __init__(self, *batches: dict[str, Any], endless: bool = False) -> None:
        self._coming = list(batches)
        self._endless = endless
        self.lastProgress: dict[str, Any] | None = None
        self.stopped_after: int | None = None

    @property
    def status(self) -> dict[str, Any]:
        self._resume_hint()
        return {"isTriggerActive": True}

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        assert timeout < 1
        self._resume_hint()
        return self.stopped_after is not None or not (self._coming or self._endless)

    def stop(self) -> None:
        assert self.lastProgress is not None
        self.stopped_after = self.lastProgress["batchId"]

    def _resume_hint(self) -> None:
        if self._coming and self.stopped_after is None:
            self.lastProgress = self._coming.pop(0)


class Silent:
    def __enter__(self) -> "Silent":
        return self

    def __exit__(self, *reason: object) -> None: ...

    def update(self, progress: Progress) -> None: ...

    def line(self, text: str) -> None: ...


def monitor(
    query: Query, told: list[Progress], stop: threading.Event, start: int = 0
) -> QueryMonitor:
    screen = RunScreen(Silent(), show=show_text, stop=stop, on_progress=told.append)
    backlog = Backlog((QueueRange(QUEUE, start, 50),), None, {QUEUE: start})
    return QueryMonitor(query, screen, backlog, once=True)  # type: ignore[arg-type]


def test_rows_are_offsets_that_were_read() -> None:
    told: list[Progress] = []
    query = Query(batch(0, 20, 60), batch(1, 20, 60), batch(2, 50, 60))

    seen = monitor(query, told, threading.Event(), start=10)
    seen.wait_for_end()

    figures = [(each.batch, each.rows, each.total, each.behind) for each in told]
    assert figures == [
        (None, 0, 40, None),
        (0, 10, 40, {"orders": 40}),
        (1, 10, 40, {"orders": 40}),
        (2, 40, 40, {"orders": 10}),
    ]
    assert seen.position == {QUEUE: 50}


def test_rows_of_other_sources_are_as_spark_counts_them() -> None:
    told: list[Progress] = []
    other = {"batchId": 0, "timestamp": "t", "numInputRows": 7, "sources": [{"endOffset": "12"}]}

    monitor(Query(other), told, threading.Event()).wait_for_end()

    assert (told[-1].rows, told[-1].behind) == (7, None)


def test_a_stop_waits_for_the_batch_under_way_and_for_no_other() -> None:
    stop = threading.Event()
    stop.set()
    batches = [batch(number, number + 1, 9) for number in range(9)]
    query = Query(*batches, endless=True)

    seen = monitor(query, [], stop)
    seen.wait_for_end()

    assert query.stopped_after == 1
    assert seen.position == {QUEUE: 2}
