"""Requests whose answers are compared between our servers and Apache's: `EXCHANGES`.

They are played in order against one broker, or its NameServer, over one connection each, so that
later ones meet what earlier ones left. Fields are plain texts, as clients of all kinds write them.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from bolide.protocol.codes import RequestCode as Code

TOPIC, OTHER, ABSENT = "Answers", "OneQueue", "Absent"
GROUP = "answers-group"
PROPERTIES = "KEYS\x01k1\x02TAGS\x01A\x02UNIQ_KEY\x010A0000010001000000000000000000AA\x02"

Fields = dict[str, str]


@dataclass(frozen=True)
class Exchange:
    """One request, and to whom it goes."""

    name: str
    code: int
    fields: Fields = field(default_factory=dict)
    body: bytes = b""
    to_name_server: bool = False


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _send(topic: str = TOPIC, queue: int = 0, **other: str) -> Fields:
    return {
        "producerGroup": "answers-producer", "topic": topic, "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": str(queue), "sysFlag": "0",
        "bornTimestamp": "1700000000000", "flag": "0", "properties": PROPERTIES,
        "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
    } | other  # fmt: skip


def _send_v2(topic: str = TOPIC, queue: int = 0, **other: str) -> Fields:
    return {
        "a": "answers-producer", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0",
        "g": "1700000000000", "h": "0", "i": PROPERTIES, "j": "0", "k": "false", "m": "false",
    } | other  # fmt: skip


def _pull(topic: str = TOPIC, group: str = GROUP, offset: int = 0, **other: str) -> Fields:
    return {
        "consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": str(offset),
        "maxMsgNums": "8", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    } | other  # fmt: skip


def _queue(topic: str = TOPIC, queue: int = 0, **other: str) -> Fields:
    return {"topic": topic, "queueId": str(queue)} | other


def _group_config(name: str, **other: Any) -> bytes:
    return _json({"groupName": name, "consumeEnable": True, "retryMaxTimes": 3} | other)


def _topic_config(name: str, **other: str) -> Fields:
    return {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    } | other  # fmt: skip


def _pop(topic: str = TOPIC, group: str = GROUP, **other: str) -> Fields:
    return {
        "consumerGroup": group, "topic": topic, "queueId": "0", "maxMsgNums": "1",
        "invisibleTime": "60000", "pollTime": "0", "bornTime": "{now}", "initMode": "0",
        "exp": "*", "expType": "TAG",
    } | other  # fmt: skip


_HEARTBEAT = {
    "clientID": "answers@1",
    "consumerDataSet": [
        {
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "consumeType": "CONSUME_PASSIVELY",
            "groupName": GROUP, "messageModel": "CLUSTERING", "unitMode": False,
            "subscriptionDataSet": [
                {"topic": TOPIC, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
            ],
        }
    ],
    "producerDataSet": [{"groupName": "answers-producer"}],
}  # fmt: skip

EXCHANGES = (
    Exchange("create topic", Code.UPDATE_AND_CREATE_TOPIC, _topic_config(TOPIC)),
    Exchange("create topic of one queue", Code.UPDATE_AND_CREATE_TOPIC,
             _topic_config(OTHER, readQueueNums="1", writeQueueNums="1")),
    Exchange("create bad topic", Code.UPDATE_AND_CREATE_TOPIC, _topic_config("a b")),
    Exchange("create system topic", Code.UPDATE_AND_CREATE_TOPIC, _topic_config("TBW102")),
    Exchange(
        "create topic of bad attributes", Code.UPDATE_AND_CREATE_TOPIC,
        _topic_config("BadAttributes", attributes="+no.such=1"),
    ),
    Exchange(
        "create group", Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=_group_config(GROUP)
    ),
    Exchange(
        "create bad group", Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=_group_config("a b")
    ),
    Exchange("heartbeat", Code.HEART_BEAT, body=_json(_HEARTBEAT)),
    Exchange("check client config", Code.CHECK_CLIENT_CONFIG, body=_json({
        "clientId": "answers@1", "group": GROUP, "namespace": "",
        "subscriptionData": {"topic": TOPIC, "subString": "a > 1", "expressionType": "SQL92"},
    })),
    Exchange("send", Code.SEND_MESSAGE, _send(), b"one"),
    Exchange("send v2", Code.SEND_MESSAGE_V2, _send_v2(), b"two"),
    Exchange("send to a bad queue", Code.SEND_MESSAGE_V2, _send_v2(queue=99), b"three"),
    Exchange("send to any queue", Code.SEND_MESSAGE_V2, _send_v2(OTHER, queue=-1), b"four"),
    Exchange("send to a new topic", Code.SEND_MESSAGE_V2, _send_v2("Made"), b"five"),
    Exchange("send to a bad topic", Code.SEND_MESSAGE_V2, _send_v2("a b"), b"six"),
    Exchange("send to a system topic", Code.SEND_MESSAGE_V2, _send_v2("SCHEDULE_TOPIC_XXXX"), b"7"),
    Exchange("send without a body", Code.SEND_MESSAGE_V2, _send_v2()),
    Exchange("send to an absent retry topic", Code.SEND_MESSAGE_V2,
             _send_v2("%RETRY%answers-absent"), b"8"),
    Exchange("pull", Code.PULL_MESSAGE, _pull()),
    Exchange("lite pull", Code.LITE_PULL_MESSAGE, _pull()),
    Exchange("pull at the end", Code.PULL_MESSAGE, _pull(offset=3)),
    Exchange("pull beyond the end", Code.PULL_MESSAGE, _pull(offset=99)),
    Exchange("pull at a negative offset", Code.PULL_MESSAGE, _pull(offset=-1)),
    Exchange("pull from an absent topic", Code.PULL_MESSAGE, _pull(ABSENT)),
    Exchange("pull by an absent group", Code.PULL_MESSAGE, _pull(group="answers-absent")),
    Exchange("pull from a bad queue", Code.PULL_MESSAGE, _pull(queueId="99")),
    Exchange("pull by a bad expression", Code.PULL_MESSAGE,
             _pull(subscription="a > > 1", expressionType="SQL92")),
    Exchange("pull by an unregistered group", Code.PULL_MESSAGE, _pull(sysFlag="0")),
    Exchange("query by key", Code.QUERY_MESSAGE, {
        "topic": TOPIC, "key": "k1", "maxNum": "8", "beginTimestamp": "0",
        "endTimestamp": "{later}",
    }),
    Exchange("query by an absent key", Code.QUERY_MESSAGE, {
        "topic": TOPIC, "key": "k9", "maxNum": "8", "beginTimestamp": "0",
        "endTimestamp": "{later}",
    }),
    Exchange("view", Code.VIEW_MESSAGE_BY_ID, {"offset": "0"}),
    Exchange("view beyond the end", Code.VIEW_MESSAGE_BY_ID, {"offset": "99999999"}),
    Exchange("max offset", Code.GET_MAX_OFFSET, _queue()),
    Exchange("min offset", Code.GET_MIN_OFFSET, _queue()),
    Exchange("max offset of an absent topic", Code.GET_MAX_OFFSET, _queue(ABSENT)),
    Exchange("min offset of a bad queue", Code.GET_MIN_OFFSET, _queue(queue=99)),
    Exchange("search offset", Code.SEARCH_OFFSET_BY_TIMESTAMP, _queue(timestamp="0")),
    Exchange("search offset later", Code.SEARCH_OFFSET_BY_TIMESTAMP, _queue(timestamp="{later}")),
    Exchange("earliest store time", Code.GET_EARLIEST_MSG_STORETIME, _queue()),
    Exchange("earliest store time of nothing", Code.GET_EARLIEST_MSG_STORETIME, _queue(queue=1)),
    Exchange("query offset of nothing", Code.QUERY_CONSUMER_OFFSET,
             _queue(consumerGroup="answers-absent")),
    Exchange("query offset of nothing, no zero", Code.QUERY_CONSUMER_OFFSET,
             _queue(consumerGroup="answers-absent", setZeroIfNotFound="false")),
    Exchange("commit", Code.UPDATE_CONSUMER_OFFSET,
             _queue(consumerGroup=GROUP, commitOffset="1")),
    Exchange("commit of an absent topic", Code.UPDATE_CONSUMER_OFFSET,
             _queue(ABSENT, consumerGroup=GROUP, commitOffset="1")),
    Exchange("query offset", Code.QUERY_CONSUMER_OFFSET, _queue(consumerGroup=GROUP)),
    Exchange("members", Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUP}),
    Exchange("members of none", Code.GET_CONSUMER_LIST_BY_GROUP,
             {"consumerGroup": "answers-absent"}),
    Exchange("connections", Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": GROUP}),
    Exchange("connections of none", Code.GET_CONSUMER_CONNECTION_LIST,
             {"consumerGroup": "answers-absent"}),
    Exchange("producers", Code.GET_PRODUCER_CONNECTION_LIST,
             {"producerGroup": "answers-producer"}),
    Exchange("producers of none", Code.GET_PRODUCER_CONNECTION_LIST,
             {"producerGroup": "answers-absent"}),
    Exchange("all producers", Code.GET_ALL_PRODUCER_INFO),
    Exchange("lock", Code.LOCK_BATCH_MQ, body=_json({
        "consumerGroup": GROUP, "clientId": "answers@1",
        "mqSet": [{"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}],
    })),
    Exchange("unlock", Code.UNLOCK_BATCH_MQ, body=_json({
        "consumerGroup": GROUP, "clientId": "answers@1",
        "mqSet": [{"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}],
    })),
    Exchange("send back", Code.CONSUMER_SEND_MSG_BACK, {
        "offset": "0", "group": GROUP, "delayLevel": "3", "originMsgId": "1",
        "originTopic": TOPIC, "unitMode": "false", "maxReconsumeTimes": "3",
    }),
    Exchange("send back of nothing", Code.CONSUMER_SEND_MSG_BACK, {
        "offset": "99999999", "group": GROUP, "delayLevel": "3", "originMsgId": "1",
        "originTopic": TOPIC, "unitMode": "false", "maxReconsumeTimes": "3",
    }),
    Exchange("send back by an absent group", Code.CONSUMER_SEND_MSG_BACK, {
        "offset": "0", "group": "answers-absent", "delayLevel": "3", "originMsgId": "1",
        "originTopic": TOPIC, "unitMode": "false", "maxReconsumeTimes": "3",
    }),
    Exchange("end of no transaction", Code.END_TRANSACTION, {
        "producerGroup": "answers-producer", "tranStateTableOffset": "0",
        "commitLogOffset": "99999999", "commitOrRollback": "8", "fromTransactionCheck": "false",
        "msgId": "1", "transactionId": "1",
    }),
    Exchange("topic config", Code.GET_TOPIC_CONFIG, {"topic": TOPIC}),
    Exchange("absent topic config", Code.GET_TOPIC_CONFIG, {"topic": ABSENT}),
    Exchange("all topics", Code.GET_ALL_TOPIC_CONFIG),
    Exchange("topic statistics", Code.GET_TOPIC_STATS_INFO, {"topic": TOPIC}),
    Exchange("statistics of an absent topic", Code.GET_TOPIC_STATS_INFO, {"topic": ABSENT}),
    Exchange("groups of a topic", Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": TOPIC}),
    Exchange("groups of an absent topic", Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": ABSENT}),
    Exchange("system topics", Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER),
    Exchange("group config", Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": GROUP}),
    Exchange("absent group config", Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "answers-none"}),
    Exchange("all groups", Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    Exchange("consume statistics", Code.GET_CONSUME_STATS,
             {"consumerGroup": GROUP, "topic": TOPIC}),
    Exchange("consume statistics of an absent group", Code.GET_CONSUME_STATS,
             {"consumerGroup": "answers-absent", "topic": ""}),
    Exchange("topics of a group", Code.QUERY_TOPICS_BY_CONSUMER, {"group": GROUP}),
    Exchange("topics of an absent group", Code.QUERY_TOPICS_BY_CONSUMER,
             {"group": "answers-absent"}),
    Exchange("subscription", Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
             {"group": GROUP, "topic": TOPIC}),
    Exchange("subscription of an absent group", Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
             {"group": "answers-absent", "topic": TOPIC}),
    Exchange("forbid", Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
             {"group": GROUP, "topic": TOPIC, "readable": "true"}),
    Exchange("forbid in an absent topic", Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
             {"group": GROUP, "topic": ABSENT}),
    Exchange("time span", Code.QUERY_CONSUME_TIME_SPAN, {"group": GROUP, "topic": TOPIC}),
    Exchange("time span of an absent topic", Code.QUERY_CONSUME_TIME_SPAN,
             {"group": GROUP, "topic": ABSENT}),
    Exchange("correction", Code.QUERY_CORRECTION_OFFSET,
             {"filterGroups": "", "compareGroup": GROUP, "topic": TOPIC}),
    Exchange("clone", Code.CLONE_GROUP_OFFSET, {
        "srcGroup": GROUP, "destGroup": "answers-clone", "topic": TOPIC, "offline": "true",
    }),
    Exchange("clone of an absent topic", Code.CLONE_GROUP_OFFSET, {
        "srcGroup": GROUP, "destGroup": "answers-clone", "topic": ABSENT, "offline": "true",
    }),
    Exchange("reset of offsets at the broker", Code.INVOKE_BROKER_TO_RESET_OFFSET, {
        "topic": TOPIC, "group": "answers-clone", "timestamp": "0", "isForce": "true",
    }),
    Exchange("reset of an absent topic", Code.INVOKE_BROKER_TO_RESET_OFFSET, {
        "topic": ABSENT, "group": GROUP, "timestamp": "0", "isForce": "true",
    }),
    Exchange("consumer status of none", Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
             {"topic": TOPIC, "group": "answers-absent"}),
    Exchange("running info of none", Code.GET_CONSUMER_RUNNING_INFO,
             {"consumerGroup": GROUP, "clientId": "nobody", "jstackEnable": "false"}),
    Exchange("consume queue", Code.QUERY_CONSUME_QUEUE,
             _queue(index="0", count="2", consumerGroup=GROUP)),
    Exchange("consume queue of an absent topic", Code.QUERY_CONSUME_QUEUE,
             _queue(ABSENT, index="0", count="2")),
    Exchange("broker consume statistics", Code.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
    Exchange("statistics item", Code.VIEW_BROKER_STATS_DATA,
             {"statsName": "TOPIC_PUT_NUMS", "statsKey": TOPIC}),
    Exchange("absent statistics item", Code.VIEW_BROKER_STATS_DATA,
             {"statsName": "NO_SUCH", "statsKey": TOPIC}),
    Exchange("runtime info", Code.GET_BROKER_RUNTIME_INFO),
    Exchange("broker config", Code.GET_BROKER_CONFIG),
    Exchange("all consumer offsets", Code.GET_ALL_CONSUMER_OFFSET),
    Exchange("all delay offsets", Code.GET_ALL_DELAY_OFFSET),
    Exchange("ha status", Code.GET_BROKER_HA_STATUS),
    Exchange("clean expired queues", Code.CLEAN_EXPIRED_CONSUMEQUEUE),
    Exchange("clean unused topics", Code.CLEAN_UNUSED_TOPIC),
    Exchange("request modes", Code.GET_ALL_MESSAGE_REQUEST_MODE),
    Exchange("set request mode", Code.SET_MESSAGE_REQUEST_MODE, body=_json({
        "topic": TOPIC, "consumerGroup": "answers-pop", "mode": "POP", "popShareQueueNum": 0,
    })),
    Exchange("set request mode of a retry topic", Code.SET_MESSAGE_REQUEST_MODE, body=_json({
        "topic": "%RETRY%x", "consumerGroup": "answers-pop", "mode": "POP",
    })),
    Exchange("assignment", Code.QUERY_ASSIGNMENT, body=_json({
        "topic": TOPIC, "consumerGroup": GROUP, "clientId": "answers@1",
        "messageModel": "CLUSTERING", "strategyName": "AVG",
    })),
    Exchange("assignment of an absent topic", Code.QUERY_ASSIGNMENT, body=_json({
        "topic": ABSENT, "consumerGroup": GROUP, "clientId": "answers@1",
        "messageModel": "CLUSTERING", "strategyName": "AVG",
    })),
    Exchange("pop", Code.POP_MESSAGE, _pop(group="answers-clone")),
    Exchange("pop by an absent group", Code.POP_MESSAGE, _pop(group="answers-absent")),
    Exchange("pop from an absent topic", Code.POP_MESSAGE, _pop(ABSENT)),
    Exchange("pop from a bad queue", Code.POP_MESSAGE, _pop(queueId="99")),
    Exchange("pop by a bad expression", Code.POP_MESSAGE, _pop(exp="a > > 1", expType="SQL92")),
    Exchange("pop too many", Code.POP_MESSAGE, _pop(maxMsgNums="99")),
    Exchange("pop too late", Code.POP_MESSAGE, _pop(bornTime="0", pollTime="1000")),
    Exchange("peek", Code.PEEK_MESSAGE, {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "maxMsgNums": "2",
    }),
    Exchange("peek in an absent topic", Code.PEEK_MESSAGE, {
        "consumerGroup": GROUP, "topic": ABSENT, "queueId": "0", "maxMsgNums": "2",
    }),
    Exchange("notification", Code.NOTIFICATION, {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "pollTime": "0",
        "bornTime": "{now}",
    }),
    Exchange("notification in an absent topic", Code.NOTIFICATION, {
        "consumerGroup": GROUP, "topic": ABSENT, "queueId": "0", "pollTime": "0",
        "bornTime": "{now}",
    }),
    Exchange("polling info", Code.POLLING_INFO,
             {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}),
    Exchange("polling info of an absent topic", Code.POLLING_INFO,
             {"consumerGroup": GROUP, "topic": ABSENT, "queueId": "0"}),
    Exchange("change in an absent topic", Code.CHANGE_MESSAGE_INVISIBLETIME, {
        "consumerGroup": GROUP, "topic": ABSENT, "queueId": "0", "offset": "0",
        "extraInfo": "0 {now} 60000 0 0 broker-a 0 0", "invisibleTime": "1000",
    }),
    Exchange("acknowledge a bad receipt", Code.ACK_MESSAGE, {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "offset": "0",
        "extraInfo": "0 {now} 60000 0 0 broker-a 0 0",
    }),
    Exchange("acknowledge in an absent topic", Code.ACK_MESSAGE, {
        "consumerGroup": GROUP, "topic": ABSENT, "queueId": "0", "offset": "0",
        "extraInfo": "0 {now} 60000 0 0 broker-a 0 0",
    }),
    Exchange("acknowledge beyond the end", Code.ACK_MESSAGE, {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "offset": "99",
        "extraInfo": "99 {now} 60000 0 0 broker-a 0 99",
    }),
    Exchange("change of a bad receipt", Code.CHANGE_MESSAGE_INVISIBLETIME, {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "offset": "99",
        "extraInfo": "99 {now} 60000 0 0 broker-a 0 99", "invisibleTime": "1000",
    }),
    Exchange("recall a bad handle", Code.RECALL_MESSAGE, {
        "producerGroup": "answers-producer", "topic": TOPIC, "recallHandle": "bad",
    }),
    Exchange("update config", Code.UPDATE_BROKER_CONFIG, body=b"messageDelayLevel=1s 2s\n"),
    Exchange("update config with a bad line", Code.UPDATE_BROKER_CONFIG,
             body=b"brokerName=other\n"),
    Exchange("resume check of nothing", Code.RESUME_CHECK_HALF_MESSAGE,
             {"topic": TOPIC, "msgId": "7F0000010000000000000000000000AA"}),
    Exchange("unregister", Code.UNREGISTER_CLIENT,
             {"clientID": "answers@1", "consumerGroup": GROUP}),
    Exchange("delete group", Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": GROUP}),
    Exchange("delete absent group", Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "answers-none"}),
    Exchange("delete topic", Code.DELETE_TOPIC_IN_BROKER, {"topic": "Made"}),
    Exchange("delete absent topic", Code.DELETE_TOPIC_IN_BROKER, {"topic": ABSENT}),
    Exchange("delete system topic", Code.DELETE_TOPIC_IN_BROKER, {"topic": "TBW102"}),
    Exchange("delete without a name", Code.DELETE_TOPIC_IN_BROKER, {"topic": ""}),
    Exchange("unknown code", 60999),
    Exchange("route", Code.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}, to_name_server=True),
    Exchange("absent route", Code.GET_ROUTEINFO_BY_TOPIC, {"topic": ABSENT}, to_name_server=True),
    Exchange("cluster", Code.GET_BROKER_CLUSTER_INFO, to_name_server=True),
    Exchange("put kv", Code.PUT_KV_CONFIG,
             {"namespace": "answers", "key": "k", "value": "v"}, to_name_server=True),
    Exchange("get kv", Code.GET_KV_CONFIG, {"namespace": "answers", "key": "k"},
             to_name_server=True),
    Exchange("get absent kv", Code.GET_KV_CONFIG, {"namespace": "answers", "key": "x"},
             to_name_server=True),
    Exchange("kv list", Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "answers"},
             to_name_server=True),
    Exchange("absent kv list", Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "none"},
             to_name_server=True),
    Exchange("delete kv", Code.DELETE_KV_CONFIG, {"namespace": "answers", "key": "k"},
             to_name_server=True),
    Exchange("name server config", Code.GET_NAMESRV_CONFIG, to_name_server=True),
    Exchange("topics of a cluster", Code.GET_TOPICS_BY_CLUSTER, {"cluster": "DefaultCluster"},
             to_name_server=True),
    Exchange("topics of an absent cluster", Code.GET_TOPICS_BY_CLUSTER, {"cluster": "none"},
             to_name_server=True),
    Exchange("all names", Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, to_name_server=True),
    Exchange("system names", Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, to_name_server=True),
    Exchange("unit names", Code.GET_UNIT_TOPIC_LIST, to_name_server=True),
    Exchange("members of a broker", Code.GET_BROKER_MEMBER_GROUP,
             {"clusterName": "DefaultCluster", "brokerName": "broker-a"}, to_name_server=True),
    Exchange("wipe", Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"},
             to_name_server=True),
    Exchange("wipe an absent broker", Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "none"},
             to_name_server=True),
    Exchange("add write permission", Code.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"},
             to_name_server=True),
    Exchange("unknown code at a name server", 60999, to_name_server=True),
)  # fmt: skip
