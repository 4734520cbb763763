"""A cluster in which every connection is TLS with certificates on both sides."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide import AdminClient, ClientTls, Message, PopConsumer, Producer, PushConsumer, sync
from bolide.arrow import read_topic
from bolide.client.consumer.pull.pull_consumer import PullConsumer
from bolide.client.errors import NameServersUnreachable
from bolide.model.message_queue import MessageQueue
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.namesrv import MinBrokerIdChangeHeader
from bolide.remoting.client import ClientConfig, RemotingClient
from bolide.remoting.dispatch import Dispatcher, Reply, Request, handles
from bolide.remoting.errors import ConnectionLost, TlsFailed
from bolide.remoting.server import RemotingServer, ServerConfig
from tests.support.aio import PATIENCE, on_loop
from tests.support.broker import broker_in
from tests.support.brokers import broker_header, plain, topics_body
from tests.support.certificates import Authority
from tests.support.commands import run
from tests.support.name_servers import name_server
from tests.support.own_cluster import create_topic
from tests.support.secured import Secured

TOPIC = "Secret"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    yield Secured.by(Authority(tmp_path_factory.mktemp("authority")))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    yield Secured.by(Authority(tmp_path_factory.mktemp("stranger"), "stranger"))


@asynccontextmanager
async def cluster(
    directory: Path, secured: Secured, *names: str, **settings: Any
) -> AsyncIterator[str]:
    """The address of a NameServer; the brokers are registered with it."""
    async with AsyncExitStack() as stack:
        (directory / "namesrv").mkdir()
        server = await stack.enter_async_context(
            name_server(directory / "namesrv", **secured.settings)
        )
        for name in names or ("broker-a",):
            (directory / name).mkdir()
            await stack.enter_async_context(
                broker_in(
                    directory / name,
                    broker_name=name,
                    name_servers=(server.address,),
                    **secured.settings | settings,
                )
            )
        yield server.address


async def fill(address: str, secured: Secured, count: int = 5) -> None:
    async with Producer("writers", name_server=address, **secured.arguments) as producer:
        await create_topic(producer, TOPIC, 1)
        for number in range(count):
            await producer.send(Message(TOPIC, b"%d" % number))


@on_loop
async def test_clients_of_every_kind_send_and_receive(tmp_path: Path, secured: Secured) -> None:
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(message: Any) -> None:
        got.put_nowait(message.body)

    async with cluster(tmp_path, secured) as address, asyncio.timeout(4 * PATIENCE):
        how: dict[str, Any] = {"name_server": address, **secured.arguments}
        await fill(address, secured)
        async with PushConsumer("pushed", consume_from="first", **how) as pushed:
            await pushed.subscribe(TOPIC, "*", take)
            assert sorted([await got.get() for _ in range(5)]) == [b"%d" % n for n in range(5)]
        async with PopConsumer("popped", consume_from="first", **how) as popped:
            await popped.subscribe(TOPIC)
            messages = await popped.receive(max_messages=5)
            for message in messages:
                await popped.ack(message)
            assert messages
        async with AdminClient(address, **secured.arguments) as admin:
            assert TOPIC in await admin.topics.names()
        assert await asyncio.to_thread(_read, address, secured) == 5
        assert await asyncio.to_thread(_send_blocking, address, secured) == 5


def _read(address: str, secured: Secured) -> int:
    return len(read_topic(TOPIC, name_server=address, **secured.arguments).to_pandas())


def _send_blocking(address: str, secured: Secured) -> int:
    tls = ClientTls(**secured.arguments)
    with sync.Producer("blocking", name_server=address, tls=tls) as producer:
        return producer.send(Message(TOPIC, b"6")).queue_offset


@on_loop
async def test_brokers_forward_to_each_other(tmp_path: Path, secured: Secured) -> None:
    """The first part of a moved queue stays on its broker, which the new one asks for it."""
    queue = MessageQueue("Fixed", "__syslo__global__", 0)
    async with (
        cluster(tmp_path, secured, "broker-a", "broker-b") as address,
        AdminClient(address, **secured.arguments) as admin,
        Producer("writers", name_server=address, **secured.arguments) as producer,
        PullConsumer("readers", name_server=address, **secured.arguments) as consumer,
    ):
        topics = admin.static_topics
        await topics.apply(await topics.plan_creation("Fixed", 1, ["broker-a"]))
        for number in range(3):
            await producer.send(Message("Fixed", b"%d" % number), queue=queue)
        await topics.apply(await topics.plan_remapping("Fixed", ["broker-b"]))
        pulled = await consumer.pull(queue, "*", 0)
        assert [message.body for message in pulled.messages] == [b"0", b"1", b"2"]
        assert await producer.min_offset(queue) == 0


class NotedBroker:
    """Takes the notices of a NameServer."""

    def __init__(self) -> None:
        self.notices: asyncio.Queue[int | None] = asyncio.Queue()

    @handles(MinBrokerIdChangeHeader, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE)
    def lowest_changed(self, request: Request[MinBrokerIdChangeHeader]) -> Reply:
        self.notices.put_nowait(request.header.min_broker_id)
        return Reply()


@on_loop
async def test_a_name_server_notifies_brokers(tmp_path: Path, secured: Secured) -> None:
    slave = NotedBroker()
    config = ServerConfig(host="127.0.0.1", tls=secured.server_tls)
    tls = ClientConfig(tls=ClientTls(**secured.arguments))
    settings = secured.settings | {"notify_min_broker_id_changed": True}
    async with (
        name_server(tmp_path, **settings) as server,
        RemotingServer(config, Dispatcher(slave)) as listener,
        RemotingClient(tls) as first,
        RemotingClient(tls) as second,
    ):
        body = plain(topics_body("T"))
        for client, header in (
            (first, broker_header(listener.address, broker_id=1, acting=True)),
            (second, broker_header("10.0.0.1:10911", acting=True)),
        ):
            await client.call(server.address, RequestCode.REGISTER_BROKER, header, body=body)
        async with asyncio.timeout(PATIENCE):
            assert await slave.notices.get() == 0


@on_loop
async def test_a_broker_that_does_not_trust_its_name_server_says_what_to_set(
    tmp_path: Path, secured: Secured, stranger: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "namesrv").mkdir()
    settings = secured.settings | {"tls_client_trust": stranger.trust}
    caplog.set_level(logging.WARNING)
    async with (
        name_server(tmp_path / "namesrv", **secured.settings) as server,
        broker_in(tmp_path, name_servers=(server.address,), **settings),
    ):
        pass
    assert "does not accept this broker" in caplog.text
    assert "tls.client.trustCertPath=/path/to/ca.pem" in caplog.text
    assert "tls.client.authServer=false" in caplog.text


@on_loop
async def test_a_broker_told_not_to_verify_registers_anywhere(
    tmp_path: Path, secured: Secured
) -> None:
    careless = {"tls_client_trust": None, "tls_client_verify": False}
    async with cluster(tmp_path, secured, **careless) as address:
        await fill(address, secured)


@on_loop
async def test_clients_that_are_not_set_up_learn_what_is_missing(
    tmp_path: Path, secured: Secured
) -> None:
    async with cluster(tmp_path, secured) as address:
        for arguments, hint in (
            ({}, "may serve TLS only"),
            ({"tls": True}, "trust='path/to/ca.pem'"),
            ({"trust": secured.trust}, "may require a certificate of this client"),
        ):
            how: dict[str, Any] = {"name_server": address, **arguments}
            async with Producer("writers", **how) as producer:
                with pytest.raises(NameServersUnreachable, match=hint):
                    await producer.fetch_publish_queues(TOPIC)
            async with AdminClient(address, **arguments) as admin:
                with pytest.raises((TlsFailed, ConnectionLost), match=hint):
                    await admin.topics.names()
        untrusting = ClientTls()
        with pytest.raises(NameServersUnreachable, match="trust="):  # at once, not out of patience
            await asyncio.to_thread(read_topic, TOPIC, name_server=address, tls=untrusting)


@pytest.mark.usefixtures("home")
@on_loop
async def test_commands_take_their_tls_settings_from_options_or_the_environment(
    tmp_path: Path, secured: Secured
) -> None:
    async with cluster(tmp_path, secured) as address:
        await fill(address, secured)
        listed = await asyncio.to_thread(run, "mqadmin", "topicList", "-n", address, *secured.flags)
        assert TOPIC in listed.stdout, listed.stderr
        environment = {
            "BOLIDE_TRUST": str(secured.trust),
            "BOLIDE_CLIENT_CERTIFICATE": str(secured.client.certificate),
            "BOLIDE_CLIENT_KEY": str(secured.client.key),
        }
        sent = await asyncio.to_thread(
            run, "bolide", "admin", "sendMessage", "-n", address, "-t", TOPIC, "-p", "hello",
            **environment,
        )  # fmt: skip
        assert "SEND_OK" in sent.stdout, sent.stderr
        measured = await asyncio.to_thread(
            run, "bolide", "bench", "producer", "-n", address, "-t", TOPIC, "-q", "20", "-w", "2",
            "--json", *secured.flags,
        )  # fmt: skip
        assert json.loads(measured.stdout), measured.stderr


@pytest.mark.usefixtures("home")
@on_loop
async def test_commands_say_which_option_is_missing(tmp_path: Path, secured: Secured) -> None:
    async with cluster(tmp_path, secured) as address:
        for flags, hint in (
            ([], "--tls"),
            (["--tls"], "--trust path/to/ca.pem"),
            (["--no-verify"], "--client-certificate and --client-key"),
        ):
            ended = await asyncio.to_thread(run, "mqadmin", "topicList", "-n", address, *flags)
            assert ended.returncode == 3
            assert hint in ended.stderr
            assert len(ended.stderr.splitlines()) == 1


@on_loop
async def test_a_broker_without_tls_cannot_register_and_keeps_serving(
    tmp_path: Path, secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "namesrv").mkdir()
    with caplog.at_level(logging.WARNING):
        async with (
            name_server(tmp_path / "namesrv", **secured.settings) as server,
            broker_in(tmp_path, name_servers=(server.address,)) as broker,
            AdminClient(server.address, **secured.arguments) as admin,
            RemotingClient() as plain_client,
        ):
            assert not (await admin.clusters.info()).broker_addr_table
            address = f"127.0.0.1:{broker.config.value.listen_port}"
            await plain_client.call(address, RequestCode.GET_BROKER_CONFIG)
    assert "may serve TLS only" in caplog.text
