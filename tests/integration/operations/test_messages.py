"""Search, browsing, state, resending and traces of messages, at a broker of ours."""

import asyncio
import base64
import json
import time
from typing import Any

import pytest

from bolide import Message, Producer, PushConsumer, Trace
from bolide.operations.errors import BadInput, Conflict, NotFound
from bolide.operations.messages.resending import CopyChanges
from bolide.operations.messages.tail import follow
from bolide.operations.messages.views import BodyKind, GroupState, MessageList, Order, StateReason
from bolide.protocol.refusals import TopicNotFound
from tests.support import admin_cluster
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.operations_desk import desk_at, send

cluster = admin_cluster.cluster
Servers = admin_cluster.Cluster
HOSTILE = (
    b"<script>alert(1)</script>",
    b'<img src=x onerror="alert(1)">',
    b"{{ constructor.constructor('alert(1)')() }}",
    b"\x1b]0;owned\x07\x1b[2J",
    b"\xff\xfe\xfd\x80",
    b"[" * 20_000,
)


def numbers(found: MessageList) -> list[int]:
    return [int(each.preview) for each in found.items]


@on_loop
async def test_pages_in_both_directions_have_every_message_once(cluster: Servers) -> None:
    topic = await asyncio.to_thread(cluster.topic, 3)
    async with desk_at(cluster.name_server) as desk:
        empty = await desk.search(topic)
        assert (empty.items, empty.next, empty.previous, empty.remaining) == ([], None, None, 0)
        await send(cluster.name_server, topic, [Message(topic, b"%d" % n) for n in range(100)])
        await asyncio.sleep(0.4)  # the bounds are shared for a moment

        for order in Order:
            pages, cursor = [await desk.search(topic, order=order, size=30)], ""
            while pages[-1].next:
                cursor = pages[-1].next
                pages.append(await desk.search(topic, order=order, size=30, cursor=cursor))
            seen = [number for page in pages for number in numbers(page)]
            assert sorted(seen) == list(range(100))
            times = [each.stored_ms for page in pages for each in page.items]
            assert times == sorted(times, reverse=order is Order.NEWEST)
            assert [len(page.items) for page in pages] == [30, 30, 30, 10]
            assert (pages[0].previous, pages[-1].remaining) == (None, 0)
            assert pages[0].remaining == 70

            back = await desk.search(topic, order=order, size=30, cursor=pages[2].previous)
            assert numbers(back) == numbers(pages[1])
            assert back.previous is not None
            again = await desk.search(topic, order=order, size=30, cursor=back.next)
            assert numbers(again) == numbers(pages[2])
            first = await desk.search(topic, order=order, size=30, cursor=back.previous)
            assert (numbers(first), first.previous) == (numbers(pages[0]), None)
            assert first.next is not None


@on_loop
async def test_queues_are_browsed_from_an_offset_and_topics_by_time(cluster: Servers) -> None:
    topic = await asyncio.to_thread(cluster.topic, 2)
    await send(cluster.name_server, topic, [Message(topic, b"%d" % n) for n in range(20)])
    await asyncio.sleep(0.01)
    middle = int(time.time() * 1000)
    await asyncio.sleep(0.01)
    await send(cluster.name_server, topic, [Message(topic, b"%d" % n) for n in range(20, 40)])
    async with desk_at(cluster.name_server) as desk:
        queue: dict[str, Any] = {"topic": topic, "broker": "broker-a", "queue_id": 1}
        onwards = await desk.search(**queue, offset=5, order=Order.OLDEST, size=3)
        assert [each.queue_offset for each in onwards.items] == [5, 6, 7]
        assert {each.queue_id for each in onwards.items} == {1}
        assert onwards.previous is not None
        before = await desk.search(**queue, order=Order.OLDEST, cursor=onwards.previous)
        assert [each.queue_offset for each in before.items] == [0, 1, 2, 3, 4]
        backwards = await desk.search(**queue, offset=5, size=3)
        assert [each.queue_offset for each in backwards.items] == [5, 4, 3]
        assert (await desk.search(**queue, offset=999, order=Order.OLDEST)).items == []
        one = await desk("messages.view_message_at", **queue, offset=7)
        assert (one.row.queue_offset, one.copies) == (7, 1)

        late = await desk.search(topic, begin_ms=middle, size=200)
        assert sorted(numbers(late)) == list(range(20, 40))
        early = await desk.search(topic, end_ms=middle, order=Order.OLDEST, size=200)
        assert sorted(numbers(early)) == list(range(20))
        exact = late.items[5].stored_ms
        at = await desk.search(topic, begin_ms=exact, end_ms=exact)
        assert {each.stored_ms for each in at.items} == {exact}
        assert late.items[5] in at.items

        for options, error in (
            ({"offset": 5}, BadInput),
            ({"broker": "nobody"}, NotFound),
            ({"queue_id": 9}, NotFound),
            ({"begin_ms": 2, "end_ms": 1}, BadInput),
            ({"size": 0}, BadInput),
            ({"seconds": 60}, BadInput),
            ({"cursor": "rubbish"}, BadInput),
        ):
            with pytest.raises(error):
                await desk.search(topic, **options)
        with pytest.raises(TopicNotFound):
            await desk.search("Nowhere")
        with pytest.raises(NotFound, match="not stored yet"):
            await desk("messages.view_message_at", **queue, offset=999)


