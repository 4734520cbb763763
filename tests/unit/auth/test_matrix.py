"""Every request by every kind of sender, on both paths, with both generations of access control.

What each sender may do is spelled out here by request code, apart from the rules that decide it.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from bolide.auth.access import Access
from bolide.auth.plain.access import PlainAccess
from bolide.auth.plain.files import AclPlaces
from bolide.broker.gate import Gate
from bolide.kernel import COMPILED
from bolide.model.names import AUDIT_TOPIC
from bolide.protocol import fastjson
from bolide.protocol.batch import encode_item
from bolide.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat, Subscription
from bolide.protocol.bodies.locks import LockRequest
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.pop import AssignmentQuery, BatchAck, BatchAcks
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.codes import ResponseCode
from bolide.protocol.frame import Frame, HeaderEncoding
from bolide.protocol.framing import encode_frame
from bolide.protocol.signature import ACCESS_KEY, SIGNATURE, signature
from tests.support.access import access_in, entry, give, secret_of
from tests.support.aio import on_loop, until
from tests.support.broker import pull_header, send_header
from tests.support.broker_core import BrokerCore, Peer

UNKNOWN = 54321
UNIQUE_ID = "7F00000112345678ABCDEF0000010000"
ALL = frozenset(map(int, Code)) | {UNKNOWN}
ELSEWHERE, WHITE = "192.168.7.7:4000", "10.7.7.7:4000"

PLAIN_ACL = """
globalWhiteRemoteAddresses: [10.7.7.7]
accounts:
- {accessKey: publisher, secretKey: publisher-secret, topicPerms: [T=PUB]}
- {accessKey: subscriber, secretKey: subscriber-secret, topicPerms: [T=SUB], groupPerms: [G=SUB]}
- {accessKey: stranger, secretKey: stranger-secret, topicPerms: [Other=PUB|SUB],
   groupPerms: [Other=SUB]}
- {accessKey: administrator, secretKey: administrator-secret, admin: true}
"""


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sends: the key that a request names, the secret that signs it, and from where."""

    key: str | None = None
    secret: str = ""
    peer: str = ELSEWHERE

    def sign(self, fields: dict[str, str], body: bytes) -> dict[str, str]:
        if self.key is None:
            return fields
        named = fields | {ACCESS_KEY: self.key}
        return named | {SIGNATURE: signature(named, body, self.secret.encode())}


SENDERS = {
    "no credentials": Sender(),
    "wrong signature": Sender("administrator", "guessed-secret"),
    "unknown key": Sender("somebody", "somebody-secret"),
    "PUB only": Sender("publisher", secret_of("publisher")),
    "SUB only": Sender("subscriber", secret_of("subscriber")),
    "other topic": Sender("stranger", secret_of("stranger")),
    "admin": Sender("administrator", secret_of("administrator")),
    "white-listed address": Sender(peer=WHITE),
}

# fmt: off
READ_BY_ALL = {
    13, 21, 22, 23, 26, 28, 43, 45, 46, 47, 60, 61, 106, 201, 206, 214, 224, 304, 305, 311, 312,
    313, 319, 402, 907, 1005, 1006, 1007, 1010, 2003, 6030, 6031,
    200074, 200075, 200076, 200077, 200078,
}
"""What every account may read, in both generations, as in RocketMQ; nothing of it changes."""
READ_BY_ACCOUNTS = READ_BY_ALL | {
    14, 29, 30, 31, 32, 101, 105, 202, 203, 204, 208, 219, 223, 300, 303, 307, 308, 315, 317, 321,
    328, 343, 345, 351, 352, 354, 901,
}
"""What every account of ACL 1.0 may read besides."""
READ_BY_USERS = READ_BY_ALL | {400}
SENT = {10, 37, 310, 320, 324, 325, 370}
CONSUMED = {
    11, 12, 15, 34, 35, 36, 38, 41, 42, 361, 200050, 200051, 200052, 200053, 200054, 200151,
}
ALLOWED = {
    "ACL 1.0": {
        "PUB only": READ_BY_ACCOUNTS | SENT,
        "SUB only": READ_BY_ACCOUNTS | CONSUMED | {400, 200055},
        "other topic": READ_BY_ACCOUNTS,
        "admin": ALL,
        "white-listed address": ALL,
    },
    "ACL 2.0": {
        "PUB only": READ_BY_USERS | SENT | {105},
        "SUB only": READ_BY_USERS | CONSUMED | {14, 105, 309},
        "other topic": READ_BY_USERS,
        "admin": ALL,
    },
}
"""Request codes by sender; who is not named may send nothing."""
# fmt: on

