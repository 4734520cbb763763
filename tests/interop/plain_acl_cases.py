"""Generated requests for ACL 1.0: each request from each identity, and what it is allowed to be."""

import asyncio
import contextlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, product

from bolide.model.message import Message
from bolide.protocol.batch import encode_batch
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.frame import Frame, HeaderEncoding
from bolide.protocol.framing import decode_frame, encode_frame
from bolide.protocol.signature import ACCESS_KEY, SIGNATURE, signature
from bolide.remoting.address import split_address
from tests.interop.exchanges import PROPERTIES
from tests.support.aio import PATIENCE

ACL = """
globalWhiteRemoteAddresses:
- 127.0.0.2
- 127.0.3-9.*
- 127.0.20.{7,9}
- 127.0.30.1,127.0.30.3

accounts:
- accessKey: administrator
  secretKey: 12345678
  admin: true
- accessKey: limited-admin
  secretKey: secret-of-limited
  admin: true
  defaultGroupPerm: SUB
  topicPerms:
  - Orders=PUB
- accessKey: publisher
  secretKey: secret-of-publisher
  topicPerms: [Orders=PUB, Bills=DENY]
- accessKey: subscriber
  secretKey: secret-of-subscriber
  whiteRemoteAddress: 127.0.40.*
  topicPerms: [Orders=SUB]
  groupPerms: [readers=SUB, "writers=DENY"]
- accessKey: other-topic
  secretKey: secret-of-other
  topicPerms: ["Other=PUB|SUB", Orders=DENY]
  groupPerms: [others=SUB]
- accessKey: default-both
  secretKey: secret-of-default
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
  topicPerms: [Bills=DENY, "%RETRY%hidden=DENY"]
- accessKey: default-pub
  secretKey: secret-of-default
  defaultTopicPerm: PUB
  defaultGroupPerm: PUB
- accessKey: default-any
  secretKey: secret-of-default
  defaultTopicPerm: ANY
  defaultGroupPerm: SUB
"""


@dataclass(frozen=True)
class Sender:
    """Who sends: address, access key and the secret that signs."""

    name: str
    access_key: str | None = None
    secret: str | None = None
    address: str = "127.0.0.1"


SENDERS = (
    Sender("no credentials"),
    Sender("wrong signature", "administrator", "wrong"),
    Sender("no signature", "administrator"),
    Sender("unknown key", "stranger", "12345678"),
    Sender("admin", "administrator", "12345678"),
    Sender("limited admin", "limited-admin", "secret-of-limited"),
    Sender("PUB only", "publisher", "secret-of-publisher"),
    Sender("SUB only", "subscriber", "secret-of-subscriber"),
    Sender("other topic", "other-topic", "secret-of-other"),
    Sender("default PUB|SUB", "default-both", "secret-of-default"),
    Sender("default PUB", "default-pub", "secret-of-default"),
    Sender("default ANY", "default-any", "secret-of-default"),
    Sender("white-listed address", address="127.0.0.2"),
    Sender("white-listed address, wrong signature", "publisher", "wrong", "127.0.0.2"),
    Sender("account's white-listed address", "subscriber", None, "127.0.40.5"),
    Sender("another account at that address", "publisher", None, "127.0.40.5"),
)

ADDRESSES = (
    "127.0.3.1", "127.0.9.200", "127.0.2.1", "127.0.10.1", "127.0.20.7", "127.0.20.8",
    "127.0.20.9", "127.0.30.1", "127.0.30.2", "127.0.30.3", "127.0.0.3", "127.0.41.5",
)  # fmt: skip
"""On and beside the white lists."""


@dataclass(frozen=True)
class Template:
    """One request, without credentials."""

    name: str
    code: int
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    version: int = 399


