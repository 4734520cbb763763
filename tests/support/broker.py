"""A broker inside the test's event loop, and the requests that tests make of it."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from bolide.auth.access import Access
from bolide.auth.choice import choose_access
from bolide.broker.gate import Gate, Hooks
from bolide.broker.server import Broker
from bolide.broker.settings.config import BrokerConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.protocol.headers.pull import PullHeader, PullReply
from bolide.protocol.headers.send import SendBackHeader, SendHeader, SendReply
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import Record, iter_records
from bolide.remoting.client import RemotingClient
from bolide.store.config import StoreConfig
from bolide.store.disk import Disk

COMMIT, SUSPEND, SUBSCRIBED = 1, 2, 4
"""Bits of a pull's flag."""

PULL_ANSWERS = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
SEND_ANSWERS = (ResponseCode.FLUSH_DISK_TIMEOUT,)

_SMALL: dict[str, Any] = {
    "broker_name": "broker-a",
    "bind_address": "127.0.0.1",
    "listen_port": 0,
    "shutdown_wait_time_seconds": 2,
    "commit_log_file_size": 1024 * 1024,
    "consume_queue_file_size": 20 * 1000,
    "max_hash_slots": 1000,
    "max_index_entries": 4000,
    "disk_warning_ratio": 1.0,
    "disk_clean_forcibly_ratio": 1.0,
    "disk_max_used_ratio": 1.0,
}
"""On a free port of this machine, with files of a megabyte; a full disk is none of its business."""


def configs_in(directory: Path, **settings: Any) -> tuple[BrokerConfig, StoreConfig]:
    """Both configs of a broker whose files lie under `directory`; settings by field names."""
    chosen = _SMALL | {"root": directory / "store"} | settings
    names = {field.name for field in fields(BrokerConfig)}
    broker = {name: value for name, value in chosen.items() if name in names}
    store = {name: value for name, value in chosen.items() if name not in names}
    return BrokerConfig(**broker), StoreConfig(**store)


@asynccontextmanager
async def broker_in(
    directory: Path,
    *,
    hooks: Hooks | None = None,
    access: Access | None = None,
    gate: Gate | None = None,
    now: Callable[[], float] = time.time,
    disk: Disk | None = None,
    **settings: Any,
) -> AsyncIterator[Broker]:
    """A broker that serves; another one later on the same directory is a restart."""
    config, store = configs_in(directory, **settings)
    gate = gate or Gate(hooks, access or choose_access(config))
    async with Broker(config, store, gate=gate, now=now, disk=disk) as broker:
        yield broker


def send_header(topic: str = "T", **given: Any) -> SendHeader:
    """A send to queue 0 of a topic that may have four; `properties` may be a map."""
    values: dict[str, Any] = {
        "producer_group": "producers",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "flag": 0,
    } | given
    if isinstance(values.get("properties"), dict):
        values["properties"] = encode_properties(values["properties"])
    return SendHeader(**values)


def pull_header(topic: str = "T", queue_offset: int = 0, **given: Any) -> PullHeader:
    """A pull of queue 0 that takes everything, at once or not at all."""
    values: dict[str, Any] = {
        "consumer_group": "readers",
        "topic": topic,
        "queue_id": 0,
        "queue_offset": queue_offset,
        "max_msg_nums": 32,
        "sys_flag": SUBSCRIBED,
        "commit_offset": 0,
        "suspend_timeout_millis": 0,
        "subscription": "*",
        "sub_version": 0,
    }
    return PullHeader(**values | given)


class Pulled(NamedTuple):
    """What a pull brought."""

    code: int
    header: PullReply
    records: list[Record]
    remark: str | None

    @property
    def bodies(self) -> list[bytes]:
        return [bytes(record.body) for record in self.records]


class BrokerClient:
    """A client of one broker, on one connection."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.remoting = RemotingClient()

    async def __aenter__(self) -> Self:
        await self.remoting.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.remoting.__aexit__(kind, exc, traceback)

    async def call(
        self, code: RequestCode, header: Header | dict[str, str] | None = None, body: bytes = b""
    ) -> Frame:
        return await self.remoting.call(self.address, code, header, body=body)

    async def send(self, topic: str = "T", body: bytes = b"hello", **given: Any) -> SendReply:
        """Send one message by SEND_MESSAGE_V2; raises what the broker refuses with."""
        header = send_header(topic, **given).to_short()
        answer = await self.remoting.call(
            self.address, RequestCode.SEND_MESSAGE_V2, header, body=body, accept=SEND_ANSWERS
        )
        return SendReply.from_fields(answer.fields)

    async def pull(
        self, topic: str = "T", queue_offset: int = 0, *, within: float = 10.0, **given: Any
    ) -> Pulled:
        """Pull once; all four codes that a pull is answered with are answers."""
        answer = await self.remoting.call(
            self.address,
            RequestCode.PULL_MESSAGE,
            pull_header(topic, queue_offset, **given),
            within=within,
            accept=PULL_ANSWERS,
        )
        header = PullReply.from_fields(answer.fields)
        return Pulled(answer.code, header, list(iter_records(answer.body)), answer.remark)

    async def wait_for(self, topic: str, queue_offset: int = 0, **given: Any) -> Pulled:
        """Pull with a long poll of ten seconds."""
        given = {"sys_flag": SUBSCRIBED | SUSPEND, "suspend_timeout_millis": 10_000} | given
        return await self.pull(topic, queue_offset, within=12.0, **given)

    async def send_back(
        self, record: Record, group: str = "readers", delay_level: int = 0, **given: Any
    ) -> None:
        """Say that a message could not be handled."""
        header = SendBackHeader(
            offset=record.physical_offset, group=group, delay_level=delay_level, **given
        )
        await self.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)
