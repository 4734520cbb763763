"""A cluster of which one server is away: what is done or known is told, and what is not."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bolide.model.message import Host
from bolide.protocol.bodies.consumers import Connection, ConsumerConnections, RunningConsumer
from bolide.protocol.bodies.groups import GroupConfig, GroupConfigTable, GroupList
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.offsets import ResetOffsets
from bolide.protocol.bodies.timers import PendingTimers
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.hosts import pack_host
from bolide.protocol.record import Placement, RecordDraft, encode_record, place_record
from bolide.protocol.refusals import ConsumerNotOnline, ServerError, TopicNotFound
from bolide.remoting.dispatch import Reply
from tests.support.admin_cluster import NOBODY
from tests.support.aio import on_loop
from tests.unit.admin.scripted import CLUSTER, Cast, Scripted, cast, run

IN_CLUSTER = ("-c", CLUSTER)
HAS_GROUP = GroupConfigTable(
    subscription_group_table={"billing": GroupConfig(group_name="billing")}
)


@asynccontextmanager
async def half(away: str = "broker-a") -> AsyncIterator[tuple[Cast, Scripted, str]]:
    """Two brokers of which one is away; yields the other one, and the address of the first."""
    async with cast("broker-a", "broker-b") as stage:
        gone = stage.brokers[away].address
        await stage.brokers[away].server.close()
        (living,) = (each for name, each in stage.brokers.items() if name != away)
        yield stage, living, gone


@on_loop
async def test_what_one_broker_has_done_is_printed_and_the_other_is_named() -> None:
    code = RequestCode
    async with half() as (stage, living, gone):
        for each in (
            code.UPDATE_AND_CREATE_TOPIC, code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            code.SET_MESSAGE_REQUEST_MODE, code.AUTH_CREATE_USER, code.DELETE_SUBSCRIPTIONGROUP,
            code.DELETE_TOPIC_IN_BROKER,
        ):  # fmt: skip
            living.answers(each)
        living.answers(code.GET_TOPIC_CONFIG, TopicConfig(topic_name="Orders", perm=6))
        living.answers(code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, HAS_GROUP)
        stage.name_server.answers(code.DELETE_TOPIC_IN_NAMESRV)
        for words, told in (
            (("updateTopic", "-t", "Orders"), f"create topic to {living.address} success."),
            (("updateTopicPerm", "-t", "Orders", "-p", "4"), f"from 6 to 4 in {living.address}"),
            (("updateSubGroup", "-g", "billing"), f"group to {living.address} success."),
            (("setConsumeMode", "-t", "Orders", "-g", "x", "-m", "POP"), f"to {living.address}"),
            (("createUser", "-u", "x", "-p", "secret-enough"), f"to {living.address} success."),
            (("deleteTopic", "-t", "Orders", "-y"), f"from broker [{living.address}] success."),
            (("deleteSubGroup", "-g", "billing", "-y"), f"from broker [{living.address}] in "),
        ):
            status, printed, error = await run(stage, *words, *IN_CLUSTER)
            assert (status, told in printed) == (3, True), (words, printed, error)
            assert error.count(gone) == 1, error
        assert len(stage.name_server.fields_of(code.DELETE_TOPIC_IN_NAMESRV)) == 3


@on_loop
async def test_offsets_that_one_broker_has_moved_are_printed() -> None:
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    async with half() as (stage, living, gone):
        moved = ResetOffsets(offset_table={MessageQueue("Orders", "broker-b", 0): 3})
        living.answers(code, moved)
        group = ("-g", "billing", "-t", "Orders", "--yes")
        for words in (
            ("resetOffsetByTime", *group, "-s", "-1"),
            ("skipAccumulatedMessage", *group),
        ):
            status, printed, error = await run(stage, *words)
            assert (status, printed.splitlines()[-1].split()) == (3, ["broker-b", "0", "3"])
            assert gone in error


@on_loop
async def test_a_broker_without_members_does_not_change_how_the_others_reset() -> None:
    def offline(_fields: dict[str, str]) -> Reply:
        raise ConsumerNotOnline("Consumer not online")

    async with cast("broker-a", "broker-b") as stage:
        moved = ResetOffsets(offset_table={MessageQueue("Orders", "broker-a", 0): 3})
        stage.brokers["broker-a"].answers(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, moved)
        other = stage.brokers["broker-b"]
        other.answers(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, offline)
        other.answers(RequestCode.GET_CONSUME_STATS, b"{}")
        other.answers(RequestCode.GET_TOPIC_STATS_INFO, b"{}")

        words = ("skipAccumulatedMessage", "-g", "billing", "-t", "Orders", "--yes", "--json")
        status, printed, _ = await run(stage, *words)

        assert status == 0
        assert '"offset": 3' in printed.replace('":3', '": 3')
        assert not stage.first.fields_of(RequestCode.UPDATE_CONSUMER_OFFSET)


@on_loop
async def test_every_name_server_that_answers_is_told() -> None:
    async with cast() as stage:
        stage.first.answers(RequestCode.DELETE_TOPIC_IN_BROKER)
        stage.first.answers(RequestCode.GET_TOPIC_CONFIG, TopicConfig(topic_name="Orders"))
        for each in (RequestCode.DELETE_TOPIC_IN_NAMESRV, RequestCode.PUT_KV_CONFIG):
            stage.name_server.answers(each)
        both = f"{NOBODY};{stage.name_server.address}"

        status, printed, error = await run(
            stage, "deleteTopic", "-t", "Orders", "-y", *IN_CLUSTER, at=both
        )
        assert (status, NOBODY in error) == (3, True)
        assert f"delete topic [Orders] from cluster [{CLUSTER}] success." in printed
        assert f"from NameServer [{stage.name_server.address}] success." in printed

        words = ("updateOrderConf", "-t", "Orders", "-m", "put", "-v", "broker-a:4")
        status, _, error = await run(stage, *words, at=both)
        assert status == 3
        assert f"done at {stage.name_server.address}" in error
        assert len(stage.name_server.fields_of(RequestCode.PUT_KV_CONFIG)) == 1


@on_loop
async def test_nothing_recalled_is_no_answer_if_a_broker_did_not_answer() -> None:
    async with half() as (stage, living, gone):
        living.answers(RequestCode.BOLIDE_RECALL_TIMERS, PendingTimers())
        words = ("recallMessage", "-y", "-t", "Orders", "-k", "x", *IN_CLUSTER)
        status, _, error = await run(stage, *words)
        assert (status, gone in error) == (3, True)
        assert "no message of" not in error


@on_loop
async def test_what_no_broker_had_is_not_said_to_be_deleted() -> None:
    def none(_fields: dict[str, str]) -> Reply:
        raise TopicNotFound("no such topic")

    async with cast() as stage:
        for each in (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_SUBSCRIPTIONGROUP):
            stage.first.answers(each)
        stage.name_server.answers(RequestCode.DELETE_TOPIC_IN_NAMESRV)
        stage.first.answers(RequestCode.GET_TOPIC_CONFIG, none)
        stage.first.answers(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, HAS_GROUP)

        topic = await run(stage, "deleteTopic", "-t", "nixnix", "-y", *IN_CLUSTER)
        group = await run(stage, "deleteSubGroup", "-g", "nogroup", "-y", *IN_CLUSTER)

        assert topic[:2] == (1, "")
        assert group[0] == 0  # as Java's tool ends
        assert f"no broker of cluster {CLUSTER} has topic nixnix\n" in topic[2]
        assert "no broker had group nogroup\n" in group[2]


@on_loop
async def test_a_message_is_shown_although_not_all_of_its_consumers_are_known() -> None:
    host = pack_host(Host("127.0.0.1", 10911))
    made = encode_record(RecordDraft(b"Orders", b"text", b"UNIQ_KEY\1U1\2", 0, 1, host, host))
    place_record(made, 0, Placement(0, 100, 1_000))
    groups = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    words = ("queryMsgById", "-t", "Orders", "-i", "U1", "--json")

    async with half() as (stage, living, gone):
        living.answers(RequestCode.QUERY_MESSAGE, bytes(made))
        living.answers(groups, GroupList(group_list=["billing"]))
        status, printed, error = await run(stage, *words)
        assert (status, error.count(gone)) == (3, 1)
        (track,) = json.loads(printed)["tracks"]
        assert (track["group"], track["kind"]) == ("billing", "UNKNOWN")

        def denied(_fields: dict[str, str]) -> Reply:
            raise ServerError("not now")

        living.answers(groups, denied)
        status, printed, error = await run(stage, *words)
        assert (status, json.loads(printed)["tracks"]) == (3, None)
        assert "not now" in error


@on_loop
async def test_members_that_are_connected_to_a_living_broker_are_asked() -> None:
    member = Connection(client_id="client-1", version=500)
    async with half() as (stage, living, gone):
        connected = ConsumerConnections(connection_set=[member])
        living.answers(RequestCode.GET_CONSUMER_CONNECTION_LIST, connected)
        living.answers(RequestCode.GET_CONSUMER_RUNNING_INFO, RunningConsumer())

        words = ("consumerStatus", "-g", "billing", "--json")
        status, printed, error = await run(stage, *words)
        assert (status, error.count(gone)) == (3, 1)
        assert [each["clientId"] for each in json.loads(printed)["members"]] == ["client-1"]

        status, _, _ = await run(stage, *words, "-i", "client-1")
        assert status == 0
