"""Java clients reach our NameServer in plain text and by TLS, on one port."""

import asyncio
import ssl
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from bolide.protocol.codes import RequestCode
from bolide.remoting.address import split_address
from bolide.remoting.client import RemotingClient
from tests.interop.bench import Server
from tests.interop.ours import bolide_namesrv
from tests.interop.processes import ChildProcess, ProcessFailed
from tests.support.brokers import broker_header, plain, topics_body
from tests.support.certificates import Pair, make_pair

Client = Callable[..., ChildProcess]


def test_java_clients_find_a_route_by_tls_and_in_plain_text(
    rocketmq: str, java_client: Client, tmp_path: Path
) -> None:
    with secured(tmp_path, make_pair(tmp_path, "server")) as server:
        with_broker(server, lambda: look_up_both_ways(java_client, rocketmq, server))


def test_java_clients_trust_the_new_certificate_after_a_swap_and_no_longer_the_old_one(
    rocketmq: str, java_client: Client, tmp_path: Path
) -> None:
    used = make_pair(tmp_path, "server", serial=0x51)
    old = make_pair(tmp_path, "old", serial=0x52)
    new = make_pair(tmp_path, "new", serial=0x53)
    used.replace(old)

    def swap() -> None:
        assert look_up(java_client, rocketmq, server, "--tls", trust=old)
        used.replace(new)
        await_serial(server, new)
        assert look_up(java_client, rocketmq, server, "--tls", trust=new)
        with pytest.raises(ProcessFailed):
            look_up(java_client, rocketmq, server, "--tls", trust=old)

    with secured(tmp_path, used) as server:
        with_broker(server, swap)


def secured(directory: Path, pair: Pair) -> AbstractContextManager[Server]:
    paths = {"tls.server.certPath": str(pair.certificate), "tls.server.keyPath": str(pair.key)}
    return bolide_namesrv(directory / "namesrv", **paths)


def with_broker(server: Server, act: Callable[[], None]) -> None:
    """Act while a broker of our own making is registered with the topic `Secured`."""

    async def scenario() -> None:
        async with RemotingClient() as client:
            body = plain(topics_body("Secured"))
            await client.call(
                server.address, RequestCode.REGISTER_BROKER, broker_header(), body=body
            )
            await asyncio.to_thread(act)

    asyncio.run(scenario())


def look_up_both_ways(java_client: Client, version: str, server: Server) -> None:
    assert look_up(java_client, version, server, "--tls") == look_up(java_client, version, server)


def look_up(
    java_client: Client, version: str, server: Server, *flags: str, trust: Pair | None = None
) -> list[str]:
    jvm = []
    if trust is not None:
        jvm = [
            "-Dtls.test.mode.enable=false",
            "-Dtls.client.authServer=true",
            f"-Dtls.client.trustCertPath={trust.certificate}",
        ]
    lines = java_client(version, "Routes", server.address, "Secured", *flags, jvm=jvm).wait()
    assert lines[-1] == "queues 16"
    return lines


def await_serial(server: Server, pair: Pair) -> None:
    """Wait until the server shows the certificate; it looks at its files every second."""
    deadline = time.monotonic() + 10
    while ssl.get_server_certificate(split_address(server.address)) != pair.certificate.read_text():
        assert time.monotonic() < deadline, "the new certificate was not picked up"
        time.sleep(0.05)
