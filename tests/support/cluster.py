"""A NameServer and brokers that do as a test tells them, for tests of clients."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from bolide.broker.gate import Gate, Hooks
from bolide.protocol import fastjson
from bolide.protocol.bodies.heartbeat import Heartbeat
from bolide.protocol.bodies.routes import BrokerRoute, QueueRoute, TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.clients import UnregisterClientHeader
from bolide.protocol.headers.namesrv import RouteHeader
from bolide.protocol.headers.send import SendHeader, SendReply
from bolide.protocol.refusals import Refusal, TopicNotFound
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Dispatcher, Reply, Request, RequestHook, handles
from bolide.remoting.server import RemotingServer, ServerConfig
from bolide.remoting.tls import ServerTls

Answer = Callable[[SendHeader, Frame], Reply]


class FakeNameServer:
    """Tells the routes that a test put in `routes`, and refuses those in `refused`."""

    def __init__(self) -> None:
        self.routes: dict[str, TopicRoute] = {}
        self.refused: dict[str, Refusal] = {}
        self.asked: list[str] = []
        self.address = ""

    @handles(RouteHeader, RequestCode.GET_ROUTEINFO_BY_TOPIC)
    def route(self, request: Request[RouteHeader]) -> Reply:
        self.asked.append(request.header.topic)
        if request.header.topic in self.refused:
            raise self.refused[request.header.topic]
        found = self.routes.get(request.header.topic)
        if found is None:
            raise TopicNotFound(f"No topic route info of {request.header.topic}")
        return Reply(body=fastjson.encode(found, standard=True))


class FakeBroker:
    """Takes sends and heartbeats; `answer` may be replaced to refuse or to be slow."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = ""
        self.sends: list[SendHeader] = []
        self.frames: list[Frame] = []
        self.arrived = asyncio.Event()
        self.heartbeats: asyncio.Queue[Heartbeat] = asyncio.Queue()
        self.unregistered: list[UnregisterClientHeader] = []
        self.connections: set[Connection] = set()
        self.answer: Answer = stored
        self.hold: asyncio.Event | None = None

    @handles(NoHeader, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    async def send(self, request: Request[NoHeader]) -> Reply:
        header = SendHeader.from_short(request.frame.fields)
        self.sends.append(header)
        self.frames.append(request.frame)
        self.arrived.set()
        await self._held()
        return self.answer(header, request.frame)

    @handles(NoHeader, RequestCode.HEART_BEAT)
    async def heartbeat(self, request: Request[NoHeader]) -> Reply:
        self.connections.add(request.connection)
        self.heartbeats.put_nowait(fastjson.decode(request.body, Heartbeat))
        await self._held()
        return Reply()

    async def _held(self) -> None:
        if self.hold is not None:
            await self.hold.wait()

    @handles(UnregisterClientHeader, RequestCode.UNREGISTER_CLIENT)
    def unregister(self, request: Request[UnregisterClientHeader]) -> Reply:
        self.unregistered.append(request.header)
        return Reply()


def stored(header: SendHeader, frame: Frame) -> Reply:
    """The answer to a send that went well."""
    return Reply(header=SendReply(msg_id="0" * 32, queue_id=header.queue_id, queue_offset=7))


def route_of(*brokers: FakeBroker, queues: int = 2, perm: int = 6) -> TopicRoute:
    """A topic on these brokers."""
    return TopicRoute(
        queue_datas=[
            QueueRoute(
                broker_name=broker.name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
            )
            for broker in brokers
        ],
        broker_datas=[
            BrokerRoute(broker_name=broker.name, cluster="c", broker_addrs={0: broker.address})
            for broker in brokers
        ],
    )


class FakeCluster:
    """One NameServer that knows the topic `T`, on all brokers."""

    def __init__(self, name_server: FakeNameServer, brokers: list[FakeBroker]) -> None:
        self.name_server = name_server
        self.brokers = brokers

    @property
    def sends(self) -> list[SendHeader]:
        return [header for broker in self.brokers for header in broker.sends]


@asynccontextmanager
async def serving(
    part: FakeNameServer | FakeBroker,
    *,
    port: int = 0,
    hooks: tuple[RequestHook, ...] = (),
    tls: ServerTls | None = None,
) -> AsyncIterator[RemotingServer]:
    """Have it listen; its address is set."""
    config = ServerConfig(host="127.0.0.1", port=port, drain_timeout=0.2, tls=tls or ServerTls())
    async with RemotingServer(config, Dispatcher(part, gate=Gate(Hooks(request=hooks)))) as server:
        part.address = server.address
        yield server


@asynccontextmanager
async def fake_cluster(
    *names: str,
    queues: int = 2,
    hooks: tuple[RequestHook, ...] = (),
    tls: ServerTls | None = None,
) -> AsyncIterator[FakeCluster]:
    async with AsyncExitStack() as stack:
        cluster = FakeCluster(
            FakeNameServer(), [FakeBroker(name) for name in names or ("broker-a",)]
        )
        await stack.enter_async_context(serving(cluster.name_server, tls=tls))
        for broker in cluster.brokers:
            await stack.enter_async_context(serving(broker, hooks=hooks, tls=tls))
        cluster.name_server.routes["T"] = route_of(*cluster.brokers, queues=queues)
        yield cluster
