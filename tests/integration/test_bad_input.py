"""Bad and hostile clients: the server stays up, others notice nothing, memory comes back.

The server is a process of its own. While it is attacked a `Witness` looks up routes and fails the
test if one of its calls is not answered, or not quickly.
"""

import asyncio
import random
import resource
import struct
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import HeaderEncoding
from bolide.protocol.framing import MAX_FRAME_SIZE
from bolide.remoting.client import RemotingClient
from bolide.remoting.server import ServerConfig
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.brokers import broker_header, plain, topics_body
from tests.support.name_servers import NameServerProcess, name_server_process
from tests.support.wire import RawPeer, request_bytes
from tests.support.witness import Witness

MEGABYTE = 1024 * 1024
ROUTE = request_bytes(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}, opaque=7)


def prefix(length: int, header_word: int | None = None) -> bytes:
    """The beginning of a frame that says whatever it is told to say."""
    word = b"" if header_word is None else struct.pack(">I", header_word & 0xFFFF_FFFF)
    return struct.pack(">I", length & 0xFFFF_FFFF) + word


def with_header(header: bytes, encoding: int = 0) -> bytes:
    return prefix(4 + len(header), encoding << 24 | len(header)) + header


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServerProcess]:
    """One server for all that should leave no trace; it must be up at the end and unsurprised."""
    directory = tmp_path_factory.mktemp("namesrv")
    with name_server_process(directory) as running:
        yield running
        assert running.is_running
    assert "Traceback" not in (directory / "namesrv.log").read_text()


async def closes_without_an_answer(address: str, data: bytes, *, end: bool = False) -> None:
    async with await RawPeer.connect(address) as peer:
        await peer.send(data)
        if end:
            peer.end()
        assert await peer.rest() == b""


# Bytes that mean nothing


@on_loop
async def test_random_bytes_end_only_their_own_connection(process: NameServerProcess) -> None:
    chance = random.Random(1)
    async with Witness(process.address):
        for _ in range(300):
            noise = chance.randbytes(chance.choice([1, 3, 4, 8, 50, 5000]))
            await closes_without_an_answer(process.address, noise, end=True)


@on_loop
async def test_damaged_requests_end_only_their_own_connection(process: NameServerProcess) -> None:
    chance = random.Random(2)
    requests = [
        request_bytes(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}, encoding=encoding)
        for encoding in HeaderEncoding
    ]
    async with Witness(process.address):
        for _ in range(400):
            damaged = bytearray(chance.choice(requests))
            for _ in range(chance.randint(1, 3)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            async with await RawPeer.connect(process.address) as peer:
                await peer.send(bytes(damaged))
                peer.end()
                await peer.rest()  # an answer or none: it may still mean something


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(prefix(MAX_FRAME_SIZE - 3), id="one byte over 16 MiB"),
        pytest.param(prefix(2**31 - 1), id="2 GiB"),
        pytest.param(prefix(-1), id="length -1"),
        pytest.param(prefix(-(2**31)), id="lowest length"),
        pytest.param(prefix(0), id="no room for a header length"),
        pytest.param(prefix(3) + b"abc", id="three bytes"),
        pytest.param(prefix(8, 5) + b"{}{}", id="header one byte beyond the frame"),
        pytest.param(prefix(8, 0x00FF_FFFF) + b"{}{}", id="longest header in a short frame"),
        pytest.param(prefix(4, 0), id="no header at all"),
        pytest.param(prefix(6, 0x0200_0002) + b"{}", id="unknown header encoding"),
        pytest.param(prefix(6, 0xFF00_0002) + b"{}", id="negative header word"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="HTTP"),
        pytest.param(bytes.fromhex("16030100c8010000c40303"), id="TLS without a certificate"),
        pytest.param(with_header(b"null"), id="null"),
        pytest.param(with_header(b"[105]"), id="a list for a header"),
        pytest.param(with_header(b'{"code":105'), id="JSON cut short"),
        pytest.param(with_header(b'{"code":4294967296}'), id="code over 32 bits"),
        pytest.param(with_header(b'{"code":"\xff\xfe"}'), id="no UTF-8"),
        pytest.param(with_header(b'{"code":105,"x":' + b"[" * 100_000), id="deep JSON"),
        pytest.param(
            with_header(b'{"code":105,"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
            id="deep JSON that closes",
        ),
        pytest.param(with_header(b"\x00\x69\x00", 1), id="binary header cut short"),
        pytest.param(
            with_header(bytes.fromhex("006900000000000001000000007fffffff"), 1),
            id="binary remark beyond the header",
        ),
        pytest.param(
            with_header(bytes.fromhex("0069000000000000010000000000000000ffffffff"), 1),
            id="binary fields of negative length",
        ),
    ],
)
@on_loop
async def test_a_frame_that_is_none_closes_its_connection(
    process: NameServerProcess, data: bytes
) -> None:
    async with Witness(process.address):
        await closes_without_an_answer(process.address, data)


