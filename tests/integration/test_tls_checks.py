"""Clients and servers check each other: certificates, host names, versions and ciphers."""

import asyncio
import logging
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bolide.remoting import server as server_module
from bolide.remoting.address import split_address
from bolide.remoting.client import ClientConfig, RemotingClient
from bolide.remoting.errors import ConnectionLost, RemotingError, TlsFailed
from bolide.remoting.server import RemotingServer, ServerConfig
from bolide.remoting.tls import ClientAuth, ClientTls, ServerTls, TlsMode
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.certificates import Authority, Pair
from tests.support.echo import ECHO, Echo
from tests.support.wire import RawPeer

pytestmark = pytest.mark.usefixtures("each_loop")

CLIENT_HELLO = bytes.fromhex("16030100c8010000c40303")
JAVA_CIPHER = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    yield Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    """An authority of the same name, with another key."""
    yield Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def local(authority: Authority) -> Pair:
    return authority.sign("server")


@pytest.fixture(scope="module")
def client_pair(authority: Authority) -> Pair:
    return authority.sign("client", names="")


def serving(pair: Pair | None, **tls: object) -> RemotingServer:
    files = {"certificate": pair.certificate, "key": pair.key} if pair else {}
    settings = ServerTls(**files | tls)  # type: ignore[arg-type]
    return Echo().server(ServerConfig(host="127.0.0.1", tls=settings))


def client(**tls: object) -> RemotingClient:
    return RemotingClient(ClientConfig(tls=ClientTls(**tls)))  # type: ignore[arg-type]


async def ask(asking: RemotingClient, address: str) -> bytes:
    return (await asking.call(address, ECHO, body=b"hello")).body


async def failure(asking: RemotingClient, address: str) -> str:
    """The text of the failure of a call, which is one of TLS."""
    with pytest.raises(TlsFailed) as failed:
        await ask(asking, address)
    return str(failed.value)


@on_loop
async def test_a_server_of_a_trusted_authority_is_asked(authority: Authority, local: Pair) -> None:
    async with serving(local) as server, client(trust=authority.certificate) as careful:
        assert await ask(careful, server.address) == b"hello"
        assert await ask(careful, f"localhost:{server.port}") == b"hello"


@on_loop
async def test_a_private_authority_is_not_trusted_and_the_error_says_how_to_trust_it(
    local: Pair,
) -> None:
    async with serving(local) as server, client() as careful:
        text = await failure(careful, server.address)
        assert server.address in text
        assert "not signed by the authorities that this system trusts" in text
        assert "trust='path/to/ca.pem'" in text
        assert "verify=False" in text
        await until(lambda: not server.connections)


@on_loop
async def test_another_authority_of_the_same_name_is_not_trusted(
    local: Pair, stranger: Authority
) -> None:
    async with serving(local) as server, client(trust=stranger.certificate) as careful:
        text = await failure(careful, server.address)
        assert f"not signed by {stranger.certificate}" in text


@on_loop
async def test_a_wrong_host_is_refused_with_the_names_of_the_certificate(
    authority: Authority,
) -> None:
    pair = authority.sign("elsewhere", names="DNS:mq.example,DNS:mq2.example,IP:192.0.2.7")
    trust = authority.certificate
    async with (
        serving(pair) as server,
        client(trust=trust) as careful,
        client(trust=trust, server_name="mq.example") as told,
        client(trust=trust, server_name="other.example") as mistaken,
        client(trust=trust, check_host=False) as lenient,
    ):
        text = await failure(careful, server.address)
        assert "is for mq.example, mq2.example, 192.0.2.7 and not for 127.0.0.1" in text
        assert "server_name=" in text
        assert "check_host=False" in text
        assert await ask(told, server.address) == b"hello"
        assert "not for other.example" in await failure(mistaken, server.address)
        assert await ask(lenient, server.address) == b"hello"