@on_loop
async def test_filters_find_the_few_and_tell_how_far_they_looked(cluster: Servers) -> None:
    topic = await asyncio.to_thread(cluster.topic, 3)
    many = [
        Message(
            topic,
            json.dumps({"n": n, "user": {"name": f"u{n % 10}"}}).encode(),
            tags="rare" if n % 500 == 7 else "often",
            keys=f"k{n}",
            properties={"size": str(n)},
        )
        for n in range(1500)
    ]
    await send(cluster.name_server, topic, many)
    async with desk_at(cluster.name_server) as desk:
        for options, wanted in (
            ({"tags": "rare"}, [1007, 507, 7]),
            ({"sql": "size BETWEEN 700 AND 701"}, [701, 700]),
            ({"key": "k3"}, [3]),
            ({"properties": ["size=1499"]}, [1499]),
            ({"text": '"n": 42,'}, [42]),
            ({"json_path": "$.n >= 1498"}, [1499, 1498]),
            ({"tags": "rare", "sql": "size > 600", "json_path": "$.user.name == 'u7'"}, [1007]),
            ({"tags": "none"}, []),
        ):
            for order in Order:
                found = await desk.search(topic, order=order, seconds=10, **options)
                got = [int(each.keys[0][1:]) for each in found.items]
                assert got == (wanted if order is Order.NEWEST else wanted[::-1]), options
                assert (found.next, found.remaining, found.failures) == (None, 0, [])
                assert found.scanned == 1500

        looks, cursor, keys = 0, "", list[str]()
        while looks == 0 or cursor:
            part = await desk.search(topic, text='"n": 42,', seconds=0.001, cursor=cursor)
            assert part.scanned > 0
            looks, cursor = looks + 1, part.next or ""
            keys += [each.keys[0] for each in part.items]
            if cursor:
                assert part.remaining
                assert part.reached_ms is not None
        assert looks > 3
        assert keys == ["k42"]

        down = await desk(
            "messages.download_messages", topic=topic, tags="rare", order=Order.OLDEST
        )
        lines = [json.loads(line) for line in down.lines.splitlines()]
        assert [json.loads(line["body"])["n"] for line in lines] == [7, 507, 1007]
        assert lines[0]["properties"]["size"] == "7"
        assert (down.count, down.next) == (3, None)
        first = await desk("messages.download_messages", topic=topic, count=2)
        assert (first.count, first.next is None) == (2, False)


@on_loop
async def test_keys_and_ids_are_found_past_what_the_index_returns_at_once(
    cluster: Servers,
) -> None:
    topic = await asyncio.to_thread(cluster.topic, 2)
    messages = [Message(topic, b"%d" % n, keys="same", tags=f"t{n % 2}") for n in range(150)]
    ids = await send(cluster.name_server, topic, messages)
    async with desk_at(cluster.name_server) as desk:
        await desk.soon("messages.find_by_id", topic=topic, message_id=ids[-1])
        by_key: dict[str, Any] = {"name": "messages.find_by_key", "topic": topic, "key": "same"}
        got: list[int] = []
        cursor, requests = "", 0
        while requests == 0 or cursor:
            part = await desk(**by_key, cursor=cursor)
            got += numbers(part)
            cursor, requests = part.next or "", requests + 1
        assert sorted(got) == list(range(150))
        assert requests >= 3
        odd = await desk(**by_key, tags="t1")
        assert set(numbers(odd)) <= set(range(1, 150, 2))
        assert (await desk("messages.find_by_key", topic=topic, key="other")).items == []

        (row,) = (await desk("messages.find_by_id", topic=topic, message_id=ids[3])).items
        assert (row.preview, row.broker) == ("3", "broker-a")
        by_offset = await desk("messages.find_by_id", topic=topic, message_id=row.offset_message_id)
        assert by_offset.items == [row]
        for wrong, error in (("", BadInput), ("zz", NotFound), ("0" * 32, NotFound)):
            with pytest.raises(error):
                await desk("messages.find_by_id", topic=topic, message_id=wrong)
        place = await desk("messages.locate_message", message_id=row.offset_message_id)
        assert place.topic == topic
        with pytest.raises(NotFound, match="give the topic"):
            await desk("messages.locate_message", message_id=ids[3])
        queues = (await desk("messages.message_queues", topic=topic)).queues
        assert [(each.queue_id, each.low, each.high) for each in queues] == [(0, 0, 75), (1, 0, 75)]
        assert topic in await desk("messages.suggest_topics", search=topic.lower())
        other = await asyncio.to_thread(cluster.topic, 1)
        with pytest.raises(NotFound):
            await desk("messages.view_message", topic=other, message_id=row.offset_message_id)


