"""TLS and plain text on one port."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide.remoting import server as server_module
from bolide.remoting.address import split_address
from bolide.remoting.client import ClientConfig, RemotingClient
from bolide.remoting.dispatch import Dispatcher
from bolide.remoting.errors import RemotingError
from bolide.remoting.server import RemotingServer, ServerConfig
from bolide.remoting.tls import ClientAuth, ClientTls, ServerTls, TlsMode
from tests.support.aio import PATIENCE, ended, on_loop, until
from tests.support.certificates import Pair, make_pair
from tests.support.echo import CALL_BACK, ECHO, WAIT, Echo
from tests.support.wire import RawPeer, request_bytes

pytestmark = pytest.mark.usefixtures("each_loop")

CLIENT_HELLO = bytes.fromhex("16030100c8010000c40303")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Pair]]:
    directory = tmp_path_factory.mktemp("pairs")
    yield {
        name: make_pair(directory, name, serial=serial)
        for name, serial in (("server", 0xA1), ("other", 0xB2), ("client", 0xC3))
    }


@pytest.fixture
def pair(pairs: dict[str, Pair], tmp_path: Path) -> Pair:
    """The server's pair, which the test may change."""
    mine = Pair(tmp_path / "server.pem", tmp_path / "server.key", pairs["server"].serial)
    mine.replace(pairs["server"])
    return mine


def serving(echo: Echo, pair: Pair | None, **tls: object) -> RemotingServer:
    files = {"certificate": pair.certificate, "key": pair.key} if pair else {}
    return echo.server(
        ServerConfig(host="127.0.0.1", tls=ServerTls(**files | tls))  # type: ignore[arg-type]
    )


def encrypted(**tls: object) -> RemotingClient:
    return RemotingClient(ClientConfig(tls=ClientTls(**tls)))  # type: ignore[arg-type]


def trusting(**tls: object) -> RemotingClient:
    """A client that accepts any server."""
    return encrypted(verify=False, **tls)


async def ask(client: RemotingClient, address: str) -> bytes:
    return (await client.call(address, ECHO, body=b"hello")).body


