"""What each request needs."""

import json
from contextlib import suppress

import pytest

from bolide.auth.policies.decisions import Need
from bolide.auth.policies.model import Action, Resource, ResourceType
from bolide.auth.policies.requirements import (
    OPEN_TO_USERS,
    RULES,
    needs_of,
    needs_of_found,
)
from bolide.auth.request_bodies import MAX_DIALECT, MAX_JSON
from bolide.auth.request_purposes import PURPOSES, Purpose
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.frame import Frame
from bolide.protocol.refusals import NoPermission
from tests.interop.policy_cases import NEEDS_CLUSTER_UPDATE

CLUSTER = "DefaultCluster"
UPDATE_CLUSTER = ["Cluster:DefaultCluster Update"]


def needed(code: int, fields: dict[str, str] | None = None, body: object = None) -> list[str]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode() if body else b""
    return [shown(each) for each in needs_of(Frame(code=code, fields=fields, body=data), CLUSTER)]


def shown(need: Need) -> str:
    actions = ",".join(each.value for each in Action if each in need.actions)
    return f"{need.resource} {actions}"


@pytest.mark.parametrize("code", [c for c in Code if PURPOSES[c] is Purpose.ADMINISTRATION])
def test_no_request_that_administers_is_open_to_all_users(code: Code) -> None:
    assert code not in OPEN_TO_USERS
    with suppress(NoPermission):  # it lacks what it is about
        assert needed(code, {"any": "field"}, {}) != []


@pytest.mark.parametrize("code", [c for c in Code if c.name.startswith("BOLIDE_")])
def test_our_own_requests_need_the_cluster(code: Code) -> None:
    if code in {Code.BOLIDE_WHO_AM_I, Code.BOLIDE_CAN_I}:
        assert needed(code) == []
    else:
        (need,) = needed(code)
        assert need.startswith("Cluster:DefaultCluster ")


@pytest.mark.parametrize("code", [0, -1, 999, 6999, 60999, 2**31 - 1])
def test_an_unknown_request_needs_the_right_to_change_the_cluster(code: int) -> None:
    assert needed(code) == UPDATE_CLUSTER


def test_a_request_that_only_reads_is_open_as_in_rocketmq() -> None:
    assert needed(Code.GET_BROKER_CONFIG) == []
    assert needed(Code.GET_ALL_TOPIC_CONFIG) == []
    assert needed(Code.GET_BROKER_CLUSTER_INFO) == []


@pytest.mark.parametrize("code", sorted(NEEDS_CLUSTER_UPDATE))
def test_what_rocketmq_leaves_open_needs_the_cluster(code: int) -> None:
    assert needed(code) == UPDATE_CLUSTER


@pytest.mark.parametrize(
    ("code", "field"),
    [(Code.SEND_MESSAGE, "topic"), (Code.SEND_MESSAGE_V2, "b"), (Code.SEND_BATCH_MESSAGE, "b")],
)
def test_a_send_needs_pub_on_its_topic(code: Code, field: str) -> None:
    assert needed(code, {field: "orders"}) == ["Topic:orders Pub"]
    assert needed(code, {field: "%RETRY%bill"}) == ["Group:bill Sub"]
    assert needed(code, {}) == ["Topic:None Pub"]


def test_a_send_with_short_names_is_not_fooled_by_a_long_one() -> None:
    assert needed(Code.SEND_MESSAGE_V2, {"b": "orders", "topic": "mine"}) == ["Topic:orders Pub"]


@pytest.mark.parametrize("code", [Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE])
def test_a_pull_needs_sub_on_topic_and_group(code: Code) -> None:
    fields = {"topic": "orders", "consumerGroup": "bill"}
    assert needed(code, fields) == ["Topic:orders Sub", "Group:bill Sub"]


def test_a_retry_topic_belongs_to_its_group() -> None:
    def pull(topic: str) -> set[str]:
        return set(needed(Code.PULL_MESSAGE, {"topic": topic, "consumerGroup": "bill"}))

    assert pull("%RETRY%bill") == {"Group:bill Sub"}
    assert pull("%RETRY%other") == {"Group:bill Sub", "Group:other Sub"}
    # It may be that of a group bill_orders, whose messages may be of any topic.
    assert pull("%RETRY%bill_orders") == {"Group:bill Sub", "Group:bill_orders Sub"}
    assert pull("%RETRY%bill+orders") == {"Group:bill Sub", "Topic:orders Sub"}
    assert pull("%RETRY%billing") == {"Group:bill Sub", "Group:billing Sub"}