@on_loop
async def test_a_request_cut_at_any_byte_is_not_answered(process: NameServerProcess) -> None:
    async with Witness(process.address):
        for cut in range(len(ROUTE)):
            await closes_without_an_answer(process.address, ROUTE[:cut], end=True)


@on_loop
async def test_peers_that_vanish_inside_a_frame_leave_nothing(process: NameServerProcess) -> None:
    async with Witness(process.address):
        files = process.open_files()
        for cut in range(0, len(ROUTE), 3):
            peer = await RawPeer.connect(process.address)
            await peer.send(ROUTE[:cut])
            peer.reset()
        await until(lambda: process.open_files() <= files)


@on_loop
async def test_a_good_request_before_garbage_is_answered_before_the_close(
    process: NameServerProcess,
) -> None:
    async with Witness(process.address), await RawPeer.connect(process.address) as peer:
        await peer.send(ROUTE + b"\xff" * 100 + ROUTE)
        assert (await peer.frame()).opaque == 7
        assert await peer.rest() == b""


# Requests that are whole but wrong


@on_loop
async def test_unknown_codes_are_answered_and_one_way_ones_are_not(
    process: NameServerProcess,
) -> None:
    async with Witness(process.address), await RawPeer.connect(process.address) as peer:
        for code in (0, 31_000, -5):
            await peer.send(request_bytes(code, opaque=1, one_way=True))
            await peer.send(request_bytes(code, opaque=2))
            response = await peer.frame()
            assert (response.opaque, response.code) == (2, 3)
            assert response.remark == f" request type {code} not supported"


@pytest.mark.parametrize(
    ("code", "fields", "body"),
    [
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, None, b""),
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "\ud83d\ude00" * 1000}, b""),
        (RequestCode.REGISTER_BROKER, {"brokerName": "x"}, b""),
        (RequestCode.REGISTER_BROKER, broker_header().to_fields(), b"{" * 100_000),
        (RequestCode.REGISTER_BROKER, broker_header().to_fields(), b"\x78\x9c" + bytes(100)),
        (RequestCode.UNREGISTER_BROKER, {"brokerId": "9" * 5000}, b""),
        (RequestCode.QUERY_DATA_VERSION, {"brokerId": "zero"}, b"[]"),
        (RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "t"}, b"[" * 100_000),
    ],
    ids=lambda value: str(value)[:40],
)
@on_loop
async def test_a_request_that_cannot_be_served_is_refused_and_the_connection_stays(
    process: NameServerProcess, code: int, fields: dict[str, str] | None, body: bytes
) -> None:
    if fields and "topic" in fields:
        fields = {"topic": fields["topic"].encode("utf-16", "surrogatepass").decode("utf-16")}
    async with Witness(process.address), await RawPeer.connect(process.address) as peer:
        await peer.send(request_bytes(code, fields, opaque=1, body=body))
        response = await peer.frame()
        assert response.opaque == 1
        assert response.code in {1, 17, 29}
        await peer.send(ROUTE)
        assert (await peer.frame()).code == 0


@on_loop
async def test_a_frame_of_exactly_16_mib_is_served(process: NameServerProcess) -> None:
    empty = len(request_bytes(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}))
    request = request_bytes(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        {"topic": "orders"},
        body=bytes(MAX_FRAME_SIZE - empty),
    )
    assert len(request) == MAX_FRAME_SIZE
    async with Witness(process.address), await RawPeer.connect(process.address) as peer:
        for _ in range(2):
            await peer.send(request)
            assert (await peer.frame()).code == 0


