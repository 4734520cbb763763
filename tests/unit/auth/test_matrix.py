"""Every request by every kind of sender, on both paths, with both generations of access control.

All requests are decided by the gate; those that the fast path can serve are asked again there.

What each sender may do is spelled out here by request code, apart from the rules that decide it.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

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
from bolide.protocol.message_id import OffsetId
from bolide.protocol.signature import ACCESS_KEY, SIGNATURE, signature
from tests.support.access import access_in, entry, give, secret_of
from tests.support.aio import on_loop, until
from tests.support.broker import pull_header, send_header
from tests.support.broker_core import BrokerCore, WholeLogStore

UNKNOWN = 54321
PREPARED = 4
"""The system flag of a half message."""
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


class Asked(NamedTuple):
    """A request without credentials."""

    code: int
    fields: dict[str, str]
    body: bytes = b""

    def encoded(self, sender: Sender, opaque: int, encoding: HeaderEncoding) -> bytes:
        fields = sender.sign(self.fields, self.body)
        return encode_frame(
            Frame(code=self.code, fields=fields, body=self.body, opaque=opaque, encoding=encoding)
        )


HALF = Asked(
    Code.SEND_MESSAGE_V2,
    send_header(
        "T",
        sys_flag=PREPARED,
        properties={"TRAN_MSG": "true", "UNIQ_KEY": UNIQUE_ID, "PGROUP": "producers"},
    ).to_short(),
    b"hello",
)
KINDS = {
    "send": Asked(310, *request_of(310)),
    "batch": Asked(320, *request_of(320)),
    "half": HALF,
    "end of a transaction": Asked(37, {}),
    "pull": Asked(11, *request_of(11)),
    "lite pull": Asked(361, *request_of(361)),
}
"""All that the fast path serves; the end of a transaction is filled in for each half."""


class Stage:
    """A broker behind access control, and a peer of it."""

    def __init__(self, directory: Path, access: Access, peer: str) -> None:
        gate = Gate(access=access)
        gate.on_denied.add(lambda request, peer, refused: self.denied.append(request.code))
        self.denied: list[int] = []
        self.core = BrokerCore(directory / "broker", gate=gate, store_class=WholeLogStore)
        self.core.tables.groups.require("G")
        self._peer = self.core.connect(prepared=False)
        self._peer.connection.peer = peer
        self._opaque = 1000  # apart from the numbers of the broker's own requests

    async def __aenter__(self) -> Self:
        await self.core.transactions.queue.load()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._peer.connection.connection_lost(None)  # ends what waits
        await self.core.stop()

    def send(
        self, asked: Asked, sender: Sender, encoding: HeaderEncoding = HeaderEncoding.JSON
    ) -> int:
        """Send a request; returns its number."""
        self._opaque += 1
        self._peer.receive(asked.encoded(sender, self._opaque, encoding))
        return self._opaque

    async def answer(self, opaque: int) -> Frame:
        await until(lambda: self._peer.answer(opaque))
        found = self._peer.answer(opaque)
        assert found is not None
        return found

    async def ask(
        self, kind: str, sender: Sender, encoding: HeaderEncoding, *, allowed: bool = True
    ) -> bool:
        """Send a request of a kind; says whether the fast path served it."""
        asked = KINDS[kind]
        if asked.code == Code.END_TRANSACTION:
            asked = await self._end_of_a_half(sender if allowed else SENDERS["admin"])
        before = self.served
        answer = await self.answer(self.send(asked, sender, encoding))
        await asyncio.sleep(0)  # the burst ends, and is counted
        is_denied = answer.code == ResponseCode.NO_PERMISSION
        assert is_denied == (self.denied[-1:] == [asked.code]), answer.remark
        return self.served > before

    async def _end_of_a_half(self, sender: Sender) -> Asked:
        """The fast path ends transactions of those who may send halves to the same topic."""
        stored = (await self.answer(self.send(HALF, sender))).fields or {}
        await asyncio.sleep(0)  # it is counted
        position = OffsetId.decode(stored["msgId"]).physical_offset
        fields = {
            "topic": "T", "producerGroup": "producers",
            "tranStateTableOffset": stored["queueOffset"], "commitLogOffset": str(position),
            "commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": UNIQUE_ID,
            "transactionId": UNIQUE_ID,
        }  # fmt: skip
        return Asked(Code.END_TRANSACTION, fields)

    @property
    def served(self) -> int:
        """Requests that the fast path served."""
        if not COMPILED:
            return 0
        figures = self.core.fast_path.fall_throughs
        return int(figures.served_sends + figures.served_pulls)


@pytest.mark.parametrize("sender", SENDERS)
@pytest.mark.parametrize("generation", GENERATIONS)
@on_loop
async def test_every_request_is_decided_as_the_table_says(
    tmp_path: Path, generation: str, sender: str
) -> None:
    access = await GENERATIONS[generation](tmp_path)
    allowed = ALLOWED[generation].get(sender, frozenset())
    for code in sorted(ALL):
        # One broker for each request: what an admin asks for is carried out.
        (tmp_path / str(code)).mkdir()
        async with Stage(tmp_path / str(code), access, SENDERS[sender].peer) as stage:
            opaque = stage.send(Asked(code, *request_of(code)), SENDERS[sender])
            for _ in range(3):  # the gate is asked at once, or by a task
                await asyncio.sleep(0)
            assert stage.denied == ([] if code in allowed else [code])
            assert not stage.served, "a first request is for gate and handlers"
            if stage.denied:  # what is allowed may wait for messages
                assert (await stage.answer(opaque)).code == ResponseCode.NO_PERMISSION
                assert all(AUDIT_TOPIC.encode() in data for _, data in stage.core.log)


@pytest.mark.parametrize("encoding", [HeaderEncoding.JSON, HeaderEncoding.ROCKETMQ])
@pytest.mark.parametrize("sender", SENDERS)
@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("kind", KINDS)
@on_loop
async def test_the_fast_path_serves_those_who_may_and_nobody_else(
    tmp_path: Path, kind: str, generation: str, sender: str, encoding: HeaderEncoding
) -> None:
    """All on one connection, on which an admin's requests of the kind are prepared."""
    access = await GENERATIONS[generation](tmp_path)
    admin, other = SENDERS["admin"], SENDERS[sender]
    async with Stage(tmp_path, access, other.peer) as stage:
        await stage.answer(stage.send(KINDS["send"], admin))  # something to pull
        first, *further = [await stage.ask(kind, admin, encoding) for _ in range(3)]
        assert further == [COMPILED, COMPILED]
        assert not first or kind == "send"  # of which there was one already
        allowed = KINDS[kind].code in ALLOWED[generation].get(sender, frozenset())
        served = [await stage.ask(kind, other, encoding, allowed=allowed) for _ in range(3)]
        if allowed:
            assert not stage.denied
            assert served == [COMPILED and sender == "admin", COMPILED, COMPILED]
        else:
            assert stage.denied == [KINDS[kind].code] * 3
            assert not any(served)
        stage.denied.clear()
        assert await stage.ask(kind, admin, encoding) == COMPILED, "denials void no plan"