@on_loop
async def test_bodies_are_shown_without_harm_and_downloaded_whole(cluster: Servers) -> None:
    topic = await asyncio.to_thread(cluster.topic, 1)
    huge = b'{"a": "' + b"x" * 4_000_000 + b'"}'
    bodies = [*HOSTILE, huge]
    properties = {"name": "<script>alert(1)</script>"}
    ids = await send(
        cluster.name_server, topic, [Message(topic, each, properties=properties) for each in bodies]
    )
    async with desk_at(cluster.name_server) as desk:
        rows = (await desk.search(topic, order=Order.OLDEST)).items
        assert [each.size for each in rows] == [len(each) for each in bodies]
        assert all(len(each.preview) <= 400 for each in rows)
        assert not any(char in each.preview for each in rows for char in "\x1b\x07\x00")
        await desk.soon("messages.find_by_id", topic=topic, message_id=ids[-1])
        views = [await desk("messages.view_message", topic=topic, message_id=each) for each in ids]
        kinds = [each.body.kind for each in views]
        assert kinds[4:] == [BodyKind.BINARY, BodyKind.TEXT, BodyKind.JSON]
        assert [each.properties for each in views] == [properties] * len(views)
        big = views[-1].body
        assert (big.size, big.is_cut, big.compression) == (len(huge), True, "ZLIB")
        assert len(big.text or "") < 100_000
        whole = await desk("messages.message_body", topic=topic, message_id=ids[-1])
        assert base64.b64decode(whole.base64) == huge
        line = await desk("messages.download_one", topic=topic, message_id=ids[4])
        assert json.loads(line.lines)["body_base64"] == base64.b64encode(HOSTILE[4]).decode()


@on_loop
async def test_a_tail_has_what_comes_and_says_what_it_skipped(cluster: Servers) -> None:
    topic = await asyncio.to_thread(cluster.topic, 1)
    await send(cluster.name_server, topic, [Message(topic, b"%d" % n) for n in range(5)])
    async with desk_at(cluster.name_server) as desk:
        begin = await desk("messages.tail_messages", topic=topic)
        assert (begin.items, begin.skipped) == ([], 0)
        await send(cluster.name_server, topic, [Message(topic, b"%d" % n) for n in range(5, 9)])
        await asyncio.sleep(0.4)
        batch = await desk("messages.tail_messages", topic=topic, cursor=begin.next)
        assert [each.preview for each in batch.items] == ["5", "6", "7", "8"]
        again = await desk("messages.tail_messages", topic=topic, cursor=batch.next)
        assert again.items == []
        late = await desk("messages.tail_messages", topic=topic, cursor=begin.next, size=1)
        assert (len(late.items), late.skipped) == (1, 2)
        one = await desk("messages.tail_messages", topic=topic, cursor=begin.next, text="7")
        assert [each.preview for each in one.items] == ["7"]

        following = follow(desk.cluster, topic, interval=0.01)
        assert (await anext(following)).items == []
        await send(cluster.name_server, topic, [Message(topic, b"9")])
        async with asyncio.timeout(PATIENCE):
            async for batch in following:
                if batch.items:
                    break
        assert [each.preview for each in batch.items] == ["9"]
        await following.aclose()  # type: ignore[attr-defined]


