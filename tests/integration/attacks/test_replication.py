"""Attacks on replication: strangers, garbage and crowds at the HA port, masters that lie."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.replicas.membership import Membership
from bolide.broker.server import Broker
from bolide.broker.settings.config import BrokerRole
from bolide.kernel import encode_frame
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.ha import (
    MAX_TRANSFER,
    EpochStart,
    MasterHello,
    MasterMessages,
    SlaveHello,
    encode_epoch_header,
    encode_master_hello,
    encode_plain_header,
    encode_report,
    encode_slave_hello,
)
from bolide.protocol.headers.controller import RoleChangedHeader
from bolide.protocol.headers.namesrv import MinBrokerIdChangeHeader
from bolide.protocol.headers.replication import (
    HaAddresses,
    ReplicaStateHeader,
    ResetFlushOffsetHeader,
)
from bolide.protocol.refusals import NoPermission, ServerError
from bolide.replication import primary as primary_module
from bolide.replication.epochs import Epochs
from bolide.store.message_store import MessageStore
from tests.support.aio import on_loop, until
from tests.support.attackers import AttackedBroker, attacked_broker, own_address
from tests.support.broker import BrokerClient, broker_in
from tests.support.certificates import Authority
from tests.support.replicas import LOOPBACK, Slave, following_slave, serving_master
from tests.support.store import draft, small_config
from tests.unit.store.test_replica_log import bodies, fill, log_bytes

SLAVE_ROLE: dict[str, Any] = {"broker_role": BrokerRole.SLAVE, "broker_id": 1}


async def answer_of(host: str, port: int, sent: bytes) -> bytes:
    """The first byte that a raw client of the HA port gets; empty if it is disconnected."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(sent)
        async with asyncio.timeout(5):
            return await reader.read(1)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def throw(port: int, sent: bytes) -> None:
    """Send bytes to the HA port and leave."""
    _, writer = await asyncio.open_connection(LOOPBACK, port)
    with suppress(ConnectionError):
        writer.write(sent)
        await writer.drain()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def is_sound(broker: Broker, directory: Path) -> bool:
    """Whether a master takes messages and a slave gets them."""
    async with (
        BrokerClient(f"{LOOPBACK}:{broker.config.value.listen_port}") as client,
        following_slave(directory, f"{LOOPBACK}:{broker.config.value.ha_listen_port}") as slave,
    ):
        await client.send("T", b"next")
        await until(lambda: slave.store.log.written == broker.store.log.written)
        return log_bytes(slave.store) == log_bytes(broker.store)


# ---- strangers


@on_loop
async def test_a_stranger_gets_no_byte_of_the_log(tmp_path: Path) -> None:
    async with attacked_broker(tmp_path, commit_log_file_size=4096) as a:
        await a.remote.send("T", b"secret")
        port = a.broker.config.value.ha_listen_port
        report = encode_report(0, with_epochs=False)
        assert await answer_of(own_address(), port, report) == b""
        assert await answer_of(LOOPBACK, port, report) != b""


@on_loop
async def test_a_listed_replica_gets_the_log(tmp_path: Path) -> None:
    async with attacked_broker(tmp_path, ha_allowed_replicas=(own_address(),)) as a:
        await a.remote.send("T", b"for replicas")
        port = a.broker.config.value.ha_listen_port
        assert await answer_of(own_address(), port, encode_report(0, with_epochs=False)) != b""


REQUESTS: dict[RequestCode, tuple[Any, bytes, str]] = {
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: (
        RoleChangedHeader(
            master_address="10.9.9.9:1", master_epoch=99, sync_state_set_epoch=9, master_broker_id=7
        ),
        b'{"syncStateSet":[7],"syncStateSetEpoch":9}',
        "controllerAddr",
    ),
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: (
        MinBrokerIdChangeHeader(
            min_broker_id=0, min_broker_addr="10.9.9.9:1", ha_broker_addr="10.9.9.9:2"
        ),
        b"",
        "namesrvAddr",
    ),
    RequestCode.EXCHANGE_BROKER_HA_INFO: (
        HaAddresses(master_ha_address="10.9.9.9:2", master_address="10.9.9.9:1"),
        b"",
        "haMasterAddress",
    ),
    RequestCode.RESET_MASTER_FLUSH_OFFSET: (
        ResetFlushOffsetHeader(master_flush_offset=0),
        b"",
        "haMasterAddress",
    ),
}