BODIES = {
    Code.SEND_MESSAGE_V2: b"hello",
    Code.SEND_BATCH_MESSAGE: encode_item(0, b"x", ""),
    Code.HEART_BEAT: fastjson.encode(
        Heartbeat(
            client_id="c",
            consumer_data_set=[
                ConsumerGroup(group_name="G", subscription_data_set=[Subscription(topic="T")])
            ],
        )
    ),
    Code.LOCK_BATCH_MQ: fastjson.encode(
        LockRequest(
            consumer_group="G", client_id="c", mq_set=[MessageQueue("T", "broker-a", 0)]
        )
    ),
    Code.QUERY_ASSIGNMENT: fastjson.encode(
        AssignmentQuery(topic="T", consumer_group="G", client_id="c")
    ),
    Code.BATCH_ACK_MESSAGE: fastjson.encode(
        BatchAcks(
            broker_name="broker-a",
            acks=[
                BatchAck(
                    consumer_group="G", topic="T", start_offset=0, queue_id=0, revive_queue_id=0,
                    pop_time=0, invisible_time=1, bit_set=b"",
                )
            ],
        )
    ),
}  # fmt: skip
BODIES[Code.UNLOCK_BATCH_MQ] = BODIES[Code.LOCK_BATCH_MQ]


def request_of(code: int) -> tuple[dict[str, str], bytes]:
    """A request about topic T and group G: its fields under all names that requests have."""
    fields = dict.fromkeys(("topic", "topicName", "srcTopic"), "T")
    fields |= dict.fromkeys(("group", "groupName", "consumerGroup", "srcGroup"), "G")
    fields |= {"queueId": "0", "offset": "0", "clientID": "c"}
    if code in {Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE_V2}:
        is_batch = code == Code.SEND_BATCH_MESSAGE
        properties = {"shared": "1"} if is_batch else {"UNIQ_KEY": UNIQUE_ID}
        fields = send_header("T", batch=is_batch, properties=properties).to_short()
    elif code in {Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE}:
        fields = pull_header(consumer_group="G").to_fields()
    return fields, BODIES.get(code, b"")  # type: ignore[call-overload]


async def plain(directory: Path) -> Access:
    (directory / "conf").mkdir()
    (directory / "conf" / "plain_acl.yml").write_text(PLAIN_ACL)
    return PlainAccess(AclPlaces.of(str(directory), None, None))


async def policies(directory: Path) -> Access:
    first = f'{{"username":"administrator","password":"{secret_of("administrator")}"}}'
    access = access_in(directory / "auth", init_authentication_user=first)
    metadata = access.metadata
    await give(metadata, "publisher", entry("Topic:T", "Pub"))
    await give(metadata, "subscriber", entry("Topic:T", "Sub"), entry("Group:G", "Sub"))
    await give(metadata, "stranger", entry("Topic:Other", "Pub,Sub"), entry("Group:Other", "Sub"))
    return access


GENERATIONS = {"ACL 1.0": plain, "ACL 2.0": policies}


