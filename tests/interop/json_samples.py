"""Headers and bodies for comparing readers of JSON: odd ones by hand, others by chance."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.groups import GroupConfig, GroupConfigList
from bolide.protocol.bodies.heartbeat import ClientCheck, Heartbeat
from bolide.protocol.bodies.locks import LockRequest
from bolide.protocol.bodies.offsets import ConsumerStatus, ResetOffsets
from bolide.protocol.bodies.pop import AssignmentQuery, BatchAcks, RequestModeSetting
from bolide.protocol.bodies.registration import RegisterBrokerBody
from bolide.protocol.bodies.routes import KvTable, TopicRoute
from bolide.protocol.bodies.stats import ConsumeStats
from bolide.protocol.bodies.topics import MappedTopicConfigTable, TopicConfigList
from bolide.protocol.frame import Frame


class Pairs(list[list[Any]]):
    """A map whose keys are not texts: lists of a key and a value."""


@dataclass(frozen=True, eq=False)
class Kind:
    """A Java class, our type and a plain example."""

    java: str
    shape: type
    example: dict[str, Any]
    before_5_5: bool = True
    """Whether fastjson 1.2 can read the class, which has no annotations of fastjson 2."""


class Sample(NamedTuple):
    kind: Kind
    text: str
    damaged: bool = False
    """Some characters were changed. Java's readers skip over some stray ones; ours need not."""


_QUEUE = {"topic": "T", "brokerName": "broker-a", "queueId": 3}
_VERSION = {"counter": 5, "stateVersion": 1, "timestamp": 1700000000000}
_SUBSCRIPTION = {
    "topic": "T",
    "subString": "a || b",
    "expressionType": "TAG",
    "subVersion": 1700000000000,
    "tagsSet": ["a", "b"],
    "codeSet": [97, 98],
    "classFilterMode": False,
}
_TOPIC = {
    "topicName": "T",
    "readQueueNums": 4,
    "writeQueueNums": 8,
    "perm": 6,
    "topicFilterType": "MULTI_TAG",
    "topicSysFlag": 1,
    "order": True,
    "attributes": {"+message.type": "NORMAL"},
}
_GROUP = {
    "groupName": "G",
    "consumeEnable": False,
    "consumeMessageOrderly": True,
    "retryQueueNums": 2,
    "retryMaxTimes": 5,
    "groupRetryPolicy": {
        "type": "EXPONENTIAL",
        "exponentialRetryPolicy": {"initial": 1, "max": 2, "multiplier": 3},
        "customizedRetryPolicy": {"next": [1000, 2000]},
    },
    "brokerId": 1,
    "consumeTimeoutMinute": 3,
    "subscriptionDataSet": [{"topic": "T", "expressionType": "TAG", "version": 4}],
    "attributes": {"a": "b"},
}
_TABLE = {"topicConfigTable": {"T": _TOPIC}, "dataVersion": _VERSION}