@on_loop
async def test_a_certificate_without_names_is_refused_and_named_so(authority: Authority) -> None:
    pair = authority.sign("nameless", names="")
    async with (
        serving(pair) as server,
        client(trust=authority.certificate) as careful,
        client(trust=authority.certificate, check_host=False) as lenient,
    ):
        text = await failure(careful, server.address)
        assert "its certificate has no host names" in text
        assert await ask(lenient, server.address) == b"hello"


@on_loop
async def test_names_are_not_looked_up_where_the_server_is_not_trusted(
    authority: Authority, stranger: Authority
) -> None:
    pair = stranger.sign("elsewhere", names="DNS:mq.example")
    async with serving(pair) as server, client(trust=authority.certificate) as careful:
        text = await failure(careful, server.address)
        assert "not signed by" in text
        assert "mq.example" not in text


@on_loop
async def test_an_expired_certificate_is_refused_even_without_a_check_of_names(
    authority: Authority,
) -> None:
    pair = authority.sign("expired", days=-1)
    async with (
        serving(pair) as server,
        client(trust=authority.certificate, check_host=False) as careful,
        client(verify=False) as careless,
    ):
        assert "has expired" in await failure(careful, server.address)
        assert await ask(careless, server.address) == b"hello"


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
@on_loop
async def test_the_chosen_version_is_used(authority: Authority, local: Pair, protocol: str) -> None:
    other = {"TLSv1.2": "TLSv1.3", "TLSv1.3": "TLSv1.2"}[protocol]
    trust = authority.certificate
    async with (
        serving(local, protocols=(protocol,)) as server,
        client(trust=trust) as any_version,
        client(trust=trust, protocols=(other,)) as other_version,
    ):
        assert await ask(any_version, server.address) == b"hello"
        (connection,) = server.connections
        used = connection._transport.get_extra_info("ssl_object").version()
        assert used == protocol
        assert "no version or cipher in common" in await failure(other_version, server.address)


@on_loop
async def test_a_client_of_an_old_version_is_refused(
    local: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    async with serving(local) as server, client(verify=False) as modern:
        with pytest.raises(OSError):
            await asyncio.open_connection(*split_address(server.address), ssl=old)
        await until(lambda: "UNSUPPORTED_PROTOCOL" in caplog.text)
        assert await ask(modern, server.address) == b"hello"


@on_loop
async def test_only_the_chosen_cipher_is_used(authority: Authority, local: Pair) -> None:
    trust = authority.certificate
    async with (
        serving(local, ciphers=(JAVA_CIPHER,)) as server,
        client(trust=trust) as any_cipher,
        client(trust=trust, ciphers=("ECDHE-ECDSA-AES256-GCM-SHA384",)) as other_cipher,
    ):
        assert await ask(any_cipher, server.address) == b"hello"
        (connection,) = server.connections
        name, version, _ = connection._transport.get_extra_info("cipher")
        assert (name, version) == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2")
        assert "no version or cipher in common" in await failure(other_cipher, server.address)


@on_loop
async def test_a_server_that_requires_a_certificate_is_understood(
    authority: Authority, local: Pair, client_pair: Pair, stranger: Authority
) -> None:
    unknown = stranger.sign("unknown", names="")
    trust = authority.certificate
    async with (
        serving(local, client_auth=ClientAuth.REQUIRE, trust=trust) as server,
        client(trust=trust, certificate=client_pair.certificate, key=client_pair.key) as friend,
        client(trust=trust) as without,
        client(trust=trust, protocols=("TLSv1.2",)) as old_without,
        client(trust=trust, certificate=unknown.certificate, key=unknown.key) as refused,
    ):
        assert await ask(friend, server.address) == b"hello"
        with pytest.raises(ConnectionLost, match="may require a certificate of this client: give"):
            await ask(without, server.address)
        text = await failure(old_without, server.address)
        assert "may require a certificate of this client" in text
        with pytest.raises(ConnectionLost, match="may not accept the certificate of this client"):
            await ask(refused, server.address)
        await until(lambda: len(server.connections) == 1)


@on_loop
async def test_a_plain_client_of_an_enforcing_server_learns_what_may_be_wrong(local: Pair) -> None:
    async with (
        serving(local, mode=TlsMode.ENFORCING) as server,
        RemotingClient() as plain,
    ):
        with pytest.raises(ConnectionLost, match=r"may serve TLS only .*tls=True, --tls"):
            await ask(plain, server.address)


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.DISABLED])
@on_loop
async def test_a_tls_client_of_a_plain_server_learns_what_may_be_wrong(mode: TlsMode) -> None:
    async with serving(None, mode=mode) as server, client() as careful:
        assert "the server may serve plain text only" in await failure(careful, server.address)


