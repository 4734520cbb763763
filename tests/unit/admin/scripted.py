"""Servers with scripted replies, and an AdminClient connected to them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from typer.testing import CliRunner

from bolide.admin import AdminClient
from bolide.cli import app
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import BrokerRoute, ClusterInfo, QueueRoute, TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header, NoHeader
from bolide.protocol.refusals import RequestCodeNotSupported, TopicNotFound
from bolide.remoting.dispatch import Dispatcher, Reply, Request, handles
from bolide.remoting.server import RemotingServer, ServerConfig

CLUSTER = "DefaultCluster"

Answer = Callable[[dict[str, str]], Reply]


class Scripted:
    """Replies by request code, and records the fields of each request."""

    def __init__(self) -> None:
        self.asked: list[tuple[RequestCode, dict[str, str]]] = []
        self.bodies: list[bytes] = []
        self._answers: dict[int, Answer] = {}
        self.server = RemotingServer(ServerConfig(host="127.0.0.1"), Dispatcher(self))

    @property
    def address(self) -> str:
        return self.server.address

    def answers(self, code: RequestCode, answer: Answer | object = None) -> None:
        """Set the reply to a code: a function of the fields, a body or a header."""
        self._answers[code] = answer if callable(answer) else lambda _fields: _reply(answer)

    def fields_of(self, code: RequestCode) -> list[dict[str, str]]:
        return [fields for asked, fields in self.asked if asked == code]

    @handles(NoHeader, *RequestCode)
    def take(self, request: Request[NoHeader]) -> Reply:
        frame: Frame = request.frame
        fields = frame.fields or {}
        self.asked.append((RequestCode(frame.code), fields))
        self.bodies.append(frame.body)
        if frame.code not in self._answers:
            raise RequestCodeNotSupported(f"request type {frame.code} not supported")
        return self._answers[frame.code](fields)


def _reply(answer: object) -> Reply:
    if isinstance(answer, Header):
        return Reply(header=answer)
    if isinstance(answer, bytes) or answer is None:
        return Reply(body=answer or b"")
    return Reply(body=fastjson.encode(answer))


@dataclass(frozen=True)
class Cast:
    """A NameServer, brokers by name, and a client."""

    name_server: Scripted
    brokers: dict[str, Scripted]
    admin: AdminClient

    @property
    def first(self) -> Scripted:
        return next(iter(self.brokers.values()))


@asynccontextmanager
async def cast(*names: str, unknown_topics: tuple[str, ...] = ()) -> AsyncIterator[Cast]:
    """Brokers of one cluster; each serves two queues of every topic except the unknown ones."""
    async with AsyncExitStack() as stack:
        name_server = Scripted()
        await stack.enter_async_context(name_server.server)
        brokers = {name: Scripted() for name in names or ("broker-a",)}
        for broker in brokers.values():
            await stack.enter_async_context(broker.server)
        describe(name_server, brokers, unknown_topics)
        admin = await stack.enter_async_context(AdminClient(name_server.address))
        yield Cast(name_server, brokers, admin)


async def run(stage: Cast, *words: str, at: str = "") -> tuple[int, str, str]:
    """Run an admin command: its exit code, and what it prints on both streams."""
    place = ("-n", at or stage.name_server.address)
    done = await asyncio.to_thread(CliRunner().invoke, app, ["admin", *words, *place])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


class Addressed(Protocol):
    """A server of which only the address matters."""

    @property
    def address(self) -> str: ...


def describe(
    name_server: Scripted, brokers: Mapping[str, Addressed], unknown_topics: tuple[str, ...] = ()
) -> None:
    """Have a NameServer name these brokers."""
    places = {
        name: BrokerRoute(broker_name=name, cluster=CLUSTER, broker_addrs={0: broker.address})
        for name, broker in brokers.items()
    }
    info = ClusterInfo(broker_addr_table=places, cluster_addr_table={CLUSTER: [*brokers]})
    queues = [
        QueueRoute(broker_name=name, read_queue_nums=2, write_queue_nums=2, perm=6)
        for name in brokers
    ]
    route = TopicRoute(queue_datas=queues, broker_datas=[*places.values()])

    def find(fields: dict[str, str]) -> Reply:
        if fields["topic"] in unknown_topics:
            raise TopicNotFound(f"No topic route info for the topic: {fields['topic']}")
        return Reply(body=fastjson.encode(route, standard=True))

    name_server.answers(RequestCode.GET_BROKER_CLUSTER_INFO, info)
    name_server.answers(RequestCode.GET_ROUTEINFO_BY_TOPIC, find)
