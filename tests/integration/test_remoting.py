"""A remoting server and its clients over real sockets, on both event loops."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bolide.errors import ConfigError
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame, HeaderEncoding
from bolide.protocol.header import NoHeader
from bolide.protocol.refusals import NoPermission, RequestCodeNotSupported, ServerError, SystemBusy
from bolide.remoting.client import ClientConfig, RemotingClient
from bolide.remoting.dispatch import Dispatcher, Reply, Request, handles
from bolide.remoting.errors import CallTimedOut, ConnectFailed, ConnectionLost
from bolide.remoting.server import ConnectionCounts, RemotingServer, ServerConfig
from bolide.remoting.tasks import uninterrupted
from bolide.remoting.tls import ClientTls
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.echo import (
    BLOW_UP,
    CALL_BACK,
    ECHO,
    REFUSE,
    WAIT,
    Echo,
    EchoHeader,
)
from tests.support.wire import RawPeer, request_bytes, response_of

pytestmark = pytest.mark.usefixtures("each_loop")

ENCODINGS = pytest.mark.parametrize("encoding", list(HeaderEncoding), ids=lambda e: e.name)


def local(**settings: object) -> ServerConfig:
    return ServerConfig(host="127.0.0.1", **settings)  # type: ignore[arg-type]  # by keyword


class RecordingHook:
    """Notes what passes; refuses bodies that say so."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def before(self, peer: str, request: Frame) -> None:
        self.notes.append(f"before {request.code}")
        if request.body == b"forbidden":
            raise NoPermission("not for you")

    def after(self, peer: str, request: Frame, response: Frame) -> None:
        self.notes.append(f"after {request.code} {response.code}")


# Requests and responses


@ENCODINGS
@on_loop
async def test_a_request_is_answered_in_both_header_encodings(encoding: HeaderEncoding) -> None:
    async with Echo().server() as server, RemotingClient(ClientConfig(encoding=encoding)) as client:
        response = await client.call(server.address, ECHO, EchoHeader("hello"), body=b"x" * 100)
    assert (response.encoding, response.body) == (encoding, b"x" * 100)
    assert EchoHeader.from_fields(response.fields) == EchoHeader("hello")


@on_loop
async def test_a_peer_may_mix_the_encodings_on_one_connection() -> None:
    async with Echo().server() as server, await RawPeer.connect(server.address) as peer:
        for opaque, encoding in enumerate([*HeaderEncoding, *HeaderEncoding]):
            await peer.send(request_bytes(ECHO, opaque=opaque, encoding=encoding))
            response = await peer.frame()
            assert (response.opaque, response.encoding) == (opaque, encoding)


@on_loop
async def test_a_thousand_calls_share_one_connection_and_find_their_own_answers() -> None:
    async with Echo().server() as server, RemotingClient() as client:
        bodies = [str(number).encode() for number in range(1000)]
        answers = await asyncio.gather(
            *(client.call(server.address, ECHO, body=body) for body in bodies)
        )
        assert [answer.body for answer in answers] == bodies
        assert len(server.connections) == 1


@on_loop
async def test_a_slow_answer_is_overtaken_by_a_quick_one() -> None:
    echo = Echo()
    async with echo.server() as server, RemotingClient() as client:
        slow = asyncio.create_task(client.call(server.address, WAIT, body=b"slow"))
        await echo.waiting.acquire()
        assert (await client.call(server.address, ECHO, body=b"quick")).body == b"quick"
        assert not slow.done()
        echo.release.set()
        assert (await slow).body == b"slow"


@on_loop
async def test_a_client_that_has_nothing_more_to_say_still_gets_its_answers() -> None:
    async with Echo().server() as server:
        for _ in range(20):
            async with await RawPeer.connect(server.address) as peer:
                await peer.send(request_bytes(ECHO, opaque=1) + request_bytes(ECHO, opaque=2))
                peer.end()
                assert [(await peer.frame()).opaque for _ in range(2)] == [1, 2]
                assert await peer.rest() == b""