@pytest.mark.parametrize("code", [Code.ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME])
def test_who_has_a_receipt_is_taken_for_the_group_that_popped(code: Code) -> None:
    fields = {"topic": "%RETRY%bill_orders", "consumerGroup": "bill"}
    assert set(needed(code, fields)) == {"Group:bill Sub", "Topic:orders Sub"}


def test_a_dead_letter_topic_is_a_topic() -> None:
    fields = {"topic": "%DLQ%bill", "consumerGroup": "bill"}
    assert needed(Code.PULL_MESSAGE, fields) == ["Topic:%DLQ%bill Sub", "Group:bill Sub"]


def test_a_heartbeat_needs_sub_on_groups_and_topics() -> None:
    group = {"groupName": "bill", "subscriptionDataSet": [
        {"topic": "orders"}, {"topic": "%RETRY%bill"}, {"topic": "%RETRY%other"},
    ]}  # fmt: skip
    body = {
        "clientID": "c", "consumerDataSet": [group], "producerDataSet": [{"groupName": "p"}]
    }  # fmt: skip
    assert needed(Code.HEART_BEAT, {}, body) == [
        "Group:bill Sub", "Topic:orders Sub", "Group:bill Sub", "Group:other Sub",
    ]  # fmt: skip


def test_a_producers_heartbeat_needs_nothing() -> None:
    body = {"clientID": "c", "producerDataSet": [{"groupName": "p"}]}
    assert needed(Code.HEART_BEAT, {}, body) == []


def test_batched_acknowledgements_need_sub_on_every_topic_and_group() -> None:
    ack = {"c": "bill", "t": "orders", "so": 0, "q": 0, "rq": 0, "pt": 0, "it": 0}
    body = {"acks": [ack, ack | {"t": "other"}]}
    found = needed(Code.BATCH_ACK_MESSAGE, {}, body)
    assert set(found) == {"Topic:orders Sub", "Topic:other Sub", "Group:bill Sub"}


def test_a_list_of_topics_needs_create_on_each() -> None:
    body = {"topicConfigList": [{"topicName": "a"}, {"topicName": "b"}]}
    found = needed(Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)
    assert found == ["Topic:a Create", "Topic:b Create"]


@pytest.mark.parametrize(
    "code",
    [
        Code.HEART_BEAT, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ, Code.BATCH_ACK_MESSAGE,
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
    ],
)  # fmt: skip
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"1", b"null", b'{"acks":[1]}'])
def test_a_body_that_cannot_be_read_is_denied(code: Code, body: bytes) -> None:
    try:
        found = needed(code, {}, body)
    except NoPermission as exc:
        assert exc.remark.startswith("parse authorization context error.")
    else:
        assert found == [], "only what names nothing may pass"


@pytest.mark.parametrize("code", [code for code, rule in RULES.items() if rule.fields])
def test_a_request_that_names_nothing_is_denied_or_needs_the_cluster(code: int) -> None:
    try:
        (need,) = needed(code, {})
    except NoPermission as exc:
        assert exc.remark.startswith("parse authorization context error.")
    else:
        assert need.startswith("Cluster:DefaultCluster ")


def test_a_registration_needs_its_own_cluster() -> None:
    assert needed(Code.REGISTER_BROKER, {"clusterName": "c1"}) == ["Cluster:c1 Update"]


def test_a_list_of_names_in_one_field_needs_each() -> None:
    fields = {"filterGroups": "a,b", "compareGroup": "c", "topic": "t"}
    found = needed(Code.QUERY_CORRECTION_OFFSET, fields)
    assert found == ["Group:a Get", "Group:b Get", "Group:c Get", "Topic:t Get"]


def test_deleting_a_retry_topic_needs_the_group() -> None:
    found = needed(Code.DELETE_TOPIC_IN_BROKER, {"topic": "%RETRY%bill"})
    assert found == ["Group:bill Delete"]
    assert needs_of(Frame(code=Code.DELETE_TOPIC_IN_BROKER, fields={"topic": "t"}), CLUSTER) == [
        Need(Resource(ResourceType.TOPIC, "t"), frozenset({Action.DELETE}))
    ]