class Stage:
    """A broker behind access control, and a peer of it."""

    def __init__(self, directory: Path, access: Access, sender: Sender, *, fast: bool) -> None:
        gate = Gate(access=access)
        gate.on_denied.add(lambda request, peer, refused: self.denied.append(request.code))
        self.denied: list[int] = []
        self.core = BrokerCore(directory / "broker", gate=gate)
        self.core.tables.groups.require("G")
        self._fast = fast
        self._sender = sender
        self._peer = self._connect(sender)
        self._opaque = 1000  # apart from the numbers of the broker's own requests

    async def __aenter__(self) -> Self:
        await self.core.transactions.queue.load()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._peer.connection.connection_lost(None)  # ends what waits
        await self.core.stop()

    def _connect(self, sender: Sender) -> Peer:
        peer = self.core.connect(fast=self._fast, prepared=False)
        peer.connection.peer = sender.peer
        return peer

    def send(self, code: int, encoding: HeaderEncoding = HeaderEncoding.JSON) -> int:
        """Send a request; returns its number."""
        self._opaque += 1
        self._peer.receive(_encoded(code, self._sender, self._opaque, encoding))
        return self._opaque

    async def answer(self, opaque: int) -> Frame:
        await until(lambda: self._peer.answer(opaque))
        found = self._peer.answer(opaque)
        assert found is not None
        return found

    async def add_message(self) -> None:
        """Have a message in the topic, so that there is something to pull."""
        admin = SENDERS["admin"]
        peer = self._connect(admin)
        peer.receive(_encoded(Code.SEND_MESSAGE_V2, admin, 1, HeaderEncoding.JSON))
        await until(lambda: peer.answer(1))


def _encoded(code: int, sender: Sender, opaque: int, encoding: HeaderEncoding) -> bytes:
    fields, body = request_of(code)
    signed = sender.sign(fields, body)
    return encode_frame(
        Frame(code=code, fields=signed, body=body, opaque=opaque, encoding=encoding)
    )


@pytest.mark.parametrize("fast", [True, False], ids=["fast path", "handlers"])
@pytest.mark.parametrize("sender", SENDERS)
@pytest.mark.parametrize("generation", GENERATIONS)
@on_loop
async def test_every_request_is_decided_as_the_table_says(
    tmp_path: Path, generation: str, sender: str, fast: bool
) -> None:
    access = await GENERATIONS[generation](tmp_path)
    allowed = ALLOWED[generation].get(sender, frozenset())
    for code in sorted(ALL):
        # One broker for each request: what an admin asks for is carried out.
        (tmp_path / str(code)).mkdir()
        async with Stage(tmp_path / str(code), access, SENDERS[sender], fast=fast) as stage:
            opaque = stage.send(code)
            for _ in range(3):  # the gate is asked at once, or by a task
                await asyncio.sleep(0)
            assert stage.denied == ([] if code in allowed else [code])
            if stage.denied:  # what is allowed may wait for messages
                assert (await stage.answer(opaque)).code == ResponseCode.NO_PERMISSION
                assert all(AUDIT_TOPIC.encode() in data for _, data in stage.core.log)


@pytest.mark.parametrize("encoding", [HeaderEncoding.JSON, HeaderEncoding.ROCKETMQ])
@pytest.mark.parametrize("sender", SENDERS)
@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("code", [310, 320, 11, 361])
@on_loop
async def test_a_stream_of_requests_is_decided_alike_from_first_to_last(
    tmp_path: Path, code: int, generation: str, sender: str, encoding: HeaderEncoding
) -> None:
    access = await GENERATIONS[generation](tmp_path)
    async with Stage(tmp_path, access, SENDERS[sender], fast=True) as stage:
        await stage.add_message()
        answers = [await stage.answer(stage.send(code, encoding)) for _ in range(5)]
        await asyncio.sleep(0)  # the burst ends, and is counted
    if code not in ALLOWED[generation].get(sender, frozenset()):
        assert {each.code for each in answers} == {ResponseCode.NO_PERMISSION}
        assert stage.denied == [code] * 5
        return
    assert not stage.denied
    assert ResponseCode.NO_PERMISSION not in {each.code for each in answers}
    if COMPILED:
        served = stage.core.fast_path.fall_throughs
        assert served.served_sends + served.served_pulls == 4, "all but the first one"
