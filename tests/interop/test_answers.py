"""Our servers answer as Apache's do: the same codes, fields and shapes of bodies, code by code."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from bolide.protocol import json_dialect
from bolide.protocol.codes import ResponseCode
from tests.interop.bench import Bench
from tests.interop.conftest import NEWEST, obtain_or_skip
from tests.interop.exchanges import EXCHANGES, Exchange
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.support.wire import RawPeer, request_bytes

_HOUR_MS = 3_600_000
_PASSING = ("imestamp", "popTime", "msgId", "version")
"""Fields with these words in their names differ from run to run."""

_OURS_REFUSES_MORE = "ours refuses what makes an exception or a wrong result there"
_OWN_TOPICS = "the two brokers have other system topics and groups"
_OWN_SETTINGS = "the settings of the two differ; tests/interop/test_names.py compares the names"
DIFFERENT = {
    "create topic of bad attributes": "ours answers INVALID_PARAMETER, Java SYSTEM_ERROR",
    "send without a body": _OURS_REFUSES_MORE,
    "pull by a bad expression": _OURS_REFUSES_MORE,
    "resume check of nothing": _OURS_REFUSES_MORE,
    "query by an absent key": "Java's index is at 0 until its thread has run",
    "all topics": _OWN_TOPICS,
    "all groups": _OWN_TOPICS,
    "system topics": _OWN_TOPICS,
    "wipe": _OWN_TOPICS,
    "add write permission": _OWN_TOPICS,
    "subscription of an absent group": "Java keeps subscriptions that came with pulls",
    "broker consume statistics": _OWN_TOPICS,
    "broker config": _OWN_SETTINGS,
    "name server config": _OWN_SETTINGS,
    "runtime info": "ours has figures of its own; tests/interop/test_admin.py compares the names",
    "all consumer offsets": "ours does not send pull offsets, which are in memory only",
    "all delay offsets": "Java has levels without deliveries there",
}
"""Exchanges of which only the code and the names of the fields are compared, or nothing."""

_OTHER_CODES = {
    "create topic of bad attributes",
    "send without a body",
    "pull by a bad expression",
    "resume check of nothing",
}
_NONSENSE = "Java serves a request that lacks its subject"
REFUSED_HERE = {
    ("query offset of nothing", "consumerGroup"): _NONSENSE,
    ("query offset", "consumerGroup"): _NONSENSE,
    ("forbid", "topic"): _NONSENSE,
    ("forbid in an absent topic", "topic"): _NONSENSE,
    ("time span", "group"): _NONSENSE,
    ("correction", "compareGroup"): _NONSENSE,
    ("clone", "srcGroup"): _NONSENSE,
    ("clone", "destGroup"): _NONSENSE,
    ("clone of an absent topic", "srcGroup"): _NONSENSE,
    ("clone of an absent topic", "destGroup"): _NONSENSE,
    ("reset of offsets at the broker", "timestamp"): "it would move a group to the start",
    ("acknowledge a bad receipt", "consumerGroup"): _NONSENSE,
    ("unregister", "clientID"): _NONSENSE,
    ("put kv", "value"): _NONSENSE,
    ("delete kv", "namespace"): _NONSENSE,
    ("delete kv", "key"): _NONSENSE,
    ("topics of a cluster", "cluster"): _NONSENSE,
    ("topics of an absent cluster", "cluster"): _NONSENSE,
    ("members of a broker", "clusterName"): _NONSENSE,
    ("members of a broker", "brokerName"): _NONSENSE,
    ("wipe", "brokerName"): _NONSENSE,
    ("wipe an absent broker", "brokerName"): _NONSENSE,
    ("add write permission", "brokerName"): _NONSENSE,
}
"""Requests without a field that Java serves and ours refuses, with the reason."""


class Answer(NamedTuple):
    code: int
    fields: Mapping[str, str]
    body: bytes


class Servers(NamedTuple):
    name_server: str
    broker: str


Request = tuple[str, str]
"""The name of an exchange and of the field that was left out of it, which may be none."""

Answers = Mapping[Request, Answer]


@pytest.fixture(scope="module")
def answers(
    java_module_bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Answers, Answers]]:
    """What Apache's newest servers and ours answer to every exchange."""
    obtain_or_skip(NEWEST)
    directory = tmp_path_factory.mktemp("answers")
    with ExitStack() as stack:
        java = start_java(java_module_bench)
        ours = start_ours(directory, stack)
        yield asyncio.run(play(java)), asyncio.run(play(ours))


