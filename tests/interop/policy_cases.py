"""Users and policies, and the requests that they send to our broker and to Apache's."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from bolide.model.message import Message
from bolide.protocol.batch import encode_batch
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.frame import Frame
from bolide.protocol.signature import ACCESS_KEY, SIGNATURE, signature
from tests.interop.exchanges import ABSENT, EXCHANGES, GROUP, TOPIC, Exchange

ROOT, ROOT_PASSWORD = "root", "root-12345"
PASSWORD = "secret-12345"
CLUSTER = "Cluster:DefaultCluster"
RETRY = f"%RETRY%{GROUP}"
FOREIGN_RETRY = "%RETRY%elsewhere"
POP_RETRY = f"%RETRY%{GROUP}_{TOPIC}"
_QUOTED = f'"{TOPIC}"'.encode()

Entry = tuple[str, str, str, str]
"""Resources and actions, separated by commas; decision; source addresses, which may be none."""

POLICIES: dict[str, dict[str, list[Entry]]] = {
    "pub": {"Custom": [(f"Topic:{TOPIC}", "Pub", "Allow", "")]},
    "sub": {"Custom": [(f"Topic:{TOPIC},Group:{GROUP}", "Sub", "Allow", "")]},
    "topic-only": {"Custom": [(f"Topic:{TOPIC}", "All", "Allow", "")]},
    "group-only": {"Custom": [(f"Group:{GROUP}", "All", "Allow", "")]},
    "other": {"Custom": [("Topic:Elsewhere,Group:elsewhere", "All", "Allow", "")]},
    "prefix": {"Custom": [("Topic:Ans*,Group:ans*", "All", "Allow", "")]},
    "longest": {
        "Custom": [
            ("Topic:*,Group:*", "All", "Allow", ""),
            ("Topic:Ans*,Group:ans*", "All", "Deny", ""),
            ("Topic:Answer*,Group:answers*", "Pub,Sub,Get", "Allow", ""),
        ]
    },
    "denied": {
        "Custom": [
            ("Topic:*,Group:*", "All", "Allow", ""),
            (f"Topic:{TOPIC},Group:{GROUP}", "All", "Deny", ""),
        ]
    },
    "near": {"Custom": [("Topic:*,Group:*", "Pub,Sub", "Allow", "127.0.0.0/8")]},
    "exact": {"Custom": [("*", "All", "Allow", "127.0.0.1")]},
    "far": {"Custom": [("Topic:*,Group:*", "All", "Allow", "10.0.0.0/8,192.168.1.1")]},
    "not-from-here": {
        "Custom": [
            (f"Topic:{TOPIC}", "All", "Allow", ""),
            ("*", "All", "Allow", ""),
            ("Topic:Answers*", "All", "Deny", "127.0.0.1/32"),
        ]
    },
    "defaults": {
        "Custom": [(f"Topic:{TOPIC}", "Pub", "Deny", "")],
        "Default": [("*", "All", "Allow", "")],
    },
    "reader": {"Custom": [("Topic:*,Group:*,Cluster:*", "Get,List", "Allow", "")]},
    "keeper": {"Custom": [(CLUSTER, "Update", "Allow", "")]},
    "creator": {"Custom": [("Topic:*,Group:*", "Create,Update,Delete", "Allow", "")]},
    "disabled": {"Custom": [("*", "All", "Allow", "")]},
    "nothing": {},
}
"""The users, with their policies by kind."""

ANONYMOUS, UNKNOWN, FORGED, UNSIGNED = "(none)", "(unknown)", "(wrong signature)", "(no signature)"
IDENTITIES = (ANONYMOUS, UNKNOWN, FORGED, UNSIGNED, ROOT, *POLICIES)
SERVED_NOTHING = frozenset({ANONYMOUS, UNKNOWN, FORGED, UNSIGNED, "disabled"})
MAY_UPDATE_THE_CLUSTER = frozenset({ROOT, "keeper", "exact", "not-from-here", "defaults"})


@dataclass(frozen=True)
class Case:
    """One request of one identity."""

    exchange: Exchange
    identity: str

    @property
    def name(self) -> str:
        return f"{self.exchange.name} by {self.identity}"

    def is_about(self, text: str) -> bool:
        """Whether a field or the body contains a text."""
        fields = self.exchange.fields.values()
        return any(text in each for each in fields) or text.encode() in self.exchange.body


def cases() -> Iterator[Case]:
    for exchange in exchanges():
        for identity in IDENTITIES:
            yield Case(exchange, identity)


def exchanges() -> list[Exchange]:
    """Every request code that ours or Apache's broker knows, at least once."""
    by_code: dict[int, Exchange] = {}
    for each in (*EXCHANGES, *_OTHERS):
        if not each.to_name_server and ABSENT not in each.fields.values():
            by_code.setdefault(each.code, each)
    others = [Exchange(code.name, code, _ALL_FIELDS) for code in Code if code not in by_code]
    return [
        *_for_each_topic(each for code, each in by_code.items() if code not in _LAST),
        *ABOUT_FOUND_MESSAGES,
        *others,
        *_for_each_topic(each for code, each in by_code.items() if code in _LAST),
    ]


