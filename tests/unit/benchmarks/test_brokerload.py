"""The load generator against a real broker: its counts match the broker's store."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.brokers import BOLIDE, Running, started
from benchmarks.compare.loads import Fill, Generated
from benchmarks.compare.stages import Stage, count_stored, create_topic
from benchmarks.generators import compile_generator
from tests.unit.benchmarks.sample_rounds import sample_results

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def broker() -> Iterator[Running]:
    with started(BOLIDE) as running:
        yield running


@pytest.fixture
def stage(tmp_path: Path, broker: Running) -> Stage:
    return Stage(compile_generator("brokerload"), sample_results(tmp_path / "a"), 0.1)


@pytest.mark.parametrize("options", [{}, {"batch": 16}, {"oneway": 3}])
def test_counted_messages_are_stored(
    stage: Stage, broker: Running, options: dict[str, object]
) -> None:
    topic = "sends" + "".join(options)
    create_topic(broker, topic, 4)
    shape = Generated("send", 2, 8, topic, limit=640, options=options)
    found = shape.generate(stage, broker, 10.0)
    assert found["failures"] == 0
    assert found["messages"] >= 640
    # One-way sends may be in flight when the response to the next send arrives.
    assert count_stored(broker, topic) >= found["messages"]


def test_a_rate_is_independent_of_response_times(stage: Stage, broker: Running) -> None:
    create_topic(broker, "paced", 4)
    shape = Generated("send", 4, 500, "paced", limit=0, options={"rate": 2000})
    found = shape.generate(stage, broker, 0.5)
    assert found["failures"] == found["unsent"] == 0
    due = 2000 * found["seconds"] + 1
    assert due / 2 < found["messages"] + found["unanswered"] <= due


def test_a_queue_is_read_once_and_completely(stage: Stage, broker: Running) -> None:
    Fill(topic="read", count=1000, options={"batch": 10}).apply(stage, broker)
    each = count_stored(broker, "read") // 4
    shape = Generated("pull", 4, 1, "read", size=32, limit=each, options={"once": 1})
    assert shape.generate(stage, broker, 10.0)["messages"] >= each * 4 - 3


@pytest.mark.parametrize("which", [{"filter": "TagB"}, {"filter": "n = 3", "type": "SQL92"}])
def test_one_marked_message_in_ten_passes_a_filter(
    stage: Stage, broker: Running, which: dict[str, object]
) -> None:
    Fill(topic="marked", count=2000, options={"marked": 1}).apply(stage, broker)
    shape = Generated("pull", 4, 1, "marked", size=32, limit=490, options={"once": 1} | which)
    found = shape.generate(stage, broker, 10.0)
    assert 190 <= found["messages"] <= 200
    assert found["failures"] == 0


def test_live_consumers_receive_the_messages_sent(stage: Stage, broker: Running) -> None:
    create_topic(broker, "live", 4)
    options = {"consumers": 2, "rate": 1000}
    found = Generated("live", 2, 64, "live", limit=0, options=options).generate(stage, broker, 0.5)
    assert found["messages"] == pytest.approx(found["sent"], abs=50)
    assert 0 < found["p50_us"] <= found["p999_us"]
