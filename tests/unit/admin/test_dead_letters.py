"""What a dead letter says of itself, and what its copy keeps."""

import pytest

from bolide.admin.dead_letters import (
    NoTarget,
    Outcome,
    Redriven,
    Selection,
    copy_of,
    dead_letter,
)
from bolide.model.message import Host, StoredMessage
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.offsets import OffsetReply
from bolide.protocol.headers.pull import PullReply
from bolide.protocol.hosts import pack_host
from bolide.protocol.record import Placement, RecordDraft, encode_record, place_record
from bolide.protocol.refusals import QueryNotFound
from bolide.remoting.dispatch import Reply
from tests.support.aio import on_loop
from tests.unit.admin.scripted import Cast, cast, run

GROUP = "billing"
QUEUE = MessageQueue("%DLQ%billing", "broker-a", 0)
OWN = {"KEYS": "k1 k2", "TAGS": "paid", "mine": "x", "__SHARDINGKEY": "s", "UNIQ_KEY": "U1"}
PAST = {
    "RETRY_TOPIC": "Orders", "ORIGIN_MESSAGE_ID": "O1", "WAIT": "false", "DELAY": "3",
    "RECONSUME_TIME": "16", "1ST_POP_TIME": "7", "POP_CK": "1 2", "TRAN_MSG": "true",
    "DEDUP_KEY": "d", "TIMER_DELIVER_MS": "9", "REPLAYED_FROM": "%DLQ%billing/broker-a/0@1",
    "CLUSTER": "c", "BOLIDE_CRON": "* * * * *",
}  # fmt: skip


def stored(**properties: str) -> StoredMessage:
    return StoredMessage(
        QUEUE.topic, b"body", dict(properties), flag=5, queue_offset=7, reconsume_times=16
    )


def test_a_copy_keeps_what_is_the_senders_and_begins_anew() -> None:
    message = stored(**(OWN | PAST))
    letter = dead_letter(GROUP, QUEUE, message)

    copy = copy_of(message, letter, "Orders")

    assert (copy.topic, copy.body, copy.flag) == ("Orders", b"body", 5)
    assert copy.properties == OWN | {"REPLAYED_FROM": "%DLQ%billing/broker-a/0@7"}
    to_group = copy_of(message, letter, "%RETRY%billing")
    assert to_group.properties == {**copy.properties, "RETRY_TOPIC": "Orders"}


def test_a_message_without_a_unique_id_is_found_again_by_its_offset_id() -> None:
    message = stored()
    letter = dead_letter(GROUP, QUEUE, message)

    copy = copy_of(message, letter, "Orders")

    assert copy.properties["UNIQ_KEY"] == letter.message_id == message.offset_message_id


@pytest.mark.parametrize(
    ("properties", "origin"),
    [
        ({"RETRY_TOPIC": "Orders"}, "Orders"),
        ({"RETRY_TOPIC": "%RETRY%billing+Orders"}, "Orders"),
        ({"RETRY_TOPIC": "%RETRY%billing_Orders"}, "Orders"),
        ({"RETRY_TOPIC": "Orders", "DLQ_ORIGIN_TOPIC": "First"}, "First"),
        ({}, None),
    ],
)
def test_the_topic_of_the_first_send_is_found(
    properties: dict[str, str], origin: str | None
) -> None:
    assert dead_letter(GROUP, QUEUE, stored(**properties)).origin_topic == origin


def test_the_reason_is_what_a_consumer_wrote_else_the_number_of_tries() -> None:
    told = stored(EXCEPTION="e" * 300, ERROR="later")

    assert dead_letter(GROUP, QUEUE, told).reason == "e" * 200
    assert dead_letter(GROUP, QUEUE, stored()).reason == "given up after 16 tries"


def test_a_selection_goes_by_topic_key_and_each_kind_of_id() -> None:
    letter = dead_letter(GROUP, QUEUE, stored(**(OWN | PAST)))

    def matches(**what: str) -> bool:
        return Selection(group=GROUP, **what).matches(letter)  # type: ignore[arg-type]

    assert matches()
    assert matches(topic="Orders", key="k2", message_id="U1")
    assert matches(message_id="O1")
    assert matches(message_id=letter.offset_message_id)
    assert not matches(topic="Other")
    assert not matches(key="k")
    assert not matches(message_id="U2")


TIMES = {"0": [100, 300, 500], "1": [200, 300, 400]}
"""When the messages of each queue became dead letters."""


def record(topic: str, queue_id: int, offset: int, at_ms: int, replayed: str = "") -> bytes:
    host = pack_host(Host("127.0.0.1", 10911))
    more = f"REPLAYED_FROM\1{replayed}\2" if replayed else "RETRY_TOPIC\1Orders\2"
    properties = f"UNIQ_KEY\1U{'' if replayed else at_ms}\2{more}".encode()
    draft = RecordDraft(topic.encode(), b"body", properties, queue_id, 1, host, host)
    made = encode_record(draft)
    place_record(made, 0, Placement(offset, offset * 1000 + queue_id, at_ms))
    return bytes(made)