@on_loop
async def test_groups_resending_and_traces_of_one_message(  # noqa: PLR0915  one story
    cluster: Servers,
) -> None:
    topic = await asyncio.to_thread(cluster.topic, 1)
    traces = await asyncio.to_thread(cluster.topic, 1)
    trace = Trace(topic=traces, interval=0.02)
    got: list[bytes] = []
    where: Any = {"name_server": cluster.name_server}
    async with (
        desk_at(cluster.name_server) as desk,
        Producer("shop", trace=trace, **where) as producer,
        PushConsumer("all", consume_from="first", trace=trace, **where) as all_,
        PushConsumer("reds", consume_from="first", **where) as reds,
    ):
        await reds.subscribe(topic, "red", lambda message: None)
        await all_.subscribe(topic, lambda message: got.append(message.body))
        message = Message(topic, b"hello", tags="blue", keys="k1", properties={"a": "b"})
        sent = await producer.send(message)
        await until(lambda: got == [b"hello"])
        at: dict[str, Any] = {"topic": topic, "message_id": sent.message_id}
        await desk.soon("messages.view_message", **at)
        await all_.commit()
        await reds.commit()
        names = ["resetOffsetByTime", "-g", "late", "-t", topic, "-s", "0", "--yes"]
        await asyncio.to_thread(cluster.run, "updateSubGroup", "-c", "DefaultCluster", "-g", "late")
        await asyncio.to_thread(cluster.run, *names)

        async with asyncio.timeout(PATIENCE):
            while True:
                page = await desk("messages.message_groups", **at)
                states = {each.group: each.state for each in page.items}
                if states.get("reds") is GroupState.FILTERED and len(states) == 3:
                    break
                await asyncio.sleep(0.05)
        assert states["all"] is GroupState.CONSUMED
        assert states["late"] is GroupState.PENDING
        by_group = {each.group: each for each in page.items}
        assert "filter red does not match" in by_group["reds"].reason
        assert by_group["reds"].filter == "red"
        unmatched = {StateReason.NO_MATCH, StateReason.PASSED_NO_MATCH}
        assert by_group["reds"].reason_code in unmatched
        assert by_group["all"].reason_code is StateReason.PASSED_AND_MATCHES
        assert (by_group["late"].reason_code, by_group["late"].distance) == (StateReason.NEXT, 0)
        assert (by_group["late"].online, by_group["all"].online) == (False, True)
        assert by_group["all"].clients == [all_.client_id]
        few = await desk("messages.message_groups", **at, search="re", size=1)
        assert ([each.group for each in few.items], few.total) == (["reds"], 1)

        done = await desk("messages.consume_message", **at, group="all")
        assert (done.succeeded, done.client_id) == (True, all_.client_id)
        assert got == [b"hello"] * 2
        with pytest.raises(Conflict, match="start one"):
            await desk("messages.consume_message", **at, group="late")
        with pytest.raises(BadInput, match="client_id"):
            await desk("messages.consume_message", **at, group="all", client_id="nobody")

        changes = CopyChanges(body="edited", tags="red", properties={"c": "d"})
        send_copy: dict[str, Any] = {"name": "messages.send_copy", **at, "changes": changes}
        copy = await desk(**send_copy)
        await until(lambda: got[2:] == [b"edited"])
        seen = await desk.soon("messages.view_message", topic=topic, message_id=copy.message_id)
        assert (seen.row.tags, seen.row.keys, seen.body.text) == ("red", ["k1"], "edited")
        assert seen.properties["c"] == "d"
        assert seen.properties["REPLAYED_FROM"] == f"{topic}/broker-a/0@0"
        for wrong in (
            CopyChanges(topic="%RETRY%all"),
            CopyChanges(body=""),
            CopyChanges(tags="a||b"),
        ):
            with pytest.raises(BadInput):
                await desk(**{**send_copy, "changes": wrong})
        with pytest.raises(NotFound):
            await desk(**{**send_copy, "changes": CopyChanges(topic="Nowhere")})
        assert [each.error for each in desk.audit.entries[:1]] == [""]
        assert not any("edited" in str(each.arguments) for each in desk.audit.entries)

        async with asyncio.timeout(PATIENCE):
            while True:
                line = await desk(
                    "traces.view_trace", message_id=sent.message_id, trace_topic=traces
                )
                if not line.missing:
                    break
                await asyncio.sleep(0.05)
        kinds = [each.kind for each in line.events]
        assert sorted(kinds) == ["consume", "send", "store"]
        send_event = line.events[kinds.index("send")]
        assert (send_event.group, send_event.status) == ("shop", "success")
        assert send_event.took_ms is not None
        attempt = line.events[kinds.index("consume")]
        assert (attempt.group, attempt.status) == ("all", "success")
        assert attempt.since_begin_ms is not None
        assert (line.topic, line.tags, line.keys) == (topic, "blue", ["k1"])
        listed = await desk("traces.find_traces", key="k1", trace_topic=traces)
        assert listed.items[0].message_id == sent.message_id  # a send that is unknown comes last
        untraced = await send(cluster.name_server, topic, [Message(topic, b"quiet")])
        await desk.soon("messages.view_message", topic=topic, message_id=untraced[0])
        quiet = await desk(
            "traces.view_trace", message_id=untraced[0], topic=topic, trace_topic=traces
        )
        assert quiet.missing[0].partition(":")[0] == "send"
        for options in ({"trace_topic": "Nowhere"}, {"trace_topic": traces}):
            with pytest.raises(NotFound, match="trace"):
                await desk("traces.view_trace", message_id="0" * 32, **options)