async def serial_seen(address: str, *trusted: Pair) -> str:
    """The serial number of the certificate that a server shows now."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    for pair in trusted:
        context.load_verify_locations(pair.certificate)
    host, port = split_address(address)
    _, writer = await asyncio.open_connection(host, port, ssl=context)
    certificate = writer.get_extra_info("ssl_object").getpeercert()
    writer.transport.abort()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)
    return str(certificate["serialNumber"])


@on_loop
async def test_permissive_serves_both_kinds_of_client_on_one_port(pair: Pair) -> None:
    async with (
        serving(Echo(), pair) as server,
        RemotingClient() as plain,
        encrypted(trust=pair.certificate) as secret,
    ):
        for _ in range(3):
            assert await ask(plain, server.address) == b"hello"
            assert await ask(secret, server.address) == b"hello"
        assert len(server.connections) == 2


@on_loop
async def test_large_frames_and_calls_back_go_through_tls(pair: Pair) -> None:
    config = ClientConfig(tls=ClientTls(verify=False), call_timeout=PATIENCE)
    async with (
        serving(Echo(), pair) as server,
        RemotingClient(config, dispatcher=Dispatcher(Echo())) as client,
    ):
        body = bytes(range(256)) * 4096 * 8
        answers = await asyncio.gather(
            *(client.call(server.address, ECHO, body=body) for _ in range(4))
        )
        assert all(answer.body == body for answer in answers)
        assert (await client.call(server.address, CALL_BACK, body=b"who")).body == b"who?"


@on_loop
async def test_enforcing_refuses_plain_clients(pair: Pair) -> None:
    async with (
        serving(Echo(), pair, mode=TlsMode.ENFORCING) as server,
        RemotingClient() as plain,
        trusting() as secret,
    ):
        with pytest.raises(RemotingError):
            await ask(plain, server.address)
        assert await ask(secret, server.address) == b"hello"


@on_loop
async def test_disabled_refuses_tls_clients(pair: Pair) -> None:
    async with (
        serving(Echo(), pair, mode=TlsMode.DISABLED) as server,
        RemotingClient() as plain,
        trusting() as secret,
    ):
        with pytest.raises(RemotingError):
            await ask(secret, server.address)
        assert await ask(plain, server.address) == b"hello"


@on_loop
async def test_without_a_certificate_only_plain_text_is_served() -> None:
    async with (
        serving(Echo(), None) as server,
        RemotingClient() as plain,
        trusting() as secret,
    ):
        with pytest.raises(RemotingError):
            await ask(secret, server.address)
        assert await ask(plain, server.address) == b"hello"


@on_loop
async def test_a_client_refuses_a_server_it_does_not_trust(
    pair: Pair, pairs: dict[str, Pair]
) -> None:
    async with (
        serving(Echo(), pair) as server,
        encrypted(trust=pairs["other"].certificate) as suspicious,
        trusting() as credulous,
    ):
        with pytest.raises(RemotingError, match="certificate"):
            await ask(suspicious, server.address)
        assert await ask(credulous, server.address) == b"hello"


@on_loop
async def test_required_client_certificates_are_looked_at(
    pair: Pair, pairs: dict[str, Pair]
) -> None:
    known, unknown = pairs["client"], pairs["other"]
    async with (
        serving(Echo(), pair, client_auth=ClientAuth.REQUIRE, trust=known.certificate) as server,
        trusting(certificate=known.certificate, key=known.key) as friend,
        trusting(certificate=unknown.certificate, key=unknown.key) as stranger,
        trusting() as nobody,
    ):
        assert await ask(friend, server.address) == b"hello"
        for refused in (stranger, nobody):
            with pytest.raises(RemotingError):
                await ask(refused, server.address)
        assert await ask(friend, server.address) == b"hello"


@on_loop
async def test_optional_client_certificates_may_be_left_out_but_not_false(
    pair: Pair, pairs: dict[str, Pair]
) -> None:
    known, unknown = pairs["client"], pairs["other"]
    async with (
        serving(Echo(), pair, client_auth=ClientAuth.OPTIONAL, trust=known.certificate) as server,
        trusting(certificate=known.certificate, key=known.key) as friend,
        trusting(certificate=unknown.certificate, key=unknown.key) as stranger,
        trusting() as nobody,
    ):
        assert await ask(friend, server.address) == b"hello"
        assert await ask(nobody, server.address) == b"hello"
        with pytest.raises(RemotingError):
            await ask(stranger, server.address)


@on_loop
async def test_a_swapped_certificate_is_shown_without_a_restart(
    pair: Pair, pairs: dict[str, Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_CERTIFICATE_CHECK", 0.02)
    old, new = pairs["server"], pairs["other"]
    async with serving(Echo(), pair) as server, trusting() as client:
        assert await serial_seen(server.address, old, new) == old.serial
        assert await ask(client, server.address) == b"hello"
        pair.replace(new)
        async with asyncio.timeout(PATIENCE):
            while await serial_seen(server.address, old, new) != new.serial:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        # The connection that was open stays, under the certificate it was made with.
        assert await ask(client, server.address) == b"hello"


@on_loop
async def test_a_broken_pair_keeps_the_old_certificate_in_use(
    pair: Pair, pairs: dict[str, Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_CERTIFICATE_CHECK", 0.02)
    old, new = pairs["server"], pairs["other"]
    async with serving(Echo(), pair) as server:
        assert server._context is not None
        pair.certificate.write_bytes(new.certificate.read_bytes())  # the key is still the old one
        looked = asyncio.Event()
        check = server._context.check

        def watched_check() -> bool:
            changed = check()
            loop.call_soon_threadsafe(looked.set)
            return changed

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(server._context, "check", watched_check)
        async with asyncio.timeout(PATIENCE):
            await looked.wait()
        assert await serial_seen(server.address, old, new) == old.serial


@on_loop
async def test_a_client_that_stops_in_its_handshake_keeps_nobody_from_being_served(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_TLS_HANDSHAKE_TIMEOUT", 0.1)
    async with (
        serving(Echo(), pair) as server,
        await RawPeer.connect(server.address) as stuck,
        await RawPeer.connect(server.address) as silent,
        trusting() as client,
    ):
        await stuck.send(CLIENT_HELLO)
        assert await ask(client, server.address) == b"hello"
        assert await stuck.rest() == b""
        silent.close()
        await until(lambda: not server._handshakes)


@on_loop
async def test_a_handshake_of_garbage_ends_only_its_own_connection(pair: Pair) -> None:
    async with (
        serving(Echo(), pair) as server,
        await RawPeer.connect(server.address) as rude,
        trusting() as client,
    ):
        await rude.send(b"\x16" + bytes(range(200)))
        await rude.rest()
        assert await ask(client, server.address) == b"hello"


@on_loop
async def test_a_plain_client_that_sends_byte_by_byte_is_served(pair: Pair) -> None:
    async with serving(Echo(), pair) as server, await RawPeer.connect(server.address) as slow:
        for byte in request_bytes(ECHO, body=b"slow"):
            await slow.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await slow.frame()).body == b"slow"


@on_loop
async def test_a_server_drains_tls_connections_and_leaves_promptly(pair: Pair) -> None:
    echo = Echo()
    async with trusting() as client:
        async with asyncio.timeout(PATIENCE):
            async with serving(echo, pair) as server:
                call = asyncio.create_task(client.call(server.address, WAIT, body=b"in time"))
                await echo.waiting.acquire()
                asyncio.get_running_loop().call_later(0.02, echo.release.set)
        assert (await call).body == b"in time"


@on_loop
async def test_leaving_cancels_connections_that_have_said_nothing(pair: Pair) -> None:
    async with serving(Echo(), pair) as server, await RawPeer.connect(server.address) as silent:
        await until(lambda: server._handshakes)
        await server.__aexit__(None, None, None)
        assert await silent.rest() == b""


@on_loop
async def test_a_tls_client_that_does_not_read_is_not_read_from(pair: Pair) -> None:
    echo = Echo()
    tls = ServerTls(certificate=pair.certificate, key=pair.key)
    config = ServerConfig(
        host="127.0.0.1", tls=tls, write_high_water=65536, send_buffer=65536, receive_buffer=65536
    )
    async with echo.server(config) as server, trusting() as client:
        host, port = split_address(server.address)
        _, writer = await asyncio.open_connection(host, port, ssl=ClientTls(verify=False).context())
        flood = asyncio.create_task(_send_on(writer, request_bytes(ECHO, body=bytes(100_000))))
        await until(lambda: server.connections)
        (flooded,) = server.connections
        await until(lambda: flooded.is_blocked)
        taken = -1
        while taken != echo.seen.qsize():  # until no more of its requests are taken
            taken = echo.seen.qsize() + 20
            for _ in range(20):
                await ask(client, server.address)
        assert 0 < flooded.unsent < 512 * 1024
        flood.cancel()
        writer.transport.abort()
        await asyncio.gather(flood, writer.wait_closed(), return_exceptions=True)


async def _send_on(writer: asyncio.StreamWriter, request: bytes) -> None:
    while True:
        writer.write(request)
        await writer.drain()


@on_loop
async def test_cve_2011_1473_a_client_cannot_have_keys_negotiated_again(pair: Pair) -> None:
    async with serving(Echo(), pair) as server:
        client = await asyncio.create_subprocess_exec(
            "openssl", "s_client", "-tls1_2", "-connect", server.address,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        assert client.stdin is not None
        assert client.stdout is not None
        async with asyncio.timeout(PATIENCE):
            shown = await client.stdout.readuntil(b"Verify return code")
            client.stdin.write(b"R\n")
            shown += await client.stdout.read()
        assert b"RENEGOTIATING" in shown
        assert b"no renegotiation" in shown
        await ended(client)