def nothing(_fields: dict[str, str]) -> Reply:
    raise QueryNotFound("can not find message")


def script_letters(stage: Cast) -> None:
    def pull(fields: dict[str, str]) -> Reply:
        times, at = TIMES[fields["queueId"]], int(fields["queueOffset"])
        end = len(times)
        header = PullReply(
            suggest_which_broker_id=0, next_begin_offset=end, min_offset=0, max_offset=end
        )
        rest = enumerate(times[at:], at)
        queue_id = int(fields["queueId"])
        body = b"".join(record(QUEUE.topic, queue_id, offset, ms) for offset, ms in rest)
        return Reply(header=header, body=body)

    def search(fields: dict[str, str]) -> Reply:
        earlier = (at for at in TIMES[fields["queueId"]] if at < int(fields["timestamp"]))
        return Reply(header=OffsetReply(len([*earlier])))

    stage.first.answers(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search)
    stage.first.answers(RequestCode.GET_MIN_OFFSET, OffsetReply(0))
    stage.first.answers(RequestCode.GET_MAX_OFFSET, OffsetReply(3))
    stage.first.answers(RequestCode.PULL_MESSAGE, pull)
    stage.first.answers(RequestCode.QUERY_MESSAGE, nothing)


@on_loop
async def test_the_queues_of_a_group_are_listed_by_time() -> None:
    async with cast() as stage:
        script_letters(stage)
        found = stage.admin.dead_letters.read(Selection(group=GROUP))

        assert [each.died_ms async for each in found] == [100, 200, 300, 300, 400, 500]


@on_loop
async def test_a_cut_listing_says_how_it_goes_on() -> None:
    async with cast() as stage:
        script_letters(stage)
        words = ("listDeadLetters", "-g", GROUP, "-m")
        _, _, after_one = await run(stage, *words, "1")
        _, _, among_equals = await run(stage, *words, "3")
        _, _, only_equals = await run(stage, *words, "1", "-b", "300")

    assert after_one.endswith("; -m 2 shows more, -b 200 goes on\n")
    assert among_equals.endswith("-b 300 goes on, with some of these again\n")
    assert only_equals.endswith("; -m 2 shows more\n")


@on_loop
async def test_a_redrive_is_cut_only_if_another_one_would_be_sent() -> None:
    cuts: list[int] = []

    async def plan(limit: int, **what: str) -> int:
        chosen = Selection(group=GROUP, **what)  # type: ignore[arg-type]
        letters = stage.admin.dead_letters
        made = letters.redrive(chosen, None, limit=limit, on_cut=lambda: cuts.append(limit))
        return len([each async for each in made])

    async with cast() as stage:
        script_letters(stage)

        assert await plan(1, message_id="U200") == 1
        assert await plan(6) == 6
        assert cuts == []
        assert await plan(5) == 5
        assert cuts == [5]


@pytest.mark.parametrize("topic", [QUEUE.topic, "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "TBW102"])
@on_loop
async def test_dead_letters_do_not_go_to_topics_of_the_broker(topic: str) -> None:
    async with cast() as stage:
        script_letters(stage)

        with pytest.raises(NoTarget):
            await anext(stage.admin.dead_letters.redrive(Selection(group=GROUP), None, to=topic))


@pytest.mark.parametrize(
    ("copies", "step", "outcome"),
    [
        (80, 1, Outcome.SENT_BEFORE),  # the one looked for is the oldest
        (80, 0, Outcome.NOT_KNOWN),  # more of one moment than the broker sends
        (31, 0, Outcome.SENT_BEFORE),
    ],
)
@on_loop
async def test_a_copy_is_found_among_many_with_its_id(
    copies: int, step: int, outcome: Outcome
) -> None:
    def positions(fields: dict[str, str]) -> Reply:
        """The newest 32, as brokers send them."""
        end = int(fields["endTimestamp"])
        times = [(number, 5_000 + number * step) for number in range(copies)]
        newest = [(number, at) for number, at in times if at <= end][-32:]
        letter = "%DLQ%billing/broker-a/0@"
        body = (record("Orders", 0, number, at, f"{letter}{number}") for number, at in newest)
        return Reply(body=b"".join(body))

    async with cast() as stage:
        script_letters(stage)
        stage.first.answers(RequestCode.QUERY_MESSAGE, positions)
        letter = dead_letter(GROUP, MessageQueue(QUEUE.topic, "broker-a", 0), looked_for())

        found = await stage.admin.dead_letters.obstacle((letter, "Orders"))

        assert isinstance(found, Redriven)
        assert found.outcome is outcome


def looked_for() -> StoredMessage:
    return StoredMessage(QUEUE.topic, b"", {"UNIQ_KEY": "U"}, queue_offset=0, store_timestamp=9)
