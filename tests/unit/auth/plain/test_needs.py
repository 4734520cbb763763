"""What each request needs."""

import inspect
import json

import pytest

from bolide.auth.plain import needs
from bolide.auth.plain.accounts import Permission
from bolide.auth.plain.needs import ADMIN, KNOWN_ACCOUNT, needs_of, needs_of_found
from bolide.auth.request_bodies import UnreadableBody
from bolide.auth.request_purposes import PURPOSES, Purpose
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.frame import Frame
from bolide.protocol.requests import REQUESTS
from tests.interop.plain_acl_cases import STRICTER

PUB, SUB = Permission.PUB, Permission.SUB
BOTH = {"topic": "T", "consumerGroup": "g"}
GROUP = ("%RETRY%g", SUB)
HEARTBEAT = {
    "clientID": "c",
    "consumerDataSet": [
        {"groupName": "g", "subscriptionDataSet": [{"topic": "T"}, {"topic": "%RETRY%g"}]}
    ],
}
ACK = {"c": "g", "t": "T", "so": 0, "q": 0, "rq": 0, "pt": 0, "it": 0}


def needed(code: int, fields: dict[str, str] | None = None, body: object = None) -> object:
    data = b"" if body is None else json.dumps(body).encode()
    return [
        tuple(each)
        for each in needs_of(Frame(code=code, fields=fields, body=data), "C").permissions
    ]


@pytest.mark.parametrize(
    ("code", "fields", "expected"),
    [
        (Code.SEND_MESSAGE, {"topic": "T"}, [("T", PUB)]),
        (Code.SEND_MESSAGE, {"topic": "%RETRY%g", "producerGroup": "x"}, [GROUP]),
        (Code.SEND_MESSAGE_V2, {"b": "T", "topic": "Mine"}, [("T", PUB)]),
        (Code.SEND_MESSAGE_V2, {"a": "mine", "b": "%RETRY%g"}, [GROUP]),
        (Code.SEND_BATCH_MESSAGE, {"b": "T"}, [("T", PUB)]),
        (Code.SEND_REPLY_MESSAGE, {"topic": "T"}, [("T", PUB)]),
        (Code.SEND_REPLY_MESSAGE_V2, {"b": "C_REPLY_TOPIC"}, []),
        (Code.SEND_REPLY_MESSAGE_V2, {"b": "D_REPLY_TOPIC"}, [("D_REPLY_TOPIC", PUB)]),
        (Code.CONSUMER_SEND_MSG_BACK, {"group": "g"}, [GROUP]),
        (Code.END_TRANSACTION, {"topic": "T"}, [("T", PUB)]),
        (Code.END_TRANSACTION, {}, []),
        (Code.RECALL_MESSAGE, {"topic": "T"}, [("T", PUB)]),
        *((code, BOTH, [("T", SUB), GROUP]) for code in (
            Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.POP_MESSAGE, Code.PEEK_MESSAGE,
            Code.ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME, Code.NOTIFICATION,
            Code.POLLING_INFO, Code.UPDATE_CONSUMER_OFFSET)),
        (Code.ACK_MESSAGE, BOTH | {"topic": "%RETRY%g_T"}, [("T", SUB), GROUP]),
        (Code.ACK_MESSAGE, BOTH | {"topic": "%RETRY%g+T"}, [("T", SUB), GROUP]),
        (Code.PULL_MESSAGE, BOTH | {"topic": "%RETRY%g_T"}, [("%RETRY%g_T", SUB), GROUP]),
        (Code.ACK_MESSAGE, BOTH | {"topic": "%RETRY%h_T"}, [("%RETRY%h_T", SUB), GROUP]),
        (Code.UNREGISTER_CLIENT, {"producerGroup": "g"}, []),
        (Code.UNREGISTER_CLIENT, {"consumerGroup": "g"}, [GROUP]),
        (Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}, [GROUP]),
        (Code.QUERY_MESSAGE, {"topic": "T"}, [("T", SUB)]),
        (Code.VIEW_MESSAGE_BY_ID, {"topic": "Mine"}, [("", SUB)]),
    ],
)  # fmt: skip
def test_a_request_needs_what_its_fields_name(
    code: Code, fields: dict[str, str], expected: list[tuple[str, Permission]]
) -> None:
    assert needed(code, fields) == expected
    assert not needs_of(Frame(code=code, fields=fields)).needs_admin