@on_loop
async def test_a_one_way_request_arrives_and_is_not_answered() -> None:
    echo = Echo()
    async with echo.server() as server, await RawPeer.connect(server.address) as peer:
        await peer.send(request_bytes(ECHO, {"word": "psst"}, opaque=1, one_way=True))
        await peer.send(request_bytes(ECHO, opaque=2))
        assert (await peer.frame()).opaque == 2
        assert echo.seen.get_nowait() == ("psst", b"")


@on_loop
async def test_notify_of_a_client_is_one_way() -> None:
    echo = Echo()
    async with echo.server() as server, RemotingClient() as client:
        await client.notify(server.address, ECHO, EchoHeader("psst"))
        async with asyncio.timeout(PATIENCE):
            assert await echo.seen.get() == ("psst", b"")


@ENCODINGS
@on_loop
async def test_a_server_asks_a_client_on_the_connection_of_its_request(
    encoding: HeaderEncoding,
) -> None:
    config = ClientConfig(encoding=encoding)
    async with (
        Echo().server() as server,
        RemotingClient(config, dispatcher=Dispatcher(Echo())) as client,
    ):
        response = await client.call(server.address, CALL_BACK, body=b"who")
        assert response.body == b"who?"
        assert len(server.connections) == 1


@on_loop
async def test_a_client_without_handlers_tells_the_server_so() -> None:
    async with Echo().server() as server, RemotingClient() as client:
        with pytest.raises(RequestCodeNotSupported, match="request type 10 not supported"):
            await client.call(server.address, CALL_BACK)


@on_loop
async def test_a_refusal_reaches_the_caller_as_its_class() -> None:
    async with Echo().server() as server, RemotingClient() as client:
        with pytest.raises(SystemBusy, match="come back later"):
            await client.call(server.address, REFUSE)
        with pytest.raises(ServerError, match="nobody expected this"):
            await client.call(server.address, BLOW_UP)


# Calls that get no answer


@on_loop
async def test_a_call_times_out_and_the_connection_stays_in_use() -> None:
    echo = Echo()
    async with echo.server() as server, RemotingClient() as client:
        with pytest.raises(CallTimedOut, match=r"did not answer request 11 within 0\.05 s"):
            await client.call(server.address, WAIT, within=0.05)
        echo.release.set()  # the late answer must find nobody, and hurt nobody
        assert (await client.call(server.address, ECHO, body=b"on")).body == b"on"
        assert len(server.connections) == 1


@on_loop
async def test_a_call_to_a_server_that_does_not_read_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        async with RemotingClient(ClientConfig(call_timeout=0.2)) as client:
            calls = [client.call(address, ECHO, body=bytes(4 << 20)) for _ in range(8)]
            async with asyncio.timeout(PATIENCE):
                outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {CallTimedOut}


@on_loop
async def test_a_lost_connection_fails_the_calls_that_wait_on_it() -> None:
    echo = Echo()
    async with echo.server() as server, RemotingClient() as client:
        calls = [asyncio.create_task(client.call(server.address, WAIT)) for _ in range(3)]
        for _ in calls:
            await echo.waiting.acquire()
        for connection in server.connections:
            connection.abort()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {ConnectionLost}


@on_loop
async def test_a_lost_connection_cancels_the_requests_that_came_through_it() -> None:
    echo = Echo()
    async with echo.server() as server, await RawPeer.connect(server.address) as peer:
        await peer.send(request_bytes(WAIT))
        await echo.waiting.acquire()
        peer.reset()
        async with asyncio.timeout(PATIENCE):
            lost = await echo.lost.get()
        await until(lambda: lost.is_idle)


@on_loop
async def test_nobody_listening_is_told_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    async with RemotingClient() as client:
        with pytest.raises(ConnectFailed, match=address):
            await client.call(address, ECHO)


@on_loop
async def test_a_server_that_does_not_finish_the_handshake_is_given_up() -> None:
    config = ClientConfig(connect_timeout=0.1, tls=ClientTls())
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        async with RemotingClient(config) as client:
            with pytest.raises(ConnectFailed, match=r"no answer within 0\.1 s"):
                await client.call(address, ECHO)