def _for_each_topic(some: Iterable[Exchange]) -> Iterator[Exchange]:
    for each in some:
        yield each
        if TOPIC in each.fields.values() or _QUOTED in each.body:
            for topic in ("Elsewhere", RETRY, FOREIGN_RETRY, POP_RETRY):
                yield _about(each, topic)


_LAST = frozenset({
    Code.UNREGISTER_CLIENT, Code.DELETE_SUBSCRIPTIONGROUP, Code.DELETE_TOPIC_IN_BROKER,
})  # fmt: skip
"""What others need is there until then."""

_ALL_FIELDS = {
    "topic": TOPIC, "consumerGroup": GROUP, "group": GROUP, "producerGroup": "answers-producer",
    "clusterName": "DefaultCluster", "brokerClusterName": "DefaultCluster", "cluster": "none",
    "brokerName": "none", "brokerId": "7", "brokerAddr": "127.0.0.1:1", "haServerAddr": "-",
    "namespace": "none", "key": "k", "value": "v", "clientId": "nobody", "configType": "none",
    "masterFlushOffset": "0", "designateElect": "false", "tranStateTableOffset": "0",
    "commitLogOffset": "0", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
    "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "bornHost": "127.0.0.1:1",
    "storeHost": "127.0.0.1:1", "storeTimestamp": "1", "timestamp": "0", "isForce": "false",
}  # fmt: skip
"""Enough for every header that the rules look at: RocketMQ denies one that lacks a field."""