async def call(client: BrokerClient, code: RequestCode) -> Frame:
    header, body, _ = REQUESTS[code]
    return await client.call(code, header, body)


def master_of(a: AttackedBroker) -> tuple[str | None, ...]:
    replication: Any = a.broker.parts.replication
    return tuple(replication.known_masters())


@on_loop
async def test_a_stranger_cannot_send_a_slave_to_another_master(tmp_path: Path) -> None:
    async with attacked_broker(tmp_path, **SLAVE_ROLE) as a:
        for code, (_, _, setting) in REQUESTS.items():
            with pytest.raises(NoPermission, match=setting) as refused:
                await call(a.remote, code)
            assert code.name in (refused.value.remark or "")
        assert master_of(a) == (None, None)
        await call(a.local, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE)
        assert master_of(a) == ("10.9.9.9:1", "10.9.9.9:2")


@on_loop
async def test_name_servers_and_the_master_are_known_by_the_settings(tmp_path: Path) -> None:
    host = own_address()
    known: dict[str, Any] = {"name_servers": (f"{host}:9",), "ha_master_address": f"{host}:9"}
    async with attacked_broker(tmp_path, **SLAVE_ROLE, **known) as a:
        for code in (
            RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
            RequestCode.EXCHANGE_BROKER_HA_INFO,
            RequestCode.RESET_MASTER_FLUSH_OFFSET,
        ):
            await call(a.remote, code)
        with pytest.raises(NoPermission):
            await call(a.remote, RequestCode.NOTIFY_BROKER_ROLE_CHANGED)


@on_loop
async def test_a_stranger_cannot_depose_an_elected_master(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "enable_controller_mode": True,
        "controller_addr": ("127.0.0.1:9",),
    }
    async with attacked_broker(tmp_path, **settings) as a:
        assert a.broker.membership is not None
        with pytest.raises(NoPermission, match="controllerAddr"):
            await call(a.remote, RequestCode.NOTIFY_BROKER_ROLE_CHANGED)
        assert a.broker.membership.state is None
        await call(a.local, RequestCode.NOTIFY_BROKER_ROLE_CHANGED)
        assert a.broker.membership.state is not None


@on_loop
async def test_a_server_that_a_broker_calls_cannot_change_its_role(tmp_path: Path) -> None:
    """Connections of the broker itself have no gate, so its controllers are told apart there."""
    host = own_address()
    header, body, _ = REQUESTS[RequestCode.NOTIFY_BROKER_ROLE_CHANGED]
    notice = Frame(
        code=RequestCode.NOTIFY_BROKER_ROLE_CHANGED, fields=header.to_fields(), body=body
    )
    for host_is_controller in (False, True):
        directory = tmp_path / str(host_is_controller)
        controllers = ("127.0.0.1:9", f"{host}:9") if host_is_controller else ("127.0.0.1:9",)
        settings: dict[str, Any] = {
            "enable_controller_mode": True,
            "controller_addr": controllers,
        }
        async with broker_in(directory, **settings) as broker, listening(host) as (port, peers):
            with suppress(Exception):
                await broker._client.call(f"{host}:{port}", RequestCode.GET_KV_CONFIG, within=0.3)
            await until(peers.__len__)
            peers[0].write(encode_frame(notice))
            membership = broker.membership
            assert membership is not None
            if host_is_controller:
                await until(partial(is_told, membership))
            else:
                await asyncio.sleep(0.2)
                assert membership.state is None


def is_told(membership: Membership) -> bool:
    return membership.state is not None


@asynccontextmanager
async def listening(host: str) -> AsyncIterator[tuple[int, list[asyncio.StreamWriter]]]:
    """A server that takes connections and says nothing."""
    peers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: peers.append(writer), host, 0)
    try:
        yield server.sockets[0].getsockname()[1], peers
    finally:
        for peer in peers:
            peer.close()
        server.close()
        await server.wait_closed()


@on_loop
async def test_a_stranger_gets_no_metadata(tmp_path: Path) -> None:
    code = RequestCode.BOLIDE_GET_REPLICA_STATE
    async with attacked_broker(tmp_path / "closed") as a:
        with pytest.raises(NoPermission, match="haAllowedReplicas"):
            await a.remote.call(code, ReplicaStateHeader())
        assert b"topics.json" in (await a.local.call(code, ReplicaStateHeader())).body
    async with attacked_broker(tmp_path / "listed", ha_allowed_replicas=(own_address(),)) as a:
        assert b"topics.json" in (await a.remote.call(code, ReplicaStateHeader())).body
    async with attacked_broker(tmp_path / "slave", **SLAVE_ROLE) as a:
        with pytest.raises(ServerError, match="slave itself"):
            await a.local.call(code, ReplicaStateHeader())