@dataclass(frozen=True)
class Case:
    template: Template
    sender: Sender

    @property
    def name(self) -> str:
        return f"{self.template.name} | {self.sender.name}"

    def frame(self, opaque: int, encoding: HeaderEncoding) -> bytes:
        request, sender = self.template, self.sender
        fields = dict(request.fields)
        if sender.access_key is not None:
            fields[ACCESS_KEY] = sender.access_key
        if sender.secret is not None:
            secret = sender.secret.encode()
            fields[SIGNATURE] = signature(fields, request.body, secret, request.version)
        return encode_frame(
            Frame(
                code=request.code,
                fields=fields or None,
                body=request.body,
                opaque=opaque,
                version=request.version,
                encoding=encoding,
            )
        )


TOPICS = ("Orders", "Bills", "Other", "RMQ_SYS_TRACE_TOPIC", "%DLQ%readers")
GROUPS = ("readers", "writers", "others", "hidden")


def templates() -> list[Template]:
    return [*_sends(), *_reads(), *_bodies(), *_others()]


def cases() -> list[Case]:
    plain = [Case(*pair) for pair in product(templates(), SENDERS)]
    asked = Template("addresses", Code.GET_MAX_OFFSET, _queue("Orders"))
    seen = [
        Case(asked, Sender(f"{key or 'nobody'} at {address}", key, None, address))
        for address, key in product(ADDRESSES, (None, "subscriber"))
    ]
    return plain + seen


def _queue(topic: str) -> dict[str, str]:
    return {"topic": topic, "queueId": "0"}


def _send_fields(topic: str, group: str) -> dict[str, str]:
    return {
        "producerGroup": group, "topic": topic, "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "flag": "0",
        "bornTimestamp": "1700000000000", "properties": PROPERTIES, "reconsumeTimes": "0",
        "unitMode": "false", "maxReconsumeTimes": "16", "batch": "false",
    }  # fmt: skip


_SHORT = dict(
    zip(
        ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
         "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes",
         "batch"),
        "abcdefghijklm",
        strict=True,
    )
)  # fmt: skip


def _short(fields: Mapping[str, str]) -> dict[str, str]:
    return {_SHORT[name]: text for name, text in fields.items()}


def _sends() -> list[Template]:
    found = []
    retry = [("%RETRY%readers", "readers"), ("%RETRY%readers", "CLIENT_INNER_PRODUCER")]
    for topic, group in [*((each, "makers") for each in TOPICS), *retry]:
        fields = _send_fields(topic, group)
        place = topic if group == "makers" else f"{topic} as {group}"
        found += [
            Template(f"send to {place}", Code.SEND_MESSAGE, fields, b"1"),
            Template(f"send V2 to {place}", Code.SEND_MESSAGE_V2, _short(fields), b"1"),
        ]
    for topic in ("Orders", "Other"):
        short = _short(_send_fields(topic, "makers")) | {"i": "WAIT\x01true\x02", "m": "true"}
        batch = encode_batch([Message(topic, b"1"), Message(topic, b"2")])
        found.append(Template(f"batch to {topic}", Code.SEND_BATCH_MESSAGE, short, batch))
    for topic in ("Orders", "DefaultCluster_REPLY_TOPIC"):
        fields = _send_fields(topic, "makers")
        found += [
            Template(f"reply to {topic}", Code.SEND_REPLY_MESSAGE, fields, b"1"),
            Template(f"reply V2 to {topic}", Code.SEND_REPLY_MESSAGE_V2, _short(fields), b"1"),
        ]
    for group in GROUPS:
        fields = {"offset": "0", "group": group, "delayLevel": "0"}
        found.append(Template(f"send back of {group}", Code.CONSUMER_SEND_MSG_BACK, fields))
    end = {"producerGroup": "makers", "tranStateTableOffset": "0", "commitLogOffset": "0",
           "commitOrRollback": "8", "msgId": "x"}  # fmt: skip
    return [
        *found,
        Template("end of a transaction", Code.END_TRANSACTION, end),
        Template("end in Orders", Code.END_TRANSACTION, end | {"topic": "Orders"}),
        Template("recall in Orders", Code.RECALL_MESSAGE, {"topic": "Orders", "recallHandle": "x"}),
    ]