@on_loop
async def test_a_long_lived_client_takes_up_a_changed_trust_file(
    authority: Authority, local: Pair, stranger: Authority, tmp_path: Path
) -> None:
    trust = tmp_path / "trust.pem"
    trust.write_bytes(stranger.certificate.read_bytes())
    async with serving(local) as server, client(trust=trust) as careful:
        await failure(careful, server.address)
        _replace(trust, authority.certificate)
        assert await ask(careful, server.address) == b"hello"
        _replace(trust, stranger.certificate)
        assert await ask(careful, server.address) == b"hello"  # its connection stays
        (connection,) = server.connections
        connection.abort()
        await until(lambda: not careful.is_connected(server.address))
        await failure(careful, server.address)


@on_loop
async def test_a_long_lived_client_takes_up_a_changed_certificate_of_its_own(
    authority: Authority, local: Pair, client_pair: Pair, stranger: Authority, tmp_path: Path
) -> None:
    mine = Pair(tmp_path / "client.pem", tmp_path / "client.key", "")
    mine.replace(stranger.sign("outdated", names=""))
    async with (
        serving(local, client_auth=ClientAuth.REQUIRE, trust=authority.certificate) as server,
        client(trust=authority.certificate, certificate=mine.certificate, key=mine.key) as careful,
    ):
        with pytest.raises(RemotingError):
            await ask(careful, server.address)
        mine.replace(client_pair)
        assert await ask(careful, server.address) == b"hello"


@on_loop
async def test_a_client_leaves_a_server_that_does_not_answer_the_end_of_tls(
    authority: Authority, local: Pair
) -> None:
    """Java's servers do not, and the default of asyncio is to wait for 30 s."""
    context = ServerTls(certificate=local.certificate, key=local.key).context()
    ended = threading.Event()

    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as plain, context.wrap_socket(plain, server_side=True):
            ended.wait(2 * PATIENCE)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving_it = asyncio.create_task(asyncio.to_thread(serve, listener))
        tls = ClientTls(trust=authority.certificate)
        async with asyncio.timeout(PATIENCE):
            async with RemotingClient(ClientConfig(tls=tls, call_timeout=60)) as careful:
                await careful.connect(f"127.0.0.1:{listener.getsockname()[1]}")
        ended.set()
        await serving_it


@on_loop
async def test_many_stalled_handshakes_and_garbage_delay_nobody_and_leave_nothing(
    authority: Authority, local: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_TLS_HANDSHAKE_TIMEOUT", 0.2)
    async with (
        serving(local) as server,
        client(trust=authority.certificate) as careful,
        AsyncExitStack() as stack,
    ):
        rude = []
        for number in range(40):
            peer = await stack.enter_async_context(await RawPeer.connect(server.address))
            await peer.send(CLIENT_HELLO if number % 2 else b"\x16" + bytes(range(200)))
            rude.append(peer)
        assert await ask(careful, server.address) == b"hello"
        for peer in rude:
            await peer.rest()
        await until(lambda: not server._handshakes)
        assert len(server.connections) == 1


def _replace(path: Path, content: Path) -> None:
    aside = path.with_suffix(".new")
    aside.write_bytes(content.read_bytes())
    aside.replace(path)
