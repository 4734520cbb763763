"""Dead letters of many groups, and of brokers that do not answer."""

from typing import cast as cast_to

import pytest

from bolide.operations.cluster import Cluster
from bolide.operations.dead_letters import listing as dead_letters
from bolide.operations.dead_letters.listing import list_dead_letter_groups
from bolide.operations.dead_letters.views import body_preview
from bolide.operations.errors import BadInput
from bolide.operations.history.figures import BrokerFigures, GroupFigures
from bolide.operations.history.history import History
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.routes import TopicList
from bolide.protocol.bodies.topics import TopicOffset, TopicStats
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.offsets import StoreTimeReply
from tests.support.aio import on_loop
from tests.unit.admin.scripted import Cast, cast

NAMES = ["%DLQ%billing", "%DLQ%shipping", "Orders", "%DLQ%audit"]
STATS = TopicStats(
    offset_table={
        MessageQueue("%DLQ%billing", "broker-a", 0): TopicOffset(
            min_offset=2, max_offset=9, last_update_timestamp=500
        )
    }
)


class Known:
    """A history with figures of two groups, which this identity may see."""

    access_key = None

    def __init__(self) -> None:
        """Nothing is sampled."""

    def group_figures(self) -> dict[str, GroupFigures]:
        return {
            name: GroupFigures(sampled=0, dead_letters=count)
            for name, count in (("billing", 3), ("shipping", 8))
        }

    def broker_figures(self) -> list[BrokerFigures]:
        return []


def script(stage: Cast) -> Cluster:
    code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    stage.name_server.answers(code, TopicList(topic_list=NAMES))
    stage.first.answers(RequestCode.GET_TOPIC_STATS_INFO, STATS)
    stage.first.answers(RequestCode.GET_EARLIEST_MSG_STORETIME, StoreTimeReply(100))
    return Cluster(
        admin=stage.admin, name_servers=stage.name_server.address, history=cast_to(History, Known())
    )


@on_loop
async def test_a_broker_that_is_away_makes_the_count_partial() -> None:
    async with cast("broker-a", "broker-b") as stage:
        shown = script(stage)
        away = stage.brokers["broker-b"].address
        await stage.brokers["broker-b"].server.close()

        found = await list_dead_letter_groups.function(shown, search="bill")

    (row,) = found.items
    assert (row.messages, row.is_partial) == (7, True)
    assert (row.oldest_ms, row.newest_ms) == (100, 500)
    assert [each.server for each in found.failures] == [away]


@on_loop
async def test_counts_that_no_broker_tells_are_unknown() -> None:
    async with cast() as stage:
        shown = script(stage)
        await stage.first.server.close()

        found = await list_dead_letter_groups.function(shown, sort="messages")

    assert [row.messages for row in found.items] == [None] * 3
    assert len(found.failures) == 1


@on_loop
async def test_only_the_groups_of_a_page_are_counted_if_there_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_COUNTED", 2)
    async with cast() as stage:
        shown = script(stage)

        by_name = await list_dead_letter_groups.function(shown, size=1)
        asked = {each["topic"] for each in stage.first.fields_of(RequestCode.GET_TOPIC_STATS_INFO)}
        by_figures = await list_dead_letter_groups.function(shown, sort="messages")
        with pytest.raises(BadInput, match="too many to sort by time"):
            await list_dead_letter_groups.function(shown, sort="oldest")

    assert ([row.group for row in by_name.items], by_name.total) == (["audit"], 3)
    assert asked == {"%DLQ%audit"}
    assert [row.group for row in by_figures.items] == ["shipping", "billing", "audit"]


def test_a_preview_may_end_inside_a_character() -> None:
    assert body_preview("€".encode() * 400) == "€" * 200
    assert body_preview(b"\xff" * 1000) == "ff" * 100