# ---- garbage


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "zeros": bytes(1 << 16),
    "ones": b"\xff" * (1 << 16),
    "a negative report": encode_report(-1, with_epochs=False),
    "a report ahead of the log": encode_report(1 << 40, with_epochs=False),
    "a hello of the other dialect": encode_slave_hello(SlaveHello(1)),
}


@pytest.mark.parametrize("sent", GARBAGE.values(), ids=list(GARBAGE))
@on_loop
async def test_garbage_at_the_ha_port_does_not_hurt_the_master(tmp_path: Path, sent: bytes) -> None:
    async with broker_in(tmp_path, commit_log_file_size=4096) as broker:
        for _ in range(5):
            await throw(broker.config.value.ha_listen_port, sent)
        assert await is_sound(broker, tmp_path / "slave")


@pytest.mark.parametrize(
    "sent",
    [
        encode_slave_hello(SlaveHello(5)) + encode_report(1 << 40, with_epochs=True),
        encode_report(0, with_epochs=True),
        encode_slave_hello(SlaveHello(-1)),
        b"\0\0\0\3" * 100,
        encode_slave_hello(SlaveHello(5)) + encode_slave_hello(SlaveHello(6)),
    ],
    ids=["ahead of the log", "no hello", "no id", "unknown state", "two hellos"],
)
@on_loop
async def test_garbage_in_the_dialect_with_epochs_is_not_counted(
    tmp_path: Path, sent: bytes
) -> None:
    with MessageStore(small_config(tmp_path / "m"), background=False) as store:
        fill(store, 20)
        epochs = Epochs()
        epochs.begin(1, 0)
        async with serving_master(store, epochs=epochs) as master:
            reader, writer = await asyncio.open_connection(LOOPBACK, master.primary.port)
            writer.write(sent)
            async with asyncio.timeout(5):
                with suppress(ConnectionError):
                    while await reader.read(1000):
                        pass
            writer.close()
            assert master.primary.acks() == {}
            own = Epochs()
            async with following_slave(tmp_path / "s", master.ha_address, epochs=own) as slave:
                await until(lambda: slave.store.log.written == store.log.written)


@on_loop
async def test_a_repeated_hello_is_answered_once(tmp_path: Path) -> None:
    """A peer that never reads would make the master keep all the answers."""
    hello = encode_slave_hello(SlaveHello(5))
    with MessageStore(small_config(tmp_path), background=False) as store:
        epochs = Epochs()
        epochs.begin(1, 0)
        async with serving_master(store, epochs=epochs) as master:
            reader, writer = await asyncio.open_connection(LOOPBACK, master.primary.port)
            writer.write(hello * 1000 + encode_report(0, with_epochs=True))
            await until(lambda: master.primary.slaves)
            writer.write(hello)
            received = b""
            async with asyncio.timeout(5):
                with suppress(ConnectionError):
                    while data := await reader.read(1000):
                        received += data
            writer.close()

            messages = list(MasterMessages(with_epochs=True).feed(received))
            assert sum(isinstance(each, MasterHello) for each in messages) == 1


@on_loop
async def test_a_slave_cannot_claim_what_was_not_sent_to_it(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path), background=False) as store:
        async with serving_master(store) as master:
            _, writer = await asyncio.open_connection(LOOPBACK, master.primary.port)
            writer.write(encode_report(0, with_epochs=False))
            await until(lambda: master.primary.slaves)
            fill(store, 5)  # and nothing wakes the master to send it

            writer.write(encode_report(store.log.written, with_epochs=False))
            await until(lambda: not master.primary.slaves)
            writer.close()