INTERNAL = (
    "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "rmq_sys_REVIVE_LOG_any",
    "rmq_sys_bolide_pop",
)  # fmt: skip


@pytest.mark.parametrize("topic", INTERNAL)
@pytest.mark.parametrize(
    "code",
    [
        Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.POP_MESSAGE, Code.PEEK_MESSAGE,
        Code.NOTIFICATION, Code.QUERY_MESSAGE, Code.VIEW_MESSAGE_BY_ID,
        Code.CONSUME_MESSAGE_DIRECTLY,
    ],
)  # fmt: skip
def test_messages_that_the_broker_holds_are_for_those_who_administer_it(
    code: Code, topic: str
) -> None:
    needs = needed(code, {"topic": topic, "consumerGroup": "bill"})
    assert "Cluster:DefaultCluster Update,Get" in needs
    assert not any(each.startswith("Topic:") for each in needs)


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRACE_TOPIC", "c_REPLY_TOPIC", "%DLQ%bill"])
def test_other_topics_with_a_meaning_are_read_by_their_name(topic: str) -> None:
    assert needed(Code.PULL_MESSAGE, {"topic": topic, "consumerGroup": "bill"}) == [
        f"Topic:{topic} Sub", "Group:bill Sub",
    ]  # fmt: skip


def test_only_the_topic_of_replies_of_the_own_cluster_is_everybodys() -> None:
    for code, field in ((Code.SEND_REPLY_MESSAGE, "topic"), (Code.SEND_REPLY_MESSAGE_V2, "b")):
        assert needed(code, {field: "DefaultCluster_REPLY_TOPIC"}) == []
        assert needed(code, {field: "other_REPLY_TOPIC"}) == ["Topic:other_REPLY_TOPIC Pub"]


BODIES = [
    Code.HEART_BEAT, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ, Code.BATCH_ACK_MESSAGE,
    Code.UPDATE_AND_CREATE_TOPIC_LIST,
]  # fmt: skip


@pytest.mark.parametrize("code", BODIES)
@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (b"{" + b" " * MAX_JSON + b"}", MAX_JSON),
        (b"{'a':" + b" " * MAX_DIALECT + b"1}", MAX_DIALECT),
        (b'{"a":' + b"[" * MAX_DIALECT + b"]" * MAX_DIALECT + b"}", MAX_DIALECT),
    ],
    ids=["standard", "dialect", "nested"],
)
def test_a_body_that_takes_long_to_read_is_refused(code: Code, body: bytes, limit: int) -> None:
    with pytest.raises(NoPermission, match=str(limit)):
        needed(code, body=body)


def test_a_request_about_very_many_resources_is_refused() -> None:
    def heartbeat(names: range) -> object:
        subscriptions = [{"topic": f"t{number}"} for number in names]
        group = {"groupName": "g", "subscriptionDataSet": subscriptions}
        return {"clientID": "c", "consumerDataSet": [group]}

    assert len(needed(Code.HEART_BEAT, body=heartbeat(range(1999)))) == 2000
    with pytest.raises(NoPermission, match="more than 2000 topics and groups"):
        needed(Code.HEART_BEAT, body=heartbeat(range(2000)))
    topics = {"consumerGroup": "g", "topicList": ";".join(map(str, range(5000)))}
    with pytest.raises(NoPermission, match="more than 2000 topics and groups"):
        needed(Code.GET_CONSUME_STATS, topics)


@pytest.mark.parametrize("topic", ["", " "])
def test_an_empty_name_is_none(topic: str) -> None:
    fields = {"offset": "0", "topic": topic}
    assert needed(Code.VIEW_MESSAGE_BY_ID, fields) == ["Cluster:DefaultCluster Get"]
    with pytest.raises(NoPermission):
        needed(Code.GET_TOPIC_CONFIG, fields)


def test_a_message_that_is_read_by_its_topic_and_offset_needs_its_own_topic() -> None:
    request = Frame(code=Code.VIEW_MESSAGE_BY_ID, fields={"offset": "0", "topic": "mine"})
    assert [shown(each) for each in needs_of_found(request, "theirs")] == ["Topic:theirs Get"]