@on_loop
async def test_requests_sent_in_one_go_are_answered_in_order(process: NameServerProcess) -> None:
    requests = [
        request_bytes(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}, opaque=number)
        for number in range(5000)
    ]
    async with Witness(process.address), await RawPeer.connect(process.address) as peer:
        sending = asyncio.create_task(peer.send(b"".join(requests)))
        for number in range(5000):
            assert (await peer.frame()).opaque == number
        await sending


# Clients that want too much


@asynccontextmanager
async def many_connections(address: str, count: int) -> AsyncIterator[list[RawPeer]]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 200:
        if hard != resource.RLIM_INFINITY and hard < count + 200:
            pytest.skip(f"{count} connections need more open files than {hard}: raise `ulimit -n`")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count + 200, hard))
    peers: list[RawPeer] = []
    try:
        for _ in range(count):
            peers.append(await RawPeer.connect(address))  # noqa: PERF401  closed if one fails
        yield peers
    finally:
        for peer in peers:
            peer.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@on_loop
async def test_two_thousand_idle_connections_cost_little_and_nothing_afterwards(
    process: NameServerProcess,
) -> None:
    async with Witness(process.address):
        files = process.open_files()
        memory = []
        for _ in range(3):
            async with many_connections(process.address, 2000) as peers:
                await until(lambda: process.open_files() >= files + 2000)
                assert process.private_memory() < 150 * MEGABYTE
                for peer in peers[::100]:
                    await peer.send(ROUTE)
                    assert (await peer.frame()).code == 0
            await until(lambda: process.open_files() <= files)
            memory.append(process.private_memory())
        assert memory[2] < memory[0] + 2 * MEGABYTE


@on_loop
async def test_slow_clients_are_closed_though_they_send_a_byte_now_and_then(
    tmp_path: Path,
) -> None:
    with name_server_process(tmp_path, "serverChannelMaxIdleTimeSeconds=1") as process:
        async with (
            Witness(process.address),
            many_connections(process.address, 200) as peers,
        ):
            open_peers = set(peers)
            byte = 0
            async with asyncio.timeout(PATIENCE):
                while open_peers:
                    for peer in list(open_peers):
                        try:
                            await peer.send(ROUTE[byte : byte + 1])
                        except ConnectionError:
                            open_peers.discard(peer)
                    byte = min(byte + 1, len(ROUTE) - 2)
                    await asyncio.sleep(0.05)
        assert process.is_running


@on_loop
async def test_unfinished_large_frames_give_their_memory_back(process: NameServerProcess) -> None:
    count, size = 6, 15 * MEGABYTE
    part = prefix(MAX_FRAME_SIZE - 4, 100) + bytes(size)
    async with Witness(process.address):
        files, before = process.open_files(), process.private_memory()
        async with AsyncExitStack() as stack:
            for _ in range(count):
                peer = await stack.enter_async_context(await RawPeer.connect(process.address))
                await peer.send(part)
            await until(lambda: process.private_memory() > before + count * size * 0.9)
            assert process.private_memory() < before + count * size * 1.5
        await until(lambda: process.open_files() <= files)
        await until(lambda: process.private_memory() < before + 16 * MEGABYTE)


@on_loop
async def test_unfinished_large_frames_cannot_take_more_memory_than_they_may(
    tmp_path: Path,
) -> None:
    limit = 64 * MEGABYTE
    with name_server_process(tmp_path, f"maxHeldBytes={limit}") as process:
        before = process.private_memory()
        async with Witness(process.address), AsyncExitStack() as stack:
            for _ in range(20):
                peer = await stack.enter_async_context(await RawPeer.connect(process.address))
                with suppress(ConnectionError):  # if it is one of those that were dropped
                    await peer.send(prefix(15 * MEGABYTE) + bytes(14 * MEGABYTE))
                assert process.private_memory() < before + 2 * limit
            assert process.is_running
    assert "it holds" in (tmp_path / "namesrv.log").read_text()


