"""Pipelines as operations see them, from reports written to a broker of ours as a process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bolide.admin import AdminClient
from bolide.client.producer.producer import Producer
from bolide.model.message import Message
from bolide.model.names import PIPELINE_TOPIC
from bolide.operations import pipelines
from bolide.operations.cluster import Cluster
from bolide.operations.errors import Conflict, NotFound
from bolide.operations.pipelines import (
    PipelineSort,
    get_pipeline,
    list_pipelines,
    stop_effect,
    stop_pipeline,
)
from bolide.protocol.bodies.pipelines import (
    VERSION,
    Problem,
    Progress,
    Report,
    State,
    StopRequest,
    encode,
    find_message,
)
from tests.support.admin_cluster import Cluster as Servers
from tests.support.aio import on_loop


@asynccontextmanager
async def opened(servers: Servers) -> AsyncIterator[Cluster]:
    async with AdminClient(servers.name_server) as admin:
        yield Cluster(admin=admin, name_servers=servers.name_server)


def report(pipeline: str, run: str, state: State = State.RUNNING, **facts: Any) -> Report:
    known: dict[str, Any] = {"started": 1_000, "interval": 60.0, "text": "a to b", "host": "h"}
    return Report(version=VERSION, state=state, pipeline=pipeline, run=run, **known | facts)


async def write(servers: Servers, *bodies: bytes) -> None:
    async with Producer("reports", name_server=servers.name_server) as producer:
        for body in bodies:
            await producer.send(Message(PIPELINE_TOPIC, body))


@on_loop
async def test_pipelines_are_known_from_their_reports(
    cluster: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "_FRESH_SECONDS", 0.0)
    async with opened(cluster) as shown:
        assert (await list_pipelines.function(shown)).total == 0
        with pytest.raises(NotFound, match="no pipeline orders has reported"):
            await get_pipeline.function(shown, pipeline="orders")

        first = Progress(rows=5, rows_per_second=2.0, batch=0, behind={"b": 7, "a": 1})
        later = Progress(
            rows=9,
            rows_per_second=4.0,
            rows_out_per_second=3.5,
            batch=1,
            behind={"a": 0, "b": 3},
            behind_seconds={"a": 0.0, "b": 2.5},
            committed=77,
        )
        await write(
            cluster,
            encode(report("orders", "r0", State.FINISHED, started=500)),
            encode(report("orders", "r1", progress=first)),
            encode(report("orders", "r1", progress=later, problems=[Problem(3, "odd")])),
            encode(report("broken", "r2", State.FAILED, reason="too bad")),
            encode(report("silent", "r3", interval=1e-6)),
            b"{}",
        )
        listed = await list_pipelines.function(shown)
        assert [(run.name, run.state) for run in listed.items] == [
            ("broken", State.FAILED),
            ("silent", State.LOST),
            ("orders", State.RUNNING),
        ]
        assert listed.items[0].error == "too bad"
        assert listed.items[0].behind is None
        assert listed.items[1].silent_since_ms == listed.items[1].reported_ms
        found = await list_pipelines.function(shown, search="ORD", state=State.RUNNING)
        assert [run.name for run in found.items] == ["orders"]
        by_backlog = await list_pipelines.function(
            shown, sort=PipelineSort.BEHIND, descending=True, size=1
        )
        assert (by_backlog.items[0].name, by_backlog.total) == ("orders", 3)

        view = await get_pipeline.function(shown, pipeline="orders")
        run = view.last
        assert (run.run, run.rows, run.behind, run.behind_seconds) == ("r1", 9, 3, 2.5)
        assert [(each.topic, each.messages, each.seconds) for each in run.topics] == [
            ("a", 0, 0.0),
            ("b", 3, 2.5),
        ]
        assert (run.committed_ms, run.silent_since_ms) == (77, None)
        assert [problem.text for problem in run.problems] == ["odd"]
        assert [each.run for each in view.runs] == ["r1", "r0"]
        assert [(each.rows, each.behind, each.behind_seconds) for each in view.points] == [
            (5, 8, None),
            (9, 3, 2.5),
        ]
        assert (await get_pipeline.function(shown, pipeline="orders", minutes=0)).points == []

        await write(cluster, encode(report("orders", "r1", State.FINISHED)))
        ended = await get_pipeline.function(shown, pipeline="orders")
        assert ended.last.state is State.FINISHED
        with pytest.raises(Conflict, match="pipeline orders is not running: it is finished"):
            await stop_effect(shown, pipeline="orders")


@on_loop
async def test_a_stop_is_asked_for_on_the_topic_and_the_tail_is_bounded(
    cluster: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "MAX_MESSAGES", 3)
    async with opened(cluster) as shown:
        await write(
            cluster,
            encode(report("early", "e1")),
            *(
                encode(report("many", f"m{number}", started=number, progress=Progress(rows=1)))
                for number in range(3)
            ),
        )
        monkeypatch.setattr(pipelines, "MAX_FULL_RUNS", 1)
        monkeypatch.setattr(pipelines, "FEW_POINTS", 0)
        listed = await list_pipelines.function(shown)
        assert [run.name for run in listed.items] == ["many"]
        view = await get_pipeline.function(shown, pipeline="many")
        assert [point.run for point in view.points] == ["m2"]

        effect = await stop_pipeline.function(shown, pipeline="many")
        assert (effect.run, effect.text) == ("m2", "a to b")
        (queue,) = await shown.admin.topics.queues(PIPELINE_TOPIC)
        end = (await shown.admin.messages.pull(queue, 0, 1)).max_offset
        (request,) = (await shown.admin.messages.pull(queue, end - 1, 1)).messages
        assert find_message(request.body) == StopRequest(version=VERSION, pipeline="many", run="m2")
        assert request.tags == "request-stop"
        with pytest.raises(Conflict):
            await stop_effect(shown, pipeline="many", run="m9")


@on_loop
async def test_ten_pages_at_once_read_the_topic_once(
    cluster: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(cluster) as shown:
        asked: list[str] = []
        queues = shown.admin.topics.queues

        async def counted(topic: str) -> Any:
            asked.append(topic)
            return await queues(topic)

        monkeypatch.setattr(shown.admin.topics, "queues", counted)
        await asyncio.gather(*(list_pipelines.function(shown) for _ in range(10)))
        assert asked == [PIPELINE_TOPIC]
