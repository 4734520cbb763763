"""JSON bodies of requests."""

import pytest

from bolide.broker.background import read_json
from bolide.protocol import fastjson
from bolide.protocol.bodies.topics import TopicConfig, TopicConfigList
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame
from bolide.protocol.header import NoHeader
from bolide.remoting.calls import ConnectionLimits
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Dispatcher, Request
from tests.support.aio import on_loop


def request(body: bytes) -> Request[NoHeader]:
    connection = Connection(Dispatcher(), ConnectionLimits())
    return Request(NoHeader(), Frame(code=18, body=body), connection)


@pytest.mark.parametrize("count", [1, 1000])
@on_loop
async def test_bodies_short_and_long_are_read(count: int) -> None:
    topics = TopicConfigList([TopicConfig(topic_name=f"T{n}") for n in range(count)])
    assert await read_json(request(fastjson.encode(topics)), TopicConfigList) == topics


@on_loop
async def test_a_missing_body_is_named() -> None:
    with pytest.raises(ProtocolError, match=r"request 18 needs a body: .* TopicConfigList"):
        await read_json(request(b""), TopicConfigList)


@pytest.mark.parametrize("body", [b"{}", b"x", b" " * 100_000 + b"{}"])
@on_loop
async def test_a_body_of_another_shape_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        await read_json(request(body), TopicConfigList)