@pytest.mark.parametrize("address", ["no address", "127.0.0.1:99999", "name.invalid:9876"])
@on_loop
async def test_an_address_that_is_none_is_told(address: str) -> None:
    async with RemotingClient() as client:
        with pytest.raises((ConnectFailed, ValueError), match=address):
            await client.call(address, ECHO)


@on_loop
async def test_a_client_connects_again_after_the_server_restarted() -> None:
    async with RemotingClient() as client:
        async with Echo().server() as server:
            address, port = server.address, server.port
            await client.call(address, ECHO)
        with pytest.raises(ConnectFailed):
            await client.call(address, ECHO)
        async with Echo().server(local(port=port)):
            assert (await client.call(address, ECHO, body=b"back")).body == b"back"


@on_loop
async def test_callers_that_start_together_make_one_connection() -> None:
    async with Echo().server() as server, RemotingClient() as client:
        await asyncio.gather(*(client.call(server.address, ECHO) for _ in range(50)))
        assert len(server.connections) == 1


@on_loop
async def test_callers_that_wait_for_a_connection_go_on_together() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with Echo().server() as server, RemotingClient() as client:

        async def connected_at() -> int:
            await client.connect(server.address)
            return turns

        counting = asyncio.create_task(count_turns())
        found = await asyncio.gather(*(connected_at() for _ in range(200)))
        counting.cancel()
    assert max(found) - min(found) <= 2


@on_loop
async def test_leaving_a_client_ends_the_wait_for_a_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        async with RemotingClient(ClientConfig(connect_timeout=60, tls=ClientTls())) as client:
            waits = asyncio.create_task(client.connect(address))
            await asyncio.sleep(0)
        with pytest.raises(ConnectFailed, match="the client is closed"):
            await asyncio.wait_for(waits, PATIENCE)


@on_loop
async def test_leaving_a_client_does_not_wait_for_a_server_that_does_not_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        async with asyncio.timeout(PATIENCE):
            async with RemotingClient(ClientConfig(call_timeout=0.2)) as client:
                await client.notify(address, ECHO, body=bytes(15 << 20))


# Hooks


@on_loop
async def test_hooks_of_a_server_see_requests_before_and_after() -> None:
    hook = RecordingHook()
    async with Echo().server(hooks=(hook,)) as server, RemotingClient() as client:
        await client.call(server.address, ECHO)
        with pytest.raises(SystemBusy):
            await client.call(server.address, REFUSE)
    assert hook.notes == ["before 10", "after 10 0", "before 12", "after 12 2"]


@on_loop
async def test_a_hook_of_a_server_refuses_before_the_handler_is_called() -> None:
    echo, hook = Echo(), RecordingHook()
    async with echo.server(hooks=(hook,)) as server, RemotingClient() as client:
        for code in (ECHO, WAIT):
            with pytest.raises(NoPermission, match="not for you"):
                await client.call(server.address, code, body=b"forbidden")
    assert echo.seen.empty()
    assert hook.notes[:2] == ["before 10", "after 10 16"]


@on_loop
async def test_hooks_of_a_client_see_calls_and_may_refuse_to_send() -> None:
    echo, hook = Echo(), RecordingHook()
    async with echo.server() as server, RemotingClient(hooks=[hook]) as client:
        await client.call(server.address, ECHO)
        with pytest.raises(NoPermission):
            await client.call(server.address, ECHO, body=b"forbidden")
        with pytest.raises(NoPermission):
            await client.notify(server.address, ECHO, body=b"forbidden")
    assert hook.notes == ["before 10", "after 10 0", "before 10", "before 10"]
    assert echo.seen.qsize() == 1


# Limits and flow control


