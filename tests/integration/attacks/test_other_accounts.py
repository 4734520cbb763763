"""With access control on, an account reaches no messages and transactions of others by a detour."""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.server import Broker
from bolide.model.message import SysFlag, TransactionType
from bolide.model.names import HALF_TOPIC, TRANSACTION_GROUP
from bolide.protocol import fastjson
from bolide.protocol.bodies.heartbeat import Heartbeat, ProducerGroup
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.send import SendReply
from bolide.protocol.message_id import OffsetId
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import read_record
from bolide.protocol.refusals import NoPermission, Refusal, ServerError
from bolide.protocol.tags import java_hash, tags_key
from bolide.remoting.client import RemotingClient
from tests.support.access import access_in, client_of, entry, give
from tests.support.aio import on_loop
from tests.support.broker import BrokerClient, broker_in, pull_header, send_header

FOREVER = str(2**62)
OWNER, INTRUDER = "alice", "mallory"
"""The owner may use the topic Payroll, the intruder the topic A."""


class Account:
    """A client of a broker that signs as one user."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self._address = address

    async def call(
        self, code: RequestCode, fields: dict[str, str] | None = None, body: bytes = b""
    ) -> Frame:
        answers = (ResponseCode.QUERY_NOT_FOUND, ResponseCode.PULL_NOT_FOUND)
        return await self._client.call(self._address, code, fields, body=body, accept=answers)

    async def send(
        self, topic: str, body: bytes, properties: dict[str, str] | None = None, **given: Any
    ) -> SendReply:
        header = send_header(topic, properties=properties or {}, **given)
        reply = await self.call(RequestCode.SEND_MESSAGE_V2, header.to_short(), body)
        return SendReply.from_fields(reply.fields or {})

    async def end(self, sent: tuple[int, int], group: str, state: TransactionType) -> None:
        """End the transaction whose half has this place in the log and in its queue."""
        place, queue_offset = sent
        fields = {
            "producerGroup": group,
            "tranStateTableOffset": str(queue_offset),
            "commitLogOffset": str(place),
            "commitOrRollback": str(int(state)),
            "msgId": "x",
            "transactionId": "x",
            "fromTransactionCheck": "false",
        }
        await self.call(RequestCode.END_TRANSACTION, fields)

    async def query(self, topic: str, key: str) -> bytes:
        fields = {
            "topic": topic, "key": key, "maxNum": "32", "beginTimestamp": "0",
            "endTimestamp": FOREVER,
        }  # fmt: skip
        return (await self.call(RequestCode.QUERY_MESSAGE, fields)).body

    async def view(self, place: int, topic: str) -> bytes:
        fields = {"offset": str(place), "topic": topic}
        return (await self.call(RequestCode.VIEW_MESSAGE_BY_ID, fields)).body

    async def next_place(self) -> int:
        """Where the next message goes."""
        place = place_of(await self.send("A", b"probe"))
        return place + len(await self.view(place, "A"))


@asynccontextmanager
async def two_accounts(directory: Path) -> AsyncIterator[tuple[Broker, Account, Account]]:
    access = access_in(directory / "auth")
    everything = "Pub,Sub,Get"
    await give(
        access.metadata, OWNER, entry("Topic:Payroll", everything), entry("Group:ag", everything)
    )
    await give(
        access.metadata, INTRUDER, entry("Topic:A", everything), entry("Group:mg", everything)
    )
    async with (
        broker_in(directory, access=access) as broker,
        client_of(OWNER) as owner,
        client_of(INTRUDER) as intruder,
    ):
        yield broker, Account(owner, broker.address), Account(intruder, broker.address)


def place_of(sent: SendReply) -> int:
    return OffsetId.decode(sent.msg_id).physical_offset


def colliding(prefix: str, wanted: str) -> str:
    """A text that has the hash of another one, with a chosen beginning."""
    size = 8
    rest = java_hash(wanted) - java_hash(prefix) * 31**size
    need = (rest - sum(48 * 31**place for place in range(size))) % 2**32
    digits = []
    for _ in range(size):
        need, digit = divmod(need, 31)
        digits.append(chr(48 + digit))
    assert not need
    found = prefix + "".join(reversed(digits))
    assert java_hash(found) == java_hash(wanted)
    return found


@pytest.mark.parametrize("key", ["bob", tags_key("salary")])
@on_loop
async def test_a_key_with_the_hash_of_another_topics_key_finds_nothing(
    tmp_path: Path, key: str
) -> None:
    async with two_accounts(tmp_path) as (_, owner, intruder):
        await owner.send("Payroll", b"100,000", {"KEYS": "bob", "TAGS": "salary"})
        assert b"100,000" in await owner.query("Payroll", key)
        forged = colliding("A#", f"Payroll#{key}").removeprefix("A#")
        assert await intruder.query("A", forged) == b""
        with pytest.raises(NoPermission):
            await intruder.query("Payroll", key)


def forged_record(
    place: int, topic: bytes, body: bytes, properties: bytes = b"", queue_offset: int = 0
) -> bytes:
    """Bytes that look like a record at a place of the log."""
    end = bytes([len(topic)]) + topic + len(properties).to_bytes(2) + properties
    head = struct.pack(
        ">IIIIIQQIQ8sQ8sIQI", 88 + len(body) + len(end), 0xDAA320A7, 0, 0, 0, queue_offset, place,
        0, 0, bytes(8), 0, bytes(8), 0, 0, len(body),
    )  # fmt: skip
    return head + body + end


@on_loop
async def test_bytes_in_a_message_that_look_like_a_record_are_none(tmp_path: Path) -> None:
    """Neither a whole record, nor a head that would take in the messages behind it."""
    async with two_accounts(tmp_path) as (_, owner, intruder):
        begun = await intruder.next_place() + 88
        size = 2048
        head = forged_record(begun, b"A", bytes(size))[:88]
        await intruder.send("A", head)
        await owner.send("Payroll", b"100,000")
        end = begun + 88 + size
        place = await intruder.next_place()
        await intruder.send("A", bytes(end - place - 88) + b"\x01A\0\0")
        place = await intruder.next_place() + 88
        await intruder.send("A", forged_record(place, b"A", b"whole"))
        for each in (begun, place):
            with pytest.raises(ServerError, match="no message begins there"):
                await intruder.view(each, "A")
            back = {"offset": str(each), "group": "mg", "delayLevel": "0", "originTopic": "A"}
            with pytest.raises(Refusal, match="look message by offset failed"):
                await intruder.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)


@pytest.mark.parametrize("is_prepared", [False, True], ids=["handlers", "fast path"])
@on_loop
async def test_a_forged_half_ends_no_transaction_of_others(
    tmp_path: Path, is_prepared: bool
) -> None:
    half = {"TRAN_MSG": "true", "UNIQ_KEY": "7F0000010000000000000000000A0001"}
    flag = int(SysFlag.PREPARED)
    async with two_accounts(tmp_path) as (broker, owner, intruder):
        for _ in range(3 if is_prepared else 0):
            sent = await intruder.send(
                "A", b"own", half | {"PGROUP": "mpg"}, producer_group="mpg", sys_flag=flag
            )
            own = place_of(sent), sent.queue_offset
            await intruder.end(own, "mpg", TransactionType.ROLLBACK)
        sent = await owner.send(
            "Payroll", b"100,000", half | {"PGROUP": "apg"}, producer_group="apg", sys_flag=flag
        )
        real = place_of(sent), sent.queue_offset
        with pytest.raises(NoPermission):
            await intruder.end(real, "apg", TransactionType.ROLLBACK)
        place = await intruder.next_place() + 88
        properties = encode_properties(
            half | {"PGROUP": "mpg", "REAL_TOPIC": "A", "REAL_QID": "0"}
        ).encode()
        forged = forged_record(place, HALF_TOPIC.encode(), b"x", properties, sent.queue_offset)
        await intruder.send("A", forged)
        with pytest.raises(ServerError, match="Find prepared transaction message failed"):
            await intruder.end((place, sent.queue_offset), "mpg", TransactionType.ROLLBACK)
        await owner.end(real, "apg", TransactionType.COMMIT)
        found = broker.parts.store.read("Payroll", 0, 0).records
        assert [bytes(read_record(each).body) for each in found] == [b"100,000"]  # type: ignore[union-attr]


@on_loop
async def test_replies_go_to_the_account_that_had_the_client_id_first(tmp_path: Path) -> None:
    beat = fastjson.encode(
        Heartbeat(client_id="10.0.0.5@4711", producer_data_set=[ProducerGroup(group_name="any")])
    )
    async with two_accounts(tmp_path) as (broker, owner, intruder):
        await owner.call(RequestCode.HEART_BEAT, body=beat)
        holder = broker.parts.clients.find_producer("10.0.0.5@4711")
        assert holder is not None
        await intruder.call(RequestCode.HEART_BEAT, body=beat)
        assert broker.parts.clients.find_producer("10.0.0.5@4711") is holder
        async with client_of(OWNER) as second:  # as after a lost connection
            await Account(second, broker.address).call(RequestCode.HEART_BEAT, body=beat)
            assert broker.parts.clients.find_producer("10.0.0.5@4711") is not holder


@on_loop
async def test_nobody_moves_the_offsets_of_the_brokers_own_groups(tmp_path: Path) -> None:
    """They say which transactions a restarted broker knows."""
    async with broker_in(tmp_path) as broker, BrokerClient(broker.address) as client:
        commit = {
            "consumerGroup": TRANSACTION_GROUP, "topic": HALF_TOPIC, "queueId": "0",
            "commitOffset": "2",
        }  # fmt: skip
        pop = {
            "consumerGroup": TRANSACTION_GROUP, "topic": HALF_TOPIC, "queueId": "0",
            "maxMsgNums": "1", "invisibleTime": "10000", "pollTime": "0", "bornTime": "0",
            "initMode": "1",
        }  # fmt: skip
        pull = pull_header(
            HALF_TOPIC, consumer_group=TRANSACTION_GROUP, sys_flag=5, commit_offset=2
        ).to_fields()
        for code, fields in (
            (RequestCode.UPDATE_CONSUMER_OFFSET, commit),
            (RequestCode.POP_MESSAGE, pop),
            (RequestCode.PULL_MESSAGE, pull),
        ):
            with pytest.raises(NoPermission, match="the broker's own"):
                await client.call(code, fields)
        assert broker.parts.offsets.find(TRANSACTION_GROUP, HALF_TOPIC, 0) in (None, 0)
