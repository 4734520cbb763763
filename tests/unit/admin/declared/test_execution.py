"""Changes that a broker is sent together, and what is made of a refusal of them all."""

from typing import NoReturn

from bolide.admin.declared.changes import Action, Change
from bolide.admin.declared.execution import carry_out
from bolide.admin.declared.fields import Kind, default_fields
from bolide.protocol.bodies.topics import MappedTopicConfigTable, TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import ServerError, SystemBusy
from tests.support.aio import on_loop
from tests.unit.admin.scripted import CLUSTER, Cast, cast

AFTER = default_fields(Kind.TOPICS, {}, 5)
BEFORE = {**AFTER, "attributes": {"message.type": "FIFO"}}
NAMES = ("Made", "Bad", "New")


def changes(stage: Cast) -> list[Change]:
    return [
        Change(
            action=Action.CHANGE,
            kind=Kind.TOPICS,
            name=name,
            broker="broker-a",
            address=stage.first.address,
            before=BEFORE,
            after=AFTER,
        )
        for name in NAMES
    ]


def topic(name: str, **attributes: str) -> TopicConfig:
    return TopicConfig(
        topic_name=name, read_queue_nums=8, write_queue_nums=8, attributes=attributes
    )


@on_loop
async def test_what_a_refused_list_has_made_is_not_asked_for_again() -> None:
    def refuse(*_: object) -> NoReturn:
        raise ServerError("one of them is bad")

    async with cast() as stage:
        broker = stage.first
        # Apache's brokers go through the list until one fails.
        now = {"Made": topic("Made"), "Bad": topic("Bad", **{"message.type": "FIFO"})}
        broker.answers(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, refuse)
        broker.answers(
            RequestCode.GET_ALL_TOPIC_CONFIG, MappedTopicConfigTable(topic_config_table=now)
        )
        broker.answers(RequestCode.UPDATE_AND_CREATE_TOPIC)
        stage.name_server.answers(RequestCode.GET_KV_CONFIG)

        outcome = await carry_out(stage.admin, CLUSTER, changes(stage))

        assert [each.name for each in outcome.done] == [*NAMES]
        sent = broker.fields_of(RequestCode.UPDATE_AND_CREATE_TOPIC)
        assert [each["topic"] for each in sent] == ["Bad", "New"]
        assert [each.get("attributes") for each in sent] == ["-message.type", None]


@on_loop
async def test_a_broker_that_takes_no_list_now_is_not_asked_one_by_one() -> None:
    def refuse(*_: object) -> NoReturn:
        raise SystemBusy("later")

    async with cast() as stage:
        stage.first.answers(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, refuse)
        stage.first.answers(RequestCode.UPDATE_AND_CREATE_TOPIC)
        for keep_going in (False, True):
            outcome = await carry_out(stage.admin, CLUSTER, changes(stage), keep_going=keep_going)
            assert [each.name for each, _ in outcome.failed] == [*NAMES]
        assert not stage.first.fields_of(RequestCode.UPDATE_AND_CREATE_TOPIC)