@on_loop
async def test_requests_over_the_limit_of_a_connection_are_told_it_is_busy() -> None:
    echo = Echo()
    config = local(max_requests_per_connection=2)
    async with echo.server(config) as server, RemotingClient() as client:
        waiting = [asyncio.create_task(client.call(server.address, WAIT)) for _ in range(2)]
        for _ in waiting:
            await echo.waiting.acquire()
        with pytest.raises(SystemBusy, match=r"\[OVERLOAD\]2 requests"):
            await client.call(server.address, WAIT)
        await client.notify(server.address, WAIT)  # dropped without a word
        echo.release.set()
        await asyncio.gather(*waiting)
        await client.call(server.address, WAIT)


@on_loop
async def test_calls_over_the_limit_of_a_client_wait_for_their_turn() -> None:
    echo = Echo()
    async with echo.server() as server, RemotingClient(ClientConfig(max_calls=1)) as client:
        first = asyncio.create_task(client.call(server.address, WAIT))
        await echo.waiting.acquire()
        second = asyncio.create_task(client.call(server.address, ECHO))
        with pytest.raises(CallTimedOut):
            await client.call(server.address, ECHO, within=0.05)
        assert echo.seen.empty()
        echo.release.set()
        await asyncio.gather(first, second)
        assert echo.seen.qsize() == 1


@asynccontextmanager
async def _flood(address: str, request: bytes) -> AsyncIterator[asyncio.Task[None]]:
    """A client that sends a request again and again and never reads."""

    async def send_on() -> None:
        while True:
            await peer.send(request * 64)

    async with await RawPeer.connect(address, receive_buffer=4096) as peer:
        task = asyncio.create_task(send_on())
        yield task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@on_loop
async def test_a_client_that_does_not_read_is_not_read_and_others_are_served() -> None:
    config = local(write_high_water=64 * 1024, send_buffer=64 * 1024)
    echo = Echo()
    async with (
        echo.server(config) as server,
        RemotingClient() as client,
        _flood(server.address, request_bytes(ECHO, body=b"x" * 1000)),
    ):
        await until(lambda: server.connections)
        (flooded,) = server.connections
        await until(lambda: flooded.unsent)
        taken = -1
        while taken != echo.seen.qsize():  # until no more of its requests are taken
            taken = echo.seen.qsize() + 20
            for _ in range(20):
                await client.call(server.address, ECHO)
        assert 0 < flooded.unsent < 256 * 1024


@on_loop
async def test_one_buffer_of_small_requests_cannot_ask_for_more_than_the_client_reads() -> None:
    config = local(write_high_water=64 * 1024, send_buffer=64 * 1024)
    answers = LongAnswers(size=100_000)
    async with (
        RemotingServer(config, Dispatcher(answers)) as server,
        await RawPeer.connect(server.address, receive_buffer=64 * 1024) as peer,
    ):
        await peer.send(request_bytes(ECHO) * 300)  # 30 MB of answers for 30 kB
        await until(lambda: server.connections)
        (connection,) = server.connections
        await until(lambda: connection.unsent)
        assert connection.unsent < 512 * 1024
        for _ in range(300):  # it gets them all once it reads
            assert len((await peer.frame()).body) == answers.size
    assert answers.count == 300


