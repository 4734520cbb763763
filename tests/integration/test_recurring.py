"""Messages that recur, by the clock."""

import time
from itertools import pairwise
from pathlib import Path

import pytest

from bolide import AdminClient, Message, Producer, PushConsumer, StoredMessage
from bolide.broker.produce import send
from bolide.broker.timers.recurring import begin_series
from bolide.model.properties import PropertyName
from bolide.protocol.record import RecordDraft
from bolide.protocol.refusals import IllegalOperation
from tests.support.aio import on_loop, until
from tests.support.own_cluster import own_cluster

TOPIC = "Ticks"
EACH_SECOND = "* * * * * *"


@on_loop
async def test_copies_come_each_time_over_a_restart_until_the_message_is_recalled(
    tmp_path: Path,
) -> None:
    got: list[StoredMessage] = []
    async with (
        own_cluster(tmp_path) as cluster,
        Producer("G", name_server=cluster.address) as producer,
        PushConsumer("C", name_server=cluster.address, consume_from="first") as consumer,
        AdminClient(cluster.address) as admin,
    ):
        await consumer.subscribe(TOPIC, got.append, inline=True)
        message = Message(TOPIC, b"tick", tags="tag", keys="key", cron=EACH_SECOND)
        sent = await producer.send(message)
        await until(lambda: len(got) >= 2)
        waiting = await admin.timers.page(cluster.broker.address, TOPIC)
        await cluster.stop_broker()
        await cluster.start_broker()
        await until(lambda: len(got) >= 4)
        await producer.recall(TOPIC, sent.recall_handle or "")  # right behind one of them
        recalled = time.time()
        await until(lambda: time.time() > recalled + 1.5)
        with pytest.raises(IllegalOperation, match="over"):
            await producer.recall(TOPIC, sent.recall_handle or "")

    assert [each.message_id for each in waiting.timers] == [sent.message_id]
    assert got[-1].born_timestamp < recalled * 1000
    ids = [each.message_id for each in got]
    assert sorted(set(ids)) == ids, "each time once, in their order"
    assert {each.properties[PropertyName.SERIES_ID] for each in got} == {sent.message_id}
    assert {(each.body, each.tags, each.keys) for each in got} == {(b"tick", "tag", ("key",))}
    for before, after in pairwise(got):
        assert after.born_timestamp - before.born_timestamp >= 1000
    for each in got:
        assert each.store_timestamp >= each.born_timestamp


@on_loop
async def test_a_series_begins_though_its_first_time_passes_while_it_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_slow(properties: dict[str, str], draft: RecordDraft, now: int) -> None:
        begin_series(properties, draft, now - 2000)

    monkeypatch.setattr(send, "begin_series", too_slow)
    got: list[StoredMessage] = []
    async with (
        own_cluster(tmp_path) as cluster,
        Producer("G", name_server=cluster.address) as producer,
        PushConsumer("C", name_server=cluster.address, consume_from="first") as consumer,
    ):
        await consumer.subscribe(TOPIC, got.append, inline=True)
        sent = await producer.send(Message(TOPIC, b"tick", cron=EACH_SECOND))
        await until(lambda: len(got) >= 3)
        assert sent.recall_handle
    assert {each.properties[PropertyName.SERIES_ID] for each in got} == {sent.message_id}