@pytest.mark.parametrize("reads", [True, False], ids=["reads", "does not read"])
@on_loop
async def test_clients_that_ask_for_too_much_cannot_fill_the_memory_or_stop_others(
    tmp_path: Path, reads: bool
) -> None:
    topics = [f"a-topic-with-a-rather-long-name-{number}" for number in range(2000)]
    listed = request_bytes(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    with name_server_process(tmp_path) as process:
        async with RemotingClient() as client, Witness(process.address) as witness:
            await client.call(
                process.address,
                RequestCode.REGISTER_BROKER,
                broker_header("10.0.0.2:10911", name="broker-b"),
                body=plain(topics_body(*topics)),
            )
            before = process.private_memory()
            async with AsyncExitStack() as stack:
                tasks = []
                for _ in range(2):
                    peer = await stack.enter_async_context(
                        await RawPeer.connect(process.address, receive_buffer=65536)
                    )
                    tasks.append(asyncio.create_task(_send_on(peer, listed * 2000)))
                    if reads:
                        tasks.append(asyncio.create_task(_read_on(peer)))
                seen = len(witness.latencies)
                await until(lambda: len(witness.latencies) > seen + 200)
                assert process.private_memory() < before + 64 * MEGABYTE
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def _read_on(peer: RawPeer) -> None:
    while True:
        await peer.read(65536)


async def _send_on(peer: RawPeer, data: bytes) -> None:
    while True:
        await peer.send(data)


@on_loop
async def test_a_registration_that_inflates_a_thousandfold_stops_nobody(
    process: NameServerProcess,
) -> None:
    header = broker_header("10.0.0.3:10911", name="bomb").to_fields()
    bomb = zlib.compress(bytes(40 * MEGABYTE), level=9)
    assert len(bomb) < 64 * 1024
    async with Witness(process.address), await RawPeer.connect(process.address) as peer:
        before = process.private_memory()
        for _ in range(5):
            await peer.send(request_bytes(RequestCode.REGISTER_BROKER, header, body=bomb))
            assert (await peer.frame()).code == 1
        await until(lambda: process.private_memory() < before + 16 * MEGABYTE)


COSTLY = {
    "a settings file of one long continued line": (
        RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"a\\\n" * (4 * MEGABYTE),
    ),
    "a data version in slow JSON": (
        RequestCode.QUERY_DATA_VERSION, broker_header().to_fields(), b"[" + b"1," * (2 * MEGABYTE),
    ),
    "a route in slow JSON": (
        RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "t"}, b"[" + b"1," * (2 * MEGABYTE),
    ),
    "a registration in slow JSON": (
        RequestCode.REGISTER_BROKER, broker_header().to_fields(), b"{a:[" + b"1," * MEGABYTE,
    ),
    "a registration of comments": (
        RequestCode.REGISTER_BROKER, broker_header().to_fields(), b"{" + b"/**/" * (MEGABYTE // 2),
    ),
    "a registration of too many topics": (
        RequestCode.REGISTER_BROKER,
        broker_header(compressed=True).to_fields(),
        zlib.compress(struct.pack(">I2sI", 2, b"{}", 1_000_000) + b"\0\0\0\6t 1 1 6" * 1_000_000),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COSTLY)
@on_loop
async def test_one_costly_request_is_refused_and_holds_up_nobody(
    process: NameServerProcess, name: str
) -> None:
    code, fields, body = COSTLY[name]
    async with Witness(process.address), await RawPeer.connect(process.address) as peer:
        await peer.send(request_bytes(code, fields, opaque=9, body=body))
        assert (await peer.frame()).code in {1, 29}


@pytest.mark.parametrize("encoding", HeaderEncoding)
@on_loop
async def test_a_header_of_many_fields_closes_its_connection_and_holds_up_nobody(
    process: NameServerProcess, encoding: HeaderEncoding
) -> None:
    fields = {f"k{number}": "v" for number in range(1_000_000)}
    request = request_bytes(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, encoding=encoding)
    async with Witness(process.address):
        await closes_without_an_answer(process.address, request)


@on_loop
async def test_a_server_out_of_file_descriptors_serves_on_and_does_not_spin(
    tmp_path: Path,
) -> None:
    with name_server_process(tmp_path) as process:
        async with Witness(process.address) as witness:
            reserved = ServerConfig().reserved_files
            process.limit_files(process.open_files() + reserved + 20)
            async with many_connections(process.address, 60) as peers:
                log = tmp_path / "namesrv.log"
                await until(lambda: "cannot accept connections" in log.read_text())
                await witness.pause()  # its own calls cost time too
                cpu = process.cpu_seconds()
                await asyncio.sleep(1.0)
                assert process.cpu_seconds() - cpu < 0.3
                await witness.resume()
                for peer in peers[:50]:
                    peer.close()
                # Whoever waited gets in now.
                await peers[-1].send(ROUTE)
                assert (await peers[-1].frame()).code == 0