class LongAnswers:
    """Answers a short request at length."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.count = 0

    @handles(NoHeader, ECHO)
    def answer(self, request: Request[NoHeader]) -> Reply:
        self.count += 1
        return Reply(body=bytes(self.size))


@on_loop
async def test_many_large_calls_and_answers_do_not_lock_both_peers() -> None:
    config = local(write_high_water=65536, send_buffer=65536, receive_buffer=65536)
    async with Echo().server(config) as server, RemotingClient() as client:
        body = bytes(256 * 1024)
        calls = [client.call(server.address, ECHO, body=body, within=20) for _ in range(200)]
        assert all(len(answer.body) == len(body) for answer in await asyncio.gather(*calls))


@on_loop
async def test_connections_over_the_limit_are_closed_and_the_others_stay() -> None:
    async with (
        Echo().server(local(max_connections=2)) as server,
        await RawPeer.connect(server.address) as first,
        await RawPeer.connect(server.address) as second,
        await RawPeer.connect(server.address) as third,
    ):
        assert await third.rest() == b""
        for peer in (first, second):
            await peer.send(request_bytes(ECHO))
            assert (await peer.frame()).code == 0
        first.close()
        await until(lambda: len(server.connections) == 1)
        async with await RawPeer.connect(server.address) as fourth:
            await fourth.send(request_bytes(ECHO))
            assert (await fourth.frame()).code == 0


# Idle connections


@on_loop
async def test_an_idle_connection_is_closed_by_the_server() -> None:
    async with (
        Echo().server(local(idle_timeout=0.1)) as server,
        await RawPeer.connect(server.address) as peer,
    ):
        await peer.send(request_bytes(ECHO))
        await peer.frame()
        assert await peer.rest() == b""
        assert server.counts == ConnectionCounts(opened=1, closed=1, idle=1)


@on_loop
async def test_a_connection_that_breaks_is_counted() -> None:
    async with Echo().server() as server:
        peer = await RawPeer.connect(server.address)
        await peer.send(request_bytes(ECHO))
        await peer.frame()
        peer.reset()
        await until(lambda: not server.connections)
        assert server.counts == ConnectionCounts(opened=1, closed=1, broken=1)


@on_loop
async def test_single_bytes_do_not_keep_a_connection_alive() -> None:
    async with (
        Echo().server(local(idle_timeout=0.2)) as server,
        await RawPeer.connect(server.address) as peer,
    ):
        with pytest.raises(ConnectionError):
            for _ in range(int(PATIENCE / 0.02)):
                await peer.send(b"\0")
                await asyncio.sleep(0.02)


@on_loop
async def test_a_client_closes_a_connection_it_does_not_use_and_makes_a_new_one() -> None:
    async with Echo().server() as server, RemotingClient(ClientConfig(idle_timeout=0.1)) as client:
        await client.call(server.address, ECHO)
        await until(lambda: not server.connections)
        assert (await client.call(server.address, ECHO, body=b"again")).body == b"again"


@on_loop
async def test_a_client_keeps_a_connection_with_a_call_under_way() -> None:
    echo = Echo()
    async with echo.server() as server, RemotingClient(ClientConfig(idle_timeout=0.05)) as client:
        call = asyncio.create_task(client.call(server.address, WAIT, body=b"still here"))
        await echo.waiting.acquire()
        await asyncio.sleep(0.2)  # four times the idle time
        echo.release.set()
        assert (await call).body == b"still here"


@on_loop
async def test_a_client_gives_up_a_connection_whose_server_does_not_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        async with RemotingClient(ClientConfig(idle_timeout=0.1, call_timeout=0.1)) as client:
            await client.notify(address, ECHO, body=bytes(15 << 20))
            with pytest.raises(ConnectionLost):
                async with asyncio.timeout(PATIENCE):
                    await client.notify(address, ECHO)


# Shutdown


@on_loop
async def test_a_slow_handler_finishes_while_the_server_drains() -> None:
    echo = Echo()
    async with RemotingClient() as client:
        async with echo.server() as server:
            call = asyncio.create_task(client.call(server.address, WAIT, body=b"in time"))
            await echo.waiting.acquire()
            asyncio.get_running_loop().call_later(0.05, echo.release.set)
        assert (await call).body == b"in time"


@on_loop
async def test_a_handler_that_outlasts_the_drain_is_cut_off() -> None:
    echo = Echo()
    async with RemotingClient() as client:
        async with echo.server(local(drain_timeout=0.05)) as server:
            call = asyncio.create_task(client.call(server.address, WAIT))
            await echo.waiting.acquire()
        assert not server.connections
        with pytest.raises(ConnectionLost):
            await call


@on_loop
async def test_a_server_ends_after_what_clients_asked_for_who_have_left() -> None:
    class Writing(Echo):
        @handles(NoHeader, RequestCode.UPDATE_AND_CREATE_TOPIC)
        async def write(self, request: Request[NoHeader]) -> Reply:
            self.waiting.release()
            return await uninterrupted(self.wait(request))

    echo = Writing()
    async with echo.server() as server:
        async with await RawPeer.connect(server.address) as peer:
            await peer.send(request_bytes(RequestCode.UPDATE_AND_CREATE_TOPIC))
            await echo.waiting.acquire()
        await echo.lost.get()
        leaving = asyncio.create_task(server.close())
        _, still = await asyncio.wait([leaving], timeout=0.05)
        echo.release.set()
        await leaving
        assert still


@on_loop
async def test_a_draining_server_takes_no_new_requests_of_a_client_that_reads_again() -> None:
    echo = Echo()
    server = echo.server(local(write_high_water=64 * 1024, send_buffer=64 * 1024))
    await server.__aenter__()
    async with await RawPeer.connect(server.address, receive_buffer=4096) as peer:
        await peer.send(request_bytes(WAIT, opaque=1))
        await echo.waiting.acquire()
        await peer.send(request_bytes(ECHO, opaque=2, body=bytes(4 << 20)))
        await until(lambda: echo.seen.qsize() == 1)
        leaving = asyncio.create_task(server.__aexit__(None, None, None))
        await asyncio.sleep(0)
        await peer.send(request_bytes(ECHO, opaque=3))
        assert (await peer.frame()).opaque == 2
        await asyncio.sleep(0.05)  # long enough for the third to be read, if it were
        echo.release.set()
        assert response_of(await peer.rest()).opaque == 1
        await leaving
    assert echo.seen.qsize() == 1


@pytest.mark.parametrize("turns", range(6))
@on_loop
async def test_a_server_stops_while_a_connection_opens(turns: int) -> None:
    """At whichever step; closed twice, as brokers do, which drain and then leave the block."""
    async with Echo().server(local()) as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port))):
            server._accept()
            for _ in range(turns):
                await asyncio.sleep(0)
            async with asyncio.timeout(PATIENCE):
                await server.close()
                await asyncio.sleep(0.01)
                assert not server.connections
                await server.close()


@on_loop
async def test_a_stopped_server_frees_its_port_at_once() -> None:
    async with Echo().server() as server, await RawPeer.connect(server.address) as peer:
        port = server.port
        await peer.send(request_bytes(ECHO))
        await peer.frame()
    async with Echo().server(local(port=port)) as server:
        assert server.port == port


# Addresses


@on_loop
async def test_an_address_that_cannot_be_listened_on_is_told() -> None:
    for host in ("name.invalid", "192.0.2.1"):
        with pytest.raises(ConfigError, match=f"cannot listen on {host}:"):
            await Echo().server(ServerConfig(host=host)).__aenter__()


@pytest.mark.parametrize("host", ["::1", "::"])
@on_loop
async def test_ipv6_is_served(host: str) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    echo = Echo()
    async with echo.server(ServerConfig(host=host)) as server, RemotingClient() as client:
        response = await client.call(f"[::1]:{server.port}", ECHO, body=b"six")
        assert response.body == b"six"
        assert server.address == f"[{host}]:{server.port}"
        assert next(iter(server.connections)).peer.startswith("[::1]:")
        if host == "::":
            assert (await client.call(f"127.0.0.1:{server.port}", ECHO)).code == 0


# Memory


@on_loop
async def test_only_who_holds_the_most_is_closed_when_too_much_is_held() -> None:
    echo = Echo()
    async with echo.server(local(max_held=100_000)) as server:
        quiet = [await RawPeer.connect(server.address) for _ in range(5)]
        async with await RawPeer.connect(server.address) as greedy:
            await greedy.send(request_bytes(WAIT, body=bytes(90_000)))
            await greedy.send(b"".join(request_bytes(WAIT, body=bytes(900)) for _ in range(50)))
            await asyncio.wait_for(echo.lost.get(), PATIENCE)
        await until(lambda: len(server.connections) == len(quiet))
        for peer in quiet:
            await peer.send(request_bytes(ECHO, body=b"still here"))
            assert (await peer.frame()).body == b"still here"
            await peer.__aexit__(None, None, None)