HEADER = Kind(
    "RemotingCommand",
    Frame,
    {
        "code": 310,
        "extFields": {"a": "G", "b": "T", "i": "KEYS\u0001x"},
        "flag": 2,
        "language": "CPP",
        "opaque": 7,
        "remark": "it's",
        "serializeTypeCurrentRPC": "JSON",
        "version": 399,
    },
)
BODIES = (
    Kind(
        "heartbeat.HeartbeatData",
        Heartbeat,
        {
            "clientID": "10.0.0.1@7",
            "producerDataSet": [{"groupName": "P"}],
            "consumerDataSet": [
                {
                    "groupName": "G",
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_TIMESTAMP",
                    "subscriptionDataSet": [_SUBSCRIPTION],
                    "unitMode": False,
                }
            ],
            "heartbeatFingerprint": 17,
            "withoutSub": True,
        },
    ),
    Kind(
        "body.CheckClientRequestBody",
        ClientCheck,
        {"clientId": "c", "group": "G", "subscriptionData": _SUBSCRIPTION, "namespace": "n"},
    ),
    Kind(
        "body.LockBatchRequestBody",
        LockRequest,
        {"consumerGroup": "G", "clientId": "c", "onlyThisBroker": True, "mqSet": [_QUEUE]},
    ),
    Kind("subscription.SubscriptionGroupConfig", GroupConfig, _GROUP),
    Kind("body.SubscriptionGroupList", GroupConfigList, {"groupConfigList": [_GROUP]}),
    Kind("body.CreateTopicListRequestBody", TopicConfigList, {"topicConfigList": [_TOPIC]}),
    Kind("body.TopicConfigAndMappingSerializeWrapper", MappedTopicConfigTable, _TABLE),
    Kind(
        "body.RegisterBrokerBody",
        RegisterBrokerBody,
        {"topicConfigSerializeWrapper": _TABLE, "filterServerList": ["a", "b"]},
    ),
    Kind("DataVersion", DataVersion, _VERSION),
    Kind(
        "route.TopicRouteData",
        TopicRoute,
        {
            "brokerDatas": [
                {"brokerName": "b", "cluster": "C", "brokerAddrs": Pairs([[0, "a"], [1, "b"]])}
            ],
            "queueDatas": [{"brokerName": "b", "readQueueNums": 4, "perm": 6}],
            "filterServerTable": {"h:1": ["x"]},
            "orderTopicConf": "b:4",
        },
    ),
    Kind("body.ResetOffsetBody", ResetOffsets, {"offsetTable": Pairs([[_QUEUE, 5]])}),
    Kind("body.GetConsumerStatusBody", ConsumerStatus, {"messageQueueTable": Pairs([[_QUEUE, 5]])}),
    Kind(
        "admin.ConsumeStats",
        ConsumeStats,
        {
            "offsetTable": Pairs([[_QUEUE, {"brokerOffset": 9, "consumerOffset": 4}]]),
            "consumeTps": 1.5,
        },
    ),
    Kind("body.KVTable", KvTable, {"table": {"a": "b", "c": ""}}),
    Kind(
        "body.QueryAssignmentRequestBody",
        AssignmentQuery,
        {"topic": "T", "consumerGroup": "G", "clientId": "c", "messageModel": "BROADCASTING"},
    ),
    Kind(
        "body.SetMessageRequestModeRequestBody",
        RequestModeSetting,
        {"topic": "T", "consumerGroup": "G", "mode": "POP", "popShareQueueNum": 2},
    ),
    Kind(
        "body.BatchAckMessageRequestBody",
        BatchAcks,
        {
            "brokerName": "b",
            "acks": [
                {"c": "G", "t": "T", "r": "0", "so": 1, "q": 2, "rq": 3, "pt": 4, "it": 5}
                | {"b": "Aw=="}
            ],
        },
        before_5_5=False,
    ),
)

VALUES = (
    "1", "0", "-1", "+1", "2", "12", "13", "14", "1.5", "1.", ".5", "-1.9", "1e3", "1e400",
    "1E-200", "1L", "1S", "1B", "007", "-0", "1.50", "0.1", "1e19", "2147483647", "2147483648",
    "-2147483648", "-2147483649", "4294967297.5", "9223372036854775807", "9223372036854775808",
    "-9223372036854775809", "12345678901234567890.5", "1.0e2", "1E5D",
    "true", "false", "null", "undefined", "NaN", "NULL", "Null", "nULL", "True", "Infinity", "abc",
    '""', '"null"', '"NULL"', '"1"', '"0"', '"2"', '"-5"', '"+5"', '"5.0"', '"5.5"', '"1,000"',
    '" 5"', '"5L"', '"1e3"', '"1D"', '"2147483648"', '"true"', '"TRUE"', '"false"', '"Y"', '"y"',
    '"N"', '"n"', '"T"', '"t"', '"F"', '"f"', '"abc"', "'x'", "'it\\'s'", "'a\"b'", '"a\\x41b"',
    '"\\0\\7\\v\\F\\\'"', '"\\u4e2d\\ud83d\\ude00"', '"\\q"', '"\\u00"', '"a\nb"', '"\u4ef7"',
    '"java"', '"Cpp"', '"KLINGON"', '"CLUSTERING"', '"clustering"', '"NO_SUCH"', '"Aw"', '"AwE="',
    "[]", "[1]", '["1"]', "[1,2]", "[null]", "[true]", '["a",1,null,true,1.5]', "[[]]", '[""]',
    "{}", '{"a":1}', '{"a":[1,2.0,null,"q"],"b":null,"c":{}}', '[{"a":1}]', '{"a":null}',
    "{1:2}", "{a:'b'}", '{"1":2}', "{null:1}", "[,]", "[1 2]",
)  # fmt: skip