VICTIM = {"username": "victim"}
"""A user and policies that requests may make, change and delete."""
_VICTIM_POLICIES = {
    "subject": "User:victim",
    "policies": [
        {
            "policyType": "Custom",
            "entries": [{"resource": "Topic:x", "actions": ["Pub"], "decision": "Allow"}],
        }
    ],
}
_BATCH_ACK = {
    "brokerName": "broker-a",
    "acks": [
        {
            "c": GROUP, "t": TOPIC, "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1000,
            "b": "AQ==",
        }
    ],
}  # fmt: skip
_TOPIC_CONFIG = {"topicName": TOPIC, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


_SEND = next(each.fields for each in EXCHANGES if each.code == Code.SEND_MESSAGE)
SEND_V2 = next(each.fields for each in EXCHANGES if each.code == Code.SEND_MESSAGE_V2)

_OTHERS = (
    # Java reads an empty field of a binary header as null and signs that word.
    Exchange("send a batch", Code.SEND_BATCH_MESSAGE,
             SEND_V2 | {"i": "WAIT\x01true\x02", "m": "true"},
             encode_batch([Message(TOPIC, b"one"), Message(TOPIC, b"two")])),
    Exchange("reply", Code.SEND_REPLY_MESSAGE, _SEND, b"one"),
    Exchange("reply v2", Code.SEND_REPLY_MESSAGE_V2, SEND_V2, b"one"),
    Exchange("create topics", Code.UPDATE_AND_CREATE_TOPIC_LIST,
             body=_json({"topicConfigList": [_TOPIC_CONFIG]})),
    Exchange("create groups", Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
             body=_json({"groupConfigList": [{"groupName": GROUP}]})),
    Exchange("create static topic", Code.UPDATE_AND_CREATE_STATIC_TOPIC,
             _ALL_FIELDS | {"topic": "Static", "perm": "6"}, b"{}"),
    Exchange("acknowledge several", Code.BATCH_ACK_MESSAGE, body=_json(_BATCH_ACK)),
    Exchange("consume directly", Code.CONSUME_MESSAGE_DIRECTLY, {
        "consumerGroup": GROUP, "clientId": "nobody", "msgId": "x", "brokerName": "broker-a",
        "topic": TOPIC,
    }),
    Exchange("create user", Code.AUTH_CREATE_USER, VICTIM,
             _json(VICTIM | {"password": PASSWORD, "userType": "Normal"})),
    Exchange("update user", Code.AUTH_UPDATE_USER, VICTIM,
             _json(VICTIM | {"userStatus": "disable"})),
    Exchange("get user", Code.AUTH_GET_USER, VICTIM),
    Exchange("create policies", Code.AUTH_CREATE_ACL, {"subject": "User:victim"},
             _json(_VICTIM_POLICIES)),
    Exchange("update policies", Code.AUTH_UPDATE_ACL, {"subject": "User:victim"},
             _json(_VICTIM_POLICIES)),
    Exchange("get policies", Code.AUTH_GET_ACL, {"subject": "User:victim"}),
    Exchange("delete policies", Code.AUTH_DELETE_ACL, {"subject": "User:victim"}),
    Exchange("delete user", Code.AUTH_DELETE_USER, VICTIM),
    *(
        Exchange(code.name, code)
        for code in (
            Code.DELETE_EXPIRED_COMMITLOG, Code.TRIGGER_DELETE_FILES, Code.GET_TIMER_METRICS,
            Code.GET_TIMER_CHECK_POINT, Code.AUTH_LIST_USER, Code.AUTH_LIST_ACL,
            Code.GET_COLD_DATA_FLOW_CTR_INFO, Code.EXCHANGE_BROKER_HA_INFO,
            Code.NOTIFY_MIN_BROKER_ID_CHANGE, Code.NOTIFY_BROKER_ROLE_CHANGED,
        )
    ),
)  # fmt: skip
"""Requests of codes whose answers are not compared; deletions are aimed at names made for them."""

POSITION, MESSAGE_ID = "{position}", "{message id}"
"""Where a message of `TOPIC` lies, which is made for each case."""
HALF_QUEUE_OFFSET = "{half queue offset}"

ABOUT_FOUND_MESSAGES = (
    *(
        Exchange(f"view a message as one of {topic}", Code.VIEW_MESSAGE_BY_ID,
                 {"offset": POSITION, "topic": topic})
        for topic in (TOPIC, "Elsewhere")
    ),
    *(
        Exchange(f"send back a message as {group}", Code.CONSUMER_SEND_MSG_BACK, {
            "offset": POSITION, "group": group, "delayLevel": "3", "originMsgId": "1",
            "originTopic": TOPIC, "unitMode": "false", "maxReconsumeTimes": "3",
        })
        for group in (GROUP, "elsewhere")
    ),
    *(
        Exchange(f"end a transaction as one of {topic}", Code.END_TRANSACTION, {
            "producerGroup": "answers-producer", "tranStateTableOffset": HALF_QUEUE_OFFSET,
            "commitLogOffset": POSITION, "commitOrRollback": "8", "fromTransactionCheck": "false",
            "msgId": "1", "transactionId": "1", "topic": topic,
        })
        for topic in (TOPIC, "Elsewhere")
    ),
    *(
        Exchange(f"check a half again as one of {topic}", Code.RESUME_CHECK_HALF_MESSAGE,
                 {"topic": topic, "msgId": MESSAGE_ID})
        for topic in (TOPIC, "Elsewhere")
    ),
    Exchange("check a half again", Code.RESUME_CHECK_HALF_MESSAGE, {"msgId": MESSAGE_ID}),
    Exchange("consume queue of any topic", Code.QUERY_CONSUME_QUEUE,
             {"queueId": "0", "index": "0", "count": "2"}),
)  # fmt: skip


def _about(each: Exchange, topic: str) -> Exchange:
    """The same request about another topic."""
    fields = {name: topic if text == TOPIC else text for name, text in each.fields.items()}
    body = each.body.replace(_QUOTED, f'"{topic}"'.encode())
    return replace(each, name=f"{each.name} ({topic})", fields=fields, body=body)


def signed(frame: Frame, identity: str) -> Frame:
    """Add the credentials of an identity to a request."""
    if identity == ANONYMOUS:
        return frame
    name = {UNKNOWN: "stranger", FORGED: ROOT, UNSIGNED: ROOT}.get(identity, identity)
    secret = ROOT_PASSWORD if identity == ROOT else PASSWORD
    fields = {**(frame.fields or {}), ACCESS_KEY: name}
    if identity != UNSIGNED:
        fields[SIGNATURE] = signature(fields, frame.body, secret.encode(), frame.version)
    frame.fields = fields
    return frame


def preparation() -> Iterator[tuple[int, dict[str, str], bytes]]:
    """The requests, to be signed by the super user, that create users and policies."""
    for name, policies in POLICIES.items():
        user = {"username": name, "password": PASSWORD, "userType": "Normal"}
        yield Code.AUTH_CREATE_USER, {"username": name}, json.dumps(user).encode()
        subject = f"User:{name}"
        body = {"subject": subject, "policies": [_policy(*each) for each in policies.items()]}
        if policies:
            yield Code.AUTH_CREATE_ACL, {"subject": subject}, json.dumps(body).encode()
    off = {"username": "disabled", "userStatus": "disable"}
    yield Code.AUTH_UPDATE_USER, {"username": "disabled"}, json.dumps(off).encode()


def _policy(kind: str, entries: list[Entry]) -> dict[str, object]:
    return {
        "policyType": kind,
        "entries": [
            {
                "resource": resource,
                "actions": actions.split(","),
                "sourceIps": sources.split(",") if sources else None,
                "decision": decision,
            }
            for resources, actions, decision, sources in entries
            for resource in resources.split(",")
        ],
    }


# ---- what is decided otherwise

NEEDS_CLUSTER_UPDATE = frozenset({
    Code.BROKER_CLOSE_CHANNEL_REQUEST, Code.CHECK_NOT_ACTIVE_BROKER_REQUEST,
    Code.GET_BROKER_LIVE_INFO_REQUEST, Code.GET_SYNC_STATE_DATA_REQUEST,
    Code.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
    Code.UPDATE_BROKER_CONFIG, Code.UPDATE_NAMESRV_CONFIG, Code.UPDATE_CONTROLLER_CONFIG,
    Code.UPDATE_AND_CREATE_STATIC_TOPIC, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, Code.SET_MESSAGE_REQUEST_MODE,
    Code.TRIGGER_DELETE_FILES, Code.DELETE_EXPIRED_COMMITLOG, Code.CLEAN_EXPIRED_CONSUMEQUEUE,
    Code.CLEAN_UNUSED_TOPIC, Code.SET_COMMITLOG_READ_MODE, Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
    Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, Code.POP_ROLLBACK, Code.SWITCH_TIMER_ENGINE,
    Code.REGISTER_FILTER_SERVER, Code.REGISTER_MESSAGE_FILTER_CLASS, Code.TRIGGER_LITE_DISPATCH,
    Code.POP_LITE_MESSAGE, Code.ACK_LITE_MESSAGE, Code.LITE_SUBSCRIPTION_CTL,
    Code.RESET_CONSUMER_OFFSET_IN_BROKER, Code.RESET_CONSUMER_OFFSET_IN_CONSUMER,
    Code.SUSPEND_CONSUMER, Code.RESUME_CONSUMER, Code.ADJUST_CONSUMER_THREAD_POOL,
    Code.RESET_CONSUMER_CLIENT_OFFSET, Code.GET_CONSUMER_STATUS_FROM_CLIENT,
})  # fmt: skip
UNKNOWN_CODE = 60999
UNKNOWN_TO_APACHE = frozenset({
    UNKNOWN_CODE, Code.UPDATE_AND_CREATE_ACL_CONFIG, Code.DELETE_ACL_CONFIG,
    Code.GET_BROKER_CLUSTER_ACL_INFO, Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    Code.GET_BROKER_CLUSTER_ACL_CONFIG, Code.BOLIDE_RECALL_TIMERS, Code.BOLIDE_RESOLVE_TRANSACTION,
    Code.BOLIDE_UPDATE_FILTER_FUNCTION, Code.BOLIDE_DELETE_FILTER_FUNCTION, Code.BOLIDE_READ_AUDIT,
    Code.BOLIDE_GET_REPLICA_STATE,
})  # fmt: skip
SENT_TO_CLIENTS = frozenset({
    Code.CHECK_TRANSACTION_STATE, Code.NOTIFY_CONSUMER_IDS_CHANGED,
    Code.PUSH_REPLY_MESSAGE_TO_CLIENT, Code.NOTIFY_UNSUBSCRIBE_LITE,
})  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """Requests about which ours decides otherwise than Apache's broker, and why."""

    reason: str
    codes: frozenset[int]
    applies: Callable[[Case], bool] = lambda _case: True
    denied_there_only: bool = False
    """Ours is the broker that allows it."""


def _names_no_topic(case: Case) -> bool:
    return "topic" not in case.exchange.fields


def _is_about_retries(case: Case) -> bool:
    return case.is_about("%RETRY%")


def _names_another(case: Case) -> bool:
    """Whether it names another topic or group than that of the message found, or only one."""
    return case.exchange in ABOUT_FOUND_MESSAGES and not _names_no_topic(case)


DIFFERENCES = (
    Difference("RocketMQ lets every user send it; here it needs Cluster:Update",
               NEEDS_CLUSTER_UPDATE),
    Difference("RocketMQ lets every user send it; here it needs Create on each topic",
               frozenset({Code.UPDATE_AND_CREATE_TOPIC_LIST})),
    Difference("RocketMQ lets every user send it; here it needs Pub, unless its topic is that of"
               " replies", frozenset({Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2})),
    Difference("RocketMQ lets every user send it; here it needs Sub on topic and group",
               frozenset({Code.LITE_PULL_MESSAGE, Code.BATCH_ACK_MESSAGE})),
    Difference("RocketMQ has no such request and answers so to every user; here it needs"
               " Cluster:Update", UNKNOWN_TO_APACHE),
    Difference("RocketMQ has no such request and answers so to every user; here it needs"
               " Cluster:Get", frozenset({
                   Code.BOLIDE_LIST_TIMERS, Code.BOLIDE_LIST_TRANSACTIONS,
                   Code.BOLIDE_LIST_FILTER_FUNCTIONS, Code.BOLIDE_GET_FILTER_FUNCTION,
               })),
    Difference("without a topic, RocketMQ lets every user send it; here it needs the cluster",
               frozenset({Code.VIEW_MESSAGE_BY_ID, Code.RESUME_CHECK_HALF_MESSAGE,
                          Code.QUERY_CONSUME_QUEUE}), _names_no_topic),
    Difference("RocketMQ does not look at retry topics; here they belong to their group",
               frozenset({Code.PULL_MESSAGE, Code.QUERY_CONSUMER_OFFSET,
                          Code.UPDATE_CONSUMER_OFFSET, Code.HEART_BEAT, Code.LOCK_BATCH_MQ,
                          Code.UNLOCK_BATCH_MQ}), _is_about_retries),
    Difference("RocketMQ looks at the names in the request; here the message found counts",
               frozenset({Code.VIEW_MESSAGE_BY_ID, Code.END_TRANSACTION,
                          Code.RESUME_CHECK_HALF_MESSAGE}), _names_another),
    Difference("RocketMQ looks at the group; here the topic of the message found counts, too",
               frozenset({Code.CONSUMER_SEND_MSG_BACK}),
               lambda case: case.exchange in ABOUT_FOUND_MESSAGES),
    Difference("brokers send it to clients: RocketMQ wants what the client needs, but serves it"
               " to nobody; here it needs Cluster:Update", SENT_TO_CLIENTS),
    Difference("brokers send it to clients: who has Cluster:Update hears that it is unknown",
               SENT_TO_CLIENTS, lambda case: case.identity in MAY_UPDATE_THE_CLUSTER,
               denied_there_only=True),
    Difference("RocketMQ takes a POP retry topic for one of a group that has this long name; here"
               " who may read topic and group may acknowledge",
               frozenset({Code.ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME}),
               lambda case: case.is_about(POP_RETRY) and case.identity == "sub",
               denied_there_only=True),
)  # fmt: skip
"""All differences; of two that apply, the first one explains a case."""


def explanation(case: Case, *, denied_there: bool) -> Difference | None:
    """Why ours decides otherwise; None if nobody knows."""
    for each in DIFFERENCES:
        is_meant = case.exchange.code in each.codes and each.denied_there_only == denied_there
        if is_meant and case.identity not in SERVED_NOTHING | {ROOT} and each.applies(case):
            return each
    return None