def _reads() -> list[Template]:
    found = []
    pairs = [*product(("Orders", "Bills", "Other"), GROUPS), ("%RETRY%readers", "readers"),
             ("%RETRY%readers", "others"), ("RMQ_SYS_TRACE_TOPIC", "readers")]  # fmt: skip
    for topic, group in pairs:
        both = {"topic": topic, "consumerGroup": group, "queueId": "0"}
        pull = both | {
            "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0",
            "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
            "expressionType": "TAG",
        }  # fmt: skip
        found += [
            Template(f"pull of {topic} by {group}", Code.PULL_MESSAGE, pull),
            Template(
                f"commit in {topic} by {group}",
                Code.UPDATE_CONSUMER_OFFSET,
                both | {"commitOffset": "0"},
            ),
        ]
        if (topic, group) in {("Orders", "readers"), ("Other", "others")}:
            found += [
                Template(f"lite pull of {topic} by {group}", Code.LITE_PULL_MESSAGE, pull),
                Template(f"offset in {topic} by {group}", Code.QUERY_CONSUMER_OFFSET, both),
                Template(f"pop of {topic} by {group}", Code.POP_MESSAGE, pull),
                Template(
                    f"ack in {topic} by {group}",
                    Code.ACK_MESSAGE,
                    both | {"extraInfo": "x", "offset": "0"},
                ),
            ]
    for topic in TOPICS:
        query = {"topic": topic, "key": "k", "maxNum": "1", "beginTimestamp": "0",
                 "endTimestamp": "1"}  # fmt: skip
        found.append(Template(f"query of {topic}", Code.QUERY_MESSAGE, query))
    unique = query | {"topic": "Orders", "_UNIQUE_KEY_QUERY": "true"}
    return [
        *found,
        Template("unique query, old client", Code.QUERY_MESSAGE, unique, version=399),
        Template("unique query, new client", Code.QUERY_MESSAGE, unique, version=400),
        *(
            Template(
                f"members of {group}", Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}
            )
            for group in GROUPS
        ),
        *(
            Template(
                f"unregistration of {kind} {group}",
                Code.UNREGISTER_CLIENT,
                {"clientID": "c", kind: group},
            )
            for kind, group in (
                ("consumerGroup", "readers"), ("consumerGroup", "others"),
                ("producerGroup", "readers"),
            )
        ),
    ]  # fmt: skip


def _bodies() -> list[Template]:
    return [
        *(
            Template(f"heartbeat of {groups}", Code.HEART_BEAT, {"x": "y"}, _heartbeat(groups))
            for groups in (
                {}, {"readers": ("Orders",)}, {"readers": ("Orders", "Bills")},
                {"others": ("Other",)}, {"readers": ("Orders",), "others": ("Other",)},
                {"hidden": ("Orders",)}, {"readers": ("%RETRY%readers", "Orders")},
            )
        ),
        *(
            Template(f"{name} of {group}", code, {"x": "y"}, _locks(group))
            for name, code in (("lock", Code.LOCK_BATCH_MQ), ("unlock", Code.UNLOCK_BATCH_MQ))
            for group in ("readers", "others")
        ),
    ]  # fmt: skip


def _heartbeat(groups: Mapping[str, Sequence[str]]) -> bytes:
    consumers = [
        {
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
            "subscriptionDataSet": [
                {"topic": topic, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1,
                 "expressionType": "TAG", "classFilterMode": False}
                for topic in topics
            ],
        }
        for group, topics in groups.items()
    ]  # fmt: skip
    beat = {"clientID": "c", "producerDataSet": [{"groupName": "makers"}],
            "consumerDataSet": consumers}  # fmt: skip
    return json.dumps(beat).encode()


def _locks(group: str) -> bytes:
    queue = {"topic": "Orders", "brokerName": "broker-a", "queueId": 0}
    return json.dumps({"consumerGroup": group, "clientId": "c", "mqSet": [queue]}).encode()