@pytest.mark.parametrize(
    ("code", "body", "expected"),
    [
        (Code.HEART_BEAT, HEARTBEAT, [GROUP, ("T", SUB), GROUP]),
        (Code.HEART_BEAT, {"clientID": "c", "producerDataSet": [{"groupName": "p"}]}, []),
        (Code.LOCK_BATCH_MQ, {"consumerGroup": "g", "clientId": "c"}, [GROUP]),
        (Code.UNLOCK_BATCH_MQ, {"consumerGroup": "g", "clientId": "c"}, [GROUP]),
        (Code.BATCH_ACK_MESSAGE, {"acks": [ACK, ACK | {"t": "U"}]},
         [("T", SUB), GROUP, ("U", SUB), GROUP]),
        (Code.QUERY_ASSIGNMENT, BOTH | {"clientId": "c"}, [("T", SUB), GROUP]),
    ],
)  # fmt: skip
def test_a_request_needs_what_its_body_names(
    code: Code, body: object, expected: list[tuple[str, Permission]]
) -> None:
    assert needed(code, {}, body) == expected


def test_a_body_in_another_spelling_names_the_same() -> None:
    body = b"{'clientID':'c','consumerDataSet':[{'groupName':'g','consumeType':1}]}"
    found = needs_of(Frame(code=Code.HEART_BEAT, body=body))
    assert [tuple(each) for each in found.permissions] == [GROUP]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{'a':" + b" " * 70_000 + b"1}", b"{}" + b" " * 2**22]
)
def test_a_body_that_cannot_be_read_is_not_guessed(body: bytes) -> None:
    with pytest.raises(UnreadableBody):
        needs_of(Frame(code=Code.HEART_BEAT, body=body))


@pytest.mark.parametrize("code", Code)
def test_every_request_that_changes_something_has_a_rule_or_needs_an_admin(code: Code) -> None:
    purpose = PURPOSES[code]
    if code in needs._RULES:
        assert purpose in {Purpose.MESSAGING, Purpose.QUERY}
        return
    found = needs_of(Frame(code=code))
    if code in {Code.BOLIDE_WHO_AM_I, Code.BOLIDE_CAN_I}:
        assert found == KNOWN_ACCOUNT
    elif purpose in {Purpose.ADMINISTRATION, Purpose.TO_CLIENT}:
        assert found == ADMIN
    elif found == KNOWN_ACCOUNT:
        assert code.name.startswith(("GET_", "QUERY_", "SEARCH_", "VIEW_", "CHECK_", "WHO_",
                                     "INVOKE_BROKER_TO_GET", "CONTROLLER_GET_"))  # fmt: skip


@pytest.mark.parametrize("code", [-1, 0, 54321, 2**31 - 1])
def test_an_unknown_request_needs_an_admin(code: int) -> None:
    assert needs_of(Frame(code=code)) == ADMIN


def test_the_list_of_differences_names_requests_with_rules() -> None:
    assert {code for codes in STRICTER.values() for code in codes} <= needs._RULES.keys()


_TOPIC, _GROUP, _BOTH = ("topic",), ("consumer_group",), ("topic", "consumer_group")
FIELDS = {
    Code.SEND_MESSAGE: _TOPIC,
    Code.SEND_MESSAGE_V2: _TOPIC,
    Code.SEND_BATCH_MESSAGE: _TOPIC,
    Code.SEND_REPLY_MESSAGE: _TOPIC,
    Code.SEND_REPLY_MESSAGE_V2: _TOPIC,
    Code.RECALL_MESSAGE: _TOPIC,
    Code.QUERY_MESSAGE: _TOPIC,
    Code.CONSUMER_SEND_MSG_BACK: ("group",),
    Code.GET_CONSUMER_LIST_BY_GROUP: _GROUP,
    Code.PULL_MESSAGE: _BOTH,
    Code.LITE_PULL_MESSAGE: _BOTH,
    Code.POP_MESSAGE: _BOTH,
    Code.PEEK_MESSAGE: _BOTH,
    Code.ACK_MESSAGE: _BOTH,
    Code.CHANGE_MESSAGE_INVISIBLETIME: _BOTH,
    Code.NOTIFICATION: _BOTH,
    Code.POLLING_INFO: _BOTH,
    Code.UPDATE_CONSUMER_OFFSET: _BOTH,
}
"""Fields that a rule reads, by the names of their headers."""


@pytest.mark.parametrize("code", FIELDS)
def test_a_handler_refuses_a_request_that_lacks_a_field_of_its_rule(code: Code) -> None:
    parameters = inspect.signature(REQUESTS[code].header).parameters
    for name in FIELDS[code]:
        assert parameters[name].default is inspect.Parameter.empty


@pytest.mark.parametrize(
    "topic",
    ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC",
     "rmq_sys_REVIVE_LOG_any", "rmq_sys_bolide_pop"],
)  # fmt: skip
def test_messages_that_the_broker_holds_are_for_admins(topic: str) -> None:
    for code in (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.POP_MESSAGE, Code.PEEK_MESSAGE,
                 Code.NOTIFICATION, Code.QUERY_MESSAGE):  # fmt: skip
        assert needs_of(Frame(code=code, fields=BOTH | {"topic": topic})) == ADMIN
    view = Frame(code=Code.VIEW_MESSAGE_BY_ID)
    assert needs_of_found(view, topic) == ADMIN
