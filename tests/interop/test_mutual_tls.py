"""TLS with certificates on both sides, between Java's clients and servers and ours."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide import ClientTls, Message, Producer, PushConsumer
from bolide.client.errors import NameServersUnreachable
from tests.interop.bench import Bench, Server
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.interop.processes import ChildProcess, ProcessFailed
from tests.support.certificates import Authority
from tests.support.secured import Secured

Client = Callable[..., ChildProcess]

TOPIC = "Secured"
COUNT = 20
CIPHERS = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    yield Secured.by(Authority(tmp_path_factory.mktemp("authority")))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    yield Secured.by(Authority(tmp_path_factory.mktemp("stranger"), "stranger"))


def calling(secured: Secured, trust: Path | None = None) -> list[str]:
    """JVM options of a Java client that checks servers and presents a certificate."""
    return [
        "-Dtls.enable=true",
        "-Dtls.test.mode.enable=false",
        "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={trust or secured.trust}",
        f"-Dtls.client.certPath={secured.client.certificate}",
        f"-Dtls.client.keyPath={secured.client.key}",
    ]


def serving(secured: Secured) -> list[str]:
    """JVM options of a Java server that serves TLS only, to clients with a certificate only."""
    return [
        *calling(secured),
        "-Dtls.server.mode=enforcing",
        "-Dtls.server.need.client.auth=require",
        "-Dtls.server.authClient=true",
        f"-Dtls.server.trustCertPath={secured.trust}",
        f"-Dtls.server.certPath={secured.server.certificate}",
        f"-Dtls.server.keyPath={secured.server.key}",
    ]


@contextmanager
def our_cluster(directory: Path, secured: Secured, **properties: str) -> Iterator[str]:
    settings = secured.properties | properties
    with ExitStack() as stack:
        names = stack.enter_context(bolide_namesrv(directory / "namesrv", **settings))
        stack.enter_context(bolide_broker(directory / "broker", names.address, **settings))
        yield names.address


def test_java_clients_send_receive_and_administer(
    rocketmq: str, java_bench: Bench, secured: Secured, stranger: Secured, tmp_path: Path
) -> None:
    jvm = calling(secured)
    with our_cluster(tmp_path, secured) as address:
        for program in ("SendMessages", "ReceiveMessages"):
            java_bench.client(rocketmq, program, address, TOPIC, COUNT, "--tls", jvm=jvm).wait(90)
        assert TOPIC in java_bench.mqadmin(rocketmq, "topicList", "-n", address, jvm=jvm)
        java_bench.mqadmin(
            rocketmq, "updateTopic", "-c", "DefaultCluster", "-t", "Made", "-n", address, jvm=jvm
        )

        # A certificate of another authority, and a client that does not trust the server.
        for refused in (calling(stranger, secured.trust), calling(secured, stranger.trust)):
            with pytest.raises(ProcessFailed):
                java_bench.client(rocketmq, "Routes", address, TOPIC, "--tls", jvm=refused).wait(60)


def test_java_clients_use_the_chosen_ciphers(
    rocketmq: str, java_client: Client, secured: Secured, tmp_path: Path
) -> None:
    with our_cluster(
        tmp_path, secured, **{"tls.protocols": "TLSv1.2", "tls.ciphers": CIPHERS}
    ) as address:
        jvm = calling(secured)
        java_client(rocketmq, "SendMessages", address, TOPIC, COUNT, "--tls", jvm=jvm).wait(90)


def test_our_clients_use_a_java_cluster(
    rocketmq: str, java_bench: Bench, secured: Secured, stranger: Secured
) -> None:
    jvm = serving(secured)
    names = java_bench.namesrv(rocketmq, jvm=jvm)
    java_bench.broker(rocketmq, names.address, jvm=jvm)
    asyncio.run(_exchange(names.address, **secured.arguments))
    for arguments, hint in (
        ({}, "may serve TLS only"),
        ({"tls": True}, "trust='path/to/ca.pem'"),
        (stranger.arguments | {"trust": secured.trust}, "certificate of this client"),
        ({"tls": ClientTls(trust=secured.trust)}, "certificate of this client"),
    ):
        with pytest.raises(NameServersUnreachable, match=hint):
            asyncio.run(_exchange(names.address, **arguments))


@pytest.mark.parametrize("ours", ["namesrv", "broker"])
def test_java_and_our_servers_find_each_other(
    rocketmq: str, java_bench: Bench, secured: Secured, tmp_path: Path, ours: str
) -> None:
    with ExitStack() as stack:
        names: Server
        if ours == "namesrv":
            names = stack.enter_context(bolide_namesrv(tmp_path / "names", **secured.properties))
            java_bench.broker(rocketmq, names.address, jvm=serving(secured))
        else:
            names = java_bench.namesrv(rocketmq, jvm=serving(secured))
            stack.enter_context(
                bolide_broker(tmp_path / "broker", names.address, **secured.properties)
            )
        asyncio.run(_exchange(names.address, **secured.arguments))


async def _exchange(address: str, **how: Any) -> None:
    """Send messages and receive them all."""
    got: set[bytes] = set()
    all_got = asyncio.Event()

    async def take(message: Any) -> None:
        got.add(message.body)
        if len(got) == COUNT:
            all_got.set()

    async with asyncio.timeout(60), Producer("writers", name_server=address, **how) as producer:
        for number in range(COUNT):
            await producer.send(Message(TOPIC, b"%d" % number), timeout=15)
        async with PushConsumer(
            "readers", name_server=address, consume_from="first", **how
        ) as consumer:
            await consumer.subscribe(TOPIC, "*", take)
            await all_got.wait()