def _others() -> list[Template]:
    """All other requests: without fields, so that an admin's does nothing either."""
    named = {each.code for each in (*_sends(), *_reads(), *_bodies())}
    bodies = {Code.BATCH_ACK_MESSAGE: b"{}", Code.QUERY_ASSIGNMENT: b"{}"}
    return [
        Template(code.name, code, {"x": "y"}, bodies.get(code, b""))
        for code in Code
        if code not in named
    ] + [Template("an unknown request", 54321, {"x": "y"})]


# ---- what is decided otherwise

STRICTER: Mapping[str, tuple[Code, ...]] = {
    "a batch is a send: 4.9 lets every account send one to any topic": (Code.SEND_BATCH_MESSAGE,),
    "a reply to another topic than that of replies is a send": (
        Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2,
    ),
    "a send to a retry topic needs SUB of that topic's group, not of the group in another field": (
        Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2,
    ),
    "the end of a transaction needs PUB of the topic of its message": (Code.END_TRANSACTION,),
    "a lite pull is a pull": (Code.LITE_PULL_MESSAGE,),
    "a lock of queues needs SUB of the group": (Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ),
    "a message read by its position needs SUB of every topic": (Code.VIEW_MESSAGE_BY_ID,),
    "a message that is sent back needs SUB of its topic": (Code.CONSUMER_SEND_MSG_BACK,),
}  # fmt: skip
"""Requests of clients for which RocketMQ 4.9 wants less, and why. Requests that administer, that
are sent among servers and change something, or that 4.9 does not know need an admin besides."""


# ---- on the wire

_LENGTH = struct.Struct(">I")


_FIRST = Case(
    Template("first", Code.SEND_MESSAGE, _send_fields("Orders", "makers"), b"1"),
    next(each for each in SENDERS if each.name == "admin"),
)
"""The message at position 0, which some cases are about; senders come in any order after it."""

Answers = dict[str, Frame | None]
"""The answer to each case, by name; None for what a server never answers."""


async def ask_all(
    broker: str, asked: Sequence[Case], patience: float, encodings: Sequence[HeaderEncoding]
) -> list[Answers]:
    """The answers for each encoding of the header in turn.

    An address has one connection, and a request is sent in all encodings before the next ones: what
    was prepared for the first serves the further ones.
    """
    await _ask(broker, "127.0.0.1", [_FIRST], PATIENCE, [HeaderEncoding.JSON])
    by_address: dict[str, list[Case]] = {}
    for case in asked:
        by_address.setdefault(case.sender.address, []).append(case)
    found = await asyncio.gather(
        *(_ask(broker, address, some, patience, encodings) for address, some in by_address.items())
    )
    return [
        {name: answer for part in parts for name, answer in part.items()}
        for parts in zip(*found, strict=True)
    ]


async def _ask(
    broker: str,
    address: str,
    asked: Sequence[Case],
    patience: float,
    encodings: Sequence[HeaderEncoding],
) -> list[Answers]:
    host, port = split_address(broker)
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection(host, port, local_addr=(address, 0))
    found: list[Answers] = [{case.name: None for case in asked} for _ in encodings]
    numbers = count()  # none twice: an answer may come too late
    try:
        for begin in range(0, len(asked), 50):  # a server takes only so many at a time
            some = asked[begin : begin + 50]
            for answers, encoding in zip(found, encodings, strict=True):
                waiting = {next(numbers): case for case in some}
                frames = [case.frame(number, encoding) for number, case in waiting.items()]
                writer.write(b"".join(frames))
                answers.update(await _answers(reader, waiting, patience))
    finally:
        writer.close()
    return found


async def _answers(
    reader: asyncio.StreamReader, waiting: dict[int, Case], patience: float
) -> dict[str, Frame]:
    found: dict[str, Frame] = {}
    with contextlib.suppress(TimeoutError):  # some are served without an answer
        async with asyncio.timeout(patience):
            while waiting:
                (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                frame = decode_frame(await reader.readexactly(length))
                if frame.is_response and frame.opaque in waiting:
                    found[waiting.pop(frame.opaque).name] = frame
    return found