def start_java(bench: Bench) -> Servers:
    name_server = bench.namesrv(NEWEST)
    broker = bench.broker(
        NEWEST, name_server.address,
        timerWheelEnable=True, enablePropertyFilter=True, recallMessageEnable=True,
    )  # fmt: skip
    return Servers(name_server.address, broker.address)


def start_ours(directory: Path, stack: ExitStack) -> Servers:
    name_server = stack.enter_context(bolide_namesrv(directory / "namesrv"))
    broker = stack.enter_context(
        bolide_broker(directory / "broker", name_server.address, auditEnable=False)
    )  # records of the audit log would move all offsets
    return Servers(name_server.address, broker.address)


async def play(servers: Servers) -> Answers:
    """Play all exchanges in order, then each again without one of its fields."""
    found: dict[Request, Answer] = {}
    async with (
        await RawPeer.connect(servers.name_server) as name_server,
        await RawPeer.connect(servers.broker) as broker,
    ):
        for each in EXCHANGES:
            peer = name_server if each.to_name_server else broker
            found[each.name, ""] = await ask(peer, each, each.fields)
        for each in EXCHANGES:
            peer = name_server if each.to_name_server else broker
            for absent in each.fields:
                fields = {name: text for name, text in each.fields.items() if name != absent}
                found[each.name, absent] = await ask(peer, each, fields)
    return found


async def ask(peer: RawPeer, exchange: Exchange, fields: Mapping[str, str]) -> Answer:
    now = int(time.time() * 1000)
    filled = {
        name: text.replace("{now}", str(now)).replace("{later}", str(now + _HOUR_MS))
        for name, text in fields.items()
    }
    await peer.send(request_bytes(exchange.code, filled, body=exchange.body))
    while True:
        frame = await peer.frame()
        if frame.is_response:  # the broker also asks and notifies its clients
            return Answer(frame.code, frame.fields or {}, frame.body)


@pytest.mark.parametrize("name", [each.name for each in EXCHANGES])
def test_an_answer_has_the_code_fields_and_body_of_javas(
    name: str, answers: tuple[Answers, Answers]
) -> None:
    java, ours = (each[name, ""] for each in answers)

    if name in _OTHER_CODES:
        assert ours.code != ResponseCode.SUCCESS
        return
    assert ours.code == java.code
    assert ours.fields.keys() == java.fields.keys()
    if name not in DIFFERENT:
        assert lasting(ours.fields) == lasting(java.fields)
        assert shape(ours.body) == shape(java.body)


@pytest.mark.parametrize(
    "name", [each.name for each in EXCHANGES if each.fields and each.name not in _OTHER_CODES]
)
def test_a_request_without_a_field_is_served_where_java_serves_it(
    name: str, answers: tuple[Answers, Answers]
) -> None:
    java, ours = answers
    served = {
        absent
        for (each, absent), answer in java.items()
        if each == name and answer.code == ResponseCode.SUCCESS
    }
    refused = {absent for absent in served if ours[name, absent].code != ResponseCode.SUCCESS}

    assert refused == {absent for each, absent in REFUSED_HERE if each == name}


def lasting(fields: Mapping[str, str]) -> dict[str, str]:
    """Fields whose values do not depend on the time or on the server."""
    return {
        name: text for name, text in fields.items() if not any(word in name for word in _PASSING)
    }


def shape(body: bytes) -> object:
    """The keys and kinds of values of a JSON body; how long another body is."""
    if not body:
        return None
    try:
        return _shape(json_dialect.parse(body))
    except json_dialect.BadJson:
        return len(body)


def _shape(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _shape(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return _shape(value[0]) if value else []
    return type(value).__name__