ODD = (
    '{"code":1,"language":3,"opaque":1}', '{"code":1,"version":null,"flag":null}',
    '{"code":1,"remark":7}', "{'code':1,'extFields':{'a':'b'}}", '{"code":1,}', "{}",
    '{"code":1,"extFields":{"a":1,"b":1.50,"c":true,"d":null,"e":{"x":[1,2.0,null,"q"]},"f":""}}',
    "{code:1,language:'GO'}", '{"code":+}', '{"code":-}', '{"code":1e}', '{"code":.5}',
    '{"code":1,,,"flag":2}', "{,code:1}", '{"code":1 "flag":2}',
    '/*c*/{"code":1}', '{/*c*/"code":1}', '{"code":1/*c*/,"flag":2}', '{"code":/*c*/1}',
    '{"code":1}/*c*/', '{"code":1}//c', '//c\n{"code":1}', '{"code":1,//x\n"flag":2}',
    '{"code":1,/* * / **/"flag":2}', '{"code":1,/*', '{"code":1}}', '{"code":1}]', '{"code":1} x',
    '{"code":1},', '{"code":1', '{"code":1,', '{"code":', '{"code"', "{", "", " ", "null", "[]",
    '""', "1", "true", '[{"code":1}]', '\ufeff{"code":1}', ' {"code":1} ', '\x00{"code":1}',
    '\x0b{"code":1}', '\x08{"code":1}', '{"code":1}\x00', '{"code":1,\x0c"flag":2}',
    '{"code":\x0b1}', '{"code":1}{"code":2}', '{"new":{"a":[1,{}]},"code":1}',
    '{"new":undefined,"code":1}', '{"new":NaN,"code":1}', '{"new":[1 2],"code":1}',
    '{"new":[1,,2,],"code":1}', "{'new':'x','code':1}", '{"new":+5,"code":1}',
    '{"new":{1:2},"code":1}', '{"new":{{}:2},"code":1}', '{"new":1.,"code":1}',
    '{"new":{"a":1,},"code":1}', '{"code":1,"code":2}', '{"flag":1,"code":1,"flag":2}',
    '{"":1,"code":1}', '{null:1,"code":1}', '{true:1,"code":1}', '{"co\\u0064e":1}',
    '{"c\\x6fde":1}', "{$a:1,_b:2,code:1}", "{\u4e2d:1,code:1}", '{"code":1,"extFields":""}',
    '{"code":1,"extFields":[{"a":1}]}', "{\"extFields\":{a:'b',,c:1}}", '{"extFields":{null:"x"}}',
    '{"extFields":{"a":"b"/**/}}', '{"extFields":{"a":undefined,"b":"c"}}',
    '{"code":1,"remark":""}',
    '{"code":1,"language":"Java"}', '{"code":1,"language":"KLINGON"}', '{"code":1,"language":"13"}',
    '{"code":1,"language":14}', '{"code":1,"language":""}', '{"code":1,"language":null}',
    '{"code":1,"remark":"\\ud800"}', '{"responseType":true,"onewayRPC":true,"code":1}',
)  # fmt: skip