@on_loop
async def test_a_crowd_at_the_ha_port_does_not_hurt_the_master(tmp_path: Path) -> None:
    async with broker_in(tmp_path, commit_log_file_size=4096) as broker, AsyncExitStack() as stack:
        primary = broker.parts.master.primary if broker.parts.master else None
        assert primary is not None
        slave = await stack.enter_async_context(
            following_slave(tmp_path / "s", f"{LOOPBACK}:{broker.config.value.ha_listen_port}")
        )
        await until(lambda: primary.slaves)
        for _ in range(2000):
            sock = socket.create_connection((LOOPBACK, primary.port))
            sock.setblocking(False)
            stack.callback(sock.close)
            if len(primary._links) >= primary_module._MAX_LINKS:
                with suppress(OSError):
                    sock.send(b"\0\0")
            await asyncio.sleep(0)
        await until(lambda: len(primary._links) <= primary_module._MAX_LINKS)
        async with BrokerClient(broker.address) as client:
            await client.send("T", b"in the crowd")
        await until(lambda: slave.store.log.written == broker.store.log.written)
        assert len(primary.slaves) == 1


# ---- mutual TLS


@on_loop
async def test_with_mutual_tls_only_a_certificate_opens_the_log(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ours")
    pair, alien = authority.sign("broker"), Authority(tmp_path / "theirs").sign("broker")
    tls: dict[str, Any] = {
        "tls_certificate": pair.certificate,
        "tls_key": pair.key,
        "tls_trust": authority.certificate,
        "use_tls": True,
        "tls_client_certificate": pair.certificate,
        "tls_client_key": pair.key,
        "tls_client_trust": authority.certificate,
        "ha_tls_enable": True,
    }
    master_settings = tls | {"commit_log_file_size": 4096}
    async with broker_in(tmp_path / "master", **master_settings) as master:
        master.store.append(draft("T"))
        port = master.config.value.ha_listen_port
        report = encode_report(0, with_epochs=False)
        assert await answer_of(LOOPBACK, port, report) == b""
        for certificate in (None, alien):
            with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
                await tls_answer(port, report, authority.certificate, certificate)
        assert await tls_answer(port, report, authority.certificate, pair) == b"\0"

        slave_settings = master_settings | SLAVE_ROLE | {"ha_master_address": f"127.0.0.1:{port}"}
        async with broker_in(tmp_path / "slave", **slave_settings) as slave:
            await until(lambda: slave.store.log.written == master.store.log.written > 0)


async def tls_answer(port: int, sent: bytes, trust: Path, pair: Any) -> bytes:
    context = ssl.create_default_context(cafile=str(trust))
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    reader, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context)
    try:
        writer.write(sent)
        async with asyncio.timeout(5):
            return await reader.readexactly(1)
    finally:
        writer.close()


# ---- masters that lie


Lie = Callable[[int], bytes]
"""What a false master sends to a slave whose log ends there, after a handshake."""