ODD_BODIES: dict[type, tuple[str, ...]] = {
    Heartbeat: (
        "{}", "null", "[]", '""', "", "{'clientID':'c',}", '{"clientID":5}', '{"clientID":null}',
        *(
            '{"clientID":"c","consumerDataSet":[{"groupName":"G",' + member + "}]}"
            for member in (
                '"consumeType":"NOPE","messageModel":"clustering","consumeFromWhere":5',
                '"consumeType":"1","consumeFromWhere":"99"',
                '"consumeType":1.0,"messageModel":null',
                '"consumeType":3', '"consumeType":-1', '"consumeType":[]', '"consumeType":true',
                '"consumeType":""', '"subscriptionDataSet":""', '"subscriptionDataSet":[""]',
                '"subscriptionDataSet":[[]]', '"subscriptionDataSet":[null]',
                '"subscriptionDataSet":[{"topic":"T","codeSet":["1",2,null,3.7,true]}]',
                '"subscriptionDataSet":[{"topic":"T","codeSet":[1 2],"tagsSet":["a" "b"]}]',
                '"subscriptionDataSet":[{"topic":"T","codeSet":5,"tagsSet":"a"}]',
                '"subscriptionDataSet":{"topic":"T"}',
            )
        ),
        '{"clientID":"c","producerDataSet":[null,{"groupName":"P"}{"groupName":"Q"},]}',
        '{"clientID":"c","producerDataSet":[{"groupName":"P"},{"$ref":"$.producerDataSet[0]"}]}',
        '{"clientID":"c","producerDataSet":[{"$ref":"$.nope"},{"groupName":"P"}]}',
        '{"clientID":"c","new":{"$ref":"$.nope"}}', '{"clientID":"c","new":{"$ref":"bad ["}}',
    ),
    LockRequest: (
        '{"consumerGroup":"G","clientId":"c","mqSet":[{"topic":"T","brokerName":1,"queueId":null}]}',
        '{"consumerGroup":"G","clientId":"c","mqSet":[{"topic":"T","brokerName":"b"}]}',
    ),
    ResetOffsets: tuple(
        f'{{"offsetTable":{table}}}'
        for table in (
            '{"{\\"topic\\":\\"T\\",\\"brokerName\\":\\"b\\",\\"queueId\\":1}":5}',
            "{'{\"topic\":\"T\",\"brokerName\":\"b\",\"queueId\":1}':'5'}",
            "{{topic:'T',brokerName:'b',queueId:'1'}:5,}", "{}", "[]", '""', "null", "{null:5}",
            '{"x":5}',
            '{{"topic":"T","brokerName":"b"}/**/:/**/5 {"topic":"U","brokerName":"b"}:6}',
        )
    ),
    TopicRoute: tuple(
        f'{{"brokerDatas":[{{"brokerName":"b","brokerAddrs":{table}}}]}}'
        for table in (
            '{0:"a","1":"b",\'2\':"c",3.0:"d"}', '{"0":1,"1":true,"2":null,"3":[1]}', '{0L:"a"}',
            '{-1:"a"}', '{null:"a"}', '{1.5:"a"}', '{"a":"b"}', "{a:1}", "[]", "{}",
        )
    ),
    MappedTopicConfigTable: (
        '{"topicConfigTable":{"T":{"topicName":"T","topicFilterType":1,"order":"true"}}}',
        '{"topicConfigTable":{"T":{"topicName":"T","topicFilterType":"NOPE"}},"dataVersion":null}',
        '{"topicConfigTable":{"T":{"topicName":"T","attributes":""}},"dataVersion":[]}',
        '{"dataVersion":{"counter":[3]}}', '{"dataVersion":""}', '{"dataVersion":5}',
    ),
}  # fmt: skip


DIFFERENT = {
    *(("filterServerList", text) for text in ('"null"', '"NULL"', "NaN", "undefined", "{1:2}")),
    ("b", '"null"'),  # is base64
}
"""Members and values that we do not read as either of Java's readers does."""


def samples(random: Random, count: int) -> list[Sample]:
    made = [Sample(HEADER, text) for text in ODD]
    made += [Sample(kind, text) for kind in BODIES for text in ODD_BODIES.get(kind.shape, ())]
    made += [Sample(kind, _Style(random, 0).write(kind.example)) for kind in (HEADER, *BODIES)]
    while len(made) < count:
        kind = HEADER if random.random() < 0.3 else random.choice(BODIES)
        chance = random.random()
        if chance < 0.5:
            value = _replaced(random, kind.example, random.choice(VALUES))
            made.append(Sample(kind, _Style(random, 0).write(value)))
        elif chance < 0.8:
            style = _Style(random, random.choice((0.02, 0.1, 0.3)))
            made.append(Sample(kind, style.write(kind.example)))
        else:
            text = _damaged(random, _Style(random, 0).write(kind.example))
            made.append(Sample(kind, text, damaged=True))
    return made


class _Raw(str):
    """Text that is written as it is."""


def _replaced(random: Random, value: Any, text: str) -> Any:
    """A copy of the value with one member, item or entry replaced by `text`."""
    paths = [path for path in _paths(value) if (path[-1], text) not in DIFFERENT]
    return _with(value, random.choice(paths), _Raw(text))


_KEPT = frozenset(
    (
        "next",  # a primitive array: null becomes 0
        "acks",  # true becomes null
    )
)


def _paths(value: Any) -> Iterator[tuple[Any, ...]]:
    """The paths to values inside, without some where one of Java's readers has a defect."""
    if isinstance(value, Pairs):
        for at, (key, item) in enumerate(value):
            yield (at, 1)
            yield from ((at, 0, *path) for path in _paths(key))
            yield from ((at, 1, *path) for path in _paths(item))
    elif isinstance(value, dict | list):
        for step in value if isinstance(value, dict) else range(len(value)):
            inner = [(step,), *((step, *path) for path in _paths(value[step]))]
            yield from (path for path in inner if step not in _KEPT or len(path) > 2)


def _with(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = type(value)(value)
    copy[path[0]] = _with(value[path[0]], path[1:], new)
    return copy


def _damaged(random: Random, text: str) -> str:
    for _ in range(random.randint(1, 2)):
        at = random.randrange(len(text))
        added = random.choice(("", "", "{", "}", "[", "]", ",", ":", '"', "'", "\\", "/", "1", "a"))
        text = text[:at] + added + text[at + random.randint(0, 2) :]
    return text


class _Style:
    """Writes JSON in the ways that are left to the writer; `oddity` is how often it is odd."""

    def __init__(self, random: Random, oddity: float) -> None:
        self._random = random
        self._oddity = oddity

    def write(self, value: Any) -> str:
        return self._space() + self._value(value) + self._space()

    def _odd(self) -> bool:
        return self._random.random() < self._oddity

    def _value(self, value: Any) -> str:
        if isinstance(value, _Raw):
            return value
        if isinstance(value, dict):
            return self._object([(self._name(key), item) for key, item in value.items()])
        if isinstance(value, Pairs):
            return self._object([(self._value(key), item) for key, item in value])
        if isinstance(value, list):
            items = [self._space() + self._value(item) for item in value]
            return f"[{self._joined(items, (',,', ', ,', ' '))}]"
        return self._scalar(value)

    def _scalar(self, value: Any) -> str:
        if isinstance(value, str):
            return self._text(value)
        if type(value) is int:
            return self._number(value)
        return json.dumps(value)

    def _object(self, members: list[tuple[str, Any]]) -> str:
        texts = [
            f"{self._space()}{name}{self._blank()}:{self._space()}{self._value(item)}"
            for name, item in members
        ]
        return f"{{{self._joined(texts, (',,', ', ,'))}}}"

    def _joined(self, members: list[str], separators: Sequence[str]) -> str:
        """Join with commas, or odd separators; an odd one may begin and end the list."""
        text = ","[: self._odd()]
        for at, member in enumerate(members):
            comma = self._random.choice((",", *separators)) if self._odd() else ","
            text += member + self._space() + comma
            if at == len(members) - 1 and not self._odd():
                text = text[: -len(comma)]
        return text

    def _name(self, name: str) -> str:
        if self._odd() and name.isidentifier():
            return name
        return self._text(name)

    def _text(self, text: str) -> str:
        quote = "'" if self._odd() else '"'
        return quote + "".join(self._character(each, quote) for each in text) + quote

    def _character(self, sign: str, quote: str) -> str:
        if self._odd():
            forms = [f"\\u{ord(sign):04x}", f"\\u{ord(sign):04X}"]
            if ord(sign) < 256:
                forms.append(f"\\x{ord(sign):02x}")
            return self._random.choice(forms)
        if sign in (quote, "\\"):
            return f"\\{sign}"
        return sign if sign >= " " else f"\\u{ord(sign):04x}"

    def _number(self, number: int) -> str:
        if not self._odd():
            return str(number)
        return self._random.choice((f"0{number}", f"{number}.0", f"+{number}", f"{number}L"))

    def _space(self) -> str:
        if not self._odd():
            return ""
        comments = "/**/", "/* * / ** */", "//x\n", "/*'\"*/"
        return self._random.choice((" ", "\t\r\n", "\f\b", *comments))

    def _blank(self) -> str:
        return self._random.choice((" ", "\n")) if self._odd() else ""