@asynccontextmanager
async def false_master(lie: Lie, *, hello: MasterHello | None = None) -> AsyncIterator[str]:
    """A server at the place of a master; the first report of a slave tells where its log ends."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            if hello is not None:
                await reader.readexactly(16)
                writer.write(encode_master_hello(hello))
                await reader.readexactly(4)
            end = int.from_bytes(await reader.readexactly(8), "big")
            writer.write(lie(end))
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    try:
        yield f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


LIES: dict[str, Lie] = {
    "http": lambda _: b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    "no records": lambda end: encode_plain_header(end, 1000) + b"\xfe" * 1000,
    "zeros": lambda end: encode_plain_header(end, 1000) + bytes(1000),
    "an oversized transfer": lambda end: encode_plain_header(end, MAX_TRANSFER + 1) + bytes(1000),
    "a negative size": lambda end: encode_plain_header(end, -1) + bytes(1000),
    "a negative position": lambda _: encode_plain_header(-8, 8) + bytes(8),
    "a position before the end": lambda end: encode_plain_header(end - 1, 100) + bytes(100),
    "a gap": lambda end: encode_plain_header(end + 1, 100) + bytes(100),
    "a gap up to a file": lambda end: encode_plain_header((end // 4096 + 5) * 4096, 99) + bytes(99),
}


async def keeps_its_log(slave: Slave, before: bytes, lie_is_over: Callable[[], bool]) -> None:
    """Wait until a slave has left its false master, and check its log."""
    await until(lie_is_over)
    await until(lambda: slave.replica.master is None)
    assert log_bytes(slave.store) == before
    assert not slave.replica.truncations


@asynccontextmanager
async def copied(
    tmp_path: Path, epochs: Epochs | None = None
) -> AsyncIterator[tuple[MessageStore, str]]:
    """A master with messages; its slave has copied them to `slave` and is stopped."""
    with MessageStore(small_config(tmp_path / "master"), background=False) as store:
        fill(store, 50)
        theirs = None
        if epochs is not None:
            theirs = Epochs()
            theirs.begin(5, 0)
        async with serving_master(store, epochs=theirs) as master:
            async with following_slave(
                tmp_path / "slave", master.ha_address, epochs=epochs
            ) as slave:
                await until(lambda: slave.store.log.written == store.log.written)
            yield store, master.ha_address


@pytest.mark.parametrize("lie", LIES.values(), ids=list(LIES))
@on_loop
async def test_a_false_master_does_not_damage_the_log_of_a_slave(tmp_path: Path, lie: Lie) -> None:
    told = 0

    def counted(end: int) -> bytes:
        nonlocal told
        told += 1
        return lie(end)

    async with copied(tmp_path) as (store, true_master):
        before = log_bytes(store)
        async with (
            false_master(counted) as address,
            following_slave(tmp_path / "slave", address) as slave,
        ):
            await keeps_its_log(slave, before, lambda: told > 0)
        fill(store, 10)
        async with following_slave(tmp_path / "slave", true_master) as slave:
            await until(lambda: slave.store.log.written == store.log.written)
            assert log_bytes(slave.store) == log_bytes(store)
            assert bodies(slave.store) == bodies(store)


HELLOS = {
    "an older epoch": lambda end: MasterHello(end, 4, (EpochStart(4, 0),)),
    "no epochs": lambda end: MasterHello(end, 6, ()),
    "epochs in no order": lambda end: MasterHello(end, 6, (EpochStart(6, 0), EpochStart(5, 0))),
    "an epoch behind its end": lambda end: MasterHello(end, 6, (EpochStart(6, end + 1),)),
}


@pytest.mark.parametrize("hello", HELLOS.values(), ids=list(HELLOS))
@on_loop
async def test_a_master_of_an_older_or_impossible_epoch_is_not_followed(
    tmp_path: Path, hello: Callable[[int], MasterHello]
) -> None:
    epochs = Epochs(tmp_path / "epochs")
    async with copied(tmp_path, epochs) as (store, _):
        before, end = log_bytes(store), store.log.written
        reports: list[int] = []

        def noted(at: int) -> bytes:
            reports.append(at)
            return b""

        async with (
            false_master(noted, hello=hello(end)) as address,
            following_slave(tmp_path / "slave", address, epochs=epochs) as slave,
        ):
            await until(lambda: "epoch" in slave.replica._failing)
            assert log_bytes(slave.store) == before
            assert list(epochs) == [EpochStart(5, 0)]
            assert reports == [], "it reported to a master that it must not follow"


EPOCH_LIES: dict[str, Lie] = {
    "an older epoch": lambda end: encode_epoch_header(end, 9, EpochStart(4, 0), 0) + bytes(9),
    "an epoch that began before": lambda end: (
        encode_epoch_header(end, 9, EpochStart(8, end - 9), 0) + bytes(9)
    ),
    "an epoch that begins later": lambda end: (
        encode_epoch_header(end, 9, EpochStart(8, end + 9), 0) + bytes(9)
    ),
    "garbage in the same epoch": lambda end: (
        encode_epoch_header(end, 99, EpochStart(5, 0), 1 << 60) + b"\xfe" * 99
    ),
    "its epochs again": lambda end: encode_master_hello(MasterHello(end, 5, (EpochStart(5, 0),))),
}


@pytest.mark.parametrize("lie", EPOCH_LIES.values(), ids=list(EPOCH_LIES))
@on_loop
async def test_a_transfer_of_a_wrong_epoch_is_refused(tmp_path: Path, lie: Lie) -> None:
    epochs = Epochs(tmp_path / "epochs")
    async with copied(tmp_path, epochs) as (store, _):
        before = log_bytes(store)
        hello = MasterHello(store.log.written, 5, (EpochStart(5, 0),))
        told = 0

        def counted(end: int) -> bytes:
            nonlocal told
            told += 1
            return lie(end)

        async with (
            false_master(counted, hello=hello) as address,
            following_slave(tmp_path / "slave", address, epochs=epochs) as slave,
        ):
            await keeps_its_log(slave, before, lambda: told > 0)
            assert list(epochs) == [EpochStart(5, 0)]


@on_loop
async def test_an_address_that_is_none_does_not_end_replication(tmp_path: Path) -> None:
    async with following_slave(tmp_path, "nonsense") as slave:
        await until(lambda: "nonsense" in slave.replica._failing)
